//! What commands do that start a program with a library of ours in it: those beside this folder
//! include this file.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

/// The library in this file: the one that was named, or the one that lies beside this program or
/// was installed with it.
pub(crate) fn library(file: &str, named: Option<&Path>) -> Result<PathBuf, String> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let places = match named {
        Some(named) => vec![named.to_owned()],
        None => {
            ["", "deps", "../libexec/unspool"].map(|folder| beside.join(folder).join(file)).to_vec()
        }
    };
    let found = places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        format!("The library is not there: {}. Name it with --library.", places.join(", "))
    })?;
    if found.to_string_lossy().contains([' ', ':']) {
        return Err(format!(
            "{}: LD_PRELOAD takes no path with a space or a colon. Put the library elsewhere and \
             name it with --library.",
            found.display()
        ));
    }
    Ok(found)
}

/// The library before those that a variable of the loader (`LD_PRELOAD`, `LD_AUDIT`) names already.
pub(crate) fn first_in(variable: &str, library: &Path) -> OsString {
    let mut all = OsString::from(library);
    if let Some(more) = env::var_os(variable).filter(|more| !more.is_empty()) {
        all.push(":");
        all.push(more);
    }
    all
}

/// As shells tell how a program has ended.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
