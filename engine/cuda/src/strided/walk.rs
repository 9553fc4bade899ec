//! The walk of one launch of the kernel: which unit is copied from where to where. Pure, and laid
//! out as the kernel's own struct (kernels/strided.cu).

use crate::strided::layout::{Dim, MOST_MERGED, Merged};
use crate::strided::tiles::{self, TilePart};

/// Eight dimensions, and one for the units of a run.
pub(super) const MOST_DIMS: usize = MOST_MERGED + 1;

/// Logarithm of the largest unit that a thread copies at a time.
const LARGEST_UNIT_BITS: u32 = 4;

/// The direction of a copy, which decides what side is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the array into its dense copy.
    Gather,
    /// From the dense copy into the array.
    Scatter,
}

/// The kernel's argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct WalkArgument {
    pub(super) units: u64,
    dims: u64,
    sizes: [u64; MOST_DIMS],
    from: [i64; MOST_DIMS],
    to: [i64; MOST_DIMS],
    shifts: [u64; MOST_DIMS],
}

/// The shift of a size that is not a power of two.
const NO_SHIFT: u64 = 64;

/// A walk and its unit in bytes: 1, 2, 4, 8 or 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitWalk {
    pub(super) walk: WalkArgument,
    pub(super) unit: u64,
    /// Distance of its first item from the first of all, in the array and in the dense copy.
    pub(super) array_at: i64,
    pub(super) dense_at: i64,
}

impl UnitWalk {
    /// The walks over `merged`, whose array begins at `array` and whose dense copy at `dense`: one,
    /// or one in tiles and others for the remainder.
    ///
    /// The order follows the memory that is written: neighbouring threads write neighbouring bytes,
    /// and scattered reads are cached.
    pub(super) fn all(
        merged: &Merged,
        array: u64,
        dense: u64,
        direction: Direction,
    ) -> Vec<UnitWalk> {
        let unit = unit_of(merged, array | dense);
        let mut dims = merged.dims.clone();
        if direction == Direction::Scatter {
            dims.sort_by_key(|dim| std::cmp::Reverse(dim.stride.unsigned_abs()));
        }
        let walk = |part: TilePart| UnitWalk {
            walk: WalkArgument::over(&with_units(part.dims, merged.run, unit), direction),
            unit,
            array_at: part.array_at,
            dense_at: part.dense_at,
        };
        tiles::parts(&dims, merged.run, direction).into_iter().map(walk).collect()
    }

    /// The kernel's name. Up to a limit units are counted in 32 bits, where division is cheap.
    pub(super) fn kernel(&self) -> String {
        let bits = if self.walk.units <= 1 << 31 { 32 } else { 64 };
        format!("copy_units_{}_{bits}", self.unit)
    }
}

/// Adds the units of a run as one more dimension, the innermost.
fn with_units(mut dims: Vec<Dim>, run: u64, unit: u64) -> Vec<Dim> {
    if run > unit {
        let step = unit.cast_signed();
        dims.push(Dim { size: run / unit, stride: step, dense: step });
    }
    dims
}

impl WalkArgument {
    fn over(dims: &[Dim], direction: Direction) -> WalkArgument {
        debug_assert!(dims.len() <= MOST_DIMS);
        let mut walk = WalkArgument {
            units: dims.iter().map(|dim| dim.size).product(),
            dims: dims.len() as u64,
            sizes: [1; MOST_DIMS],
            from: [0; MOST_DIMS],
            to: [0; MOST_DIMS],
            shifts: [NO_SHIFT; MOST_DIMS],
        };
        for (index, dim) in dims.iter().enumerate() {
            walk.sizes[index] = dim.size;
            if dim.size.is_power_of_two() {
                walk.shifts[index] = u64::from(dim.size.trailing_zeros());
            }
            (walk.from[index], walk.to[index]) = match direction {
                Direction::Gather => (dim.stride, dim.dense),
                Direction::Scatter => (dim.dense, dim.stride),
            };
        }
        walk
    }
}

/// The largest power of two, up to 16, to which everything is aligned.
fn unit_of(merged: &Merged, addresses: u64) -> u64 {
    let of_dims = merged.dims.iter().map(|dim| (dim.stride | dim.dense).cast_unsigned());
    let all = of_dims.fold(merged.run | addresses, |all, bits| all | bits);
    1 << all.trailing_zeros().min(LARGEST_UNIT_BITS)
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
