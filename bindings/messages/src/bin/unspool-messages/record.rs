//! Runs a program with the listener in it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::{env, fs};

use crate::options::Recording;
use crate::parts;

/// The file of the listener.
const LIBRARY: &str = "libunspool_recorder.so";

/// Tells the user something.
pub(crate) fn tell(what: &str) {
    let _nobody = writeln!(io::stderr(), "unspool-messages: {what}");
}

/// Records a program, and ends as it has ended.
pub(crate) fn record(recording: &Recording) -> Result<ExitCode, String> {
    let listener = listener(recording.listener.as_deref())?;
    let output = std::path::absolute(&recording.output)
        .map_err(|error| format!("{}: {error}.", recording.output.display()))?;
    let folder = folder_for(&output)?;
    let mut command = Command::new(&recording.program[0]);
    command.args(&recording.program[1..]);
    command.env("LD_PRELOAD", preloads(&listener));
    command.env("UNSPOOL_MESSAGES_PARTS", &folder);
    command.env("UNSPOOL_MESSAGES_SAMPLES", recording.samples.to_string());
    command.env("UNSPOOL_MESSAGES_EVENTS", recording.events.to_string());
    survive_interrupts();
    let status = command.status().map_err(|error| {
        let _empty = fs::remove_dir(&folder);
        format!("{} cannot be started: {error}.", recording.program[0])
    })?;
    if !status.success() {
        tell(&format!("the program has ended with {status}; what was counted until then is kept"));
    }
    let merged = parts::merge(&folder, &output, recording.program.clone(), recording.time);
    let told = merged.inspect_err(|_| {
        let _empty = fs::remove_dir(&folder);
    })?;
    told.iter().for_each(|line| tell(line));
    Ok(code_of(status))
}

/// A new folder for the parts of this run.
fn folder_for(output: &Path) -> Result<PathBuf, String> {
    let mut name = OsString::from(output);
    name.push(".parts");
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "{0} is there: an earlier recording was cut off. Save it with `unspool-messages merge \
             {0}`, or remove it.",
            folder.display()
        ),
        _ => format!("{} cannot be made: {error}.", folder.display()),
    })?;
    Ok(folder)
}

/// The listener: the one that was named, or the one that lies beside this program or was installed
/// with it.
pub(crate) fn listener(named: Option<&Path>) -> Result<PathBuf, String> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let places = match named {
        Some(named) => vec![named.to_owned()],
        None => ["", "deps", "../lib"].map(|folder| beside.join(folder).join(LIBRARY)).to_vec(),
    };
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    let found = found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        format!("The listener is not there: {}. Name it with --library.", places.join(", "))
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

/// The listener before what is preloaded already.
pub(crate) fn preloads(listener: &Path) -> OsString {
    let mut all = OsString::from(listener);
    if let Some(more) = env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        all.push(":");
        all.push(more);
    }
    all
}

/// An interrupt from the keyboard ends the program, and what it has left is put together.
pub(crate) fn survive_interrupts() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing. A program that is started begins without it.
    unsafe { libc::signal(libc::SIGINT, nothing as *const () as libc::sighandler_t) };
}

/// As shells tell how a program has ended.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
