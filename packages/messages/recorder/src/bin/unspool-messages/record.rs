//! Runs a program with the listener in it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::options::Recording;
use crate::parts;
use crate::preload::{code_of, first_in, library};

/// The file of the listener.
pub(crate) const LIBRARY: &str = "libunspool_recorder.so";

/// Tells the user something.
pub(crate) fn tell(what: &str) {
    let _nobody = writeln!(io::stderr(), "unspool-messages: {what}");
}

/// Records a program, and ends as it has ended.
pub(crate) fn record(recording: &Recording) -> Result<ExitCode, String> {
    let listener = library(LIBRARY, recording.listener.as_deref())?;
    let output = std::path::absolute(&recording.output)
        .map_err(|error| format!("{}: {error}.", recording.output.display()))?;
    let folder = folder_for(&output)?;
    let mut command = Command::new(&recording.program[0]);
    command.args(&recording.program[1..]);
    listen(&mut command, &listener);
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

/// Puts the listener into the program, and lets it hide what the program's MPI lacks.
pub(crate) fn listen(command: &mut Command, listener: &Path) {
    for variable in ["LD_PRELOAD", "LD_AUDIT"] {
        command.env(variable, first_in(variable, listener));
    }
}

/// A new folder for the parts of this run, for its owner alone.
fn folder_for(output: &Path) -> Result<PathBuf, String> {
    let mut name = OsString::from(output);
    name.push(".parts");
    let folder = PathBuf::from(name);
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "{0} is there: an earlier recording was cut off. Save it with `unspool-messages merge \
             {0}`, or remove it.",
            folder.display()
        ),
        _ => format!("{} cannot be made: {error}.", folder.display()),
    })?;
    Ok(folder)
}

/// An interrupt from the keyboard ends the program, and what it has left is put together.
pub(crate) fn survive_interrupts() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing. A program that is started begins without it.
    unsafe { libc::signal(libc::SIGINT, nothing as *const () as libc::sighandler_t) };
}
