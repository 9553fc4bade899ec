//! Prediction over the 32 x 32 positions of a chunk (docs/twine.md, "Coefficients and residuals").
//!
//! A grid is indexed by position in the block, then by block: what is done to a whole block is then
//! done to 32 blocks side by side, which compilers turn into vector instructions.

#![allow(clippy::needless_range_loop, reason = "several grids are walked together")]

use super::layout::{BLOCK, CHUNK};
use super::word::Word;

/// Something for every position: `grid[i][b]` is that of position i of block b.
pub(super) type Grid<W> = [[W; BLOCK]; BLOCK];

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
        2 => along_blocks(1, BLOCK, d),
        3 => {
            along_blocks(1, 8, d);
            along_blocks(8, BLOCK, d);
        }
        _ => {}
    }
}

/// Differences within blocks; with `through`, the first position of a block to the last of the one
/// before.
#[inline(always)]
fn along_x<W: Word>(through: bool, q: &Grid<W>, d: &mut Grid<W>) {
    d[0] = q[0];
    if through {
        for b in 1..BLOCK {
            d[0][b] = q[0][b].sub(q[BLOCK - 1][b - 1]);
        }
    }
    for i in 1..BLOCK {
        for b in 0..BLOCK {
            d[i][b] = q[i][b].sub(q[i - 1][b]);
        }
    }
}

/// Differences to the block `distance` before, within groups of `group` blocks.
#[inline(always)]
fn along_blocks<W: Word>(distance: usize, group: usize, d: &mut Grid<W>) {
    for row in d {
        let before = *row;
        for b in (0..BLOCK).filter(|b| b % group >= distance) {
            row[b] = before[b].sub(before[b - distance]);
        }
    }
}

/// The inverse of [`differences`], in place.
#[inline(always)]
pub(super) fn sums<W: Word>(profile: u32, grid: &mut Grid<W>) {
    match profile {
        2 => sum_blocks(1, BLOCK, grid),
        3 => {
            sum_blocks(8, BLOCK, grid);
            sum_blocks(1, 8, grid);
        }
        _ => {}
    }
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
        for (to, before) in row.iter_mut().zip(before) {
            *to = to.add(before);
        }
    }
}

#[inline(always)]
fn sum_blocks<W: Word>(distance: usize, group: usize, grid: &mut Grid<W>) {
    for row in grid {
        for b in (0..BLOCK).filter(|b| b % group >= distance) {
            row[b] = row[b].add(row[b - distance]);
        }
    }
}

/// `f` of everything.
#[inline(always)]
pub(super) fn map_grid<W: Word>(from: &Grid<W>, to: &mut Grid<W>, f: impl Fn(W) -> W) {
    for (to, from) in to.iter_mut().zip(from) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = f(from);
        }
    }
}

/// Transposes bits within every block: bit p of number i becomes bit i of number p.
#[inline(always)]
pub(super) fn transpose_bits(grid: &mut Grid<u32>) {
    let mut mask = 0x0000_ffff_u32;
    let mut j = 16;
    while j != 0 {
        for k in (0..BLOCK).filter(|k| k & j == 0) {
            for b in 0..BLOCK {
                let swap = ((grid[k][b] >> j) ^ grid[k + j][b]) & mask;
                grid[k][b] ^= swap << j;
                grid[k + j][b] ^= swap;
            }
        }
        j /= 2;
        mask ^= mask << j;
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, CHUNK, Grid, differences, from_grid, sums, to_grid, transpose_bits};

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
            sums(profile, &mut d);
            assert_eq!(d, grid);
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
        let flat = noise(3);
        let mut grid: Grid<u32> = [[0; BLOCK]; BLOCK];
        to_grid(&flat, &mut grid);
        let before = grid;
        transpose_bits(&mut grid);
        for (i, row) in before.iter().enumerate() {
            for (b, value) in row.iter().enumerate() {
                let gathered = (0..BLOCK).fold(0, |v, p| v | (grid[p][b] >> i & 1) << p);
                assert_eq!(gathered, *value);
            }
        }
    }
}
