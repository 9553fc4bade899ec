//! Prediction over the 32 x 32 positions of a chunk (docs/reference/twine.md, "Coefficients
//! and residuals").
//!
//! A grid is indexed by position in the block, then by block: what is done to a whole block is then
//! done to 32 blocks side by side, which compilers turn into vector instructions.

#![allow(clippy::needless_range_loop, reason = "several grids are walked together")]

use super::layout::{BLOCK, CHUNK};
use super::word::Word;

/// A number for every position: `grid[i][b]` is that of position i of block b.
pub(super) type Grid<W> = [[W; BLOCK]; BLOCK];

/// An array of `zero`s that was never on a stack.
#[inline(never)]
pub(super) fn boxed<T: Clone, const N: usize>(zero: T) -> Box<[T; N]> {
    let array = vec![zero; N].into_boxed_slice();
    array.try_into().unwrap_or_else(|_| unreachable!("it has this length"))
}

/// Sorts positions by block into a grid.
#[inline(always)]
pub(super) fn to_grid<W: Word>(flat: &[W; CHUNK], grid: &mut Grid<W>) {
    for (i, row) in grid.iter_mut().enumerate() {
        for (b, to) in row.iter_mut().enumerate() {
            *to = flat[b * BLOCK + i];
        }
    }
}

/// The inverse of [`to_grid`].
#[inline(always)]
pub(super) fn from_grid<W: Word>(grid: &Grid<W>, flat: &mut [W; CHUNK]) {
    for (b, block) in flat.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        for (to, row) in block.iter_mut().zip(grid) {
            *to = row[b];
        }
    }
}

/// L: differences to the neighbours along every dimension of the profile.
#[inline(always)]
pub(super) fn differences<W: Word>(profile: u32, q: &Grid<W>, d: &mut Grid<W>) {
    along_x(profile == 1, q, d);
    match profile {
        2 => along_blocks::<W, 1>(BLOCK, d),
        3 => {
            along_blocks::<W, 1>(8, d);
            along_blocks::<W, 8>(BLOCK, d);
        }
        _ => {}
    }
}

/// The numbers of a row `DISTANCE` blocks earlier; 0 in the first blocks of each group.
#[inline(always)]
fn shifted<W: Word, const DISTANCE: usize>(group: usize, row: &[W; BLOCK]) -> [W; BLOCK] {
    let mut padded = [W::ZERO; BLOCK + 8];
    padded[8..].copy_from_slice(row);
    let mut shifted = [W::ZERO; BLOCK];
    for b in 0..BLOCK {
        let before = padded[8 - DISTANCE + b];
        shifted[b] = if b % group >= DISTANCE { before } else { W::ZERO };
    }
    shifted
}

/// Differences within blocks; with `through`, the first position of a block to the last of the one
/// before.
#[inline(always)]
fn along_x<W: Word>(through: bool, q: &Grid<W>, d: &mut Grid<W>) {
    let last = if through { shifted::<W, 1>(BLOCK, &q[BLOCK - 1]) } else { [W::ZERO; BLOCK] };
    for b in 0..BLOCK {
        d[0][b] = q[0][b].sub(last[b]);
    }
    for i in 1..BLOCK {
        for b in 0..BLOCK {
            d[i][b] = q[i][b].sub(q[i - 1][b]);
        }
    }
}

/// Differences to the block `DISTANCE` before, within groups of `group` blocks.
#[inline(always)]
fn along_blocks<W: Word, const DISTANCE: usize>(group: usize, d: &mut Grid<W>) {
    for row in d {
        let before = shifted::<W, DISTANCE>(group, row);
        for b in 0..BLOCK {
            row[b] = row[b].sub(before[b]);
        }
    }
}

/// The inverse of [`differences`] along x, in place.
#[inline(always)]
pub(super) fn sums_along_x<W: Word>(profile: u32, grid: &mut Grid<W>) {
    for i in 1..BLOCK {
        for b in 0..BLOCK {
            grid[i][b] = grid[i][b].add(grid[i - 1][b]);
        }
    }
    if profile == 1 {
        carry_on(grid);
    }
}

