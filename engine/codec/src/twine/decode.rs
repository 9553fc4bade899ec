//! Decoding of words to chunks of values. Everything in a stream is checked before it is used.

use pulp::Arch;

use super::block::{Planes, Reader, clear_outside_of, take_blocks, take_referred};
use super::chunk::Chunk;
use super::encode::{CONSTANT, MAX_OUTLIERS, NONE, ONCE, RAW, REFERENCE, TWICE, raw_words};
use super::grid::{Grid, boxed, from_grid, sums_along_x, sums_of_blocks};
use super::layout::{BLOCK, CHUNK, Layout};
use super::simd::vectorised;
use super::values::{Coding, inverse, undo_reference};
use super::word::Word;

vectorised! {
    /// Coefficients by position from residuals in zig-zag form, after L `times` times.
    fn undo<'a, W: Word>(
        times: u32,
        profile: u32,
        grid: &'a mut Grid<W>,
        q: &'a mut [W; CHUNK],
    ) -> () {
        for number in grid.as_flattened_mut() {
            *number = number.unzigzag();
        }
        for _ in 0..times {
            sums_along_x(profile, grid);
        }
        from_grid(grid, q);
        for _ in 0..times {
            sums_of_blocks(profile, q);
        }
    }
}

/// What a coded chunk begins with.
struct Head {
    kind: u32,
    outliers: usize,
    descriptors: [u8; BLOCK],
}

impl Head {
    fn of<K: Coding>(word: u32, from: &mut Reader<'_>) -> Option<Head> {
        let (kind, outliers) = (word & 0xffff, (word >> 16) as usize);
        if outliers > if K::LOSSY { MAX_OUTLIERS } else { 0 } {
            return None;
        }
        let descriptors = *from.take(8)?.as_flattened().first_chunk::<BLOCK>()?;
        Some(Head { kind, outliers, descriptors })
    }
}

/// A decoder of chunks, with the room that it needs, on the heap as that of an encoder.
pub(super) struct Decoder<'a, K: Coding> {
    coding: &'a K,
    layout: &'a Layout,
    pub arch: Arch,
    planes: Planes,
    pub q: Box<[K::Q; CHUNK]>,
    grid: Box<Grid<K::Q>>,
    pub values: Box<[K::V; CHUNK]>,
}

impl<'a, K: Coding> Decoder<'a, K> {
    pub fn new(coding: &'a K, layout: &'a Layout) -> Decoder<'a, K> {
        Decoder {
            coding,
            layout,
            arch: Arch::new(),
            planes: Planes::new(),
            q: boxed(K::Q::ZERO),
            grid: boxed([K::Q::ZERO; BLOCK]),
            values: boxed(K::V::ZERO),
        }
    }

    /// Fills `values` by position from the words of a chunk; `None` if they break a rule.
    pub fn chunk(&mut self, chunk: &Chunk, words: &[[u8; 4]]) -> Option<()> {
        let mut from = Reader::new(words);
        if from.is_empty() {
            self.values.fill(K::V::ZERO);
            return Some(());
        }
        let word = from.word()?;
        match word {
            CONSTANT => self.values.fill(from.number()?),
            RAW => self.take_raw(chunk, &mut from)?,
            _ => self.take_coded(chunk, word, &mut from)?,
        }
        from.is_empty().then_some(())
    }

    fn take_raw(&mut self, chunk: &Chunk, from: &mut Reader<'_>) -> Option<()> {
        let bytes = from.take(raw_words::<K::V>(chunk))?.as_flattened();
        if chunk.is_full() {
            K::V::read(bytes, &mut self.values[..]);
            return Some(());
        }
        let mut left = bytes;
        for (block, inside) in self.values.as_chunks_mut::<BLOCK>().0.iter_mut().zip(chunk.inside())
        {
            let (row, rest) = left.split_at_checked(usize::from(inside) * K::V::BYTES)?;
            K::V::read(row, &mut block[..usize::from(inside)]);
            left = rest;
        }
        Some(())
    }

    fn take_coded(&mut self, chunk: &Chunk, word: u32, from: &mut Reader<'_>) -> Option<()> {
        let head = Head::of::<K>(word, from)?;
        let arch = self.arch;
        match head.kind {
            REFERENCE if !K::LOSSY => {
                let descriptors = head.descriptors;
                take_referred(arch, &descriptors, from, &mut self.planes, &mut self.grid)?;
                from_grid(&self.grid, &mut self.q);
                undo_reference(arch, self.coding, &self.q, &mut self.values);
            }
            _ => {
                self.take_residuals(&head, from)?;
                inverse(arch, self.coding, &self.q, &mut self.values);
            }
        }
        self.take_outliers(chunk, head.outliers, from).map(|_| ())
    }

    /// Fills `q` from the words of a chunk that has residuals, and `values` at the positions of its
    /// outliers, which are returned; `None` for other chunks, and if they break a rule.
    pub fn residuals<'w>(&mut self, chunk: &Chunk, words: &'w [[u8; 4]]) -> Option<&'w [[u8; 2]]> {
        let mut from = Reader::new(words);
        if from.is_empty() {
            self.q.fill(K::Q::ZERO);
            return Some(&[]);
        }
        let head = Head::of::<K>(from.word()?, &mut from)?;
        self.take_residuals(&head, &mut from)?;
        clear_outside_of(chunk, &mut self.q);
        let outliers = self.take_outliers(chunk, head.outliers, &mut from)?;
        from.is_empty().then_some(outliers)
    }

    fn take_residuals(&mut self, head: &Head, from: &mut Reader<'_>) -> Option<()> {
        if !matches!(head.kind, NONE | ONCE | TWICE) {
            return None;
        }
        take_blocks(self.arch, &head.descriptors, from, &mut self.planes, &mut self.grid)?;
        undo(self.arch, head.kind, self.layout.profile, &mut self.grid, &mut self.q);
        Some(())
    }

    fn take_outliers<'w>(
        &mut self,
        chunk: &Chunk,
        outliers: usize,
        from: &mut Reader<'w>,
    ) -> Option<&'w [[u8; 2]]> {
        if outliers == 0 {
            return Some(&[]);
        }
        let positions = from.take(outliers.div_ceil(2))?.as_flattened().as_chunks::<2>().0;
        let positions = &positions[..outliers];
        let (inside, mut least) = (chunk.inside(), 0);
        for position in positions {
            let position = usize::from(u16::from_le_bytes(*position));
            let inside = inside.get(position / BLOCK).map_or(0, |inside| usize::from(*inside));
            if position < least || position % BLOCK >= inside {
                return None;
            }
            self.values[position] = from.number()?;
            least = position + 1;
        }
        Some(positions)
    }
}
