//! `unspool-paging run`: starts a program whose large allocations are paged.

// The command is not linked with the library, whose `malloc` it would get.
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../../settings.rs"]
mod settings;

#[path = "../../../../../common/preload.rs"]
mod preload;
#[path = "../../../../../common/size.rs"]
mod size;

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use preload::{code_of, first_in, library};
use settings::{Settings, VARIABLE};
use tempfile::TempDir;
use unspool_paging::{Paged, PagingErrorKind};

/// The file of the library.
const LIBRARY: &str = "libunspool_pager.so";

const HELP: &str = "\
usage:
  unspool-paging run --resident 4GiB|25% [--match 256MiB] [--order detect|sweep]
                     [--codec lossless|lz4|zstd|none] [--dtype float64] [--bound 1e-6]
                     [--host-memory 8GiB [--disk DIR]] [--chunk 1MiB] [--threads 2] [--user-mode]
                     [--require] [--stats] [--library FILE] -- ./program ...
      Runs a program of which each allocation of at least --match bytes (malloc and its kin, and
      anonymous mmap) has no more than --resident of it in memory; the rest is encoded, in memory
      or, beyond --host-memory, in DIR. All sizes are for each allocation by itself. --dtype is
      what most of the bytes are; --bound lets every value of all of these allocations come back
      changed by as much. Where the kernel does not allow it the program runs as it is, or with
      --require not at all. --stats writes a line when a process ends.
";

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let command = words.next().map(|word| word.to_string_lossy().into_owned());
    let done = match command.as_deref() {
        Some("run") => run(words.collect()),
        None | Some("help" | "-h" | "--help") => help(),
        Some(other) => Err(format!("`{other}` is not a command.\n\n{HELP}")),
    };
    done.unwrap_or_else(|why| {
        tell(why.trim_end());
        ExitCode::from(2)
    })
}

fn help() -> Result<ExitCode, String> {
    let written = io::stdout().write_all(HELP.as_bytes());
    written.map(|()| ExitCode::SUCCESS).map_err(|error| format!("standard output: {error}."))
}

/// Tells the user something.
fn tell(what: &str) {
    let _nobody = writeln!(io::stderr(), "unspool-paging: {what}");
}

/// Runs a program, and ends as it has ended.
fn run(words: Vec<OsString>) -> Result<ExitCode, String> {
    let mut parts = words.splitn(2, |word| word == "--");
    let mut words = own(parts.next().unwrap_or_default())?;
    let program = parts.next().unwrap_or_default();
    let named = take(&mut words, "--library")?;
    let settings = Settings::read(words.clone()).map_err(|why| format!("{why}\n\n{HELP}"))?;
    let [name, arguments @ ..] = program else {
        return Err("Say which program after `--`.".to_owned());
    };
    try_out(&settings)?;
    let library = library(LIBRARY, named.as_deref().map(Path::new))?;
    let folder = settings.disk.as_deref().map(folder).transpose()?;
    if let Some(folder) = &folder {
        // The last word on an option counts.
        words.extend(["--disk".to_owned(), text(folder.path().as_os_str().to_owned())?]);
    }
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env("LD_PRELOAD", first_in("LD_PRELOAD", &library))
        .env(VARIABLE, words.join("\n"));
    let status = wait_for(command)?;
    if let Some(folder) = folder {
        remove(folder);
    }
    Ok(code_of(status))
}

/// Runs a program to its end, which signals to this process are passed on to.
fn wait_for(mut command: Command) -> Result<ExitStatus, String> {
    pass_signals_on();
    let name = command.get_program().display().to_string();
    let child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}."));
    let mut child = child?;
    let id = child.id().cast_signed();
    CHILD.store(id, Ordering::Release);
    match EARLIER.load(Ordering::Acquire) {
        0 => {}
        signal => send(id, signal),
    }
    child.wait().map_err(|error| format!("{name} cannot be waited for: {error}."))
}

/// The words for this command. Those for the program may have any bytes.
fn own(words: &[OsString]) -> Result<Vec<String>, String> {
    words.iter().cloned().map(text).collect()
}

fn text(word: OsString) -> Result<String, String> {
    word.into_string().map_err(|word| format!("{}: give it in UTF-8.", word.display()))
}

/// Takes an option with its value out of the words.
fn take(words: &mut Vec<String>, option: &str) -> Result<Option<String>, String> {
    let Some(at) = words.iter().position(|word| word == option) else { return Ok(None) };
    if at + 1 == words.len() {
        return Err(format!("{option} has no value."));
    }
    Ok(words.drain(at..at + 2).nth(1))
}

/// Sees whether the settings make sense, and, where that is required, whether the kernel lets a
/// process of this user answer page faults.
fn try_out(settings: &Settings) -> Result<(), String> {
    let (bytes, options) = settings.trial();
    match Paged::new(bytes, &options) {
        Err(error) if settings.require || error.kind() == PagingErrorKind::Invalid => {
            Err(format!("The program is not started. {error}"))
        }
        _ => Ok(()),
    }
}

/// A folder for what a program puts on the disk, of this command alone: others, in containers or on
/// other machines, may have the same process number and disk. It is removed when the program is
/// over: one that ends without freeing its memory, or is killed, leaves its files.
fn folder(disk: &Path) -> Result<TempDir, String> {
    let named = |error| format!("{}: {error}.", disk.display());
    let disk = std::path::absolute(disk).map_err(named)?;
    fs::create_dir_all(&disk).map_err(named)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix("unspool-paging-").permissions(Permissions::from_mode(0o700));
    builder.tempdir_in(&disk).map_err(named)
}

/// Removes it, and tells the user when that cannot be.
fn remove(folder: TempDir) {
    let path = folder.path().to_owned();
    if let Err(error) = folder.close() {
        tell(&format!("{} stays: {error}", path.display()));
    }
}

/// The program, once it is there, and the last signal that came before.
static CHILD: AtomicI32 = AtomicI32::new(0);
static EARLIER: AtomicI32 = AtomicI32::new(0);

/// Signals that end a program, or that it uses for itself, go to the one that was started, and this
/// one waits for it.
fn pass_signals_on() {
    extern "C" fn pass_on(signal: libc::c_int) {
        match CHILD.load(Ordering::Acquire) {
            // A keyboard gives them to both.
            _ if [libc::SIGINT, libc::SIGQUIT].contains(&signal) => {}
            0 => EARLIER.store(signal, Ordering::Release),
            child => send(child, signal),
        }
    }
    let signals = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
    for signal in signals.into_iter().chain([libc::SIGUSR1, libc::SIGUSR2]) {
        // SAFETY: the handler sends a signal and nothing else. A program that is started begins
        // without it, and with what is ignored here, as by `nohup`.
        unsafe {
            let before = libc::signal(signal, pass_on as *const () as libc::sighandler_t);
            if before == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

fn send(child: i32, signal: libc::c_int) {
    // SAFETY: it only sends a signal, to a child that was not waited for yet.
    unsafe { libc::kill(child, signal) };
}
