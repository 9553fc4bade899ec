//! Blocks of numbers, packed by pco.

use half::f16;
use pco::ChunkConfig;
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress_into};

use crate::dtype::Dtype;
use crate::memory::has_memory;

/// The most bytes that are worked in for each byte of a block.
const SCRATCH: usize = 16;

/// The numbers of a block: their type, and how many make an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Numbers {
    kind: NumberKind,
    /// 2 for complex items: their parts are packed apart from each other.
    parts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NumberKind {
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

/// Calls a generic function with the Rust type of these numbers.
macro_rules! of_kind {
    ($kind:expr, $call:ident($($argument:expr),*)) => {
        match $kind {
            NumberKind::I16 => $call(i16::from_le_bytes, i16::to_le_bytes, $($argument),*),
            NumberKind::I32 => $call(i32::from_le_bytes, i32::to_le_bytes, $($argument),*),
            NumberKind::I64 => $call(i64::from_le_bytes, i64::to_le_bytes, $($argument),*),
            NumberKind::U16 => $call(u16::from_le_bytes, u16::to_le_bytes, $($argument),*),
            NumberKind::U32 => $call(u32::from_le_bytes, u32::to_le_bytes, $($argument),*),
            NumberKind::U64 => $call(u64::from_le_bytes, u64::to_le_bytes, $($argument),*),
            NumberKind::F16 => $call(f16::from_le_bytes, f16::to_le_bytes, $($argument),*),
            NumberKind::F32 => $call(f32::from_le_bytes, f32::to_le_bytes, $($argument),*),
            NumberKind::F64 => $call(f64::from_le_bytes, f64::to_le_bytes, $($argument),*),
        }
    };
}

impl Numbers {
    /// The numbers of an array of this dtype, if pco knows them.
    pub(super) fn of(dtype: &Dtype) -> Option<Numbers> {
        let (kind, parts) = match dtype {
            Dtype::Int16 => (NumberKind::I16, 1),
            Dtype::Int32 => (NumberKind::I32, 1),
            Dtype::Int64 => (NumberKind::I64, 1),
            Dtype::UInt16 | Dtype::BFloat16 => (NumberKind::U16, 1),
            Dtype::UInt32 => (NumberKind::U32, 1),
            Dtype::UInt64 => (NumberKind::U64, 1),
            Dtype::Float16 => (NumberKind::F16, 1),
            Dtype::Float32 => (NumberKind::F32, 1),
            Dtype::Float64 => (NumberKind::F64, 1),
            Dtype::Complex64 => (NumberKind::F32, 2),
            Dtype::Complex128 => (NumberKind::F64, 2),
            _ => return None,
        };
        Some(Numbers { kind, parts })
    }

    /// The bytes that pco makes of whole items; `None` when it cannot.
    pub(super) fn pack(self, bytes: &[u8]) -> Option<Vec<u8>> {
        of_kind!(self.kind, pack(self.parts, bytes))
    }

    /// Fills `target`: `false` when `packed` does not make exactly as many items, `None` without
    /// memory for it.
    pub(super) fn unpack(self, packed: &[u8], target: &mut [u8]) -> Option<bool> {
        of_kind!(self.kind, unpack(self.parts, packed, target))
    }
}

fn pack<T: Number, const N: usize>(
    read: fn([u8; N]) -> T,
    _write: fn(T) -> [u8; N],
    parts: usize,
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let (all, rest) = bytes.as_chunks::<N>();
    debug_assert!(rest.is_empty() && all.len().is_multiple_of(parts), "items are whole");
    if !has_memory(SCRATCH * bytes.len()) {
        return None;
    }
    let part = |part: usize| all.iter().skip(part).step_by(parts).map(|bytes| read(*bytes));
    let numbers: Vec<T> = (0..parts).flat_map(part).collect();
    simple_compress(&numbers, &ChunkConfig::default()).ok()
}

fn unpack<T: Number + Default, const N: usize>(
    _read: fn([u8; N]) -> T,
    write: fn(T) -> [u8; N],
    parts: usize,
    packed: &[u8],
    target: &mut [u8],
) -> Option<bool> {
    if !has_memory(SCRATCH * target.len()) {
        return None;
    }
    let (all, _) = target.as_chunks_mut::<N>();
    let mut numbers = vec![T::default(); all.len()];
    let done = simple_decompress_into(packed, &mut numbers);
    if !done.is_ok_and(|done| done.finished && done.n_processed == all.len()) {
        return Some(false);
    }
    let items = all.len() / parts;
    for (part, numbers) in numbers.chunks_exact(items.max(1)).enumerate() {
        let places = all.iter_mut().skip(part).step_by(parts);
        places.zip(numbers).for_each(|(place, number)| *place = write(*number));
    }
    Some(true)
}
