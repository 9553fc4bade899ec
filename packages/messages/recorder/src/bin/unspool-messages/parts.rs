//! Puts the parts in a folder together, one in memory at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use unspool_messages::merge::{Merger, choose};
use unspool_messages::part;

/// Writes the run that the parts in a folder make, and removes them. What cannot be read stays. The
/// result is what the user should know.
pub(crate) fn merge(
    folder: &Path,
    output: &Path,
    command: Vec<String>,
    time: Duration,
) -> Result<Vec<String>, String> {
    let (parts, unread) = parts_in(folder)?;
    let chosen = choose(parts).map_err(|why| nothing(&why, &unread))?;
    let mut merger = Merger::begin(command, chosen.size, chosen.notes, time);
    let mut told = unread;
    let total = chosen.parts.len() as u32;
    for (place, (rank, path)) in chosen.parts.iter().enumerate() {
        let left = total - place as u32;
        let read = bytes_of(path).map_err(|error| error.to_string());
        if let Err(why) = read.and_then(|bytes| merger.add(&bytes, left)) {
            told.push(format!("the part of rank {rank} cannot be read: {why}"));
        }
    }
    told.iter().for_each(|line| merger.missing(line.clone()));
    write(output, merger, &chosen.parts)
        .map_err(|error| format!("{} cannot be written: {error}.", output.display()))?;
    if told.is_empty() {
        fs::remove_dir_all(folder)
            .map_err(|error| format!("{} cannot be removed: {error}.", folder.display()))?;
    } else {
        told.push(format!("what cannot be read is still in {}", folder.display()));
    }
    let ranks = format!("{total} of {} ranks are in {}", chosen.size, output.display());
    told.push(ranks);
    Ok(told)
}

fn nothing(why: &str, unread: &[String]) -> String {
    let reasons = "Does the program use MPI, is it linked with it dynamically, and did its ranks \
                   run where this folder is? With Open MPI on other machines, give mpirun \
                   `-x LD_PRELOAD -x LD_AUDIT -x UNSPOOL_MESSAGES_PARTS`.";
    format!("{why} {}{reasons}", unread.iter().map(|line| format!("{line}. ")).collect::<String>())
}

type Parts = Vec<(part::Identity, PathBuf)>;

/// The parts in a folder with who wrote them, and what is none.
fn parts_in(folder: &Path) -> Result<(Parts, Vec<String>), String> {
    let wrong = |error: io::Error| format!("{} cannot be read: {error}.", folder.display());
    let (mut parts, mut unread) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        match identity(&path) {
            Ok(who) => parts.push((who, path)),
            Err(why) => unread.push(format!("{} is not a part: {why}", path.display())),
        }
    }
    unread.sort();
    Ok((parts, unread))
}

/// Opens a regular file for reading. A pipe is not waited for, and what a device gives has no end.
pub(crate) fn regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn identity(path: &Path) -> Result<part::Identity, String> {
    let mut header = Vec::new();
    let file = regular(path).map_err(|error| error.to_string())?;
    file.take(part::HEADER_BYTES).read_to_end(&mut header).map_err(|error| error.to_string())?;
    part::read_identity(&header)
}

/// Writes the run beside its place and moves it there when it is whole.
fn write(output: &Path, merger: Merger, parts: &[(u32, PathBuf)]) -> io::Result<()> {
    let beside = output.with_extension("msg.new");
    let events = |rank: u32| {
        let (_, path) = parts.iter().find(|(other, _)| *other == rank)?;
        part::read(&bytes_of(path).ok()?).ok().map(|found| found.events)
    };
    let file = BufWriter::new(File::create(&beside)?);
    let written = merger.write(file, events).and_then(|file| {
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&beside, output)
    });
    if written.is_err() {
        let _gone = fs::remove_file(&beside);
    }
    written
}
