//! The table of an increment: its parent, the head of the whole checkpoint, and which chunks are
//! stored. One table has exactly one encoding.

use std::ops::Range;

use super::{CHUNK_BYTES, chunk_len, chunks_of, layout_of};
use crate::dtype::Dtype;
use crate::frame::{
    FrameError, FrameErrorKind, HEAD_ALIGNMENT, Head, RegionSpec, checksum, head_len, parse_head,
};
use crate::spec::CodecId;

/// The region with the table.
const TABLE: &str = "unspool.increment";

/// The region with the changed chunks.
const CHUNKS: &str = "unspool.chunks";

const MAGIC: [u8; 8] = *b"\x89UNSI\r\n\x1a";

/// The versions of a table: of chunks alone, and with differences.
const OF_CHUNKS: u32 = 1;
const WITH_DELTAS: u32 = 2;

/// Bytes before the head, and before the number of differences.
const FIXED: usize = 48;

/// Where a head has its own checksum.
const HEAD_CHECKSUM_AT: Range<usize> = 24..32;

/// The checkpoint that an increment builds on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Parent {
    /// Its version.
    pub version: i64,
    /// The checksum of its whole head, which has that of its payload: another checkpoint of that
    /// version is noticed.
    pub sum: u64,
}

/// What the table of an increment says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Increment {
    pub(super) parent: Parent,
    /// The head of the whole checkpoint, with the checksum of its payload.
    pub(super) head: Head,
    pub(super) payload_sum: u64,
    /// The checksum of that head.
    pub(super) sum: u64,
    /// The chunks that are stored, numbered through all regions.
    pub(super) changed: Vec<Range<u64>>,
    /// The regions that are stored as differences, with their bytes.
    pub(super) deltas: Vec<(usize, usize)>,
}

/// What has changed of a checkpoint.
#[derive(Clone, Default, Debug)]
pub(super) struct Changes {
    /// The chunks that are stored, numbered through all regions.
    pub runs: Vec<Range<u64>>,
    /// In the order of their regions, of which no chunk is stored.
    pub deltas: Vec<Delta>,
}

/// A region as its difference to that of the parent.
#[derive(Clone, Debug)]
pub(super) struct Delta {
    pub region: usize,
    pub bytes: Vec<u8>,
}

impl Changes {
    /// Adds chunks that follow all others.
    pub fn add(&mut self, run: Range<u64>) {
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.runs.push(run),
        }
    }

    /// The bytes of all of them.
    pub fn bytes_of(&self, head: &Head) -> u64 {
        let deltas: u64 = self.deltas.iter().map(|delta| delta.bytes.len() as u64).sum();
        bytes_of(&self.runs, head) + deltas
    }
}

/// Whether a frame with this head is an increment.
#[must_use]
pub fn is_increment(head: &Head) -> bool {
    let bytes = |name: &str, region: &crate::Region| {
        let plain = region.dtype == Dtype::UInt8 && region.codec == CodecId::Raw;
        region.name == name && plain && region.shape.len() == 1
    };
    matches!(&head.regions[..], [table, chunks] if bytes(TABLE, table) && bytes(CHUNKS, chunks))
}

/// The checksum that an encoded head has of itself.
pub(super) fn sum_of(head: &[u8]) -> u64 {
    let mut sum = [0; 8];
    sum.copy_from_slice(&head[HEAD_CHECKSUM_AT]);
    u64::from_le_bytes(sum)
}

/// The fewest bytes that an increment can have, of a checkpoint with this head of which `changed`
/// bytes have changed. It is known before those are read, so that none are read for an increment
/// that would be too large.
#[must_use]
pub fn least_bytes(head: &Head, changed: u64) -> u64 {
    HEAD_ALIGNMENT + FIXED as u64 + head.encoded_len() + changed
}

