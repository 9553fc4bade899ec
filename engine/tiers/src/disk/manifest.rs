//! The manifest of a durable directory: which frames were made durable in it, so that one that is
//! missing is noticed. `docs/reference/format.md` specifies it.
//!
//! Invariants:
//! - A frame is listed after it is durable under its name, and its removal is written before the
//!   file goes. So a process that is killed at any time leaves no frame listed that it removed.
//! - Records have one length and a checksum each: a damaged one says nothing about the others.
//! - Records that were not synced are kept in memory and written again at the same place, so that
//!   one which failed halfway is overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read};
use std::path::Path;
use std::sync::Arc;

use crc_fast::CrcAlgorithm;
use unspool_core::CheckpointId;

use crate::disk::fault;
use crate::disk::medium::{Medium, Mode};
use crate::disk::names::{MANIFEST, PackFile, Tag};
use crate::disk::record::{ALIGNMENT, Place};

/// The first bytes of every manifest.
const MAGIC: [u8; 8] = *b"\x89UNSM\r\n\x1a";
/// The newest version of the format.
const VERSION: u32 = 2;
/// The version of a manifest that lists no packed frame.
const WITHOUT_PACKS: u32 = 1;
/// Bytes of a record, its checksum included.
const RECORD: usize = 96;
/// Bytes of a record before its checksum.
const CONTENT: usize = RECORD - 8;
/// Bytes that are kept of the beginning of a frame: what its head says of it without its arrays.
pub(super) const START: usize = 64;
/// A file whose first records are all unreadable is not a manifest.
const TRIED: u64 = 64;
/// Records that may be superfluous before a manifest is written anew.
const SURPLUS: u64 = 1024;

/// The first bytes of a frame; zeros after its end.
pub type FrameStart = [u8; START];

/// What a manifest says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) bytes: u64,
    pub(super) start: FrameStart,
    /// Where it lies when it is packed.
    pub(super) place: Option<Place>,
}

/// The first bytes of a frame of these parts.
pub(super) fn start_of(parts: &[&[u8]]) -> FrameStart {
    let mut start = [0; START];
    let bytes = parts.iter().flat_map(|part| part.iter().take(START));
    start.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    start
}

