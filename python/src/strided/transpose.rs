//! Planes whose two sides run in different directions: Fortran order, swapped axes.
//!
//! A tile of a cache line by a cache line is read line by line, turned around in a small buffer,
//! and written line by line: every line of both sides is moved once and whole, whatever their
//! distances are. (Without the buffer, distances of a power of two put all lines of a tile into
//! one set of the first-level cache.)

use std::ops::Range;

use super::kernel::Plane;

/// Tiles of a super-tile in both directions, so that the pages that are in use stay few enough
/// for the processor's table of pages.
const TILES: usize = 8;

/// One tile: where its first element lies on both sides.
struct Tile {
    strided: *mut u8,
    dense: *mut u8,
    rows: usize,
    columns: usize,
}

/// Copies the whole plane; `N` is the bytes of an element and `E` the elements of a line.
///
/// Tiles follow each other along the lines of the side that is written: stores that miss the
/// cache are done one after the other, loads are not.
///
/// # Safety
/// `strided` and `dense` are the first element of the plane on either side, all elements of it
/// are valid there, and elements have `N` bytes.
pub unsafe fn tiles<const GATHER: bool, const N: usize, const E: usize>(
    plane: &Plane,
    strided: *mut u8,
    dense: *mut u8,
) {
    let (rows, columns) = (plane.rows.extent, plane.columns.extent);
    let (slow, fast) = if GATHER { (rows, columns) } else { (columns, rows) };
    for slow in blocks(0..slow, E * TILES) {
        for fast in blocks(0..fast, E * TILES) {
            for slow in blocks(slow.clone(), E) {
                for fast in blocks(fast.clone(), E) {
                    let (rows, columns) = if GATHER { (&slow, &fast) } else { (&fast, &slow) };
                    // SAFETY: the first row and column of the block are inside the plane.
                    let tile = unsafe { locate::<N>(plane, strided, dense, rows, columns) };
                    // SAFETY: all rows and columns of the tile are inside the plane.
                    unsafe { turn::<GATHER, N, E>(plane, &tile) };
                }
            }
        }
    }
}

/// `range` in pieces of `length`, the last one shorter.
fn blocks(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(length).map(move |first| first..end.min(first + length))
}

/// # Safety
/// As for [`tiles`]; the ranges begin inside the plane.
unsafe fn locate<const N: usize>(
    plane: &Plane,
    strided: *mut u8,
    dense: *mut u8,
    rows: &Range<usize>,
    columns: &Range<usize>,
) -> Tile {
    let (row, column) = (rows.start as isize, columns.start as isize);
    let at = plane.rows.stride * row + plane.columns.stride * column;
    let to = plane.rows.dense * rows.start + N * columns.start;
    // SAFETY: this is an element of the plane on both sides.
    let (strided, dense) = unsafe { (strided.offset(at), dense.add(to)) };
    Tile { strided, dense, rows: rows.len(), columns: columns.len() }
}

/// # Safety
/// As for [`tiles`]; the tile lies in the plane.
#[inline(always)]
unsafe fn turn<const GATHER: bool, const N: usize, const E: usize>(plane: &Plane, tile: &Tile) {
    announce::<GATHER, N, E>(plane, tile);
    // SAFETY: passed on; a whole tile has `E` rows and columns.
    unsafe {
        if (tile.rows, tile.columns) != (E, E) {
            item_by_item::<GATHER, N>(plane, tile);
        } else if GATHER {
            gather_whole::<N, E>(plane, tile);
        } else {
            scatter_whole::<N, E>(plane, tile);
        }
    }
}

/// Has the lines of the next tile fetched while this one is turned around. They may lie outside
/// of the plane: fetching reads nothing and cannot fail.
#[inline(always)]
fn announce<const GATHER: bool, const N: usize, const E: usize>(plane: &Plane, tile: &Tile) {
    let (at, to) = if GATHER {
        (plane.columns.stride.wrapping_mul(E as isize), N * E)
    } else {
        (plane.rows.stride.wrapping_mul(E as isize), plane.rows.dense.wrapping_mul(E))
    };
    let (strided, dense) = (tile.strided.wrapping_offset(at), tile.dense.wrapping_add(to));
    for i in 0..E {
        fetch(strided.wrapping_offset(plane.columns.stride.wrapping_mul(i as isize)));
        fetch(dense.wrapping_add(plane.rows.dense.wrapping_mul(i)));
    }
}

