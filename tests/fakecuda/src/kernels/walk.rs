//! The kernels that copy strided items, with the interface of `engine/cuda/kernels/strided.cu`.

use crate::codes::{Code, Outcome};
use crate::memory::Memory;

const MOST_DIMS: usize = 9;

/// Words of a walk: the number of units, that of dimensions, and three lists.
pub(super) const WORDS: usize = 2 + 3 * MOST_DIMS;

/// A dimension: number of units, and the strides on both sides.
#[derive(Clone, Copy, Debug)]
struct Dim {
    size: u64,
    from: i64,
    to: i64,
}

fn dims_of(walk: &[u64]) -> Outcome<Vec<Dim>> {
    let count = walk[1] as usize;
    if count > MOST_DIMS {
        return Err(Code::LAUNCH_FAILED);
    }
    let list = |first: usize| &walk[2 + first * MOST_DIMS..][..count];
    let sides = list(1).iter().zip(list(2));
    let dims = list(0).iter().zip(sides).map(|(&size, (&from, &to))| Dim {
        size,
        from: from.cast_signed(),
        to: to.cast_signed(),
    });
    Ok(dims.collect())
}

/// Parameters: `to`, `from` and a walk. Copies units of `UNIT` bytes.
pub(super) fn copy<const UNIT: usize>(memory: &Memory, device: u32, parameters: &[u64]) -> Outcome {
    let [to, from, walk @ ..] = parameters else { return Err(Code::LAUNCH_FAILED) };
    let dims = dims_of(walk)?;
    if dims.iter().map(|dim| dim.size).product::<u64>() != walk[0] {
        return Err(Code::LAUNCH_FAILED);
    }
    check(memory, device, *to, dims.iter().map(|dim| (dim.size, dim.to)), UNIT)?;
    check(memory, device, *from, dims.iter().map(|dim| (dim.size, dim.from)), UNIT)?;
    for index in 0..walk[0] {
        let (from_at, to_at) = place(&dims, index);
        let to = to.wrapping_add_signed(to_at) as *mut [u8; UNIT];
        let from = from.wrapping_add_signed(from_at) as *const [u8; UNIT];
        // SAFETY: both ranges were checked, under the lock that prevents freeing.
        unsafe { to.write(from.read()) };
    }
    Ok(())
}

/// The distance of unit `index` from the first one, on both sides.
fn place(dims: &[Dim], index: u64) -> (i64, i64) {
    let (mut rest, mut from, mut to) = (index, 0, 0);
    for dim in dims.iter().rev() {
        let place = (rest % dim.size).cast_signed();
        rest /= dim.size;
        from += place * dim.from;
        to += place * dim.to;
    }
    (from, to)
}

/// Checks that everything between the lowest and the highest unit is memory of the device, and that
/// units are aligned to their size: a device would fault otherwise.
fn check(
    memory: &Memory,
    device: u32,
    first: u64,
    dims: impl Iterator<Item = (u64, i64)>,
    unit: usize,
) -> Outcome {
    let (mut low, mut high, mut all) = (0, 0, first);
    for (size, step) in dims {
        let reach = step * (size.max(1) - 1).cast_signed();
        low += reach.min(0);
        high += reach.max(0);
        all |= if size > 1 { step.unsigned_abs() } else { 0 };
    }
    if !all.is_multiple_of(unit as u64) {
        return Err(Code::MISALIGNED_ADDRESS);
    }
    let len = (high - low).unsigned_abs() + unit as u64;
    memory.check_of(device, first.wrapping_add_signed(low), len)
}