/// One entry of a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    /// The first one of a manifest.
    Header { version: u32, tag: Tag },
    /// The frame is durable.
    Listed(CheckpointId, Listed),
    /// The frame is about to be removed; its bytes stay in that pack, if it was in one.
    Removed(CheckpointId, Option<PackFile>),
}

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        match self {
            Record::Header { version, tag } => {
                put(0, &MAGIC);
                put(8, &version.to_le_bytes());
                put(16, &tag.0.to_le_bytes());
            }
            Record::Listed(id, listed) => {
                put(8, &id.0.to_le_bytes());
                put(24, &listed.start);
                match listed.place {
                    None => {
                        put(0, &1_u32.to_le_bytes());
                        put(16, &listed.bytes.to_le_bytes());
                    }
                    Some(place) => {
                        put(0, &3_u32.to_le_bytes());
                        put(4, &place.pack.0.to_le_bytes());
                        put(16, &place.offset.to_le_bytes());
                        // A frame that is packed is shorter than 2^16 bytes, and so is its record
                        // in units of its alignment.
                        put(20, &(listed.bytes as u16).to_le_bytes());
                        put(22, &((place.length / ALIGNMENT as u32) as u16).to_le_bytes());
                    }
                }
            }
            Record::Removed(id, pack) => {
                put(0, &2_u32.to_le_bytes());
                put(4, &pack.map_or(0, |pack| pack.0.saturating_add(1)).to_le_bytes());
                put(8, &id.0.to_le_bytes());
            }
        }
        let sum = checksum(&bytes[..CONTENT]);
        bytes[CONTENT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The record that these bytes are; `None` when they are not one.
    fn parse(bytes: &[u8; RECORD]) -> Option<Record> {
        let u32_at = |at: usize| bytes[at..at + 4].try_into().ok().map(u32::from_le_bytes);
        let u16_at = |at: usize| bytes[at..at + 2].try_into().ok().map(u16::from_le_bytes);
        let u64_at = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        if u64_at(CONTENT)? != checksum(&bytes[..CONTENT]) {
            return None;
        }
        if bytes[..8] == MAGIC {
            return Some(Record::Header { version: u32_at(8)?, tag: Tag(u64_at(16)?) });
        }
        let id = CheckpointId(u64_at(8)?);
        let start = bytes[24..24 + START].try_into().ok()?;
        match u32_at(0)? {
            1 => Some(Record::Listed(id, Listed { bytes: u64_at(16)?, start, place: None })),
            3 => {
                let length = u32::from(u16_at(22)?) * ALIGNMENT as u32;
                let place = Place { pack: PackFile(u32_at(4)?), offset: u32_at(16)?, length };
                let bytes = u64::from(u16_at(20)?);
                Some(Record::Listed(id, Listed { bytes, start, place: Some(place) }))
            }
            2 => Some(Record::Removed(id, u32_at(4)?.checked_sub(1).map(PackFile))),
            _ => None,
        }
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// What a manifest says.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) frames: BTreeMap<CheckpointId, Listed>,
    /// What the names of slots begin with; `None` when the header is damaged or there is none.
    pub(super) tag: Option<Tag>,
    /// Records up to the last readable one; 0 where there was no manifest.
    pub(super) records: u64,
    /// Records before that one that are damaged.
    pub(super) damaged: u64,
    /// Whether there is something after it: what a crash cut off, what is being written, or damage.
    pub(super) rest: bool,
    /// Frames that were removed, and the packs in which their bytes stay.
    removed: BTreeMap<CheckpointId, Option<PackFile>>,
    /// The highest number of a pack that was ever listed.
    pub(super) pack: Option<PackFile>,
    version: u32,
}

impl Listing {
    /// Reads the manifest in `dir`; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read, is not a manifest, or has a newer version.
    pub(super) fn read(dir: &Path, medium: &dyn Medium) -> io::Result<Option<Listing>> {
        match medium.open(&dir.join(MANIFEST), Mode::READ) {
            Ok(file) => Listing::parse(BufReader::new(file)).map(Some),
            Err(cause) if fault::is_absent(&cause) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    fn parse(mut input: impl Read) -> io::Result<Listing> {
        let mut listing = Listing::default();
        let (mut read, mut ours) = (0, false);
        let mut bytes = [0; RECORD];
        loop {
            let filled = fill(&mut input, &mut bytes)?;
            // Zeros, or less, are what a crash may leave of the first record.
            let seen = filled.min(MAGIC.len());
            ours |= read == 0
                && (bytes[..seen] == MAGIC[..seen] || bytes.iter().all(|&byte| byte == 0));
            if filled < RECORD {
                listing.rest = filled > 0 || read > listing.records;
                return if ours { Ok(listing) } else { foreign() };
            }
            read += 1;
            if let Some(record) = Record::parse(&bytes) {
                ours = true;
                listing.take(record)?;
                listing.damaged += read - 1 - listing.records;
                listing.records = read;
            }
            if !ours && read == TRIED {
                return foreign();
            }
        }
    }

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Header { version, .. } if version > VERSION => {
                let text = format!(
                    "the manifest has version {version}, this Unspool reads up to {VERSION}"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            Record::Header { version, tag } => (self.version, self.tag) = (version, Some(tag)),
            Record::Listed(id, listed) => {
                self.pack = self.pack.max(listed.place.map(|place| place.pack));
                self.frames.insert(id, listed);
                self.removed.remove(&id);
            }
            Record::Removed(id, pack) => {
                let place = self.frames.remove(&id).and_then(|listed| listed.place);
                self.removed.insert(id, pack.or(place.map(|place| place.pack)));
            }
        }
        Ok(())
    }

    /// Whether it may be that frames were listed of which it says nothing.
    pub(super) fn may_lack_frames(&self) -> bool {
        self.tag.is_none() || self.records == 0 || self.damaged > 0
    }

    /// Whether it says of a frame that it is there, or that it was removed.
    pub(super) fn knows(&self, id: CheckpointId) -> bool {
        self.frames.contains_key(&id) || self.removed.contains_key(&id)
    }

    /// The removals that still say something: of frames whose bytes are in one of `packs`.
    fn removals(
        &self,
        packs: &BTreeSet<PackFile>,
    ) -> impl Iterator<Item = (CheckpointId, PackFile)> {
        let removed = self.removed.iter().filter_map(|(&id, &pack)| Some((id, pack?)));
        removed.filter(|(_, pack)| packs.contains(pack))
    }

    /// Whether most of the records say nothing any more, or the header has to be written again.
    fn is_worn(&self, packs: &BTreeSet<PackFile>) -> bool {
        let needed = (self.frames.len() + self.removals(packs).count()) as u64 + 1;
        self.tag.is_none() || self.records > 2 * needed + SURPLUS
    }
}

/// Fills `bytes` as far as the input goes; says how far.
fn fill(input: &mut impl Read, bytes: &mut [u8; RECORD]) -> io::Result<usize> {
    bytes.fill(0);
    let mut filled = 0;
    while filled < RECORD {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(filled)
}

fn foreign<T>() -> io::Result<T> {
    let text = "a file of this name is there that is not a manifest of Unspool";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

/// A manifest that is being written.
#[derive(Debug)]
pub(super) struct Manifest {
    file: Arc<File>,
    /// Where the first record of `tail` lies.
    synced: u64,
    /// Records that were not synced yet.
    tail: Vec<u8>,
    /// How many bytes of them were written.
    written: usize,
    tag: Tag,
    /// What its last header says.
    version: u32,
}

impl Manifest {
    /// The manifest of `dir` for writing: the one that is there, or a new one. Says what it lists.
    /// `packs` finds those in `dir`. `salvage` adds what they prove, and says whether it has added
    /// anything: it is written before anything else is.
    ///
    /// # Errors
    /// Those of [`Listing::read`], those of `packs` and `salvage`, and when it cannot be created.
    pub(super) fn open(
        dir: &Path,
        medium: &dyn Medium,
        permissions: u32,
        packs: impl FnOnce() -> io::Result<BTreeSet<PackFile>>,
        salvage: impl FnOnce(&mut Listing) -> io::Result<bool>,
    ) -> io::Result<(Manifest, Listing)> {
        let path = dir.join(MANIFEST);
        let found = Listing::read(dir, medium)?;
        let absent = found.is_none();
        let mut listing = found.unwrap_or_default();
        let may_be_worn = !absent && listing.is_worn(&BTreeSet::new());
        let headless = listing.tag.is_none();
        let salvaged = salvage(&mut listing)?;
        let packs = if may_be_worn || salvaged { packs()? } else { BTreeSet::new() };
        let worn = may_be_worn && (headless || listing.is_worn(&packs));
        let tag = *listing.tag.get_or_insert_with(Tag::new);
        if absent && !salvaged {
            let file = medium.open(&path, Mode::create(permissions))?;
            let mut manifest = Manifest::new(file, 0, tag);
            manifest.begin(WITHOUT_PACKS);
            manifest.settle(medium)?;
            return Ok((manifest, listing));
        }
        if worn || salvaged {
            match rewrite(dir, medium, permissions, (tag, &listing, &packs)) {
                Ok(manifest) => return Ok((manifest, listing)),
                // The old one has all that matters, but perhaps no tag.
                Err(cause) if fault::is_full(&cause) && !salvaged => {}
                Err(cause) => return Err(cause),
            }
        }
        let file = medium.open(&path, Mode::WRITE)?;
        let mut manifest = Manifest::new(file, listing.records * RECORD as u64, tag);
        manifest.version = listing.version;
        Ok((manifest, listing))
    }

    fn new(file: File, synced: u64, tag: Tag) -> Manifest {
        let (tail, written, version) = (Vec::new(), 0, 0);
        Manifest { file: Arc::new(file), synced, tail, written, tag, version }
    }

    fn begin(&mut self, version: u32) {
        self.append(&Record::Header { version, tag: self.tag });
        self.version = version;
    }

    /// The frame is durable. Written by the next `write`.
    pub(super) fn list(&mut self, id: CheckpointId, listed: Listed) {
        if listed.place.is_some() && self.version < VERSION {
            // A program that does not know packs refuses the manifest from here on.
            self.begin(VERSION);
        }
        self.append(&Record::Listed(id, listed));
    }

    /// The frame is about to be removed, and its bytes stay in `pack`, if it was in one. Written by
    /// the next `write`.
    pub(super) fn remove(&mut self, id: CheckpointId, pack: Option<PackFile>) {
        self.append(&Record::Removed(id, pack));
    }

    fn append(&mut self, record: &Record) {
        self.tail.extend_from_slice(&record.encode());
    }

    /// Writes what was appended. After an error it is written by the next call.
    pub(super) fn write(&mut self, medium: &dyn Medium) -> io::Result<()> {
        while self.written < self.tail.len() {
            let at = self.synced + self.written as u64;
            match medium.write(&self.file, at, &[IoSlice::new(&self.tail[self.written..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => self.written += moved,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// The file, and how many bytes of the records in memory a sync of it makes durable, if any:
    /// call `synced` with them afterwards.
    pub(super) fn unsynced(&self) -> Option<(Arc<File>, usize)> {
        (self.written > 0).then(|| (Arc::clone(&self.file), self.written))
    }

    /// The file was synced when so many bytes of the records in memory had been written.
    pub(super) fn synced(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.written);
        self.tail.drain(..bytes);
        self.written -= bytes;
        self.synced += bytes as u64;
    }

    /// A sync of the file failed: nobody knows what is on the medium, so all of it is written
    /// again.
    pub(super) fn suspect(&mut self) {
        self.written = 0;
    }

    /// Writes and syncs what was appended. A full medium may have room later.
    fn settle(&mut self, medium: &dyn Medium) -> io::Result<()> {
        match self.write(medium) {
            Err(cause) if fault::is_full(&cause) => return Ok(()),
            written => written?,
        }
        if let Some((file, bytes)) = self.unsynced() {
            medium.sync_file(&file)?;
            self.synced(bytes);
        }
        Ok(())
    }
}

/// Writes a manifest anew with what it still says, and puts it in the place of the old one.
fn rewrite(
    dir: &Path,
    medium: &dyn Medium,
    permissions: u32,
    (tag, listing, packs): (Tag, &Listing, &BTreeSet<PackFile>),
) -> io::Result<Manifest> {
    let path = dir.join(tag.new_manifest());
    // What a crash left of an earlier try.
    match medium.remove(&path) {
        Err(cause) if !fault::is_absent(&cause) => return Err(cause),
        _ => {}
    }
    let mut manifest = Manifest::new(medium.open(&path, Mode::create(permissions))?, 0, tag);
    manifest.begin(WITHOUT_PACKS);
    for (&id, &listed) in &listing.frames {
        manifest.list(id, listed);
    }
    // Or a later crash in the middle of a record would have the packs asked for these.
    for (id, pack) in listing.removals(packs) {
        manifest.remove(id, Some(pack));
    }
    let done = manifest.write(medium).and_then(|()| {
        medium.sync_file(&manifest.file)?;
        medium.rename(&path, &dir.join(MANIFEST))?;
        medium.sync_dir(dir)
    });
    if let Err(cause) = done {
        // It is removed by the next opener if it cannot be removed now.
        let _ = medium.remove(&path);
        return Err(cause);
    }
    manifest.synced(manifest.written);
    Ok(manifest)
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
