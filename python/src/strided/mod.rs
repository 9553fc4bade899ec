//! Copies between a strided array and dense memory in C order: gather and scatter.
//!
//! A save gathers straight into the arena and a restore scatters straight out of it, so that an
//! array that is not contiguous costs one pass over its elements and no temporary.

mod kernel;
mod transpose;
mod walk;

pub use walk::StridedWalk;

/// Copies every element of the array at `src` into `dst`, in C order.
///
/// # Safety
/// `walk` describes an array whose first element (all indices zero) lies at `src`; every element
/// of it is readable during the call, and none of them lies in `dst`.
pub unsafe fn gather(src: *const u8, walk: &StridedWalk, dst: &mut [u8]) {
    assert_eq!(dst.len(), walk.bytes(), "the dense side holds exactly the elements");
    // SAFETY: the strided side is the caller's promise; the dense side is `dst`, whose length was
    // just compared with the bytes of all elements. A gather only reads through `strided`.
    unsafe { kernel::run::<true>(src.cast_mut(), dst.as_mut_ptr(), walk) }
}

/// Copies `src`, dense in C order, into the elements of the array at `dst`.
///
/// # Safety
/// As for [`gather`], with every element of the array writable during the call.
pub unsafe fn scatter(src: &[u8], walk: &StridedWalk, dst: *mut u8) {
    assert_eq!(src.len(), walk.bytes(), "the dense side holds exactly the elements");
    // SAFETY: as above; a scatter only reads through `dense`.
    unsafe { kernel::run::<false>(dst, src.as_ptr().cast_mut(), walk) }
}

#[cfg(test)]
mod tests;
