//! A whole checkpoint, made of a full frame and the increments that follow it.

use std::collections::HashMap;

use super::table::{Increment, Runs, malformed, sum_of};
use super::{CHUNK_BYTES, chunk_len, layout_of};
use crate::error::{CodecError, CodecErrorKind};
use crate::frame::{FrameError, FrameErrorKind, Head, Region, checksum, parse_head};
use crate::twine;

/// A whole checkpoint in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whole {
    head: Head,
    /// The checksum of the head.
    sum: u64,
    payload_sum: u64,
    payload: Vec<u8>,
}

impl Whole {
    /// The checkpoint of a full frame.
    ///
    /// # Errors
    /// When the bytes are not one, or its payload was changed.
    pub fn of(mut frame: Vec<u8>) -> Result<Whole, FrameError> {
        let (head, payload_sum) = parse_head(&frame)?;
        let len = head.encoded_len();
        if head.packed.is_some() || head.pieces || head.frame_bytes() != frame.len() as u64 {
            return Err(malformed("it is not the frame of a whole checkpoint"));
        }
        let sum = sum_of(&frame);
        let payload = frame.split_off(len as usize);
        let whole = Whole { head, sum, payload_sum, payload };
        whole.check()?;
        Ok(whole)
    }

    /// Compares the payload with its checksum.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check(&self) -> Result<(), FrameError> {
        let (found, expected) = (checksum(&self.payload), self.payload_sum);
        if found == expected {
            return Ok(());
        }
        let what = format!("the checksum of its payload is {found:#018x}, it was {expected:#018x}");
        Err(FrameError::new(FrameErrorKind::Damaged, what))
    }

    /// The frame of it.
    #[must_use]
    pub fn into_frame(self) -> Vec<u8> {
        let mut frame = self.head.encode(self.payload_sum);
        let mut payload = self.payload;
        frame.append(&mut payload);
        frame
    }
}

impl Increment {
    /// The checkpoint that this is an increment to `parent` of, with the changed chunks and
    /// differences. Its payload is not compared with its checksum: [`Whole::check`] does that once
    /// for a chain.
    ///
    /// # Errors
    /// `Invalid` when `parent` is another checkpoint than the one that it builds on, `Malformed`
    /// when that has not what the table takes from it.
    pub fn apply(self, parent: Whole, chunks: &[u8]) -> Result<Whole, FrameError> {
        if (parent.head.version, parent.sum) != (self.parent.version, self.parent.sum) {
            let what = format!(
                "it builds on another checkpoint of version {} than the one that is there",
                self.parent.version
            );
            return Err(FrameError::new(FrameErrorKind::Invalid, what));
        }
        let streams = self.streams(&parent, chunks)?;
        let mut payload = match is_same_layout(&self.head, &parent.head) {
            true => parent.payload,
            false => rearranged(&self, &parent)?,
        };
        let (mut runs, mut from) = (Runs::of(&self.changed), 0);
        for region in &self.head.regions {
            for chunk in runs.take(region.stored) {
                let (at, len) = place(region, chunk);
                let source = chunks.get(from..from + len);
                let source = source.ok_or_else(|| malformed("it has fewer chunks than it says"))?;
                payload[at..at + len].copy_from_slice(source);
                from += len;
            }
        }
        for (region, stream) in streams {
            payload[region.offset as usize..][..stream.len()].copy_from_slice(&stream);
        }
        let Increment { head, sum, payload_sum, .. } = self;
        Ok(Whole { head, sum, payload_sum, payload })
    }

    /// The regions that are stored as differences, put together.
    fn streams(&self, parent: &Whole, chunks: &[u8]) -> Result<Vec<(Region, Vec<u8>)>, FrameError> {
        let bytes: usize = self.deltas.iter().map(|(_, bytes)| bytes).sum();
        let mut from = chunks.len().checked_sub(bytes);
        let mut take = |bytes: usize| {
            let begin = from?;
            from = Some(begin + bytes);
            chunks.get(begin..begin + bytes)
        };
        let named = if self.deltas.is_empty() { HashMap::new() } else { by_name(&parent.head) };
        let stream = |&(index, bytes): &(usize, usize)| {
            let delta = take(bytes).ok_or_else(|| malformed("it has fewer bytes than it says"))?;
            let region = &self.head.regions[index];
            let old = named.get(region.name.as_str()).copied();
            let layouts = layout_of(region).zip(old.and_then(layout_of));
            let alike = layouts.filter(|(layout, old)| layout == old).zip(old);
            let ((layout, _), old) =
                alike.ok_or_else(|| malformed("its parent lacks what it builds on"))?;
            let old = &parent.payload[old.offset as usize..][..old.stored as usize];
            let stream = twine::add(&layout, delta, old);
            let stream = stream.map_err(|cause| refused(&cause))?;
            if stream.len() as u64 != region.stored {
                return Err(malformed("its head has another length for a stream"));
            }
            Ok((region.clone(), stream))
        };
        self.deltas.iter().map(stream).collect()
    }
}

/// Why a stream cannot be put together.
fn refused(cause: &CodecError) -> FrameError {
    let kind = match cause.kind() {
        CodecErrorKind::NoMemory => FrameErrorKind::NoMemory,
        CodecErrorKind::Newer => FrameErrorKind::Newer,
        _ => FrameErrorKind::Malformed,
    };
    FrameError::new(kind, cause.to_string())
}

fn by_name(head: &Head) -> HashMap<&str, &Region> {
    head.regions.iter().map(|region| (region.name.as_str(), region)).collect()
}

fn is_same_layout(one: &Head, other: &Head) -> bool {
    let key = |region: &Region| (region.offset, region.stored);
    let same = |(a, b): (&Region, &Region)| key(a) == key(b) && a.name == b.name;
    one.regions.len() == other.regions.len() && one.regions.iter().zip(&other.regions).all(same)
}

/// The payload with the chunks that are those of the parent at their new places.
fn rearranged(increment: &Increment, parent: &Whole) -> Result<Vec<u8>, FrameError> {
    let len = usize::try_from(increment.head.payload_bytes).ok();
    let mut payload = Vec::new();
    let room = len.filter(|len| payload.try_reserve_exact(*len).is_ok());
    let len = room.ok_or_else(|| {
        let what = "there is no memory for the whole checkpoint";
        FrameError::new(FrameErrorKind::NoMemory, what)
    })?;
    payload.resize(len, 0);
    let old = by_name(&parent.head);
    let mut runs = Runs::of(&increment.changed);
    let mut deltas = increment.deltas.iter().map(|(index, _)| *index).peekable();
    for (index, region) in increment.head.regions.iter().enumerate() {
        let is_delta = deltas.next_if_eq(&index).is_some();
        let mut stored = runs.take(region.stored).peekable();
        for chunk in 0..super::chunks_of(region.stored) {
            if is_delta || stored.next_if_eq(&chunk).is_some() {
                continue;
            }
            let (at, len) = place(region, chunk);
            let source = old.get(region.name.as_str());
            let source = source.filter(|old| chunk_len(old.stored, chunk) == len as u64);
            let source = source.ok_or_else(|| malformed("its parent lacks what it builds on"))?;
            let from = place(source, chunk).0;
            payload[at..at + len].copy_from_slice(&parent.payload[from..from + len]);
        }
    }
    Ok(payload)
}

/// Where a chunk of a region lies in the payload, and its length.
fn place(region: &Region, chunk: u64) -> (usize, usize) {
    let at = region.offset + chunk * CHUNK_BYTES as u64;
    (at as usize, chunk_len(region.stored, chunk) as usize)
}
