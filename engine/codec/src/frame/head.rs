//! The head of a frame: its content and how it is written.

use std::collections::HashSet;
use std::ops::Range;

use super::checksum::Checksum;
use super::error::{FrameError, FrameErrorKind};
use super::limits::{
    FIXED_BYTES, FLAG_PIECES, FORMAT_VERSION, HEAD_ALIGNMENT, HEAD_CHECKSUM_AT, MAGIC,
    MAX_HEAD_BYTES, MAX_REGIONS, PACKING_BYTES, PIECE_BYTES, PLAIN_VERSION,
};
use super::region::{Region, RegionSpec, StoredSize, quoted};
use crate::outer::OuterId;
use crate::spec::CodecId;

/// The arrays of a frame and their places.
///
/// Made by [`Head::layout`], [`Head::encoded`] and [`parse_head`](crate::parse_head), which check
/// every rule of the format. A head whose fields were changed afterwards may break them; encoding
/// it gives bytes that `parse_head` refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Head {
    /// The name of the checkpoint, usually the time step.
    pub version: i64,
    /// Its arrays, in the order of their places in the payload.
    pub regions: Vec<Region>,
    /// Bytes of the payload, as memory tiers hold it: up to the last stored byte of the last array.
    pub payload_bytes: u64,
    /// The packing of the payload in a store, if it is packed there.
    pub packed: Option<Packed>,
    /// Whether a store has the checksums of the payload's pieces after it: [`PieceSums`].
    ///
    /// [`PieceSums`]: crate::PieceSums
    pub pieces: bool,
    /// Whether any array was encoded when it was made: asked for each array of many.
    pub(super) encoded: bool,
}

/// A payload that an outer coder has packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// The outer coder.
    pub coder: OuterId,
    /// Bytes that the store holds after the head: at least one, and fewer than the payload has.
    pub bytes: u64,
}

/// An array, its codec and its size in the payload.
type Placing = (RegionSpec, CodecId, StoredSize);

impl Head {
    /// Places arrays that are not encoded one after the other, each at a multiple of 64 bytes.
    ///
    /// # Errors
    /// When the arrays exceed a limit of the format (number, rank, dimension, length of names,
    /// bytes of the payload or of the head), and when two of them have the same name.
    pub fn layout(version: i64, specs: Vec<RegionSpec>) -> Result<Head, FrameError> {
        let plain = |spec| (spec, CodecId::Raw, StoredSize::Plain);
        Head::place(version, specs.into_iter().map(plain))
    }

    /// Places arrays of which `stored` says how many bytes of the payload each takes: those of its
    /// stream, or its own when its codec is [`CodecId::Raw`]. Each begins at a multiple of 64.
    ///
    /// # Errors
    /// Those of [`Head::layout`], and when `stored` has not one length for every array or another
    /// one for an array that is not encoded.
    pub fn encoded(
        version: i64,
        arrays: Vec<(RegionSpec, CodecId)>,
        stored: &[u64],
    ) -> Result<Head, FrameError> {
        check_count(arrays.len(), stored)?;
        let sized = |((spec, codec), &stored)| (spec, codec, StoredSize::Exactly(stored));
        Head::place(version, arrays.into_iter().zip(stored).map(sized))
    }

    /// The largest head that [`Head::encoded`] can make of these arrays when no stream is longer
    /// than `most` says; for arrays that are not encoded `most` does not count. Room for its
    /// payload is enough for all of them.
    ///
    /// # Errors
    /// Those of [`Head::layout`], and when `most` has not one length for every array.
    pub fn worst(
        version: i64,
        arrays: Vec<(RegionSpec, CodecId)>,
        most: &[u64],
    ) -> Result<Head, FrameError> {
        check_count(arrays.len(), most)?;
        let sized = |((spec, codec), &most)| (spec, codec, StoredSize::AtMost(most));
        Head::place(version, arrays.into_iter().zip(most).map(sized))
    }

    /// The head that [`Head::encoded`] makes of the same arrays with other lengths of their
    /// streams.
    ///
    /// # Errors
    /// Those of [`Head::encoded`].
    pub fn with_stored(&self, stored: &[u64]) -> Result<Head, FrameError> {
        let arrays = self.regions.iter().map(|region| (region.spec(), region.codec)).collect();
        Head::encoded(self.version, arrays, stored)
    }

