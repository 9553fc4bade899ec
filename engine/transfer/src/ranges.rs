//! Parts of a payload from a store: only the pieces in which they lie are read, and each of these
//! is compared with its checksum.

use std::ops::Range;
use std::sync::Arc;

use unspool_codec::{Head, PIECE_BYTES, PieceSums};
use unspool_core::CheckpointId;
use unspool_tiers::Tier;

use crate::error::TransferError;
use crate::frame::{Frame, corrupt, located, read_frame, staging, stored_head};
use crate::staging::{Buffer, Pool};

/// The most bytes that are read by one request.
const MOST: u64 = 16 << 20;

/// Reads `ranges` of the payload of `id`, as memory tiers hold it, one after the other into `into`.
/// A payload that is packed, or has no checksums of its pieces, is read whole.
///
/// # Errors
/// Those of [`Tier::get`], and [`Corrupt`](unspool_core::Failure::Corrupt) when the frame is not
/// the expected one, or a piece was changed; the content of `into` is then unspecified.
///
/// # Panics
/// When a range is not within the payload, or `into` has another length than all of them.
pub fn read_ranges(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    ranges: &[Range<u64>],
    into: &mut [u8],
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    let all: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    assert_eq!(into.len() as u64, all, "there is room for the ranges");
    let read = Payload::of(store, id, frame, buffers).and_then(|mut payload| {
        ranges.iter().try_fold(into, |into, range| payload.copy(range, into))
    });
    read.map(drop).map_err(|error| located(error, store, id, frame))
}

/// The checksums of the pieces of the payload of `id`, as memory tiers hold it; `None` where a
/// payload of several pieces has none.
///
/// # Errors
/// Those of [`Tier::get`], and [`Corrupt`](unspool_core::Failure::Corrupt) when they were changed,
/// or the frame is not the expected one.
pub fn read_sums(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    buffers: &Arc<Pool>,
) -> Result<Option<Vec<u64>>, TransferError> {
    let read = stored_head(store, id, frame, buffers).and_then(|head| match head.pieces {
        true => sums_of(store, id, frame, &head, buffers).map(|sums| Some(sums.into())),
        false if head.payload_bytes > PIECE_BYTES => Ok(None),
        false => Ok(frame.checksum().map(|sum| vec![sum])),
    });
    read.map_err(|error| located(error, store, id, frame))
}

fn sums_of(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    head: &Head,
    buffers: &Arc<Pool>,
) -> Result<PieceSums, TransferError> {
    let mut sums = staging(buffers, head.sums_bytes())?;
    store.get(id, head.sums_at(), &mut [&mut sums])?;
    // The head was read, so it is known.
    let whole = frame.checksum().unwrap_or_default();
    let sums = PieceSums::parse(&sums, head, whole);
    sums.map_err(|cause| corrupt(&format!("a part of it is damaged ({cause})")))
}

/// Where bytes of a payload come from.
enum Payload<'a> {
    /// All of it was read.
    Whole(Buffer),
    Pieces(Pieces<'a>),
}

/// Pieces that are read when they are wanted.
struct Pieces<'a> {
    store: &'a dyn Tier,
    id: CheckpointId,
    buffers: &'a Arc<Pool>,
    head: Head,
    sums: PieceSums,
    /// Those that were read last, from a byte of the payload on.
    last: Option<(u64, Buffer)>,
}

impl<'a> Payload<'a> {
    fn of(
        store: &'a dyn Tier,
        id: CheckpointId,
        frame: &Frame,
        buffers: &'a Arc<Pool>,
    ) -> Result<Payload<'a>, TransferError> {
        let head = stored_head(store, id, frame, buffers)?;
        if !head.pieces || head.packed.is_some() {
            let mut payload = staging(buffers, head.payload_bytes)?;
            read_frame(store, id, frame, true, &mut payload, buffers)?;
            return Ok(Payload::Whole(payload));
        }
        let sums = sums_of(store, id, frame, &head, buffers)?;
        Ok(Payload::Pieces(Pieces { store, id, buffers, head, sums, last: None }))
    }

    /// Copies a range to the beginning of `into`, and gives what is after it.
    fn copy<'b>(
        &mut self,
        range: &Range<u64>,
        mut into: &'b mut [u8],
    ) -> Result<&'b mut [u8], TransferError> {
        let mut at = range.start;
        while at < range.end {
            let found = match self {
                Payload::Whole(payload) => &payload[at as usize..range.end as usize],
                Payload::Pieces(pieces) => pieces.from(at, range.end)?,
            };
            let (now, rest) = into.split_at_mut(found.len());
            now.copy_from_slice(found);
            (into, at) = (rest, at + found.len() as u64);
        }
        Ok(into)
    }
}

impl Pieces<'_> {
    /// Bytes from `at` on, at least one, up to `end` or less.
    fn from(&mut self, at: u64, end: u64) -> Result<&[u8], TransferError> {
        let has =
            |(start, bytes): &(u64, Buffer)| (*start..*start + bytes.len() as u64).contains(&at);
        let (start, bytes) = match self.last.take().filter(has) {
            Some(last) => self.last.insert(last),
            None => {
                let start = at / PIECE_BYTES * PIECE_BYTES;
                let bytes = self.read(start, end.next_multiple_of(PIECE_BYTES))?;
                self.last.insert((start, bytes))
            }
        };
        let end = bytes.len().min((end - *start) as usize);
        Ok(&bytes[(at - *start) as usize..end])
    }

    /// Reads pieces and checks them.
    fn read(&self, start: u64, end: u64) -> Result<Buffer, TransferError> {
        let end = end.min(start + MOST).min(self.head.payload_bytes);
        let mut bytes = staging(self.buffers, end - start)?;
        self.store.get(self.id, self.head.encoded_len() + start, &mut [&mut bytes])?;
        let first = (start / PIECE_BYTES) as usize;
        match self.sums.damaged(first, &bytes) {
            None => Ok(bytes),
            Some(piece) => {
                let begin = piece as u64 * PIECE_BYTES;
                let what =
                    format!("the checksum of the {PIECE_BYTES} bytes at {begin} is another one");
                Err(corrupt(&what))
            }
        }
    }
}
