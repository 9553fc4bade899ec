//! Packing and unpacking of one block.

use lz4_flex::block as lz4;
use zstd::bulk::{Compressor, Decompressor};

use super::numbers::Numbers;
use super::{Outer, OuterId};
use crate::memory::{copied, has_memory};

/// The most bytes that a coder needs in order to begin with a block.
const CONTEXT: usize = 1 << 20;

/// The level of Zstandard in archives: above it packing takes twice the time to save one part in
/// a hundred.
const ARCHIVE_LEVEL: i32 = 9;

/// How a block is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Stored = 0,
    Zstd = 1,
    Lz4 = 2,
    Pco = 3,
}

impl Method {
    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn from_code(code: u8) -> Option<Method> {
        let all = [Method::Stored, Method::Zstd, Method::Lz4, Method::Pco];
        all.get(usize::from(code)).copied()
    }

    /// Whether this outer coder uses it for a block that holds these numbers.
    pub(super) fn belongs_to(self, coder: OuterId, numbers: Option<Numbers>) -> bool {
        match self {
            Method::Stored => true,
            Method::Zstd => coder != OuterId::Lz4,
            Method::Lz4 => coder == OuterId::Lz4,
            Method::Pco => coder == OuterId::Archive && numbers.is_some(),
        }
    }
}

/// A packer of blocks, one after the other, in one thread.
pub(super) struct Packer {
    outer: Outer,
    /// `None` when there was no memory for it: blocks are then stored as they are.
    zstd: Option<Compressor<'static>>,
    room: Vec<u8>,
}

impl Packer {
    pub(super) fn new(outer: Outer) -> Packer {
        let level = match outer {
            Outer::Zstd(level) => Some(level.clamp(1, 22)),
            Outer::Archive => Some(ARCHIVE_LEVEL),
            Outer::Lz4 => None,
        };
        let level = level.filter(|_| has_memory(CONTEXT));
        Packer { outer, zstd: level.and_then(|level| Compressor::new(level).ok()), room: vec![] }
    }

    /// The shortest form of a block, if any is shorter than itself.
    pub(super) fn pack(
        &mut self,
        bytes: &[u8],
        numbers: Option<Numbers>,
    ) -> Option<(Method, Vec<u8>)> {
        let pco = self.pco(bytes, numbers);
        let other = match self.outer {
            Outer::Lz4 => self.lz4(bytes),
            Outer::Zstd(_) | Outer::Archive => self.zstd(bytes),
        };
        [pco, other].into_iter().flatten().min_by_key(|(_, packed)| packed.len())
    }

    fn pco(&self, bytes: &[u8], numbers: Option<Numbers>) -> Option<(Method, Vec<u8>)> {
        let numbers = numbers.filter(|_| self.outer == Outer::Archive)?;
        let packed = numbers.pack(bytes).filter(|packed| packed.len() < bytes.len())?;
        Some((Method::Pco, packed))
    }

    fn zstd(&mut self, bytes: &[u8]) -> Option<(Method, Vec<u8>)> {
        self.make_room(bytes.len() - 1)?;
        let len = self.zstd.as_mut()?.compress_to_buffer(bytes, &mut self.room[..]).ok()?;
        Some((Method::Zstd, copied(&self.room[..len])?))
    }

    fn lz4(&mut self, bytes: &[u8]) -> Option<(Method, Vec<u8>)> {
        self.make_room(lz4::get_maximum_output_size(bytes.len()))?;
        if !has_memory(CONTEXT) {
            return None;
        }
        let len = lz4::compress_into(bytes, &mut self.room).ok()?;
        let packed = self.room.get(..len).filter(|_| len < bytes.len())?;
        Some((Method::Lz4, copied(packed)?))
    }

    /// Makes `room` as long as that; `None` without memory for it.
    fn make_room(&mut self, len: usize) -> Option<()> {
        self.room.try_reserve_exact(len.saturating_sub(self.room.len())).ok()?;
        self.room.resize(len, 0);
        Some(())
    }
}

/// An unpacker of blocks, one after the other, in one thread.
#[derive(Default)]
pub(super) struct Unpacker {
    zstd: Option<Decompressor<'static>>,
}

impl Unpacker {
    /// Fills `target`: `false` when `packed` does not make exactly as many bytes, `None` without
    /// memory for it.
    pub(super) fn unpack(
        &mut self,
        method: Method,
        numbers: Option<Numbers>,
        packed: &[u8],
        target: &mut [u8],
    ) -> Option<bool> {
        match (method, numbers) {
            (Method::Stored, _) => {
                target.copy_from_slice(packed);
                Some(true)
            }
            (Method::Zstd, _) => self.zstd(packed, target),
            (Method::Lz4, _) => {
                Some(lz4::decompress_into(packed, target).is_ok_and(|len| len == target.len()))
            }
            (Method::Pco, Some(numbers)) => numbers.unpack(packed, target),
            (Method::Pco, None) => Some(false),
        }
    }

    fn zstd(&mut self, packed: &[u8], target: &mut [u8]) -> Option<bool> {
        if self.zstd.is_none() && has_memory(CONTEXT) {
            self.zstd = Decompressor::new().ok();
        }
        let done = self.zstd.as_mut()?.decompress_to_buffer(packed, target);
        Some(done.is_ok_and(|len| len == target.len()))
    }
}
