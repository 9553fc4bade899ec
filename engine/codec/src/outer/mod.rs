//! Outer coders: what a store may do with a whole payload, without loss.
//!
//! A payload is cut into blocks of at most 1 MiB, which are packed one by one on several threads.
//! The head determines the blocks, and a table in front has the packed length of each. So unpacking
//! never allocates by a size that it reads: every block is unpacked into a part of the payload.
//! `docs/reference/format.md`, "Packed payloads", is the specification.

mod block;
mod cut;
mod numbers;

use rayon::prelude::*;

use crate::error::{CodecError, CodecErrorKind};
use crate::frame::Head;
use crate::workers::{self, WorkFor};
use block::{Method, Packer, Unpacker};
use cut::Block;

/// Bytes of an entry of the table.
const ENTRY: usize = 4;

/// The bits of an entry that hold the length of the packed block.
const LENGTH_BITS: u32 = 24;

/// The blocks that are packed before their bytes go to the output, which bounds the memory.
const BATCH: usize = 64;

/// A coder of whole payloads on their way into a store. The memory tiers never see packed payloads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outer {
    /// Zstandard with this level, from 1 (fast) to 22 (small).
    Zstd(i32),
    /// LZ4: faster, and less small.
    Lz4,
    /// The smallest lossless form, slow to write: pco for numbers that are not encoded already,
    /// Zstandard for the rest.
    Archive,
}

/// Which outer coder packed a payload, as a frame names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum OuterId {
    /// Zstandard.
    Zstd = 1,
    /// LZ4.
    Lz4 = 2,
    /// pco and Zstandard.
    Archive = 3,
}

impl OuterId {
    /// The number that stands for it in a frame; 0 is a payload that is not packed.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The outer coder with this number, if this version knows it.
    #[must_use]
    pub fn from_code(code: u16) -> Option<OuterId> {
        [OuterId::Zstd, OuterId::Lz4, OuterId::Archive].into_iter().find(|id| id.code() == code)
    }
}

impl Outer {
    /// The outer coder that people call `zstd`, `lz4` or `archive`.
    #[must_use]
    pub fn named(name: &str) -> Option<Outer> {
        match name {
            "zstd" => Some(Outer::default()),
            "lz4" => Some(Outer::Lz4),
            "archive" => Some(Outer::Archive),
            _ => None,
        }
    }

    /// The outer coder, without its level.
    #[must_use]
    pub fn id(self) -> OuterId {
        match self {
            Outer::Zstd(_) => OuterId::Zstd,
            Outer::Lz4 => OuterId::Lz4,
            Outer::Archive => OuterId::Archive,
        }
    }
}

impl Default for Outer {
    /// Zstandard at its own default level.
    fn default() -> Outer {
        Outer::Zstd(3)
    }
}

impl Outer {
    /// Packs the payload of `head` into the beginning of `out` and gives the packed length; `None`
    /// when it would not be shorter than the payload, or not fit `out`. `out` is best as long as
    /// the payload. It runs on half of the cores and takes up to 64 MiB of memory besides.
    #[must_use]
    pub fn pack(self, head: &Head, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        if payload.len() as u64 != head.payload_bytes {
            return None;
        }
        let blocks = cut::blocks(head, self.id());
        let limit = out.len().min(payload.len().saturating_sub(1));
        let mut end = blocks.len().checked_mul(ENTRY).filter(|&table| table <= limit)?;
        let mut entry = 0;
        for batch in blocks.chunks(BATCH) {
            for (method, packed) in pack_batch(self, payload, batch) {
                let place = out[..limit].get_mut(end..end + packed.len())?;
                place.copy_from_slice(packed.bytes());
                end += packed.len();
                let word = packed.len() as u32 | u32::from(method.code()) << LENGTH_BITS;
                out[entry..entry + ENTRY].copy_from_slice(&word.to_le_bytes());
                entry += ENTRY;
            }
        }
        (end > 0).then_some(end)
    }
}

/// The form in which a block is stored.
enum PackedBlock<'a> {
    Packed(Vec<u8>),
    Stored(&'a [u8]),
}

impl PackedBlock<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            PackedBlock::Packed(bytes) => bytes,
            PackedBlock::Stored(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }
}

fn pack_batch<'a>(
    outer: Outer,
    payload: &'a [u8],
    batch: &[Block],
) -> Vec<(Method, PackedBlock<'a>)> {
    let pack = |packer: &mut Packer, block: &Block| {
        let bytes = &payload[block.range.clone()];
        match packer.pack(bytes, block.numbers) {
            Some((method, packed)) => (method, PackedBlock::Packed(packed)),
            None => (Method::Stored, PackedBlock::Stored(bytes)),
        }
    };
    workers::share(WorkFor::Background, batch.len(), |shared| {
        if shared {
            return batch.par_iter().map_init(|| Packer::new(outer), pack).collect();
        }
        let mut packer = Packer::new(outer);
        batch.iter().map(|block| pack(&mut packer, block)).collect()
    })
}

