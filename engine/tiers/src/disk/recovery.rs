//! What is in a durable directory when it is opened: frames that are there, frames that should be,
//! what packs prove where the manifest does not say everything, and what is not ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use unspool_core::{CheckpointId, Failure};

use crate::disk::fault;
use crate::disk::manifest::{FrameStart, Listed, Listing, START, start_of};
use crate::disk::medium::{Medium, Mode, read_all};
use crate::disk::names::{self, FrameName, MANIFEST, PackFile, Tag};
use crate::disk::pack::FRAMES;
use crate::disk::record::{self, LONGEST};
use crate::disk::table::FrameTable;

/// A frame that was durable and cannot be had any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostFrame {
    /// Whose frame it was.
    pub id: CheckpointId,
    /// The file that it was in, alone or with others.
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
    /// Its only writer.
    Writer,
    /// Somebody who changes nothing, perhaps while another process writes.
    Reader,
}

/// What lies in a directory.
#[derive(Default)]
struct Contents {
    frames: BTreeMap<CheckpointId, Vec<FrameName>>,
    /// Files that are shorter than their names say, with their lengths.
    short: BTreeMap<CheckpointId, (FrameName, u64)>,
    /// Its packs, with their lengths.
    packs: BTreeMap<PackFile, u64>,
    notes: Vec<String>,
}

/// Enters the frames in `dir` that an earlier process made durable, and says which are missing. A
/// writer removes what was left unfinished; `tag` is that of the directory. The notes are for
/// people.
pub(super) fn recover(
    dir: &Path,
    (visitor, tag): (Visitor, Tag),
    medium: &dyn Medium,
    table: &mut FrameTable,
    listing: impl Fn() -> Listing,
) -> io::Result<(Recovery, Vec<String>)> {
    let mut contents = Contents::of(dir, visitor, tag, medium)?;
    // After the directory: what is removed meanwhile is no longer listed then.
    let listed = listing();
    contents.packs.iter().for_each(|(&pack, &length)| table.packs.found(pack, length));
    listed.pack.into_iter().for_each(|pack| table.packs.skip(pack));
    let mut recovery = Recovery::default();
    recovery.doubts.extend(about(dir, &listed, contents.frames.len()));
    for (&id, entry) in &listed.frames {
        match contents.find(dir, tag, id, entry) {
            Ok(()) => contents.enter(id, entry, table, &mut recovery),
            Err((file, failure, what)) => {
                recovery.lost.push(LostFrame { id, file, start: entry.start, failure, what });
            }
        }
    }
    if visitor == Visitor::Reader && !recovery.lost.is_empty() {
        // What a writer removed meanwhile was not lost, nor what it moved.
        let now = listing();
        for lost in std::mem::take(&mut recovery.lost) {
            match now.frames.get(&lost.id) {
                None => {}
                Some(entry) if contents.find(dir, tag, lost.id, entry).is_ok() => {
                    contents.enter(lost.id, entry, table, &mut recovery);
                }
                Some(_) => recovery.lost.push(lost),
            }
        }
    }
    for lost in &recovery.lost {
        if let Some(entry) = listed.frames.get(&lost.id) {
            table.lose(FrameName { id: lost.id, bytes: entry.bytes }, entry.place);
        }
    }
    let Contents { frames, short, mut notes, .. } = contents;
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

/// Adds the frames to a listing that the packs in `dir` prove and of which it says nothing, if that
/// may be; says whether there were any. A writer syncs them before.
///
/// # Errors
/// When a pack cannot be read or synced.
pub(super) fn salvage(
    dir: &Path,
    visitor: Visitor,
    medium: &dyn Medium,
    listing: &mut Listing,
) -> io::Result<bool> {
    // For a reader the end of the manifest may be what its writer is about to write.
    let cut_off = listing.rest && visitor == Visitor::Writer;
    if !listing.may_lack_frames() && !cut_off {
        return Ok(false);
    }
    let mut found = BTreeMap::new();
    for (tag, pack) in packs_in(dir)? {
        if listing.tag.is_some_and(|own| own != tag) {
            continue;
        }
        let path = dir.join(tag.pack(pack));
        let (file, bytes) = match read_pack(medium, &path) {
            // Not a regular file, or removed by its writer.
            Err(cause) if is_no_pack(&cause) => continue,
            read => read?,
        };
        let records = record::scan(&bytes, tag, pack);
        if !records.is_empty() {
            // The tag is in the names of packs too.
            listing.tag = Some(tag);
        }
        let mut unknown = records.into_iter().filter(|found| !listing.knows(found.id)).peekable();
        if unknown.peek().is_some() && visitor == Visitor::Writer {
            medium.sync_file(&file)?;
        }
        for record in unknown {
            let place = record.place;
            let start = bytes.get(place.offset as usize..).and_then(record::decode);
            let start = start.map_or([0; START], |frame| start_of(&[&frame]));
            // The later one was written later.
            let listed = Listed { bytes: record.bytes, start, place: Some(place) };
            found.insert(record.id, listed);
        }
    }
    let any = !found.is_empty();
    listing.frames.extend(found);
    Ok(any)
}

/// The files in `dir` that are named like packs, in the order of their numbers.
pub(super) fn packs_in(dir: &Path) -> io::Result<BTreeSet<(Tag, PackFile)>> {
    let mut packs = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        packs.extend(entry?.file_name().to_str().and_then(names::pack));
    }
    Ok(packs)
}