/// The frame of the increment of the checkpoint with this head, of which this has changed since
/// `parent`, with the bytes of the changed chunks; `None` when it would have more than `most`
/// bytes.
pub(super) fn frame_of(
    parent: Parent,
    (head, encoded): (&Head, &[u8]),
    (changes, chunks): (&Changes, Vec<u8>),
    most: u64,
) -> Result<Option<Vec<u8>>, FrameError> {
    let table = encode(parent, encoded, changes);
    let spec = |name: &str, bytes: u64| RegionSpec {
        name: name.to_owned(),
        dtype: Dtype::UInt8,
        shape: vec![bytes],
    };
    let specs = vec![spec(TABLE, table.len() as u64), spec(CHUNKS, changes.bytes_of(head))];
    let outer = Head::layout(head.version, specs)?;
    let bytes = outer.frame_bytes();
    // The chunks move to their place: they are not in memory twice.
    let mut frame = chunks;
    let more = bytes.saturating_sub(frame.len() as u64);
    let fits = bytes <= most
        && usize::try_from(more).is_ok_and(|more| frame.try_reserve_exact(more).is_ok());
    if !fits {
        return Ok(None);
    }
    let begin = outer.encoded_len() as usize;
    let end = begin + outer.regions[1].offset as usize;
    changes.deltas.iter().for_each(|delta| frame.extend_from_slice(&delta.bytes));
    let len = frame.len();
    assert_eq!((end + len) as u64, bytes, "chunks as the table says");
    frame.resize(end + len, 0);
    frame.copy_within(..len, end);
    frame[begin..end].fill(0);
    frame[begin..begin + table.len()].copy_from_slice(&table);
    let front = outer.encode(checksum(&frame[begin..]));
    frame[..begin].copy_from_slice(&front);
    Ok(Some(frame))
}

/// The bytes of these chunks of a checkpoint.
fn bytes_of(runs: &[Range<u64>], head: &Head) -> u64 {
    let mut runs = Runs::of(runs);
    let stored = head.regions.iter().map(|region| region.stored);
    stored.map(|stored| runs.take(stored).map(|at| chunk_len(stored, at)).sum::<u64>()).sum()
}

fn encode(parent: Parent, head: &[u8], changes: &Changes) -> Vec<u8> {
    let Changes { runs, deltas } = changes;
    let format = if deltas.is_empty() { OF_CHUNKS } else { WITH_DELTAS };
    let mut table = MAGIC.to_vec();
    table.extend_from_slice(&format.to_le_bytes());
    table.extend_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
    table.extend_from_slice(&parent.version.to_le_bytes());
    table.extend_from_slice(&parent.sum.to_le_bytes());
    table.extend_from_slice(&(runs.len() as u64).to_le_bytes());
    table.extend_from_slice(&(head.len() as u64).to_le_bytes());
    if format == WITH_DELTAS {
        table.extend_from_slice(&(deltas.len() as u64).to_le_bytes());
    }
    table.extend_from_slice(head);
    let runs = runs.iter().map(|run| [run.start, run.end - run.start]);
    let deltas = deltas.iter().map(|delta| [delta.region as u64, delta.bytes.len() as u64]);
    for number in runs.chain(deltas).flatten() {
        table.extend_from_slice(&number.to_le_bytes());
    }
    table
}

impl Increment {
    /// What the payload of a frame that [is an increment](is_increment) says, and the changed
    /// chunks and differences in it. The payload was compared with its checksum, or not: nothing
    /// here is trusted.
    ///
    /// # Errors
    /// `Malformed`, `Newer`, and those of [`parse_head`].
    pub fn parse<'a>(outer: &Head, payload: &'a [u8]) -> Result<(Increment, &'a [u8]), FrameError> {
        let part = |index: usize| {
            let range = outer.regions.get(index)?.range();
            payload.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
        };
        let (true, Some(table), Some(chunks)) = (is_increment(outer), part(0), part(1)) else {
            return Err(malformed("the frame is not one of an increment"));
        };
        let found = Increment::parse_table(table)?;
        if found.head.version != outer.version {
            return Err(malformed("it is that of another version"));
        }
        let deltas = found.deltas.iter().map(|(_, bytes)| *bytes as u64);
        let bytes = deltas.fold(bytes_of(&found.changed, &found.head), u64::saturating_add);
        if bytes != chunks.len() as u64 {
            return Err(malformed("it has other chunks than its table says"));
        }
        Ok((found, chunks))
    }

    fn parse_table(table: &[u8]) -> Result<Increment, FrameError> {
        let (fixed, rest) =
            table.split_at_checked(FIXED).ok_or_else(|| malformed("its table is cut off"))?;
        if fixed[..8] != MAGIC {
            return Err(malformed("its table does not begin as one"));
        }
        let word = |at: usize| fixed[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let format = word(8) as u32;
        if word(8) >> 32 != CHUNK_BYTES as u64 || ![OF_CHUNKS, WITH_DELTAS].contains(&format) {
            let what = "its table has a format that this version of Unspool does not know";
            return Err(FrameError::new(FrameErrorKind::Newer, what));
        }
        let (runs, head_bytes) = (word(32), word(40));
        let (deltas, rest) = deltas_of(format, rest)?;
        let (encoded, numbers) = usize::try_from(head_bytes)
            .ok()
            .and_then(|len| rest.split_at_checked(len))
            .ok_or_else(|| malformed("the head in its table is cut off"))?;
        let (pairs, rest) = numbers.as_chunks::<16>();
        if !rest.is_empty() || pairs.len() as u64 != runs.saturating_add(deltas) {
            return Err(malformed("its table has another length than it says"));
        }
        let (runs, deltas) = pairs.split_at(runs as usize);
        let (head, payload_sum) = parse_head(encoded)?;
        if head_len(encoded)? != head_bytes || head.packed.is_some() {
            return Err(malformed("the head in its table is not one of a whole checkpoint"));
        }
        let parent = Parent { version: word(16).cast_signed(), sum: word(24) };
        if parent.version >= head.version {
            return Err(malformed("it builds on one that does not come before it"));
        }
        let changed = parse_runs(runs, &head)?;
        let deltas = parse_deltas(deltas, &head, &changed)?;
        Ok(Increment { parent, head, payload_sum, sum: sum_of(encoded), changed, deltas })
    }

    /// The checkpoint that it builds on.
    #[must_use]
    pub fn parent(&self) -> Parent {
        self.parent
    }

    /// The head of the whole checkpoint.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }
}

