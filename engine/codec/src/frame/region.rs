//! The arrays of a checkpoint and their places in the payload.

use std::ops::Range;

use super::error::{FrameError, FrameErrorKind};
use super::limits::{
    ENTRY_BYTES, MAX_DIMENSION, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, MAX_RANK, MAX_TAG_BYTES,
    REGION_ALIGNMENT,
};
use crate::dtype::Dtype;
use crate::spec::CodecId;

/// An array as the caller describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionSpec {
    /// Its name, unique in its checkpoint; may be empty.
    pub name: String,
    /// The type of its items.
    pub dtype: Dtype,
    /// Its dimensions, slowest first; none for a scalar.
    pub shape: Vec<u64>,
}

/// An array with its place in the payload: contiguous, row-major, little-endian items, as they are
/// or as the stream of a codec.
///
/// Made by [`Head::layout`](crate::Head::layout), [`Head::encoded`](crate::Head::encoded) and
/// [`parse_head`](crate::parse_head).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Region {
    /// Its name, unique in its checkpoint; may be empty.
    pub name: String,
    /// The type of its items.
    pub dtype: Dtype,
    /// Its dimensions, slowest first; none for a scalar.
    pub shape: Vec<u64>,
    /// Its first byte in the payload: a multiple of 64.
    pub offset: u64,
    /// Its length in bytes when it is decoded: the product of `shape` and the item size.
    pub bytes: u64,
    /// The codec that made its bytes in the payload.
    pub codec: CodecId,
    /// Its bytes in the payload; equal to `bytes` when it is not encoded.
    pub stored: u64,
}

/// How many bytes of the payload an array takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoredSize {
    /// As many as the array has.
    Plain,
    /// As many as its stream has; an array that is not encoded has to name its own length.
    Exactly(u64),
    /// At most as many as its stream has; an array that is not encoded takes its own length.
    AtMost(u64),
}

impl RegionSpec {
    /// Checks the limits and places the array after the byte `end` of the payload.
    pub(crate) fn place(
        self,
        end: u64,
        codec: CodecId,
        size: StoredSize,
    ) -> Result<Region, FrameError> {
        let bytes = check(&self.name, &self.dtype, &self.shape)?;
        let stored = self.stored(bytes, codec, size)?;
        let offset = end.next_multiple_of(REGION_ALIGNMENT);
        if stored > MAX_PAYLOAD_BYTES.saturating_sub(offset) {
            return Err(limit(format!(
                "the payload reaches byte {offset} before array {} of {stored} bytes, and may \
                 have {MAX_PAYLOAD_BYTES} bytes",
                quoted(&self.name)
            )));
        }
        let RegionSpec { name, dtype, shape } = self;
        Ok(Region { name, dtype, shape, offset, bytes, codec, stored })
    }

    fn stored(&self, bytes: u64, codec: CodecId, size: StoredSize) -> Result<u64, FrameError> {
        match (codec, size) {
            (CodecId::Raw, StoredSize::Exactly(stored)) if stored != bytes => {
                let name = quoted(&self.name);
                let what = format!(
                    "array {name} is not encoded and has {bytes} bytes, but {stored} are given"
                );
                Err(FrameError::new(FrameErrorKind::Invalid, what))
            }
            (CodecId::Raw, _) | (_, StoredSize::Plain) => Ok(bytes),
            (_, StoredSize::Exactly(stored) | StoredSize::AtMost(stored)) => Ok(stored),
        }
    }
}

impl Region {
    /// The byte after its last one in the payload.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.stored)
    }

    /// Where its stored bytes are in the payload.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }

    /// The array as its owner described it.
    #[must_use]
    pub fn spec(&self) -> RegionSpec {
        RegionSpec { name: self.name.clone(), dtype: self.dtype.clone(), shape: self.shape.clone() }
    }

    /// Bytes of its entry in the region table: a multiple of 8.
    pub(crate) fn entry_bytes(&self) -> usize {
        entry_bytes(self.shape.len(), self.name.len(), self.dtype.tag().len())
    }
}

/// Bytes of a region table entry, from the counts in it.
pub(crate) fn entry_bytes(rank: usize, name_bytes: usize, tag_bytes: usize) -> usize {
    (ENTRY_BYTES + 8 * rank + name_bytes + tag_bytes).next_multiple_of(8)
}

/// Checks one array against the limits and gives its length in bytes.
pub(crate) fn check(name: &str, dtype: &Dtype, shape: &[u64]) -> Result<u64, FrameError> {
    let named = || quoted(name);
    if name.len() > MAX_NAME_BYTES {
        return Err(limit(format!(
            "the name {} has {} bytes, and may have {MAX_NAME_BYTES}",
            named(),
            name.len()
        )));
    }
    if dtype.tag().len() > MAX_TAG_BYTES {
        return Err(limit(format!(
            "the dtype of array {} is described by {} bytes, and may be by {MAX_TAG_BYTES}",
            named(),
            dtype.tag().len()
        )));
    }
    if shape.len() > MAX_RANK {
        return Err(limit(format!(
            "array {} has {} dimensions, and may have {MAX_RANK}",
            named(),
            shape.len()
        )));
    }
    if let Some(large) = shape.iter().find(|&&d| d > MAX_DIMENSION) {
        return Err(limit(format!(
            "array {} has a dimension of {large}, and may have {MAX_DIMENSION}",
            named()
        )));
    }
    array_bytes(dtype.itemsize(), shape).ok_or_else(|| {
        limit(format!(
            "array {} with shape {shape:?} and items of {} bytes has more than the \
             {MAX_PAYLOAD_BYTES} bytes that a payload may have",
            named(),
            dtype.itemsize()
        ))
    })
}

/// The product of shape and item size, when it is not above the largest payload. An array with
/// a zero dimension has no bytes however large its other dimensions are.
fn array_bytes(itemsize: u64, shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let bytes = shape.iter().try_fold(itemsize, |bytes, &d| bytes.checked_mul(d))?;
    (bytes <= MAX_PAYLOAD_BYTES).then_some(bytes)
}

/// A name for an error text: quoted, escaped, and cut when it is long.
pub(crate) fn quoted(name: &str) -> String {
    const SHOWN: usize = 64;
    match name.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}...", &name[..cut]),
        None => format!("{name:?}"),
    }
}

fn limit(what: String) -> FrameError {
    FrameError::new(FrameErrorKind::Limit, what)
}