/// Unpacks what a store holds after `head`, which says how it is packed, into `payload`. Any bytes
/// are safe: an error leaves `payload` unspecified. Only the checksum shows whether the result is
/// the payload that was packed.
///
/// # Errors
/// `Damaged` when the bytes are not a packed payload of this head, `Invalid` when `head` is not
/// packed or `payload` has another length than it says, `NoMemory`.
pub fn unpack(head: &Head, packed: &[u8], payload: &mut [u8]) -> Result<(), CodecError> {
    let packing = head.packed.filter(|_| payload.len() as u64 == head.payload_bytes);
    let Some(packing) = packing else {
        let what = "The payload is not packed, or the memory for it has another length.";
        return Err(CodecError::new(CodecErrorKind::Invalid, what));
    };
    if packed.len() as u64 != packing.bytes {
        let what = format!("it has {} bytes and its head says {}", packed.len(), packing.bytes);
        return Err(damaged(&what));
    }
    let blocks = cut::blocks(head, packing.coder);
    let tasks = tasks(packing.coder, &blocks, packed, payload)?;
    unpack_all(tasks)
}

/// A packed block, its form, and the part of the payload that it unpacks to.
struct BlockTask<'a> {
    index: usize,
    method: Method,
    block: &'a Block,
    packed: &'a [u8],
    target: &'a mut [u8],
}

/// Reads the table and checks every length in it.
fn tasks<'a>(
    coder: OuterId,
    blocks: &'a [Block],
    packed: &'a [u8],
    payload: &'a mut [u8],
) -> Result<Vec<BlockTask<'a>>, CodecError> {
    let table_bytes = blocks.len() * ENTRY;
    let (table, mut rest) = packed
        .split_at_checked(table_bytes)
        .ok_or_else(|| damaged(&format!("it ends before byte {table_bytes}, in its table")))?;
    let mut tasks = Vec::with_capacity(blocks.len());
    let mut room = payload;
    for (index, (block, entry)) in blocks.iter().zip(table.as_chunks::<ENTRY>().0).enumerate() {
        let (method, len) = read_entry(coder, block, *entry)
            .map_err(|what| damaged(&format!("block {index} {what}")))?;
        let (bytes, after) = rest
            .split_at_checked(len)
            .ok_or_else(|| damaged(&format!("it ends within block {index}")))?;
        let (target, others) = room.split_at_mut(block.range.len());
        (rest, room) = (after, others);
        tasks.push(BlockTask { index, method, block, packed: bytes, target });
    }
    if rest.is_empty() { Ok(tasks) } else { Err(damaged("it goes on after its last block")) }
}

fn read_entry(
    coder: OuterId,
    block: &Block,
    entry: [u8; ENTRY],
) -> Result<(Method, usize), String> {
    let word = u32::from_le_bytes(entry);
    let code = (word >> LENGTH_BITS) as u8;
    let len = (word & ((1 << LENGTH_BITS) - 1)) as usize;
    let method = Method::from_code(code).filter(|method| method.belongs_to(coder, block.numbers));
    let method = method.ok_or_else(|| format!("is packed by method {code}"))?;
    let whole = block.range.len();
    let possible = if method == Method::Stored { len == whole } else { len > 0 && len < whole };
    if possible { Ok((method, len)) } else { Err(format!("of {whole} bytes is packed into {len}")) }
}

fn unpack_all(tasks: Vec<BlockTask<'_>>) -> Result<(), CodecError> {
    let unpack = |unpacker: &mut Unpacker, task: BlockTask<'_>| {
        let BlockTask { index, method, block, packed, target } = task;
        match unpacker.unpack(method, block.numbers, packed, target) {
            Some(true) => Ok(()),
            Some(false) => Err(damaged(&format!("block {index} cannot be unpacked"))),
            None => Err(no_memory()),
        }
    };
    // The application may wait for these bytes.
    workers::share(WorkFor::Urgent, tasks.len(), |shared| {
        if shared {
            return tasks.into_par_iter().map_init(Unpacker::default, unpack).collect();
        }
        let mut unpacker = Unpacker::default();
        tasks.into_iter().try_for_each(|task| unpack(&mut unpacker, task))
    })
}

fn no_memory() -> CodecError {
    let what = "This machine has no memory left to unpack it: free some and try again.";
    CodecError::new(CodecErrorKind::NoMemory, what)
}

fn damaged(what: &str) -> CodecError {
    let message = format!("The packed payload is damaged: {what}. Check the storage.");
    CodecError::new(CodecErrorKind::Damaged, message)
}