#[inline(always)]
fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that every x86-64 processor takes, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// # Safety
/// As for [`turn`]; the tile has `E` rows and columns.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the index is the inner one of a square")]
unsafe fn gather_whole<const N: usize, const E: usize>(plane: &Plane, tile: &Tile) {
    let mut columns = [[[0_u8; N]; E]; E];
    for (i, line) in columns.iter_mut().enumerate() {
        // SAFETY: column `i` of the tile has `E` elements.
        unsafe {
            let from = tile.strided.offset(plane.columns.stride * i as isize);
            load_strided(from, plane.rows.stride, line);
        }
    }
    for j in 0..E {
        let row: [[u8; N]; E] = std::array::from_fn(|i| columns[i][j]);
        // SAFETY: row `j` of the tile has `E` elements.
        unsafe { store_dense(&row, tile.dense.add(plane.rows.dense * j)) };
    }
}

/// # Safety
/// As for [`turn`]; the tile has `E` rows and columns.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the index is the inner one of a square")]
unsafe fn scatter_whole<const N: usize, const E: usize>(plane: &Plane, tile: &Tile) {
    let mut rows = [[[0_u8; N]; E]; E];
    for (j, line) in rows.iter_mut().enumerate() {
        // SAFETY: row `j` of the tile has `E` elements.
        unsafe { load_dense(tile.dense.add(plane.rows.dense * j), line) };
    }
    for i in 0..E {
        let column: [[u8; N]; E] = std::array::from_fn(|j| rows[j][i]);
        // SAFETY: column `i` of the tile has `E` elements.
        unsafe {
            let to = tile.strided.offset(plane.columns.stride * i as isize);
            store_strided(&column, to, plane.rows.stride);
        }
    }
}

/// The tiles at the far edges of a plane, which are not whole.
///
/// # Safety
/// As for [`turn`].
unsafe fn item_by_item<const GATHER: bool, const N: usize>(plane: &Plane, tile: &Tile) {
    for column in 0..tile.columns {
        for row in 0..tile.rows {
            let (i, j) = (column as isize, row as isize);
            // SAFETY: the element is one of the tile, on both sides.
            unsafe {
                let strided = plane.columns.stride * i + plane.rows.stride * j;
                let strided = tile.strided.offset(strided).cast::<[u8; N]>();
                let dense = tile.dense.add(plane.rows.dense * row + N * column);
                let dense = dense.cast::<[u8; N]>();
                if GATHER { dense.write(strided.read()) } else { strided.write(dense.read()) }
            }
        }
    }
}

/// # Safety
/// `from` is the first of `line.len()` readable elements that lie one after the other.
#[inline(always)]
unsafe fn load_dense<const N: usize>(from: *const u8, line: &mut [[u8; N]]) {
    // SAFETY: the caller's promise; `line` is ours.
    unsafe { std::ptr::copy_nonoverlapping(from.cast(), line.as_mut_ptr(), line.len()) }
}

/// # Safety
/// `to` is the first of `line.len()` writable elements that lie one after the other.
#[inline(always)]
unsafe fn store_dense<const N: usize>(line: &[[u8; N]], to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), to.cast(), line.len()) }
}

/// # Safety
/// `from` is the first of `line.len()` readable elements that lie `stride` bytes apart.
#[inline(always)]
unsafe fn load_strided<const N: usize>(from: *const u8, stride: isize, line: &mut [[u8; N]]) {
    if stride == N as isize {
        // SAFETY: the caller's promise.
        return unsafe { load_dense(from, line) };
    }
    for (i, item) in line.iter_mut().enumerate() {
        // SAFETY: the caller's promise; byte arrays need no alignment.
        *item = unsafe { from.offset(stride * i as isize).cast::<[u8; N]>().read() };
    }
}

/// # Safety
/// `to` is the first of `line.len()` writable elements that lie `stride` bytes apart.
#[inline(always)]
unsafe fn store_strided<const N: usize>(line: &[[u8; N]], to: *mut u8, stride: isize) {
    if stride == N as isize {
        // SAFETY: the caller's promise.
        return unsafe { store_dense(line, to) };
    }
    for (i, item) in line.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.offset(stride * i as isize).cast::<[u8; N]>().write(*item) };
    }
}