fn is_no_pack(cause: &io::Error) -> bool {
    fault::is_absent(cause) || cause.kind() == io::ErrorKind::InvalidData
}

/// A file, and what is in it.
pub(super) fn read_pack(medium: &dyn Medium, path: &Path) -> io::Result<(File, Vec<u8>)> {
    let file = medium.open(path, Mode::READ)?;
    // What is longer is not a pack, and is not to take memory.
    let len = file.metadata()?.len().min((FRAMES + 1) * LONGEST);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let held = read_all(medium, &file, 0, &mut bytes)?;
    bytes.truncate(held);
    Ok((file, bytes))
}

/// What there is to say about a manifest.
fn about(dir: &Path, listing: &Listing, frames: usize) -> Option<String> {
    let dir = dir.display();
    if listing.damaged > 0 {
        return Some(format!(
            "{} records of {MANIFEST} in {dir} are damaged: a frame that is missing may not be \
             noticed, and discarded frames of packs may have come back.",
            listing.damaged
        ));
    }
    (listing.records == 0 && (frames > 0 || !listing.frames.is_empty())).then(|| {
        format!(
            "There was no {MANIFEST} in {dir} that could be read: a frame that was missing before \
             could not be noticed, and discarded frames of packs may have come back."
        )
    })
}

fn another(name: &FrameName) -> String {
    format!("{name} is left alone: another file is named for the same id.")
}

fn length(path: &Path) -> Option<u64> {
    let found = fs::symlink_metadata(path).ok()?;
    found.is_file().then_some(found.len())
}

impl Contents {
    fn of(dir: &Path, visitor: Visitor, own: Tag, medium: &dyn Medium) -> io::Result<Contents> {
        let mut contents = Contents::default();
        let (mut unfinished, mut other_packs) = (0, 0);
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match (FrameName::parse(name), names::pack(name), visitor) {
                (Some(frame), ..) => contents.take(frame, entry.metadata())?,
                (_, Some((tag, pack)), _) if tag == own => {
                    contents.packs.extend(length(&entry.path()).map(|length| (pack, length)));
                }
                (_, Some(_), _) => other_packs += 1,
                (.., Visitor::Writer) if own.is_slot(name) => medium.remove(&entry.path())?,
                (.., Visitor::Writer) => unfinished += u32::from(names::is_like_slot(name)),
                (.., Visitor::Reader) => {}
            }
        }
        if other_packs > 0 {
            contents.notes.push(format!(
                "{other_packs} files are named like packs of frames (pack-...) and are not those \
                 of this history: they are left alone."
            ));
        }
        if unfinished > 0 {
            contents.notes.push(format!(
                "{unfinished} files are named like unfinished frames (slot-...) and are not those \
                 of this history: they are left alone."
            ));
        }
        Ok(contents)
    }

    /// Whether a frame is where the manifest says that it is; else its file and what is wrong.
    fn find(
        &self,
        dir: &Path,
        tag: Tag,
        id: CheckpointId,
        entry: &Listed,
    ) -> Result<(), (PathBuf, Failure, String)> {
        let name = FrameName { id, bytes: entry.bytes };
        let (file, known, end) = match entry.place {
            Some(place) => {
                let known = self.packs.get(&place.pack).copied();
                (tag.pack(place.pack), known, place.end())
            }
            None => {
                let whole = self.frames.get(&id).is_some_and(|names| names.contains(&name));
                (name.to_string(), whole.then_some(entry.bytes), entry.bytes)
            }
        };
        let path = dir.join(file);
        // What was made durable after the directory was looked at is there all the same.
        match known.filter(|&size| size >= end).or_else(|| length(&path)) {
            Some(size) if size >= end => Ok(()),
            Some(size) => {
                let what = format!("is cut off: it has {size} of {end} bytes");
                Err((path, Failure::Corrupt, what))
            }
            None => Err((path, Failure::Missing, "is missing".to_owned())),
        }
    }

    /// Enters a frame that was found.
    fn enter(
        &mut self,
        id: CheckpointId,
        entry: &Listed,
        table: &mut FrameTable,
        recovery: &mut Recovery,
    ) {
        let name = FrameName { id, bytes: entry.bytes };
        recovery.starts.insert(id, entry.start);
        match entry.place {
            Some(place) => table.recover_packed(name, place),
            None => {
                table.recover(name, true);
                self.frames.entry(id).or_default().retain(|&other| other != name);
            }
        }
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
