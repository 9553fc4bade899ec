//! Chunks of values to words.

use super::block::{References, measure, put_blocks, put_number, put_referred, refer};
use super::chunk::Chunk;
use super::grid::{Grid, differences, map_grid, to_grid};
use super::layout::{BLOCK, CHUNK, Layout};
use super::values::{Coding, Coefficients, Errors};
use super::word::Word;

/// Kinds of chunks that are written.
pub(super) const NONE: u32 = 0;
pub(super) const ONCE: u32 = 1;
pub(super) const TWICE: u32 = 2;
pub(super) const RAW: u32 = 3;
pub(super) const CONSTANT: u32 = 4;
pub(super) const REFERENCE: u32 = 5;

/// Above, a chunk is raw.
pub(super) const MAX_OUTLIERS: usize = 256;

/// Words of a coded chunk before its blocks.
const HEAD_WORDS: usize = 9;

/// Errors and outliers of the chunks so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub errors: Errors,
    pub outliers: u64,
}

impl Totals {
    pub fn add(&mut self, errors: Errors, outliers: u64) {
        self.errors.max = self.errors.max.max(errors.max);
        self.errors.sum_sq += errors.sum_sq;
        self.outliers += outliers;
    }
}

/// An encoder of chunks, with the room that it needs.
pub(super) struct Encoder<'a, K: Coding> {
    coding: &'a K,
    layout: &'a Layout,
    values: [K::V; CHUNK],
    out: Coefficients<K::Q>,
    none: Grid<K::Q>,
    once: Grid<K::Q>,
    twice: Grid<K::Q>,
    reference: Grid<K::Q>,
    pub totals: Totals,
}

