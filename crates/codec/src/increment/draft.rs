//! The search for what has changed.

use std::collections::HashMap;

use twox_hash::XxHash3_128;

use super::table::{Changed, Changes, Delta, Parent, sum_of};
use super::{CHUNK_BYTES, chunks_of, layout_of};
use crate::frame::{Checksum, FrameError, Head, Region};
use crate::twine::{Layout, difference};

/// What changes of a checkpoint are found by: the hashes of its chunks, and streams of Twine as
/// they are.
#[derive(Clone, Debug)]
pub struct Chunks {
    version: i64,
    sum: u64,
    regions: HashMap<String, Known>,
}

/// What is known of a region.
#[derive(Clone, Debug)]
struct Known {
    stored: u64,
    hashes: Vec<u128>,
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
    sum: Checksum,
    regions: HashMap<String, Known>,
    /// The number of the next chunk, through all regions.
    next: u64,
    changes: Changes,
}

/// What a draft has found.
#[derive(Debug)]
pub struct Drafted {
    /// What the next checkpoint is compared with.
    pub chunks: Chunks,
    /// What takes the increment; `None` where there is no parent, or too much has changed.
    pub increment: Option<Changed>,
    /// The checksum of the payload.
    pub payload_sum: u64,
}

impl<'a> Draft<'a> {
    /// Compares with `parent`, where there is one of a lower version. All drafts of a chain have
    /// the same `seed`.
    #[must_use]
    pub fn new(head: &'a Head, parent: Option<&'a Chunks>, seed: u64) -> Draft<'a> {
        let parent = parent.filter(|parent| parent.version < head.version);
        let (sum, regions, changes) = (Checksum::new(), HashMap::new(), Changes::default());
        Draft { head, parent, seed, sum, regions, next: 0, changes }
    }

    /// Looks through the stored bytes of the next region.
    ///
    /// # Panics
    /// When the head has no further region, or it has another length.
    pub fn look(&mut self, stored: &[u8]) {
        let index = self.regions.len();
        let region = &self.head.regions[index];
        assert_eq!(region.stored, stored.len() as u64, "the region as its head has it");
        self.pad_to(region, index);
        let old = self.parent.and_then(|parent| parent.regions.get(&region.name));
        let mut hashes = Vec::with_capacity(chunks_of(region.stored) as usize);
        let (mut changed, mut bytes) = (Changes::default(), 0);
        for (at, chunk) in stored.chunks(CHUNK_BYTES).enumerate() {
            // Both passes read a chunk that is in the cache then.
            self.sum.update(chunk);
            let hash = XxHash3_128::oneshot_with_seed(self.seed, chunk);
            hashes.push(hash);
            if old.is_none_or(|old| !old.has(at, hash, chunk.len())) {
                changed.add(self.next..self.next + 1);
                bytes += chunk.len();
            }
            self.next += 1;
        }
        let stream = Stream::of(region, stored);
        let delta = stream.as_ref().zip(old.and_then(|old| old.stream.as_ref()));
        let delta = delta.filter(|_| !changed.runs.is_empty());
        let delta = delta.and_then(|(stream, old)| stream.minus(old));
        match delta.filter(|delta| delta.len() < bytes) {
            Some(bytes) => self.changes.deltas.push(Delta { region: index, bytes }),
            None => changed.runs.into_iter().for_each(|run| self.changes.add(run)),
        }
        let known = Known { stored: region.stored, hashes, stream };
        self.regions.insert(region.name.clone(), known);
    }

    /// The gap before a region is part of the payload.
    fn pad_to(&mut self, region: &Region, index: usize) {
        let end = index.checked_sub(1).map_or(0, |before| self.head.regions[before].end());
        let gap = [0; crate::frame::REGION_ALIGNMENT as usize];
        self.sum.update(&gap[..(region.offset - end) as usize]);
    }

    /// What was found, when all regions were looked through. `most`: the bytes up to which an
    /// increment is wanted.
    ///
    /// # Errors
    /// When the frame of the increment would have more bytes than a frame may have.
    ///
    /// # Panics
    /// When some were not.
    pub fn finish(self, most: u64) -> Result<Drafted, FrameError> {
        assert_eq!(self.regions.len(), self.head.regions.len(), "all regions were looked through");
        let payload_sum = self.sum.value();
        let (version, head) = (self.head.version, self.head.encode(payload_sum));
        let parent = self.parent.map(|one| Parent { version: one.version, sum: one.sum });
        let made = parent.map(|parent| Changed::of(parent, (self.head, &head), self.changes, most));
        let increment = made.transpose()?.flatten();
        let chunks = Chunks { version, sum: sum_of(&head), regions: self.regions };
        Ok(Drafted { chunks, increment, payload_sum })
    }
}

impl Chunks {
    /// The checkpoint that they are of.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }
}

impl Known {
    /// Whether chunk `at` has this hash and this length.
    fn has(&self, at: usize, hash: u128, len: usize) -> bool {
        let same = self.hashes.get(at).is_some_and(|old| *old == hash);
        same && super::chunk_len(self.stored, at as u64) == len as u64
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
