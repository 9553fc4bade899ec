//! The parser of heads: bytes of any origin go in, a head or a reason comes out.

use super::error::{FrameError, FrameErrorKind};
use super::head::{
    Head, Packed, any_encoded, fixed_bytes, head_bytes, head_checksum, repeated_name,
};
use super::limits::{
    ENTRY_BYTES, FIXED_BYTES, FLAG_PIECES, FLAGS_AT, FORMAT_VERSION, HEAD_ALIGNMENT, HEAD_BYTES_AT,
    HEAD_CHECKSUM_AT, MAGIC, MAX_HEAD_BYTES, MAX_REGIONS, PACKING_BYTES, PIECE_BYTES,
    PLAIN_VERSION, REGION_ALIGNMENT, VERSION_AT,
};
use super::region::{Region, check, entry_bytes, quoted};
use crate::dtype::{Dtype, OPAQUE_CODE};
use crate::outer::OuterId;
use crate::spec::CodecId;

/// The length of the head in bytes, from the first 64 bytes or more of a frame.
///
/// It says how much to read before [`parse_head`]; the checksum of the head is not checked yet,
/// only that the length is one that a head can have. The place of the length is the same in all
/// versions of the format, so the version is not looked at: without the checksum it proves nothing.
///
/// # Errors
/// When the bytes are fewer than 64, are not the beginning of a frame, or name a length that no
/// head has.
pub fn head_len(start: &[u8]) -> Result<u64, FrameError> {
    let seen = start.len().min(MAGIC.len());
    if start[..seen] != MAGIC[..seen] {
        return Err(foreign());
    }
    if start.len() < FIXED_BYTES {
        return Err(truncated(start.len(), FIXED_BYTES as u64));
    }
    Input { bytes: start, at: HEAD_BYTES_AT }.head_bytes()
}

/// The user version in the first 64 bytes or more of a frame, for bytes that something else than
/// the checksum of the head vouches for, such as a copy of them.
///
/// `None` when these bytes are not the beginning of a frame whose format version is known.
#[must_use]
pub fn version_of(start: &[u8]) -> Option<i64> {
    head_len(start).ok()?;
    Input { bytes: start, at: MAGIC.len() }.format_version().ok()?;
    Input { bytes: start, at: VERSION_AT }.take().ok().map(i64::from_le_bytes)
}

/// Reads a head and the checksum of its payload. `bytes` may go on after the head.
///
/// # Errors
/// When the bytes are not exactly what [`Head::encode`] makes of some head: a foreign file, an
/// end before the end of the head, a newer format, changed bytes, or a head that breaks a rule.
pub fn parse_head(bytes: &[u8]) -> Result<(Head, u64), FrameError> {
    let head_bytes = head_len(bytes)?;
    let head = usize::try_from(head_bytes).ok().and_then(|len| bytes.get(..len));
    let head = head.ok_or_else(|| truncated(bytes.len(), head_bytes))?;
    check_checksum(head)?;
    Input { bytes: head, at: MAGIC.len() }.head()
}

fn check_checksum(head: &[u8]) -> Result<(), FrameError> {
    let mut input = Input { bytes: head, at: HEAD_CHECKSUM_AT };
    let (written, found) = (input.u64()?, head_checksum(head));
    if written == found {
        return Ok(());
    }
    let what = format!("the checksum of the head is {found:#018x}, it was {written:#018x}");
    Err(FrameError::new(FrameErrorKind::Damaged, what).at(HEAD_CHECKSUM_AT))
}

fn foreign() -> FrameError {
    let what = "these bytes do not begin like a frame of Unspool";
    FrameError::new(FrameErrorKind::Foreign, what).at(0)
}

fn truncated(found: usize, expected: u64) -> FrameError {
    let what = format!("the head ends after {found} bytes, expected {expected}");
    FrameError::new(FrameErrorKind::Truncated, what)
}

/// The bytes and the place up to which they were read.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The fixed part of a region table entry.
struct RegionEntry {
    start: usize,
    bytes: usize,
    name_bytes: usize,
    tag_bytes: usize,
    rank: usize,
    dtype_code: u16,
    codec: CodecId,
    itemsize: u64,
    offset: u64,
    length: u64,
    stored: u64,
}

impl<'a> Input<'a> {
    fn head(&mut self) -> Result<(Head, u64), FrameError> {
        let format = self.format_version()?;
        let pieces = self.flags()?;
        let head_bytes = self.head_bytes()?;
        self.u64()?;
        let payload_bytes = self.u64()?;
        let payload_checksum = self.u64()?;
        let version = i64::from_le_bytes(self.take()?);
        if pieces && payload_bytes <= PIECE_BYTES {
            let what = format!("a payload of {payload_bytes} bytes has no checksums of pieces");
            return Err(malformed(what).at(FLAGS_AT));
        }
        let (count, table_bytes) = self.table(format, head_bytes)?;
        let packed = if format > PLAIN_VERSION { self.packing(payload_bytes)? } else { None };
        let regions = self.regions(format, count, table_bytes)?;
        self.zeros_until(self.bytes.len())?;
        if let Some(name) = repeated_name(&regions) {
            return Err(malformed(format!("two arrays have the name {}", quoted(name))));
        }
        let end = regions.last().map_or(0, Region::end);
        if payload_bytes != end {
            let what = format!("the payload has {payload_bytes} bytes, the arrays end at {end}");
            return Err(malformed(what).at(32));
        }
        let encoded = any_encoded(&regions);
        let head = Head { version, regions, payload_bytes, packed, pieces, encoded };
        if format != head.format_version() {
            let what = format!("nothing is encoded or packed, but the format version is {format}");
            return Err(malformed(what).at(MAGIC.len()));
        }
        Ok((head, payload_checksum))
    }