/// Sums of blocks become sums of the whole chunk.
#[inline(always)]
fn carry_on<W: Word>(grid: &mut Grid<W>) {
    let mut before = [W::ZERO; BLOCK];
    for b in 1..BLOCK {
        before[b] = before[b - 1].add(grid[BLOCK - 1][b - 1]);
    }
    for row in grid {
        for b in 0..BLOCK {
            row[b] = row[b].add(before[b]);
        }
    }
}

/// The inverse of [`differences`] along the other dimensions, by position: whole blocks are added.
#[inline(always)]
pub(super) fn sums_of_blocks<W: Word>(profile: u32, flat: &mut [W; CHUNK]) {
    match profile {
        2 => sum_blocks(1, BLOCK, flat),
        3 => {
            sum_blocks(8, BLOCK, flat);
            sum_blocks(1, 8, flat);
        }
        _ => {}
    }
}

#[inline(always)]
fn sum_blocks<W: Word>(distance: usize, group: usize, flat: &mut [W; CHUNK]) {
    let blocks = flat.as_chunks_mut::<BLOCK>().0;
    for b in distance..BLOCK {
        if b % group >= distance {
            let before = blocks[b - distance];
            for i in 0..BLOCK {
                blocks[b][i] = blocks[b][i].add(before[i]);
            }
        }
    }
}

/// Applies `f` to every number.
#[inline(always)]
pub(super) fn map_grid<W: Word, T: Copy>(from: &Grid<W>, to: &mut Grid<T>, f: impl Fn(W) -> T) {
    for i in 0..BLOCK {
        for b in 0..BLOCK {
            to[i][b] = f(from[i][b]);
        }
    }
}

/// Transposes the bits of every block of numbers of up to `width` bits: bit p of number i becomes
/// bit i of number p. What is above `width` must be 0, and comes out as anything.
#[inline(always)]
pub(super) fn to_planes(width: u32, grid: &mut Grid<u32>) {
    match width {
        ..=8 => {
            fold::<16>(grid);
            fold::<8>(grid);
        }
        9..=16 => fold::<16>(grid),
        _ => swap::<16, 32>(0x0000_ffff, grid),
    }
    match width {
        ..=8 => {}
        9..=16 => swap::<8, 16>(0x00ff_00ff, grid),
        _ => swap::<8, 32>(0x00ff_00ff, grid),
    }
    finish(width, grid);
}

/// The inverse of [`to_planes`]. Planes from `width` on must be 0.
#[inline(always)]
pub(super) fn from_planes(width: u32, grid: &mut Grid<u32>) {
    finish(width, grid);
    match width {
        ..=8 => {
            unfold::<8>(0x00ff_00ff, grid);
            unfold::<16>(0x0000_ffff, grid);
        }
        9..=16 => {
            swap::<8, 16>(0x00ff_00ff, grid);
            unfold::<16>(0x0000_ffff, grid);
        }
        _ => {
            swap::<8, 32>(0x00ff_00ff, grid);
            swap::<16, 32>(0x0000_ffff, grid);
        }
    }
}

/// The exchanges within groups of eight numbers, the same in both directions.
#[inline(always)]
fn finish(width: u32, grid: &mut Grid<u32>) {
    match width {
        ..=8 => finish_rows::<8>(grid),
        9..=16 => finish_rows::<16>(grid),
        _ => finish_rows::<32>(grid),
    }
}

#[inline(always)]
fn finish_rows<const ROWS: usize>(grid: &mut Grid<u32>) {
    swap::<4, ROWS>(0x0f0f_0f0f, grid);
    swap::<2, ROWS>(0x3333_3333, grid);
    swap::<1, ROWS>(0x5555_5555, grid);
}

