//! Arrays of Fortran where the module `mpi_f08` takes them as such, as those of MPICH and of Open
//! MPI from version 6 on do: a call has the address of a descriptor, whose layout is that of the
//! compiler. The layout of gfortran is known (`libgfortran.h`, since version 9). With any other
//! compiler such arrays are not looked at.

use std::sync::OnceLock;

use crate::real::find;

/// The address of an array whose values do not lie one after the other, or may not: it is not
/// looked at.
pub(crate) const SCATTERED: usize = usize::MAX;

/// Dimensions of an array at most.
const MOST: usize = 15;

/// A descriptor of gfortran; as many dimensions follow as it says.
#[repr(C)]
struct Descriptor {
    first: usize,
    _offset: isize,
    element_bytes: usize,
    _version: i32,
    rank: i8,
    _kind: i8,
    _attribute: i16,
    span: isize,
}

/// A dimension of such an array. Its stride counts elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Dimension {
    stride: isize,
    lower: isize,
    upper: isize,
}

/// Where the values of an array begin; `SCATTERED` when there are gaps between them.
///
/// # Safety
/// The address is that of a descriptor of the compiler of the program, or 0.
pub(crate) unsafe fn address_of(descriptor: usize) -> usize {
    if descriptor == 0 {
        return 0;
    }
    if !is_gfortran() {
        return SCATTERED;
    }
    let place = descriptor as *const Descriptor;
    // SAFETY: as the caller says, and it is one of gfortran.
    let array = unsafe { &*place };
    let Some(rank) = usize::try_from(array.rank).ok().filter(|rank| *rank <= MOST) else {
        return SCATTERED;
    };
    // SAFETY: the same; they follow it.
    let dimensions = unsafe { std::slice::from_raw_parts(place.add(1).cast::<Dimension>(), rank) };
    // A component of each of several items has the span of an item.
    let has_own_span = array.span == 0 || array.span == array.element_bytes as isize;
    if has_own_span && is_dense(dimensions) { array.first } else { SCATTERED }
}

/// Whether the values of an array of these dimensions lie one after the other. How long the last
/// dimension is says nothing, and may not be known.
fn is_dense(dimensions: &[Dimension]) -> bool {
    let mut stride = 1;
    dimensions.iter().all(|one| {
        let follows = one.stride == stride;
        stride *= (one.upper - one.lower + 1).max(0);
        follows
    })
}

fn is_gfortran() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| !find(c"_gfortran_set_args").is_null())
}

#[cfg(test)]
mod tests {
    use super::{Dimension, is_dense};

    fn dimensions(all: &[(isize, isize, isize)]) -> Vec<Dimension> {
        all.iter().map(|&(stride, lower, upper)| Dimension { stride, lower, upper }).collect()
    }

    #[test]
    fn an_array_has_no_gaps_when_each_dimension_begins_where_the_one_before_it_ends() {
        for (all, right) in [
            (&[][..], true),
            (&[(1, 1, 10)], true),
            (&[(2, 1, 10)], false),
            (&[(-1, 1, 10)], false),
            (&[(1, 0, 9), (10, 1, 5)], true),
            (&[(1, 0, 8), (10, 1, 5)], false),
            // The last one of an array of assumed size.
            (&[(1, 1, 10), (10, 1, -1)], true),
        ] {
            assert_eq!(is_dense(&dimensions(all)), right, "{all:?}");
        }
    }
}