    fn format_version(&mut self) -> Result<u32, FrameError> {
        let at = self.at;
        match self.u32()? {
            known @ PLAIN_VERSION..=FORMAT_VERSION => Ok(known),
            0 => Err(malformed("the format version is 0").at(at)),
            newer => Err(self::newer(format!(
                "the frame has format version {newer}, this Unspool reads up to {FORMAT_VERSION}"
            ))
            .at(at)),
        }
    }

    /// Whether the checksums of pieces follow the payload.
    fn flags(&mut self) -> Result<bool, FrameError> {
        let at = self.at;
        match self.u32()? {
            0 => Ok(false),
            FLAG_PIECES => Ok(true),
            flags => Err(newer(format!("the frame has unknown flags {flags:#x}")).at(at)),
        }
    }

    fn head_bytes(&mut self) -> Result<u64, FrameError> {
        let at = self.at;
        let bytes = self.u64()?;
        if bytes.is_multiple_of(HEAD_ALIGNMENT)
            && (HEAD_ALIGNMENT..=MAX_HEAD_BYTES).contains(&bytes)
        {
            return Ok(bytes);
        }
        // The checksum covers bytes that are not known to be there, so no writer can be blamed.
        let what = format!(
            "a head of {bytes} bytes is not a multiple of {HEAD_ALIGNMENT} up to {MAX_HEAD_BYTES}"
        );
        Err(FrameError::new(FrameErrorKind::Damaged, what).at(at))
    }

    /// The number of regions and the bytes of the region table.
    fn table(&mut self, format: u32, head_bytes_read: u64) -> Result<(usize, usize), FrameError> {
        let at = self.at;
        let count = self.u32()? as usize;
        let table_bytes = self.u32()? as usize;
        if head_bytes(format, table_bytes) != head_bytes_read {
            let what = format!(
                "a region table of {table_bytes} bytes does not fit a head of {head_bytes_read}"
            );
            return Err(malformed(what).at(at + 4));
        }
        if count > MAX_REGIONS || count > table_bytes / ENTRY_BYTES {
            let what = format!("{count} arrays do not fit a region table of {table_bytes} bytes");
            return Err(malformed(what).at(at));
        }
        Ok((count, table_bytes))
    }

    /// The packing of the payload in the store.
    fn packing(&mut self, payload_bytes: u64) -> Result<Option<Packed>, FrameError> {
        let at = self.at;
        let code = self.u16()?;
        self.zeros_until(at + 8)?;
        let bytes = self.u64()?;
        self.zeros_until(at + PACKING_BYTES)?;
        if code == 0 {
            return if bytes == payload_bytes { Ok(None) } else { Err(not_packed(at, bytes)) };
        }
        let coder = OuterId::from_code(code).ok_or_else(|| {
            newer(format!("the payload is packed by unknown outer coder {code}")).at(at)
        })?;
        let packed = Packed { coder, bytes };
        if packed.fits(payload_bytes) {
            return Ok(Some(packed));
        }
        let what = format!("a payload of {payload_bytes} bytes is packed into {bytes} bytes");
        Err(malformed(what).at(at + 8))
    }

