//! The search for what has changed.

use std::collections::HashMap;
use std::ops::Range;

use super::table::{Changes, Delta, Parent, frame_of, sum_of};
use super::{CHUNK_BYTES, chunk_hash, chunk_len, chunks_of, layout_of};
use crate::frame::{FrameError, FrameErrorKind, Head, Region, checksum, joined_checksums};
use crate::twine::{Layout, difference};

/// What changes of a checkpoint are found by: the hashes of its chunks, with their checksums, and
/// streams of Twine as they are.
#[derive(Clone, Debug)]
pub struct Chunks {
    version: i64,
    sum: u64,
    regions: HashMap<String, Known>,
}

/// What is known of a region.
#[derive(Clone, Default, Debug)]
struct Known {
    stored: u64,
    hashes: Vec<u128>,
    /// The checksum of each chunk, of which that of a payload is made where most of its chunks are
    /// not at hand.
    sums: Vec<u64>,
    /// A stream that the next one may be the difference to.
    stream: Option<Stream>,
}

/// A stream of Twine.
#[derive(Clone, Debug)]
struct Stream {
    layout: Layout,
    bytes: Vec<u8>,
}

/// A checkpoint that is looked through region by region, in the order of its head.
#[derive(Debug)]
pub struct Draft<'a> {
    head: &'a Head,
    parent: Option<&'a Chunks>,
    seed: u64,
    /// The bytes up to which an increment is wanted.
    most: u64,
    /// The checksum of the payload so far.
    sum: u64,
    regions: HashMap<String, Known>,
    /// The number of the next chunk, through all regions.
    next: u64,
    changes: Changes,
    /// The bytes of the changed chunks; `None` when they are not wanted, or too many.
    taken: Option<Vec<u8>>,
    /// Why nothing can come of it.
    failed: Option<FrameError>,
}

/// What a draft has found.
#[derive(Debug)]
pub struct Drafted {
    /// What the next checkpoint is compared with.
    pub chunks: Chunks,
    /// The frame of the increment; `None` without a parent, or if the frame would be larger than
    /// the limit that the caller gave.
    pub increment: Option<Vec<u8>>,
    /// The checksum of the payload.
    pub payload_sum: u64,
}