    fn place(
        version: i64,
        arrays: impl ExactSizeIterator<Item = Placing>,
    ) -> Result<Head, FrameError> {
        if arrays.len() > MAX_REGIONS {
            let what = format!("{} arrays were given, and may be {MAX_REGIONS}", arrays.len());
            return Err(FrameError::new(FrameErrorKind::Limit, what));
        }
        let mut regions: Vec<Region> = Vec::with_capacity(arrays.len());
        let mut payload_bytes = 0;
        for (spec, codec, size) in arrays {
            let region = spec.place(payload_bytes, codec, size)?;
            payload_bytes = region.end();
            regions.push(region);
        }
        if let Some(name) = repeated_name(&regions) {
            let what = format!("two arrays have the name {}", quoted(name));
            return Err(FrameError::new(FrameErrorKind::Invalid, what));
        }
        let encoded = any_encoded(&regions);
        let head = Head { version, regions, payload_bytes, packed: None, pieces: false, encoded };
        head.check_encoded_len()?;
        Ok(head)
    }

    /// The head of the same payload in a store that holds it packed, or as it is with `None`.
    ///
    /// # Errors
    /// When packing leaves no bytes or as many as there were, and when the head is then too long.
    pub fn with_packed(&self, packed: Option<Packed>) -> Result<Head, FrameError> {
        if let Some(Packed { bytes, .. }) = packed.filter(|p| !p.fits(self.payload_bytes)) {
            let what = format!(
                "a payload of {} bytes cannot be packed into {bytes} bytes",
                self.payload_bytes
            );
            return Err(FrameError::new(FrameErrorKind::Invalid, what));
        }
        let head = Head { packed, ..self.clone() };
        head.check_encoded_len()?;
        Ok(head)
    }

    /// The head of the same payload in a store that has the checksums of its pieces: none of a
    /// payload of one piece, of which the head has the checksum.
    #[must_use]
    pub fn with_pieces(&self) -> Head {
        Head { pieces: self.payload_bytes > PIECE_BYTES, ..self.clone() }
    }

    /// The head as memory tiers have it: neither packed nor with checksums of pieces.
    #[must_use]
    pub fn in_memory(&self) -> Head {
        Head { packed: None, pieces: false, ..self.clone() }
    }

    fn check_encoded_len(&self) -> Result<(), FrameError> {
        let bytes = self.encoded_len();
        if bytes <= MAX_HEAD_BYTES {
            return Ok(());
        }
        let what = format!("the head has {bytes} bytes, and may have {MAX_HEAD_BYTES}");
        Err(FrameError::new(FrameErrorKind::Limit, what))
    }

    /// Bytes of the encoded head: a multiple of 4096.
    #[must_use]
    pub fn encoded_len(&self) -> u64 {
        head_bytes(self.format_version(), self.table_bytes())
    }

    /// Bytes of the whole frame in a store: the head, the payload as it is there, and the checksums
    /// of its pieces if they are there.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        self.sums_at().saturating_add(self.sums_bytes())
    }

    /// Where the payload ends in a frame, and the checksums of its pieces begin if they are there.
    #[must_use]
    pub fn sums_at(&self) -> u64 {
        self.encoded_len().saturating_add(self.stored_bytes())
    }

    /// Bytes of the checksums of the pieces.
    #[must_use]
    pub fn sums_bytes(&self) -> u64 {
        if self.pieces { 8 * self.payload_bytes.div_ceil(PIECE_BYTES) } else { 0 }
    }

    /// Bytes after the head in a store.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.packed.map_or(self.payload_bytes, |packed| packed.bytes)
    }

    /// Whether any array is encoded.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.encoded
    }

    /// The lowest version of the format that can express this head.
    pub(crate) fn format_version(&self) -> u32 {
        if self.packed.is_some() || any_encoded(&self.regions) {
            FORMAT_VERSION
        } else {
            PLAIN_VERSION
        }
    }

    /// The array with this name, if there is one.
    #[must_use]
    pub fn region(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == name)
    }

    /// The bytes of the payload that belong to no array, in ascending order: fewer than 64
    /// before each array. A writer fills them with zeros, so that nothing that was in memory
    /// before leaves with the frame.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let ends = std::iter::once(0).chain(self.regions.iter().map(Region::end));
        ends.zip(&self.regions).map(|(end, region)| end..region.offset).filter(|r| !r.is_empty())
    }

    fn table_bytes(&self) -> usize {
        self.regions.iter().map(Region::entry_bytes).sum()
    }

    /// The encoded head, [`encoded_len`](Head::encoded_len) bytes, for a payload with this
    /// [`checksum`](crate::checksum).
    #[must_use]
    pub fn encode(&self, payload_checksum: u64) -> Vec<u8> {
        let head_bytes = self.encoded_len();
        let mut out = Vec::with_capacity(usize::try_from(head_bytes).unwrap_or(0));
        out.extend_from_slice(&MAGIC);
        put_u32(&mut out, self.format_version());
        put_u32(&mut out, if self.pieces { FLAG_PIECES } else { 0 });
        put_u64(&mut out, head_bytes);
        put_u64(&mut out, 0);
        put_u64(&mut out, self.payload_bytes);
        put_u64(&mut out, payload_checksum);
        out.extend_from_slice(&self.version.to_le_bytes());
        put_u32(&mut out, saturate(self.regions.len()));
        put_u32(&mut out, saturate(self.table_bytes()));
        if self.format_version() > PLAIN_VERSION {
            self.put_packing(&mut out);
        }
        for region in &self.regions {
            put_entry(&mut out, region);
        }
        pad(&mut out, HEAD_ALIGNMENT as usize);
        let sum = head_checksum(&out).to_le_bytes();
        out[HEAD_CHECKSUM_AT..][..8].copy_from_slice(&sum);
        out
    }

    fn put_packing(&self, out: &mut Vec<u8>) {
        let end = out.len() + PACKING_BYTES;
        put_u16(out, self.packed.map_or(0, |packed| packed.coder.code()));
        out.extend_from_slice(&[0; 6]);
        put_u64(out, self.stored_bytes());
        out.resize(end, 0);
    }
}