/// Exchanges the upper bits of number k with the lower bits of number k + J.
#[inline(always)]
fn swap<const J: usize, const ROWS: usize>(mask: u32, grid: &mut Grid<u32>) {
    for k in 0..ROWS {
        if k & J == 0 {
            let (first, second) = grid.split_at_mut(k + J);
            let (first, second) = (&mut first[k], &mut second[0]);
            for b in 0..BLOCK {
                let swap = ((first[b] >> J) ^ second[b]) & mask;
                first[b] ^= swap << J;
                second[b] ^= swap;
            }
        }
    }
}

/// Numbers k and k + J, of at most J bits, become one.
#[inline(always)]
fn fold<const J: usize>(grid: &mut Grid<u32>) {
    for k in 0..J {
        for b in 0..BLOCK {
            grid[k][b] |= grid[k + J][b] << J;
        }
    }
}

/// The inverse of [`fold`].
#[inline(always)]
fn unfold<const J: usize>(mask: u32, grid: &mut Grid<u32>) {
    for k in 0..J {
        for b in 0..BLOCK {
            grid[k + J][b] = grid[k][b] >> J & mask;
            grid[k][b] &= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BLOCK, CHUNK, Grid, differences, from_grid, from_planes, sums_along_x, sums_of_blocks,
        to_grid, to_planes,
    };

    fn noise(seed: u32) -> [u32; CHUNK] {
        let mut state = seed;
        std::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        })
    }

    /// Value at a position of the chunk by its coordinates; 0 before the first.
    fn at(flat: &[u32; CHUNK], profile: u32, [x, y, z]: [i32; 3]) -> u32 {
        if x < 0 || y < 0 || z < 0 {
            return 0;
        }
        let stride = if profile == 3 { 8 } else { 0 };
        flat[((z * stride + y) * 32 + x) as usize]
    }

    #[test]
    fn differences_are_those_of_the_neighbours_and_sums_undo_them() {
        let flat = noise(7);
        for profile in [1, 2, 3] {
            let (mut grid, mut d) = ([[0; BLOCK]; BLOCK], [[0; BLOCK]; BLOCK]);
            to_grid(&flat, &mut grid);
            differences(profile, &grid, &mut d);
            let mut found = [0; CHUNK];
            from_grid(&d, &mut found);
            for (p, &found) in found.iter().enumerate() {
                assert_eq!(found, expected(&flat, profile, p as i32), "{profile} {p}");
            }
            sums_along_x(profile, &mut d);
            from_grid(&d, &mut found);
            sums_of_blocks(profile, &mut found);
            assert_eq!(found, flat);
        }
    }

    fn expected(flat: &[u32; CHUNK], profile: u32, p: i32) -> u32 {
        let (depth, place) = match profile {
            1 => ([1, 0, 0], [p, 0, 0]),
            2 => ([1, 1, 0], [p % 32, p / 32, 0]),
            _ => ([1, 1, 1], [p % 32, p / 32 % 8, p / 256]),
        };
        let mut sum = 0_u32;
        for [x, y, z] in (0..8).map(|corner| [corner & 1, corner >> 1 & 1, corner >> 2]) {
            if x > depth[0] || y > depth[1] || z > depth[2] {
                continue;
            }
            let value = at(flat, profile, [place[0] - x, place[1] - y, place[2] - z]);
            let odd = (x + y + z) % 2 == 1;
            sum = if odd { sum.wrapping_sub(value) } else { sum.wrapping_add(value) };
        }
        sum
    }

    #[test]
    fn bits_are_transposed_in_every_block() {
        for width in [1, 7, 8, 9, 16, 17, 32] {
            let flat = noise(3).map(|number| number >> (32 - width));
            let mut grid: Grid<u32> = [[0; BLOCK]; BLOCK];
            to_grid(&flat, &mut grid);
            let before = grid;
            to_planes(width, &mut grid);
            for (i, row) in before.iter().enumerate() {
                for (b, value) in row.iter().enumerate() {
                    let bit = |p: usize| (grid[p][b] >> i & 1) << p;
                    assert_eq!((0..width as usize).fold(0, |v, p| v | bit(p)), *value);
                }
            }
            grid[width as usize..].fill([0; BLOCK]);
            from_planes(width, &mut grid);
            assert_eq!(grid, before, "{width}");
        }
    }
}
