//! The copying itself: loops over runs, specialised for the run lengths of ordinary items.

use super::walk::{Dim, Walk};

/// Elements of the strided side's fast dimension that are copied together when the two sides
/// run in different directions: the columns of a tile. 64 pages of address space stay in the
/// first-level TLB of every processor in use.
const TILE_COLUMNS: usize = 64;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Copies all runs of `walk`, from `strided` to `dense` if `GATHER`, else the other way.
///
/// # Safety
/// `strided` is the first element of an array that `walk` describes, `dense` points to
/// `walk.bytes()` bytes, the side that is read is readable, the other writable, and they do not
/// overlap.
pub unsafe fn run<const GATHER: bool>(strided: *mut u8, dense: *mut u8, walk: &Walk) {
    // SAFETY: passed on; `Unit<N>` has the size of a run in each arm.
    unsafe {
        match walk.unit() {
            0 => {}
            1 => loops::<GATHER, Item<1>>(strided, dense, walk, Item),
            2 => loops::<GATHER, Item<2>>(strided, dense, walk, Item),
            4 => loops::<GATHER, Item<4>>(strided, dense, walk, Item),
            8 => loops::<GATHER, Item<8>>(strided, dense, walk, Item),
            16 => loops::<GATHER, Item<16>>(strided, dense, walk, Item),
            bytes => loops::<GATHER, Run>(strided, dense, walk, Run(bytes)),
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
}

/// A run of a length that is known when this is compiled: a load and a store.
#[derive(Clone, Copy)]
struct Item<const N: usize>;

impl<const N: usize> Unit for Item<N> {
    #[inline(always)]
    fn bytes(self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn copy(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise; byte arrays need no alignment.
        unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) }
    }
}

/// A run of any length.
#[derive(Clone, Copy)]
struct Run(usize);

impl Unit for Run {
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
    walk: &Walk,
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
struct Plane {
    rows: Dim,
    columns: Dim,
    /// The strided side moves less from row to row than from column to column, the dense side
    /// the other way round: a transposition.
    transposed: bool,
}

impl Plane {
    /// The innermost loop as columns, and as rows the loop with the smallest step on the strided
    /// side, so that every cache line of both sides is used up while it is near.
    fn choose(walk: &Walk) -> (Vec<Dim>, Plane) {
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
                self.copy_transposed::<GATHER, U>(strided, dense, unit);
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

    /// Tiles of a cache line of rows by [`TILE_COLUMNS`] columns: each line of the strided side
    /// is used up at once, and the lines of the dense side are few enough to stay cached.
    ///
    /// # Safety
    /// As for [`Plane::copy`].
    unsafe fn copy_transposed<const GATHER: bool, U: Unit>(
        &self,
        strided: *mut u8,
        dense: *mut u8,
        unit: U,
    ) {
        let tile_rows = (LINE / unit.bytes()).clamp(1, 16);
        for first_column in (0..self.columns.extent).step_by(TILE_COLUMNS) {
            let columns = first_column..self.columns.extent.min(first_column + TILE_COLUMNS);
            for first_row in (0..self.rows.extent).step_by(tile_rows) {
                let rows = first_row..self.rows.extent.min(first_row + tile_rows);
                for column in columns.clone() {
                    for row in rows.clone() {
                        // SAFETY: `row` and `column` are below their extents.
                        unsafe {
                            let at = self.rows.stride * row as isize
                                + self.columns.stride * column as isize;
                            let to = self.rows.dense * row + unit.bytes() * column;
                            copy_one::<GATHER, U>(strided.offset(at), dense.add(to), unit);
                        }
                    }
                }
            }
        }
    }
}
