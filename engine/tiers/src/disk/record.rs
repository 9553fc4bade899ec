//! What is in a pack: frames one after the other, without their zeros, each with a checksum of its
//! own. `docs/reference/format.md` specifies it.
//!
//! Invariants:
//! - The checksum of a record also covers where it lies: a copy of it elsewhere, in another pack or
//!   in the bytes of a frame, proves nothing.
//! - What a record says is used only after its checksum was compared.

use crc_fast::{CrcAlgorithm, Digest};
use unspool_core::CheckpointId;

use crate::disk::names::{PackFile, Tag};

/// The first bytes of every record.
const MAGIC: [u8; 4] = *b"\x89UNR";
/// Bytes of a record before those of its frame.
const HEADER: usize = 32;
/// Where the checksum lies in a header.
const CHECKSUM: usize = 24;
/// Records begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;
/// Bytes that are left out when all of them are zero.
const GRAIN: usize = 32;
/// Longer frames are never packed.
pub(super) const LONGEST: u64 = 65_535;

/// Where a packed frame lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) pack: PackFile,
    /// The first byte of its record.
    pub(super) offset: u32,
    /// Bytes of its record.
    pub(super) length: u32,
}

impl Place {
    pub(super) fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.length)
    }
}

/// A record that was found whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) id: CheckpointId,
    /// Bytes of the frame.
    pub(super) bytes: u64,
    pub(super) place: Place,
}

/// The frame of `id` as a record that has no place yet: [`seal`] gives it one.
pub(super) fn encode(id: CheckpointId, parts: &[&[u8]]) -> Vec<u8> {
    let mut record = vec![0; HEADER];
    let (mut bytes, mut zeros) = (0_u32, 0_u32);
    // Where the length of the span lies that is being written.
    let mut span = None;
    for grain in parts.iter().flat_map(|part| part.chunks(GRAIN)) {
        bytes += grain.len() as u32;
        if grain.iter().all(|&byte| byte == 0) {
            zeros += grain.len() as u32;
            span = None;
            continue;
        }
        let length = *span.get_or_insert_with(|| {
            record.extend(zeros.to_le_bytes());
            record.extend([0; 4]);
            zeros = 0;
            record.len() - 4
        });
        record.extend_from_slice(grain);
        let held = (record.len() - length - 4) as u32;
        record[length..length + 4].copy_from_slice(&held.to_le_bytes());
    }
    let body = (record.len() - HEADER) as u32;
    record[..4].copy_from_slice(&MAGIC);
    record[4..8].copy_from_slice(&body.to_le_bytes());
    record[8..16].copy_from_slice(&id.0.to_le_bytes());
    record[16..20].copy_from_slice(&bytes.to_le_bytes());
    record.resize(record.len().next_multiple_of(ALIGNMENT), 0);
    record
}

/// Writes the checksum of a record that is to begin at `offset` of a pack.
pub(super) fn seal(record: &mut [u8], tag: Tag, pack: PackFile, offset: u32) {
    let sum = checksum(&record[..CHECKSUM], &record[HEADER..], tag, pack, offset);
    record[CHECKSUM..HEADER].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(header: &[u8], body: &[u8], tag: Tag, pack: PackFile, offset: u32) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&tag.0.to_le_bytes());
    digest.update(&pack.0.to_le_bytes());
    digest.update(&offset.to_le_bytes());
    digest.update(header);
    digest.update(body);
    digest.finalize()
}

/// The record that `bytes` begin with, which lie at `offset` of a pack; `None` when there is none.
pub(super) fn check(bytes: &[u8], tag: Tag, pack: PackFile, offset: u32) -> Option<Found> {
    let header = bytes.get(..HEADER).filter(|header| header[..4] == MAGIC)?;
    let length = (HEADER + u32_at(header, 4)? as usize).next_multiple_of(ALIGNMENT);
    let body = bytes.get(HEADER..length)?;
    if u64_at(header, CHECKSUM)? != checksum(&header[..CHECKSUM], body, tag, pack, offset) {
        return None;
    }
    let place = Place { pack, offset, length: u32::try_from(length).ok()? };
    let bytes = u64::from(u32_at(header, 16)?);
    (bytes <= LONGEST).then_some(Found { id: CheckpointId(u64_at(header, 8)?), bytes, place })
}

/// The records of a pack, in their order. What is damaged is passed over.
pub(super) fn scan(bytes: &[u8], tag: Tag, pack: PackFile) -> Vec<Found> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at + HEADER <= bytes.len() {
        let Ok(offset) = u32::try_from(at) else { break };
        match check(&bytes[at..], tag, pack, offset) {
            Some(record) => {
                at += record.place.length as usize;
                found.push(record);
            }
            None => at += ALIGNMENT,
        }
    }
    found
}

/// The frame in a record that was checked; `None` when it is not as we write it.
pub(super) fn decode(record: &[u8]) -> Option<Vec<u8>> {
    let mut frame = vec![0; u32_at(record, 16)? as usize];
    let mut body = record.get(HEADER..HEADER + u32_at(record, 4)? as usize)?;
    let mut at = 0_usize;
    while !body.is_empty() {
        let (zeros, length) = (u32_at(body, 0)? as usize, u32_at(body, 4)? as usize);
        at = at.checked_add(zeros)?;
        let end = at.checked_add(length)?;
        frame.get_mut(at..end)?.copy_from_slice(body.get(8..8 + length)?);
        (at, body) = (end, &body[8 + length..]);
    }
    Some(frame)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