impl<'a> Draft<'a> {
    /// Compares with `parent`, where there is one of a lower version, for an increment of at most
    /// `most` bytes. All drafts of a chain have the same `seed`.
    #[must_use]
    pub fn new(head: &'a Head, parent: Option<&'a Chunks>, seed: u64, most: u64) -> Draft<'a> {
        let parent = parent.filter(|parent| parent.version < head.version);
        let (regions, changes) = (HashMap::new(), Changes::default());
        let taken = parent.map(|_| Vec::new());
        Draft { head, parent, seed, most, sum: 0, regions, next: 0, changes, taken, failed: None }
    }

    /// Looks through the stored bytes of the next region, and takes what has changed.
    ///
    /// # Panics
    /// When the head has no further region, or it has another length.
    pub fn look(&mut self, stored: &[u8]) {
        let (index, region) = self.begin();
        assert_eq!(region.stored, stored.len() as u64, "the region as its head has it");
        let old = self.old(region);
        let mut known = Known { stored: region.stored, ..Known::default() };
        let (first, mut changed, mut bytes) = (self.next, Changes::default(), 0);
        for (at, chunk) in stored.chunks(CHUNK_BYTES).enumerate() {
            // Both passes read a chunk that is in the cache then.
            self.push(&mut known, chunk);
            if old.is_none_or(|old| !old.has(at, known.hashes[at], chunk.len() as u64)) {
                changed.add(first + at as u64..first + at as u64 + 1);
                bytes += chunk.len();
            }
        }
        known.stream = Stream::of(region, stored);
        let delta = known.stream.as_ref().zip(old.and_then(|old| old.stream.as_ref()));
        let delta = delta.filter(|_| !changed.runs.is_empty());
        let delta = delta.and_then(|(stream, old)| stream.minus(old));
        match delta.filter(|delta| delta.len() < bytes) {
            Some(bytes) => self.changes.deltas.push(Delta { region: index, bytes }),
            None => {
                let places = places(&changed.runs, first, region.stored);
                places.for_each(|place| self.take(&stored[place]));
                changed.runs.into_iter().for_each(|run| self.changes.add(run));
            }
        }
        self.end(region, known);
    }

    /// Looks through the hashes of the chunks of the next region, whose bytes are elsewhere: `read`
    /// is given the places in it that have changed, and writes their bytes one after the other.
    /// What it writes is compared with the hashes. It is not for streams of Twine.
    ///
    /// # Errors
    /// What `read` returned: nothing can come of the draft then.
    ///
    /// # Panics
    /// When the head has no further region, or it has another number of chunks.
    pub fn look_hashed<E>(
        &mut self,
        hashes: &[u128],
        read: impl FnOnce(&[Range<usize>], &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let region = self.begin().1;
        assert_eq!(chunks_of(region.stored), hashes.len() as u64, "the region as its head has it");
        assert!(layout_of(region).is_none(), "a stream is needed as it is");
        let old = self.old(region);
        let (first, changed) = (self.next, changed(old, region, hashes));
        let runs: Vec<_> = changed.runs.iter().map(|r| first + r.start..first + r.end).collect();
        let places: Vec<_> = places(&changed.runs, 0, region.stored).collect();
        let bytes: usize = places.iter().map(Range::len).sum();
        let (mut aside, mut taken) = (Vec::new(), self.taken.take());
        let buffer = taken.as_mut().unwrap_or(&mut aside);
        let begin = buffer.len();
        if buffer.try_reserve(bytes).is_err() {
            let what = "there is no memory for the changed chunks";
            self.failed = Some(FrameError::new(FrameErrorKind::NoMemory, what));
            self.end(region, Known::default());
            return Ok(());
        }
        buffer.resize(begin + bytes, 0);
        if bytes > 0 {
            read(&places, &mut buffer[begin..])?;
        }
        let known = self.merged(region, old, (hashes, &changed), &buffer[begin..]);
        self.taken = taken.filter(|taken| taken.len() as u64 <= self.most);
        runs.into_iter().for_each(|run| self.changes.add(run));
        self.end(region, known);
        Ok(())
    }

    /// What is known of a region by the hashes that were told of it: of chunks that have changed by
    /// their bytes, which came one after the other, and else what was known of them.
    fn merged(
        &mut self,
        region: &Region,
        old: Option<&Known>,
        (hashes, changed): (&[u128], &Changes),
        mut bytes: &[u8],
    ) -> Known {
        let mut known = Known { stored: region.stored, ..Known::default() };
        let mut runs = changed.runs.iter().peekable();
        for (at, told) in hashes.iter().enumerate() {
            let len = chunk_len(region.stored, at as u64);
            while runs.next_if(|run| run.end <= at as u64).is_some() {}
            let has_changed = runs.peek().is_some_and(|run| run.start <= at as u64);
            if let Some(old) = old.filter(|_| !has_changed) {
                self.sum = joined_checksums(self.sum, old.sums[at], len);
                known.hashes.push(*told);
                known.sums.push(old.sums[at]);
                continue;
            }
            let (chunk, rest) = bytes.split_at(len as usize);
            self.push(&mut known, chunk);
            bytes = rest;
            if known.hashes[at] != *told {
                let what = "bytes that came do not have the hash that was told of them";
                self.failed = Some(FrameError::new(FrameErrorKind::Damaged, what));
            }
        }
        known
    }

    /// The next region. The gap before it is part of the payload.
    fn begin(&mut self) -> (usize, &'a Region) {
        let index = self.regions.len();
        let (head, gap) = (self.head, [0; crate::frame::REGION_ALIGNMENT as usize]);
        let region = &head.regions[index];
        let end = index.checked_sub(1).map_or(0, |before| head.regions[before].end());
        let gap = &gap[..(region.offset - end) as usize];
        self.sum = joined_checksums(self.sum, checksum(gap), gap.len() as u64);
        (index, region)
    }

    fn end(&mut self, region: &Region, known: Known) {
        self.next += chunks_of(region.stored);
        self.regions.insert(region.name.clone(), known);
    }

    /// What the parent has under that name.
    fn old(&self, region: &Region) -> Option<&'a Known> {
        self.parent?.regions.get(&region.name)
    }

    /// Hashes the next chunk of a region, and adds it to the checksum.
    fn push(&mut self, known: &mut Known, chunk: &[u8]) {
        let sum = checksum(chunk);
        self.sum = joined_checksums(self.sum, sum, chunk.len() as u64);
        known.hashes.push(chunk_hash(self.seed, chunk));
        known.sums.push(sum);
    }

    /// Takes changed bytes, as long as they are not too many.
    fn take(&mut self, bytes: &[u8]) {
        let most = self.most;
        let fits = |taken: &mut Vec<u8>| {
            let len = (taken.len() + bytes.len()) as u64;
            len <= most && taken.try_reserve(bytes.len()).is_ok()
        };
        self.taken = self.taken.take().and_then(|mut taken| fits(&mut taken).then_some(taken));
        self.taken.iter_mut().for_each(|taken| taken.extend_from_slice(bytes));
    }

    /// What was found, when all regions were looked through.
    ///
    /// # Errors
    /// When the frame of the increment would have more bytes than a frame may have; `Damaged` when
    /// bytes that were read do not have the hash that was given for them; `NoMemory` when there is
    /// no memory for the changed chunks.
    ///
    /// # Panics
    /// When some were not.
    pub fn finish(self) -> Result<Drafted, FrameError> {
        assert_eq!(self.regions.len(), self.head.regions.len(), "all regions were looked through");
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let payload_sum = self.sum;
        let (version, head) = (self.head.version, self.head.encode(payload_sum));
        let parent = self.parent.map(|one| Parent { version: one.version, sum: one.sum });
        let made = parent.zip(self.taken).map(|(parent, taken)| {
            frame_of(parent, (self.head, &head), (&self.changes, taken), self.most)
        });
        let increment = made.transpose()?.flatten();
        let chunks = Chunks { version, sum: sum_of(&head), regions: self.regions };
        Ok(Drafted { chunks, increment, payload_sum })
    }
}