impl<'a, K: Coding> Encoder<'a, K> {
    pub fn new(coding: &'a K, layout: &'a Layout) -> Box<Encoder<'a, K>> {
        let grid = [[K::Q::ZERO; BLOCK]; BLOCK];
        Box::new(Encoder {
            coding,
            layout,
            values: [K::V::ZERO; CHUNK],
            out: Coefficients { q: [K::Q::ZERO; CHUNK], bad: [K::Q::ZERO; CHUNK] },
            none: grid,
            once: grid,
            twice: grid,
            reference: grid,
            totals: Totals::default(),
        })
    }

    /// Appends the words of a chunk.
    pub fn chunk(&mut self, c: u32, source: &[u8], words: &mut Vec<u32>) {
        let chunk = self.layout.chunk(c);
        chunk.gather(source, &mut self.values);
        if self.is_constant(&chunk) {
            return self.put_constant(words);
        }
        let mut errors = self.coding.forward(&self.values, &mut self.out);
        if !chunk.is_full() {
            errors = self.forget_outside(&chunk, errors);
        }
        let outliers = if K::LOSSY { self.count_outliers() } else { 0 };
        if outliers > MAX_OUTLIERS {
            self.put_raw(&chunk, words);
            errors = Errors::default();
        } else if outliers > 0 || self.out.q.iter().any(|&q| q != K::Q::ZERO) {
            let coded = self.put_best(&chunk, outliers, words);
            errors = if coded { errors } else { Errors::default() };
        }
        self.totals.add(errors, outliers as u64);
    }

    fn is_constant(&self, chunk: &Chunk) -> bool {
        let first = self.values[0];
        let differ = |any: K::V, &value: &K::V| any.or(value.xor(first));
        if chunk.is_full() {
            return self.values.iter().fold(K::V::ZERO, differ) == K::V::ZERO;
        }
        let blocks = self.values.as_chunks::<BLOCK>().0.iter().zip(chunk.inside());
        let inside = blocks.flat_map(|(block, inside)| &block[..usize::from(inside)]);
        inside.fold(K::V::ZERO, differ) == K::V::ZERO
    }

    fn put_constant(&self, words: &mut Vec<u32>) {
        if self.values[0] != K::V::ZERO {
            words.push(CONSTANT);
            put_number(self.values[0], words);
        }
    }

    /// Positions outside have neither coefficients nor outliers nor errors: their value was 0.
    fn forget_outside(&mut self, chunk: &Chunk, errors: Errors) -> Errors {
        for (b, inside) in chunk.inside().into_iter().enumerate() {
            let outside = b * BLOCK + usize::from(inside)..(b + 1) * BLOCK;
            self.out.q[outside.clone()].fill(K::Q::ZERO);
            self.out.bad[outside].fill(K::Q::ZERO);
        }
        errors
    }

    fn count_outliers(&self) -> usize {
        let count = |count: K::Q, &bad: &K::Q| count.add(bad);
        self.out.bad.iter().fold(K::Q::ZERO, count).low() as usize
    }

    /// Appends a chunk in the smallest form; gives whether that is a coded one.
    fn put_best(&mut self, chunk: &Chunk, outliers: usize, words: &mut Vec<u32>) -> bool {
        let profile = self.layout.profile;
        to_grid(&self.out.q, &mut self.none);
        differences(profile, &self.none, &mut self.once);
        differences(profile, &self.once, &mut self.twice);
        for grid in [&mut self.none, &mut self.once, &mut self.twice] {
            let from = *grid;
            map_grid(&from, grid, Word::zigzag);
            clear_outside(chunk, grid);
        }
        let measured = [&self.none, &self.once, &self.twice].map(measure);
        let references = (!K::LOSSY).then(|| self.refer(chunk));
        let [none, once, twice] = measured.each_ref().map(|measured| measured.words);
        let reference = references.as_ref().map_or(usize::MAX, |found| found.measured.words);
        let best = once.min(none).min(twice).min(reference);
        let outlier_words = outliers.div_ceil(2) + outliers * K::V::WORDS;
        if HEAD_WORDS + best + outlier_words > raw_words::<K::V>(chunk) {
            self.put_raw(chunk, words);
            return false;
        }
        let kinds = [(ONCE, once), (NONE, none), (TWICE, twice), (REFERENCE, reference)];
        let kind = kinds.into_iter().find(|(_, cost)| *cost == best).map_or(NONE, |(kind, _)| kind);
        words.push(kind | (outliers as u32) << 16);
        let (grid, measured) = match kind {
            NONE => (&self.none, &measured[0]),
            ONCE => (&self.once, &measured[1]),
            _ => (&self.twice, &measured[2]),
        };
        match references.filter(|_| kind == REFERENCE) {
            Some(references) => {
                put_descriptors(&references.measured.descriptors, words);
                put_referred(&self.reference, &references, words);
            }
            None => {
                put_descriptors(&measured.descriptors, words);
                put_blocks(grid, &measured.descriptors, words);
            }
        }
        self.put_outliers(outliers, words);
        true
    }

    fn refer(&mut self, chunk: &Chunk) -> References<K::Q> {
        self.coding.to_reference(&self.values, &mut self.out.q);
        to_grid(&self.out.q, &mut self.reference);
        refer(&mut self.reference, &chunk.inside())
    }

    fn put_outliers(&self, outliers: usize, words: &mut Vec<u32>) {
        if outliers == 0 {
            return;
        }
        let bad = self.out.bad.iter().enumerate().filter(|(_, bad)| **bad != K::Q::ZERO);
        let positions: Vec<u32> = bad.map(|(position, _)| position as u32).collect();
        let pair = |pair: &[u32]| pair[0] | pair.get(1).map_or(0, |second| second << 16);
        words.extend(positions.chunks(2).map(pair));
        for position in positions {
            put_number(self.values[position as usize], words);
        }
    }

    fn put_raw(&self, chunk: &Chunk, words: &mut Vec<u32>) {
        words.push(RAW);
        let (mut pending, mut bits) = (0_u64, 0);
        let blocks = self.values.as_chunks::<BLOCK>().0.iter().zip(chunk.inside());
        for value in blocks.flat_map(|(block, inside)| &block[..usize::from(inside)]) {
            if K::V::WORDS == 2 {
                put_number(*value, words);
                continue;
            }
            pending |= u64::from(value.low()) << bits;
            bits += K::V::BITS;
            if bits >= 32 {
                words.push(pending as u32);
                (pending, bits) = (pending >> 32, bits - 32);
            }
        }
        if bits > 0 {
            words.push(pending as u32);
        }
    }
}

/// Words of the values of a raw chunk, without the first word.
pub(super) fn raw_words<V: Word>(chunk: &Chunk) -> usize {
    (chunk.len() * V::BITS as usize).div_ceil(32)
}

fn clear_outside<W: Word>(chunk: &Chunk, grid: &mut Grid<W>) {
    if chunk.is_full() {
        return;
    }
    for (b, inside) in chunk.inside().into_iter().enumerate() {
        for row in &mut grid[usize::from(inside)..] {
            row[b] = W::ZERO;
        }
    }
}

fn put_descriptors(descriptors: &[u8; BLOCK], words: &mut Vec<u32>) {
    words.extend(descriptors.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)));
}
