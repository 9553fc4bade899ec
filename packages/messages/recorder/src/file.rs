//! The part file of a rank: tables that are mapped, so that the system keeps them however the rank
//! ends, and samples behind them. Its blocks are taken from the disk when it is made: writing
//! to a mapping of a full disk would kill the program.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use unspool_messages::part::Limits;

/// Where parts go, and how large they may become; from the environment that `record` sets.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) folder: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) samples: u64,
}

impl Settings {
    /// `None` when nothing is to be recorded.
    pub(crate) fn read() -> Option<Settings> {
        let folder = PathBuf::from(std::env::var_os("UNSPOOL_MESSAGES_PARTS")?);
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let mut limits = Limits::default();
        if let Some(events) = number("UNSPOOL_MESSAGES_EVENTS") {
            limits.events = usize::try_from(events).unwrap_or(usize::MAX);
        }
        let samples = number("UNSPOOL_MESSAGES_SAMPLES").unwrap_or(16 << 20);
        Some(Settings { folder, limits: limits.clamped(), samples })
    }
}

/// Writes samples behind the tables of a part.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    begin: u64,
}

impl Tail {
    pub(crate) fn write(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.begin + place)
    }
}

/// Makes the file of a part, which its owner alone can read, with room for `words` numbers of 64
/// bits, and maps these. They stay mapped to the end of the process.
pub(crate) fn make(path: &Path, words: usize) -> io::Result<(&'static mut [u64], Tail)> {
    // It has payloads of the program's messages in it.
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let length = words * 8;
    take_blocks(&file, length)?;
    // SAFETY: a new mapping of a file that is as long and that nobody else knows; nothing is
    // unmapped.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            file.as_raw_fd(),
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping above begins at a page and is that long; numbers may have any bits.
    let words = unsafe { std::slice::from_raw_parts_mut(place.cast::<u64>(), words) };
    Ok((words, Tail { file, begin: length as u64 }))
}

/// Takes the blocks of a file from the disk, by writing it where the file system cannot otherwise.
fn take_blocks(file: &File, length: usize) -> io::Result<()> {
    // SAFETY: a file that is open.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length as i64) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
            let zeros = vec![0; 1 << 20];
            for from in (0..length).step_by(zeros.len()) {
                file.write_all_at(&zeros[..zeros.len().min(length - from)], from as u64)?;
            }
            file.sync_data()
        }
        _ => Err(error),
    }
}

/// The name of this machine.
pub(crate) fn host() -> String {
    // Linux has names of up to 64 bytes, and a zero byte after them.
    let mut name = [0_u8; 65];
    // SAFETY: room of that length.
    let code = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if code == 0 { String::from_utf8_lossy(&name[..end]).into_owned() } else { String::new() }
}

/// Tells the user why nothing is recorded here. There is nobody else to tell.
pub(crate) fn tell(what: &str) {
    // One write, as other ranks may write there too.
    let line = format!("unspool-messages: {what}\n");
    let _nobody = io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::make;

    #[test]
    fn a_part_is_mapped_and_samples_follow_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.part");
        let (words, tail) = make(&path, 1000).unwrap();
        words[999] = 7;
        tail.write(0, b"samp...").unwrap();
        tail.write(4, b"les").unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[7992..], b"\x07\0\0\0\0\0\0\0samples");
        assert!(make(&path, 1000).is_err(), "parts are not written over");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others cannot read the samples");
    }
}
