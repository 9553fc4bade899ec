//! The copying itself: loops over runs, specialised for the run lengths of ordinary items.

use super::transpose;
use super::walk::{Dim, StridedWalk};

/// Copies all runs of `walk`, from `strided` to `dense` if `GATHER`, else the other way.
///
/// # Safety
/// `strided` is the first element of an array that `walk` describes, `dense` points to
/// `walk.bytes()` bytes, the side that is read is readable, the other writable, and they do not
/// overlap.
pub unsafe fn run<const GATHER: bool>(strided: *mut u8, dense: *mut u8, walk: &StridedWalk) {
    // SAFETY: passed on; the unit has the size of a run in each arm.
    unsafe {
        match walk.unit() {
            0 => {}
            1 => loops::<GATHER, Item<1, 64>>(strided, dense, walk, Item),
            2 => loops::<GATHER, Item<2, 32>>(strided, dense, walk, Item),
            4 => loops::<GATHER, Item<4, 16>>(strided, dense, walk, Item),
            8 => loops::<GATHER, Item<8, 8>>(strided, dense, walk, Item),
            16 => loops::<GATHER, Item<16, 4>>(strided, dense, walk, Item),
            bytes => loops::<GATHER, RunLength>(strided, dense, walk, RunLength(bytes)),
        }
    }
}

/// How one run is copied.
trait Unit: Copy {
    /// Bytes of the run.
    fn bytes(self) -> usize;

    /// # Safety
    /// `from` is readable and `to` writable for `self.bytes()` bytes; they do not overlap.
    unsafe fn copy(self, from: *const u8, to: *mut u8);

    /// Copies a plane whose sides run in different directions.
    ///
    /// # Safety
    /// As for [`Plane::copy`].
    unsafe fn transpose<const GATHER: bool>(self, plane: &Plane, strided: *mut u8, dense: *mut u8) {
        // SAFETY: passed on.
        unsafe { plane.copy_rows::<GATHER, Self>(strided, dense, self) }
    }
}

/// A run of `N` bytes, `E` of which fill a cache line: a load and a store.
#[derive(Clone, Copy)]
struct Item<const N: usize, const E: usize>;

impl<const N: usize, const E: usize> Unit for Item<N, E> {
    #[inline(always)]
    fn bytes(self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn copy(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise; byte arrays need no alignment.
        unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) }
    }

    unsafe fn transpose<const GATHER: bool>(self, plane: &Plane, strided: *mut u8, dense: *mut u8) {
        // SAFETY: passed on.
        unsafe { transpose::tiles::<GATHER, N, E>(plane, strided, dense) }
    }
}

/// A run of any length.
#[derive(Clone, Copy)]
struct RunLength(usize);

impl Unit for RunLength {
    #[inline(always)]
    fn bytes(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn copy(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.0) }
    }
}

/// # Safety
/// As for [`run`]; `unit` copies `walk.unit()` bytes.
#[inline(always)]
unsafe fn copy_one<const GATHER: bool, U: Unit>(strided: *mut u8, dense: *mut u8, unit: U) {
    // SAFETY: the caller's promise, for the direction of the copy.
    unsafe { if GATHER { unit.copy(strided, dense) } else { unit.copy(dense, strided) } }
}

/// Runs the two innermost loops for every index of the outer ones.
///
/// # Safety
/// As for [`run`]; `unit` copies `walk.unit()` bytes.
unsafe fn loops<const GATHER: bool, U: Unit>(
    strided: *mut u8,
    dense: *mut u8,
    walk: &StridedWalk,
    unit: U,
) {
    let (outer, plane) = Plane::choose(walk);
    let mut index = vec![0_usize; outer.len()];
    let (mut at, mut to) = (0_isize, 0_usize);
    loop {
        // SAFETY: `at` and `to` are the offsets of the element with this outer index, which is
        // inside both sides; the plane's own loops are loops of the walk.
        unsafe { plane.copy::<GATHER, U>(strided.offset(at), dense.add(to), unit) };
        if !advance(&outer, &mut index, &mut at, &mut to) {
            return;
        }
    }
}

/// Steps to the next outer index, in C order; `false` after the last one.
fn advance(outer: &[Dim], index: &mut [usize], at: &mut isize, to: &mut usize) -> bool {
    for (dim, i) in outer.iter().zip(index.iter_mut()).rev() {
        *i += 1;
        *at += dim.stride;
        *to += dim.dense;
        if *i < dim.extent {
            return true;
        }
        *at -= dim.stride * dim.extent as isize;
        *to -= dim.dense * dim.extent;
        *i = 0;
    }
    false
}

/// The two loops that are run together.
pub struct Plane {
    pub rows: Dim,
    pub columns: Dim,
    /// The strided side moves less from row to row than from column to column, the dense side
    /// the other way round: a transposition.
    transposed: bool,
}

impl Plane {
    /// The innermost loop as columns, and as rows the loop with the smallest step on the strided
    /// side, so that every cache line of both sides is used up while it is near.
    fn choose(walk: &StridedWalk) -> (Vec<Dim>, Plane) {
        let mut outer = walk.dims().to_vec();
        let single = Dim { extent: 1, stride: 0, dense: 0 };
        let columns = outer.pop().unwrap_or(single);
        let nearest = (0..outer.len()).rev().min_by_key(|&i| outer[i].stride.unsigned_abs());
        let rows = nearest.map_or(single, |i| outer.remove(i));
        let transposed = rows.extent > 1
            && rows.stride.unsigned_abs() < columns.stride.unsigned_abs()
            && rows.stride != 0;
        (outer, Plane { rows, columns, transposed })
    }

    /// # Safety
    /// As for [`run`], for the part of the array that these loops visit.
    #[inline(always)]
    unsafe fn copy<const GATHER: bool, U: Unit>(&self, strided: *mut u8, dense: *mut u8, unit: U) {
        // SAFETY: passed on.
        unsafe {
            if self.transposed {
                unit.transpose::<GATHER>(self, strided, dense);
            } else {
                self.copy_rows::<GATHER, U>(strided, dense, unit);
            }
        }
    }

    /// # Safety
    /// As for [`Plane::copy`].
    unsafe fn copy_rows<const GATHER: bool, U: Unit>(
        &self,
        strided: *mut u8,
        dense: *mut u8,
        unit: U,
    ) {
        for row in 0..self.rows.extent {
            // SAFETY: `row` and `column` are below their extents, so that both addresses are
            // those of elements.
            unsafe {
                let from = strided.offset(self.rows.stride * row as isize);
                let to = dense.add(self.rows.dense * row);
                for column in 0..self.columns.extent {
                    let at = from.offset(self.columns.stride * column as isize);
                    copy_one::<GATHER, U>(at, to.add(unit.bytes() * column), unit);
                }
            }
        }
    }
}
