//! Tiles for arrays whose neighbours in the dense copy are far apart, such as transposed ones.
//! Pure.
//!
//! If neighbouring threads follow one side, each of their items on the other side lies in a
//! different line of memory, of which only that item is used. A tile is as wide as a sector of
//! memory along the written side and as deep as a line along the read side, so that all of each is
//! used while it is cached. A tile is only two dimensions split in two, so the kernel needs no
//! special case; the remainder at the edges is walked separately.

use crate::strided::layout::Dim;
use crate::strided::walk::{Direction, MOST_DIMS};

/// Granularity of memory accesses in bytes, and bytes of a cache line.
const SECTOR: u64 = 32;
const LINE: u64 = 128;

/// With fewer items, tiles do not pay for two more launches at the edges.
const FEW: u64 = 1 << 16;

/// A part of the items: dimensions, and the distance of its first item from the first of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TilePart {
    pub(super) dims: Vec<Dim>,
    pub(super) array_at: i64,
    pub(super) dense_at: i64,
}

impl TilePart {
    fn all(dims: &[Dim]) -> TilePart {
        TilePart { dims: dims.to_vec(), array_at: 0, dense_at: 0 }
    }

    /// The items of `self` whose place along dimension `dim` is in `[begin, end)`.
    fn slab(&self, dim: usize, begin: u64, end: u64) -> TilePart {
        let mut part = self.clone();
        let skipped = begin.cast_signed();
        // Wraps only for parts without items.
        let after = |at: i64, step: i64| at.wrapping_add(skipped.wrapping_mul(step));
        part.array_at = after(part.array_at, self.dims[dim].stride);
        part.dense_at = after(part.dense_at, self.dims[dim].dense);
        part.dims[dim].size = end - begin;
        part
    }
}

/// The parts that are walked one after the other: all items at once, or tiles and the remainder.
/// `dims` are in the order of the walk, the last one changing fastest; `run` is the number of
/// contiguous bytes.
pub(super) fn parts(dims: &[Dim], run: u64, direction: Direction) -> Vec<TilePart> {
    let all = TilePart::all(dims);
    let Some(tile) = Tile::of(dims, run, direction) else { return vec![all] };
    let (wide, deep) = (tile.wide, tile.deep);
    let (width, depth) = (dims[wide.dim].size, dims[deep.dim].size);
    let (full_width, full_depth) = (width - width % wide.size, depth - depth % deep.size);
    let tiled = all.slab(wide.dim, 0, full_width);
    let edges = [all.slab(wide.dim, full_width, width), tiled.slab(deep.dim, full_depth, depth)];
    let tiled = tile.split(&tiled.slab(deep.dim, 0, full_depth));
    let some = |part: &TilePart| part.dims.iter().all(|dim| dim.size > 0);
    [tiled].into_iter().chain(edges).filter(some).collect()
}

/// One side of a tile: a dimension, and the number of its items.
#[derive(Clone, Copy, Debug)]
struct Side {
    dim: usize,
    size: u64,
}

#[derive(Clone, Copy, Debug)]
struct Tile {
    /// Along the written side, changing fastest.
    wide: Side,
    /// Along the read side.
    deep: Side,
}

impl Tile {
    /// `None` where both sides follow the same dimension, or a tile gains nothing.
    fn of(dims: &[Dim], run: u64, direction: Direction) -> Option<Tile> {
        let distances = |dim: &Dim| match direction {
            Direction::Gather => (dim.stride.unsigned_abs(), dim.dense.unsigned_abs()),
            Direction::Scatter => (dim.dense.unsigned_abs(), dim.stride.unsigned_abs()),
        };
        let near = |along: fn((u64, u64)) -> u64| {
            let all = dims.iter().enumerate().map(|(index, dim)| (along(distances(dim)), index));
            // Repeated items (stride 0) are read once, in any order.
            all.filter(|pair| pair.0 > 0).min().map(|pair| pair.1)
        };
        let (deep, wide) = (near(|pair| pair.0)?, near(|pair| pair.1)?);
        let items = dims.iter().map(|dim| dim.size).product::<u64>();
        let sides = Tile {
            wide: Side { dim: wide, size: (SECTOR / run.max(1)).next_power_of_two() },
            deep: Side { dim: deep, size: (LINE / run.max(1)).next_power_of_two().min(SECTOR) },
        };
        let fits = |side: Side| dims[side.dim].size >= side.size;
        let gains = deep != wide && run < SECTOR && items >= FEW && dims.len() + 2 < MOST_DIMS;
        (gains && fits(sides.wide) && fits(sides.deep)).then_some(sides)
    }

    /// Splits the two dimensions of `part`, whose sizes are multiples of the tile's; the dimensions
    /// inside of a tile change fastest.
    fn split(&self, part: &TilePart) -> TilePart {
        let outer = |side: Side| {
            let Dim { size, stride, dense } = part.dims[side.dim];
            let by = side.size.cast_signed();
            Dim { size: size / side.size, stride: stride * by, dense: dense * by }
        };
        let inner = |side: Side| Dim { size: side.size, ..part.dims[side.dim] };
        let others = part.dims.iter().enumerate();
        let others = others.filter(|pair| pair.0 != self.wide.dim && pair.0 != self.deep.dim);
        let mut dims: Vec<Dim> = others.map(|pair| *pair.1).collect();
        dims.extend([outer(self.deep), outer(self.wide), inner(self.deep), inner(self.wide)]);
        TilePart { dims, ..part.clone() }
    }
}