/// The number of differences, and the table after it.
fn deltas_of(format: u32, table: &[u8]) -> Result<(u64, &[u8]), FrameError> {
    if format == OF_CHUNKS {
        return Ok((0, table));
    }
    let (count, rest) =
        table.split_first_chunk::<8>().ok_or_else(|| malformed("its table is cut off"))?;
    match u64::from_le_bytes(*count) {
        // One without any has the other version.
        0 => Err(malformed("its table has no differences")),
        count => Ok((count, rest)),
    }
}

fn numbers(pair: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*pair);
    (both as u64, (both >> 64) as u64)
}

/// Runs in ascending order, none empty, none that touches the one before.
fn parse_runs(pairs: &[[u8; 16]], head: &Head) -> Result<Vec<Range<u64>>, FrameError> {
    let total: u64 = head.regions.iter().map(|region| chunks_of(region.stored)).sum();
    let mut runs: Vec<Range<u64>> = Vec::with_capacity(pairs.len());
    for (start, len) in pairs.iter().map(numbers) {
        let end = start.checked_add(len).filter(|end| len > 0 && *end <= total);
        let follows = runs.last().is_none_or(|last| last.end < start);
        let Some(end) = end.filter(|_| follows) else {
            return Err(malformed("its table names chunks that make no sense"));
        };
        runs.push(start..end);
    }
    Ok(runs)
}

/// Differences in the order of their regions, which are streams of Twine without stored chunks.
fn parse_deltas(
    pairs: &[[u8; 16]],
    head: &Head,
    runs: &[Range<u64>],
) -> Result<Vec<(usize, usize)>, FrameError> {
    let mut runs = Runs::of(runs);
    let chunks: Vec<bool> =
        head.regions.iter().map(|region| runs.take(region.stored).next().is_some()).collect();
    let mut deltas: Vec<(usize, usize)> = Vec::with_capacity(pairs.len());
    for (region, bytes) in pairs.iter().map(numbers) {
        let region = usize::try_from(region).ok().filter(|region| {
            let follows = deltas.last().is_none_or(|(last, _)| last < region);
            let stream = head.regions.get(*region).and_then(layout_of);
            follows && stream.is_some() && !chunks[*region]
        });
        let Some(pair) = region.zip(usize::try_from(bytes).ok()) else {
            return Err(malformed("its table names differences that make no sense"));
        };
        deltas.push(pair);
    }
    Ok(deltas)
}

pub(super) fn malformed(what: &str) -> FrameError {
    FrameError::new(FrameErrorKind::Malformed, what)
}

/// Goes through runs region by region.
pub(super) struct Runs<'a> {
    runs: std::slice::Iter<'a, Range<u64>>,
    current: Option<Range<u64>>,
    /// The number of the first chunk of the next region.
    base: u64,
}

impl<'a> Runs<'a> {
    pub(super) fn of(runs: &'a [Range<u64>]) -> Runs<'a> {
        let mut runs = runs.iter();
        let current = runs.next().cloned();
        Runs { runs, current, base: 0 }
    }

    /// The chunks of the next region, which has so many stored bytes, by their numbers in it.
    pub(super) fn take(&mut self, stored: u64) -> std::vec::IntoIter<u64> {
        let (base, end) = (self.base, self.base + chunks_of(stored));
        self.base = end;
        let mut found = Vec::new();
        while let Some(run) = &mut self.current {
            let until = run.end.min(end);
            found.extend((run.start..until).map(|chunk| chunk - base));
            run.start = run.start.max(until);
            if !run.is_empty() {
                break;
            }
            self.current = self.runs.next().cloned();
        }
        found.into_iter()
    }
}
