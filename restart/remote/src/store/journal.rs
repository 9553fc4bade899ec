//! What a process has to know of an upload that an earlier one has begun: a small file of lines. It
//! is a help and not a truth: where it is cut off or wrong, the upload begins anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "unspool-upload 1";

/// The most bytes that are read of one.
const MOST_BYTES: u64 = 16 << 20;

/// What is sent where, and in pieces of which size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    /// The place of the object.
    pub(crate) object: String,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// The bytes of a piece.
    pub(crate) piece: u64,
}

/// A piece that the store has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) number: usize,
    pub(crate) checksum: u64,
    /// By what the store knows it.
    pub(crate) id: String,
}

/// An upload that was begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    pub(crate) job: Job,
    /// By what the store knows it.
    pub(crate) upload: String,
    pub(crate) sent: Vec<Sent>,
}

/// The file of an upload that is under way.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// `None` when it could not be written: the upload goes on without.
    file: Option<File>,
}

impl Journal {
    /// A new journal in place of what is there.
    pub(crate) fn begin(path: &Path, job: &Job, upload: &str) -> Journal {
        let text = format!(
            "{NAME}\nobject {}\nbytes {}\npiece {}\nupload {upload}\n",
            job.object, job.bytes, job.piece
        );
        let make = || -> io::Result<File> {
            remove(path);
            let mut file =
                OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        };
        let file = if is_plain(upload) { make().ok() } else { None };
        Journal { path: path.to_owned(), file }
    }

    /// The journal of an upload that goes on.
    pub(crate) fn go_on(path: &Path) -> Journal {
        let file = OpenOptions::new().append(true).open(path).ok();
        Journal { path: path.to_owned(), file }
    }

    /// The store has this piece.
    pub(crate) fn note(&mut self, sent: &Sent) {
        let Sent { number, checksum, id } = sent;
        let line = format!("sent {number} {checksum:016x} {id}\n");
        let written = self.file.as_mut().filter(|_| is_plain(id));
        if written.is_some_and(|file| file.write_all(line.as_bytes()).is_err()) {
            self.file = None;
        }
    }

    /// The upload is over.
    pub(crate) fn end(self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    // One that stays is of an upload that does not match, or that the store does not know.
    let _ = fs::remove_file(path);
}

/// Whether a text can stand at the end of a line.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_control())
}

/// What the journal at `path` says.
pub(crate) fn read(path: &Path) -> Option<Begun> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return None;
    }
    parse(&fs::read_to_string(path).ok()?)
}

fn parse(text: &str) -> Option<Begun> {
    // What was not written to its end is not a line.
    let whole = &text[..=text.rfind('\n')?];
    let mut lines = whole.lines();
    lines.next().filter(|line| *line == NAME)?;
    let mut next = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let object = next("object")?.to_owned();
    let (bytes, piece) = (next("bytes")?.parse().ok()?, next("piece")?.parse().ok()?);
    let upload = next("upload")?.to_owned();
    let sent = lines.map_while(sent).collect();
    Some(Begun { job: Job { object, bytes, piece }, upload, sent })
}

fn sent(line: &str) -> Option<Sent> {
    let mut words = line.strip_prefix("sent ")?.splitn(3, ' ');
    let number = words.next()?.parse().ok()?;
    let checksum = u64::from_str_radix(words.next()?, 16).ok()?;
    Some(Sent { number, checksum, id: words.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use unspool_testkit::Scratch;

    use super::*;

    #[test]
    fn a_journal_comes_back_as_far_as_it_was_written() {
        let scratch = Scratch::new();
        let path = scratch.path().join("upload");
        let job = Job { object: "s3://b/x".into(), bytes: 100, piece: 10 };
        let sent = |number| Sent { number, checksum: 7 + number as u64, id: "\"e tag\"".into() };
        let mut journal = Journal::begin(&path, &job, "id/1");
        journal.note(&sent(0));
        journal.note(&sent(2));
        let expected = Begun { job, upload: "id/1".into(), sent: vec![sent(0), sent(2)] };
        assert_eq!(read(&path), Some(expected.clone()));
        let text = fs::read_to_string(&path).unwrap();
        for end in 0..text.len() {
            let cut = parse(&text[..end]);
            assert!(cut.is_none_or(|cut| cut.sent.len() < 2 && cut.upload == "id/1"), "{end}");
        }
        let mut journal = Journal::go_on(&path);
        journal.note(&sent(3));
        assert_eq!(read(&path).unwrap().sent.len(), 3);
        journal.end();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn what_is_no_journal_is_none() {
        let scratch = Scratch::new();
        let path = scratch.path().join("upload");
        for text in ["", "\n", "unspool-upload 2\n", "unspool-upload 1\nobject x\nbytes x\n", "é"]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path), None, "{text:?}");
        }
        // An id that does not fit on a line is not kept.
        let job = Job { object: "o".into(), bytes: 1, piece: 1 };
        Journal::begin(&path, &job, "a\nb");
        assert_eq!(read(&path), None);
    }
}