impl Packed {
    /// Whether a payload of this length can be packed like that.
    pub(crate) fn fits(self, payload_bytes: u64) -> bool {
        self.bytes > 0 && self.bytes < payload_bytes
    }
}

pub(super) fn any_encoded(regions: &[Region]) -> bool {
    regions.iter().any(|region| region.codec != CodecId::Raw)
}

fn check_count(arrays: usize, lengths: &[u64]) -> Result<(), FrameError> {
    if arrays == lengths.len() {
        return Ok(());
    }
    let what = format!("{arrays} arrays were given, and the lengths of {} streams", lengths.len());
    Err(FrameError::new(FrameErrorKind::Invalid, what))
}

/// Bytes of the head before the region table, in this version of the format.
pub(crate) fn fixed_bytes(format_version: u32) -> usize {
    if format_version > PLAIN_VERSION { FIXED_BYTES + PACKING_BYTES } else { FIXED_BYTES }
}

/// Bytes of a head with a region table of `table_bytes` bytes.
pub(crate) fn head_bytes(format_version: u32, table_bytes: usize) -> u64 {
    let fixed = fixed_bytes(format_version) as u64;
    fixed.saturating_add(table_bytes as u64).next_multiple_of(HEAD_ALIGNMENT)
}

/// The checksum of an encoded head, its own field counting as zero.
pub(crate) fn head_checksum(head: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    sum.update(&head[..HEAD_CHECKSUM_AT]);
    sum.update(&[0; 8]);
    sum.update(&head[HEAD_CHECKSUM_AT + 8..]);
    sum.value()
}

/// A name that occurs twice, if any.
pub(crate) fn repeated_name(regions: &[Region]) -> Option<&str> {
    let mut seen = HashSet::with_capacity(regions.len());
    regions.iter().map(|region| region.name.as_str()).find(|&name| !seen.insert(name))
}

fn put_entry(out: &mut Vec<u8>, region: &Region) {
    let tag = region.dtype.tag();
    put_u32(out, saturate(region.entry_bytes()));
    put_u16(out, saturate(region.name.len()));
    put_u16(out, saturate(tag.len()));
    put_u16(out, region.dtype.code());
    put_u16(out, region.codec.code());
    out.push(saturate(region.shape.len()));
    out.extend_from_slice(&[0; 3]);
    put_u64(out, region.dtype.itemsize());
    put_u64(out, region.offset);
    put_u64(out, region.bytes);
    put_u64(out, region.stored);
    for &dimension in &region.shape {
        put_u64(out, dimension);
    }
    out.extend_from_slice(region.name.as_bytes());
    out.extend_from_slice(tag.as_bytes());
    pad(out, 8);
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}

/// A count as its field holds it. The limits keep it within the field; where a caller has changed a
/// head beyond them, the largest value is written, which the parser refuses.
fn saturate<T: TryFrom<usize> + Bounded>(count: usize) -> T {
    T::try_from(count).unwrap_or(T::MAX)
}

trait Bounded {
    const MAX: Self;
}

impl Bounded for u8 {
    const MAX: u8 = u8::MAX;
}

impl Bounded for u16 {
    const MAX: u16 = u16::MAX;
}

impl Bounded for u32 {
    const MAX: u32 = u32::MAX;
}
