//! Runs a program with its messages coded.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

use unspool_messages::coded::Traffic;
use unspool_messages::plan::Limits;
use unspool_messages::show::network;
use unspool_messages::{Plan, show};

use crate::options::Words;
use crate::preload::{code_of, library};
use crate::record::{LIBRARY, listen, survive_interrupts, tell};
use crate::size::size;

/// A program whose messages are to be coded.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Running {
    pub(crate) run: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) listener: Option<PathBuf>,
    pub(crate) program: Vec<String>,
}

/// Reads the words of the command line.
pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Running, String> {
    let options = ["--plan", "--network", "--threshold", "--memory", "--bound", "--library"];
    let words = Words::read(words, &options, &[])?;
    let program = words.program()?;
    let run = words.path("--plan").ok_or(
        "Name a run of this program with --plan: `unspool-messages record -o run.msg -- ...`.",
    )?;
    let path = words.value("--network").ok_or(
        "Name the speed of the path between two ranks with --network, such as 1GB/s: whether \
         coding pays depends on it.",
    )?;
    let limits = Limits {
        network: network(path)?,
        threshold: size(words.value("--threshold").unwrap_or("64KiB"))?,
        memory: size(words.value("--memory").unwrap_or("256MiB"))?,
        bounds: words.all("--bound").map(bound).collect::<Result<_, String>>()?,
    };
    Ok(Running { run, limits, listener: words.path("--library"), program })
}

/// Reads a tag and the error that its messages may have.
fn bound(text: &str) -> Result<(i32, f64), String> {
    let read = || {
        let (tag, bound) = text.split_once('=')?;
        let tag = tag.parse().ok().filter(|tag: &i32| *tag >= 0)?;
        Some((tag, bound.parse::<f64>().ok()?))
    };
    match read() {
        Some((tag, bound)) if (1e-6..1.0).contains(&bound) => Ok((tag, bound)),
        Some(_) => Err(format!("--bound {text}: give 1e-6 or more, and less than 1.")),
        None => Err(format!("`{text}` is not a bound: write a tag and the bound, as 7=1e-4.")),
    }
}

/// Runs a program by the plan that a run of it and a network make, and ends as it has ended.
pub(crate) fn run(running: &Running) -> Result<ExitCode, String> {
    let run = crate::read(&running.run)?;
    let listener = library(LIBRARY, running.listener.as_deref())?;
    let mut command = Command::new(&running.program[0]);
    command.args(&running.program[1..]);
    let mut saved = None;
    match Plan::of(&run, &running.limits) {
        Ok(plan) => {
            for line in plan.summary(&run) {
                tell(&format!("coded: {line}"));
            }
            let folder = Folder::new()?;
            listen(&mut command, &listener);
            command.env("UNSPOOL_MESSAGES_PLAN", plan.text());
            command.env("UNSPOOL_MESSAGES_SAVED", &folder.path);
            saved = Some(folder);
        }
        Err(why) => tell(&format!("nothing is coded: {why}")),
    }
    survive_interrupts();
    let status = command
        .status()
        .map_err(|error| format!("{} cannot be started: {error}.", running.program[0]))?;
    if let Some(folder) = saved.filter(|_| status.success()) {
        tell(&folder.account(run.about.size));
    }
    Ok(code_of(status))
}

/// A folder for what each rank says when it ends; removed when it is dropped.
struct Folder {
    path: PathBuf,
}

impl Folder {
    /// One with a name of its own, which nobody else can look into.
    fn new() -> Result<Folder, String> {
        let path = env::temp_dir().join("unspool-messages-XXXXXX");
        let failed = |error| format!("{} cannot be made: {error}.", path.display());
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|why| failed(why.into()))?;
        let mut name = name.into_bytes_with_nul();
        // SAFETY: a text with a zero byte at its end, whose last letters are written over.
        if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
            return Err(failed(io::Error::last_os_error()));
        }
        name.pop();
        Ok(Folder { path: PathBuf::from(OsString::from_vec(name)) })
    }

    /// What was saved, in a sentence.
    fn account(&self, size: u32) -> String {
        let (mut all, mut ranks) = (Traffic::default(), 0);
        for rank in 0..size {
            if let Some(one) = read(&self.path.join(rank.to_string())) {
                all.add(&one);
                ranks += 1;
            }
        }
        let least = all.bytes.max(1) as f64;
        let saved = 100.0 * (1.0 - all.wire as f64 / least);
        let told = if ranks < size {
            format!(" Of {} ranks nothing is known.", size - ranks)
        } else {
            String::new()
        };
        format!(
            "{} of {} messages were coded: {} became {} ({saved:.1} % saved).{told}",
            all.coded,
            all.messages,
            show::bytes(all.bytes as f64),
            show::bytes(all.wire as f64),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.path);
    }
}

fn read(path: &Path) -> Option<Traffic> {
    let text = fs::read_to_string(path).ok()?;
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    let mut next = || numbers.next()?;
    Some(Traffic { messages: next()?, coded: next()?, bytes: next()?, wire: next()? })
}