    /// The region table. Room is reserved only for as many entries as the bytes can hold, which
    /// [`table`](Self::table) has checked.
    fn regions(
        &mut self,
        format: u32,
        count: usize,
        table_bytes: usize,
    ) -> Result<Vec<Region>, FrameError> {
        let mut regions = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let region = self.region(format, end)?;
            end = region.end();
            regions.push(region);
        }
        if self.at != fixed_bytes(format) + table_bytes {
            let what = format!("{count} arrays do not fill a region table of {table_bytes} bytes");
            return Err(malformed(what).at(self.at));
        }
        Ok(regions)
    }

    fn region(&mut self, format: u32, end: u64) -> Result<Region, FrameError> {
        let entry = self.entry(format)?;
        let shape = (0..entry.rank).map(|_| self.u64()).collect::<Result<Vec<u64>, _>>()?;
        let name = self.text(entry.name_bytes)?;
        let tag = self.text(entry.tag_bytes)?;
        self.zeros_until(entry.start + entry.bytes)?;
        let dtype = dtype(&entry, tag)?;
        let bytes = check(&name, &dtype, &shape)
            .map_err(|e| malformed(e.what().to_owned()).at(entry.start))?;
        check_place(&entry, &name, bytes, end)?;
        let RegionEntry { offset, codec, stored, .. } = entry;
        Ok(Region { name, dtype, shape, offset, bytes, codec, stored })
    }

    fn entry(&mut self, format: u32) -> Result<RegionEntry, FrameError> {
        let start = self.at;
        let bytes = self.u32()? as usize;
        let name_bytes = usize::from(self.u16()?);
        let tag_bytes = usize::from(self.u16()?);
        let dtype_code = self.u16()?;
        let codec = self.codec(format)?;
        let rank = usize::from(self.take::<1>()?[0]);
        self.zeros_until(start + 16)?;
        let (itemsize, offset) = (self.u64()?, self.u64()?);
        let (length, stored) = (self.u64()?, self.u64()?);
        if bytes != entry_bytes(rank, name_bytes, tag_bytes) {
            let what = format!("an entry of {bytes} bytes does not fit its name, tag and rank");
            return Err(malformed(what).at(start));
        }
        if codec == CodecId::Raw && length != stored {
            let what = format!("an unencoded array has {length} bytes but is stored in {stored}");
            return Err(malformed(what).at(start + 40));
        }
        Ok(RegionEntry {
            start,
            bytes,
            name_bytes,
            tag_bytes,
            rank,
            dtype_code,
            codec,
            itemsize,
            offset,
            length,
            stored,
        })
    }

    /// The codec of an array; in version 1 there is none.
    fn codec(&mut self, format: u32) -> Result<CodecId, FrameError> {
        let at = self.at;
        let code = self.u16()?;
        let known = CodecId::from_code(code);
        known
            .filter(|&id| format > PLAIN_VERSION || id == CodecId::Raw)
            .ok_or_else(|| newer(format!("an array is encoded with unknown codec {code}")).at(at))
    }

    fn text(&mut self, len: usize) -> Result<String, FrameError> {
        let at = self.at;
        let bytes = self.slice(len)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|e| malformed("a text is not UTF-8").at(at + e.valid_up_to()))?;
        Ok(text.to_owned())
    }

    fn zeros_until(&mut self, end: usize) -> Result<(), FrameError> {
        let at = self.at;
        let padding = self.slice(end.saturating_sub(at))?;
        if padding.iter().fold(0, |all, byte| all | byte) == 0 {
            return Ok(());
        }
        let zeros = padding.iter().take_while(|&&byte| byte == 0).count();
        Err(malformed("a reserved byte is not zero").at(at + zeros))
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            malformed(format!("{len} bytes are announced beyond the end of the head")).at(self.at)
        })?;
        self.at += len;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.slice(N)?);
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.take().map(u64::from_le_bytes)
    }
}

fn dtype(entry: &RegionEntry, tag: String) -> Result<Dtype, FrameError> {
    if entry.dtype_code == OPAQUE_CODE {
        return Ok(Dtype::Opaque { itemsize: entry.itemsize, tag });
    }
    let dtype = Dtype::from_code(entry.dtype_code).ok_or_else(|| {
        newer(format!("an array has unknown dtype code {}", entry.dtype_code)).at(entry.start + 8)
    })?;
    if !tag.is_empty() {
        return Err(malformed(format!("items of {dtype} have a tag")).at(entry.start + 6));
    }
    if dtype.itemsize() != entry.itemsize {
        let what = format!("items of {dtype} cannot have {} bytes", entry.itemsize);
        return Err(malformed(what).at(entry.start + 16));
    }
    Ok(dtype)
}

/// Checks where an array lies: at the first multiple of 64 bytes after the one before it.
fn check_place(entry: &RegionEntry, name: &str, bytes: u64, end: u64) -> Result<(), FrameError> {
    let refuse = |at: usize, what: String| {
        let what = format!("array {} {what}", quoted(name));
        Err(malformed(what).at(entry.start + at))
    };
    let (offset, length) = (entry.offset, entry.length);
    if length != bytes {
        return refuse(32, format!("says {length} bytes, its shape and dtype make {bytes}"));
    }
    if !offset.is_multiple_of(REGION_ALIGNMENT) {
        return refuse(24, format!("begins at {offset}, no multiple of {REGION_ALIGNMENT}"));
    }
    if offset < end {
        return refuse(24, format!("begins at {offset}, within the array before it up to {end}"));
    }
    if offset != end.next_multiple_of(REGION_ALIGNMENT) {
        return refuse(24, format!("begins at {offset}, too far after the one before it at {end}"));
    }
    let stored = entry.stored;
    if stored > super::limits::MAX_PAYLOAD_BYTES.saturating_sub(offset) {
        let field = if entry.codec == CodecId::Raw { 32 } else { 40 };
        return refuse(
            field,
            format!("with {stored} bytes at {offset} exceeds the largest payload"),
        );
    }
    Ok(())
}

fn not_packed(at: usize, bytes: u64) -> FrameError {
    malformed(format!("a payload that is not packed is stored in {bytes} bytes")).at(at + 8)
}

fn malformed(what: impl Into<String>) -> FrameError {
    FrameError::new(FrameErrorKind::Malformed, what)
}

fn newer(what: impl Into<String>) -> FrameError {
    FrameError::new(FrameErrorKind::Newer, what)
}
