//! What one launch of the kernel does: which unit is copied from where to where. Pure, and laid
//! out as the kernel's own struct (kernels/strided.cu).

use crate::strided::layout::{Dim, MOST_MERGED, Merged};

/// Eight dimensions, and one for the units of a run.
pub(super) const MOST_DIMS: usize = MOST_MERGED + 1;

/// The largest unit that a thread copies at a time.
const LARGEST_UNIT_BITS: u32 = 4;

/// Which side the strides of a layout belong to.
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
pub(super) struct Walk {
    pub(super) units: u64,
    dims: u64,
    sizes: [u64; MOST_DIMS],
    from: [i64; MOST_DIMS],
    to: [i64; MOST_DIMS],
}

/// A walk and the bytes of its unit: 1, 2, 4, 8 or 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitWalk {
    pub(super) walk: Walk,
    pub(super) unit: u64,
}

impl UnitWalk {
    /// The walk over `merged`, whose array begins at `array` and whose dense copy at `dense`.
    ///
    /// The order is that of the memory that is written: neighbouring threads then write
    /// neighbouring bytes, and reads that are apart have the caches.
    pub(super) fn new(merged: &Merged, array: u64, dense: u64, direction: Direction) -> UnitWalk {
        let unit = unit_of(merged, array | dense);
        let mut dims = merged.dims.clone();
        if direction == Direction::Scatter {
            dims.sort_by_key(|dim| std::cmp::Reverse(dim.stride.unsigned_abs()));
        }
        if merged.run > unit {
            let (size, step) = (merged.run / unit, unit.cast_signed());
            dims.push(Dim { size, stride: step, dense: step });
        }
        UnitWalk { walk: Walk::over(&dims, direction), unit }
    }

    /// The kernel's name. Few enough units are counted in 32 bits, where division is cheap.
    pub(super) fn kernel(&self) -> String {
        let bits = if self.walk.units <= 1 << 31 { 32 } else { 64 };
        format!("copy_units_{}_{bits}", self.unit)
    }
}

impl Walk {
    fn over(dims: &[Dim], direction: Direction) -> Walk {
        debug_assert!(dims.len() <= MOST_DIMS);
        let mut walk = Walk {
            units: dims.iter().map(|dim| dim.size).product(),
            dims: dims.len() as u64,
            sizes: [1; MOST_DIMS],
            from: [0; MOST_DIMS],
            to: [0; MOST_DIMS],
        };
        for (index, dim) in dims.iter().enumerate() {
            walk.sizes[index] = dim.size;
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
