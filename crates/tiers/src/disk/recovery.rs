//! What is in a durable directory when it is opened: frames that are there, frames that should be,
//! and what is not ours.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use unspool_core::{CheckpointId, Failure};

use crate::disk::fault;
use crate::disk::manifest::{FrameStart, Listing};
use crate::disk::medium::Medium;
use crate::disk::names::{self, FrameName, MANIFEST, Tag};
use crate::disk::table::FrameTable;

/// A frame that was durable and cannot be had any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostFrame {
    /// Whose frame it was.
    pub id: CheckpointId,
    /// The file that it was in.
    pub file: PathBuf,
    /// Its first bytes.
    pub start: FrameStart,
    /// `Missing` when there is no file, `Corrupt` when it is cut off.
    pub failure: Failure,
    /// What is wrong with the file, in words that follow its name.
    pub what: String,
}

/// What the manifest says of frames that an earlier process made durable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Frames that are not there, in ascending order of id.
    pub lost: Vec<LostFrame>,
    /// The first bytes of those that are there, as they were when they were made durable.
    pub starts: BTreeMap<CheckpointId, FrameStart>,
    /// What may be missing besides, in sentences for people: frames that are not listed and cut
    /// off, and a manifest that does not say everything.
    pub doubts: Vec<String>,
}

/// Who looks at a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Visitor {
    /// Its only writer, whose unfinished files have this tag.
    Writer(Tag),
    /// Somebody who changes nothing, perhaps while another process writes.
    Reader,
}

/// What lies in a directory.
#[derive(Default)]
struct Contents {
    frames: BTreeMap<CheckpointId, Vec<FrameName>>,
    /// Files that are shorter than their names say, with their lengths.
    short: BTreeMap<CheckpointId, (FrameName, u64)>,
    notes: Vec<String>,
}

/// Enters the frames in `dir` that an earlier process made durable, and says which are missing. A
/// writer removes what was left unfinished. The notes are for people.
pub(super) fn recover(
    dir: &Path,
    visitor: Visitor,
    medium: &dyn Medium,
    table: &mut FrameTable,
    listing: impl Fn() -> Listing,
) -> io::Result<(Recovery, Vec<String>)> {
    let contents = Contents::of(dir, visitor, medium)?;
    // After the directory: what is removed meanwhile is no longer listed then.
    let listed = listing();
    let Contents { mut frames, short, mut notes } = contents;
    let mut recovery = Recovery::default();
    recovery.doubts.extend(about(dir, &listed, frames.len()));
    for (&id, entry) in &listed.frames {
        let name = FrameName { id, bytes: entry.bytes };
        let there = frames.get(&id).is_some_and(|names| names.contains(&name));
        // One that was made durable after its directory was looked at.
        let there = there || is_whole(dir, name);
        if there {
            recovery.starts.insert(id, entry.start);
            table.recover(name, true);
            frames.entry(id).or_default().retain(|&other| other != name);
            continue;
        }
        let cut = short.get(&id).filter(|(cut, _)| *cut == name);
        let (failure, what) = match cut {
            Some((_, size)) => {
                (Failure::Corrupt, format!("is cut off: it has {size} of {} bytes", entry.bytes))
            }
            None => (Failure::Missing, "is missing".to_owned()),
        };
        let file = dir.join(name.to_string());
        recovery.lost.push(LostFrame { id, file, start: entry.start, failure, what });
    }
    if visitor == Visitor::Reader && !recovery.lost.is_empty() {
        // What a writer removed meanwhile was not lost.
        let now = listing();
        recovery.lost.retain(|lost| now.frames.contains_key(&lost.id));
    }
    for lost in &recovery.lost {
        // Of a frame that is listed there is an entry, so it has a name.
        if let Some(entry) = listed.frames.get(&lost.id) {
            table.lose(FrameName { id: lost.id, bytes: entry.bytes });
        }
    }
    let lost = |name: &FrameName| recovery.lost.iter().any(|lost| lost.id == name.id);
    let unlisted = frames.values().flatten();
    // An id has one frame: the listed one, also when it is lost.
    let others = unlisted.filter(|name| lost(name) || !table.recover(**name, false));
    notes.extend(others.map(another));
    let cut_off = short.values().filter(|(name, _)| !lost(name));
    let cut_off = cut_off.map(|(name, size)| {
        let file = dir.join(name.to_string());
        format!("{} ({size} bytes) is cut off: it is left alone.", file.display())
    });
    let cut_off: Vec<String> = cut_off.collect();
    recovery.doubts.extend(cut_off);
    Ok((recovery, notes))
}

/// What there is to say about a manifest.
fn about(dir: &Path, listing: &Listing, frames: usize) -> Option<String> {
    let dir = dir.display();
    if listing.damaged > 0 {
        return Some(format!(
            "{} records of {MANIFEST} in {dir} are damaged: a frame that is missing may not be \
             noticed.",
            listing.damaged
        ));
    }
    (listing.records == 0 && frames > 0).then(|| {
        format!(
            "There was no {MANIFEST} in {dir} that could be read: a frame that was missing before \
             could not be noticed."
        )
    })
}

fn another(name: &FrameName) -> String {
    format!("{name} is left alone: another file is named for the same id.")
}

fn is_whole(dir: &Path, name: FrameName) -> bool {
    let found = fs::symlink_metadata(dir.join(name.to_string()));
    found.is_ok_and(|found| found.is_file() && found.len() >= name.bytes)
}

impl Contents {
    fn of(dir: &Path, visitor: Visitor, medium: &dyn Medium) -> io::Result<Contents> {
        let mut contents = Contents::default();
        let mut unfinished = 0;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match (FrameName::parse(name), visitor) {
                (Some(frame), _) => contents.take(frame, entry.metadata())?,
                (None, Visitor::Writer(tag)) if tag.is_slot(name) => {
                    medium.remove(&entry.path())?
                }
                (None, Visitor::Writer(_)) => unfinished += u32::from(names::is_like_slot(name)),
                (None, Visitor::Reader) => {}
            }
        }
        if unfinished > 0 {
            contents.notes.push(format!(
                "{unfinished} files are named like unfinished frames (slot-...) and are not those \
                 of this history: they are left alone."
            ));
        }
        Ok(contents)
    }

    /// Takes a file that is named for a frame.
    fn take(&mut self, name: FrameName, found: io::Result<fs::Metadata>) -> io::Result<()> {
        let found = match found {
            Err(cause) if fault::is_absent(&cause) => return Ok(()),
            found => found?,
        };
        if !found.is_file() {
            self.notes.push(format!("{name} is not a regular file: it is left alone."));
        } else if found.len() < name.bytes {
            self.short.insert(name.id, (name, found.len()));
        } else {
            self.frames.entry(name.id).or_default().push(name);
        }
        Ok(())
    }
}
