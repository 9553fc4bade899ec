//! Where the values of a chunk lie in the array.

use super::layout::{BLOCK, CHUNK, Layout};
use super::word::Word;

/// A chunk's place in the array.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Its first value.
    first: u64,
    /// Values along x, y, z that lie inside of the array.
    extent: [usize; 3],
    /// Values from one row to the next, and from one plane to the next.
    strides: [u64; 2],
    components: u32,
}

/// A run of values of a chunk.
pub(super) struct ChunkRow {
    /// The position of its first value.
    pub at: usize,
    /// Its first value in the array.
    pub first: u64,
    pub len: usize,
}

impl Layout {
    pub(super) fn chunk(&self, c: u32) -> Chunk {
        let c = u64::from(c);
        let components = self.components;
        if self.profile == 1 {
            let first = c * CHUNK as u64;
            let inside = (self.n - first).min(CHUNK as u64) as usize;
            return Chunk { first, extent: [inside, 1, 1], strides: [0; 2], components };
        }
        let ([nx, ny, nz], [gx, gy, gz]) = (self.dimensions(), self.grid());
        let [w, h, d] = self.extent();
        let (x, y, z) = (c % gx * w as u64, c / gx % gy * h as u64, c / gx / gy % gz * d as u64);
        let volume = c / gx / gy / gz;
        let first = ((volume * nz + z) * ny + y) * nx + x;
        let inside = |size: usize, left: u64| left.min(size as u64) as usize;
        let extent = [inside(w, nx - x), inside(h, ny - y), inside(d, nz - z)];
        Chunk { first, extent, strides: [nx, nx * ny], components }
    }
}

impl Chunk {
    /// How many values it has.
    pub fn len(&self) -> usize {
        self.extent.iter().product()
    }

    pub fn is_full(&self) -> bool {
        self.len() == CHUNK
    }

    /// The runs of its values, in the order of positions.
    pub fn rows(&self) -> impl Iterator<Item = ChunkRow> {
        let Chunk { first, extent: [len, h, d], strides: [row, plane], .. } = *self;
        (0..d).flat_map(move |z| {
            let first = first + z as u64 * plane;
            let row =
                move |y| ChunkRow { at: (z * 8 + y) * BLOCK, first: first + y as u64 * row, len };
            (0..h).map(row)
        })
    }

    /// How many positions of every block are inside: always the first ones.
    pub fn inside(&self) -> [u8; BLOCK] {
        let mut inside = [0; BLOCK];
        for row in self.rows() {
            for at in (row.at..row.at + row.len).step_by(BLOCK) {
                inside[at / BLOCK] = (row.at + row.len - at).min(BLOCK) as u8;
            }
        }
        inside
    }

    /// Its values by position; 0 outside.
    pub fn gather<V: Word>(&self, source: &[u8], values: &mut [V; CHUNK]) {
        if !self.is_full() {
            values.fill(V::ZERO);
        }
        for row in self.rows() {
            let bytes = &source[row.first as usize * V::BYTES..][..row.len * V::BYTES];
            V::read(bytes, &mut values[row.at..row.at + row.len]);
        }
        if self.components == 2 {
            self.separate(values);
        }
    }

    /// In a frame of its own, for the copy.
    #[inline(never)]
    fn separate<V: Word>(&self, values: &mut [V; CHUNK]) {
        let together = *values;
        let items = together[..self.len()].as_chunks::<2>().0;
        let (first, second) = values.split_at_mut(items.len());
        for ((item, first), second) in items.iter().zip(first).zip(second) {
            [*first, *second] = *item;
        }
    }

    /// Its values in the order of the array's items, from the order of positions.
    pub fn unite<V: Word>(&self, values: &mut [V; CHUNK]) {
        if self.components == 2 {
            self.interleave(values);
        }
    }

    /// In a frame of its own, for the copy.
    #[inline(never)]
    fn interleave<V: Word>(&self, values: &mut [V; CHUNK]) {
        let apart = *values;
        let (first, second) = apart[..self.len()].split_at(self.len() / 2);
        let items = values.as_chunks_mut::<2>().0;
        for ((item, &first), &second) in items.iter_mut().zip(first).zip(second) {
            *item = [first, second];
        }
    }
}