impl Chunks {
    /// What is known of each region of a head: for tests.
    #[cfg(test)]
    pub(super) fn known(&self, head: &Head) -> Vec<(u64, Vec<u128>, Vec<u64>)> {
        let known = head.regions.iter().map(|region| self.regions[&region.name].clone());
        known.map(|known| (known.stored, known.hashes, known.sums)).collect()
    }

    /// How many bytes of a region have changed, by the hashes of its chunks.
    #[must_use]
    pub fn changed(&self, region: &Region, hashes: &[u128]) -> u64 {
        let changed = changed(self.regions.get(&region.name), region, hashes);
        places(&changed.runs, 0, region.stored).map(|place| place.len() as u64).sum()
    }
}

/// The chunks of a region that have changed, numbered in it.
fn changed(old: Option<&Known>, region: &Region, hashes: &[u128]) -> Changes {
    let mut changed = Changes::default();
    for (at, hash) in (0..).zip(hashes) {
        let len = chunk_len(region.stored, at);
        if old.is_none_or(|old| !old.has(at as usize, *hash, len)) {
            changed.add(at..at + 1);
        }
    }
    changed
}

/// The ranges of bytes that runs of chunks have in a region of `stored` bytes, whose first chunk is
/// number `first`.
fn places(runs: &[Range<u64>], first: u64, stored: u64) -> impl Iterator<Item = Range<usize>> {
    let at = move |chunk: u64| ((chunk - first) * CHUNK_BYTES as u64).min(stored) as usize;
    runs.iter().map(move |run| at(run.start)..at(run.end))
}

impl Known {
    /// Whether chunk `at` has this hash and this length.
    fn has(&self, at: usize, hash: u128, len: u64) -> bool {
        let same = self.hashes.get(at).is_some_and(|old| *old == hash);
        same && chunk_len(self.stored, at as u64) == len
    }
}

impl Stream {
    /// A copy of the stored bytes, where they are a stream of Twine and there is memory for it.
    fn of(region: &Region, stored: &[u8]) -> Option<Stream> {
        let layout = layout_of(region)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(stored.len()).ok()?;
        bytes.extend_from_slice(stored);
        Some(Stream { layout, bytes })
    }

    /// The difference to another one, where there can be one.
    fn minus(&self, old: &Stream) -> Option<Vec<u8>> {
        let alike = self.layout == old.layout;
        let made = alike.then(|| difference(&self.layout, &self.bytes, &old.bytes))?;
        // What is not a stream, as nobody makes it, is stored as it is.
        made.ok().flatten()
    }
}
