//! Encoding of chunks of values to words.

use pulp::Arch;

use super::block::{
    Candidates, Measured, Planes, References, Widths, measure, predict, put_blocks, put_number,
    refer,
};
use super::chunk::Chunk;
use super::grid::{Grid, boxed};
use super::layout::{BLOCK, CHUNK, Layout};
use super::values::{Coding, Coefficients, Errors, forward, to_reference};
use super::word::Word;

/// Kinds of chunks that are written.
pub(super) const NONE: u32 = 0;
pub(super) const ONCE: u32 = 1;
pub(super) const TWICE: u32 = 2;
pub(super) const RAW: u32 = 3;
pub(super) const CONSTANT: u32 = 4;
pub(super) const REFERENCE: u32 = 5;

/// The most outliers of a coded chunk; a chunk with more is raw.
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

/// An encoder of chunks, with the room that it needs: on the heap, because the threads of an
/// application may have small stacks.
pub(super) struct Encoder<'a, K: Coding> {
    coding: &'a K,
    layout: &'a Layout,
    arch: Arch,
    pub values: Box<[K::V; CHUNK]>,
    pub out: Coefficients<K::Q>,
    candidates: Candidates<K::Q>,
    reference: Box<Grid<K::Q>>,
    planes: Planes,
    pub totals: Totals,
}

impl<'a, K: Coding> Encoder<'a, K> {
    pub fn new(coding: &'a K, layout: &'a Layout) -> Encoder<'a, K> {
        let (grid, coefficients) = (|| boxed([K::Q::ZERO; BLOCK]), || boxed(K::Q::ZERO));
        Encoder {
            coding,
            layout,
            arch: Arch::new(),
            values: boxed(K::V::ZERO),
            out: Coefficients { q: coefficients(), bad: coefficients() },
            candidates: Candidates { none: grid(), once: grid(), twice: grid() },
            reference: grid(),
            planes: Planes::new(),
            totals: Totals::default(),
        }
    }

    /// Appends the words of a chunk.
    pub fn chunk(&mut self, c: u32, source: &[u8], words: &mut Vec<u32>) {
        let chunk = self.layout.chunk(c);
        chunk.gather(source, &mut self.values);
        self.put(&chunk, words);
    }

    /// Appends the words of the chunk that has `values`, by position; those outside are 0.
    pub fn put(&mut self, chunk: &Chunk, words: &mut Vec<u32>) {
        if self.is_constant(chunk) {
            return self.put_constant(words);
        }
        let mut errors = forward(self.arch, self.coding, &self.values, &mut self.out);
        if !chunk.is_full() {
            self.forget_outside(chunk);
        }
        let outliers = if K::LOSSY { self.count_outliers() } else { 0 };
        if outliers > MAX_OUTLIERS {
            self.put_raw(chunk, words);
            errors = Errors::default();
        } else if outliers > 0 || self.out.q.iter().any(|&q| q != K::Q::ZERO) {
            let coded = self.put_best(chunk, outliers, !K::LOSSY, words);
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
    fn forget_outside(&mut self, chunk: &Chunk) {
        for (b, inside) in chunk.inside().into_iter().enumerate() {
            let outside = b * BLOCK + usize::from(inside)..(b + 1) * BLOCK;
            self.out.q[outside.clone()].fill(K::Q::ZERO);
            self.out.bad[outside].fill(K::Q::ZERO);
        }
    }

    fn count_outliers(&self) -> usize {
        let count = |count: K::Q, &bad: &K::Q| count.add(bad);
        self.out.bad.iter().fold(K::Q::ZERO, count).low() as usize
    }

    /// Appends a coded chunk of the coefficients and outliers in `out`; the values of the outliers
    /// are in `values`. False, after any words, when that is not shorter than all values.
    pub fn put_coefficients(&mut self, chunk: &Chunk, words: &mut Vec<u32>) -> bool {
        let outliers = self.count_outliers();
        self.put_best(chunk, outliers, false, words)
    }

    /// Appends a chunk in the kind whose blocks are narrowest, a frame of reference among them or
    /// not. False when that is not shorter than its values.
    fn put_best(
        &mut self,
        chunk: &Chunk,
        outliers: usize,
        refers: bool,
        words: &mut Vec<u32>,
    ) -> bool {
        let (arch, profile) = (self.arch, self.layout.profile);
        let widths = predict(arch, &self.out.q, chunk, profile, &mut self.candidates);
        let (kind, least) = narrowest(&widths);
        let reference = if refers { Some(self.refer(chunk)) } else { None };
        let reference = reference.filter(|found| found.measured.words < least);
        let residuals = self.candidates.of(kind);
        let blocks = match reference {
            Some(reference) => Blocks::Referred(reference),
            None => Blocks::Residual(kind, measure(arch, residuals, &widths[kind as usize])),
        };
        let measured = blocks.measured();
        let outlier_words = outliers.div_ceil(2) + outliers * K::V::WORDS;
        if HEAD_WORDS + measured.words + outlier_words > raw_words::<K::V>(chunk) {
            self.put_raw(chunk, words);
            return false;
        }
        put_head(blocks.kind(), outliers, &measured.descriptors, words);
        match &blocks {
            Blocks::Residual(..) => put_blocks(arch, residuals, measured, &mut self.planes, words),
            Blocks::Referred(found) => found.put(arch, &self.reference, &mut self.planes, words),
        }
        self.put_outliers(outliers, words);
        true
    }

    fn refer(&mut self, chunk: &Chunk) -> References<K::Q> {
        to_reference(self.arch, self.coding, &self.values, &mut self.out.q);
        refer(self.arch, &self.out.q, &chunk.inside(), &mut self.reference)
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

    /// In a frame of its own, for the bytes.
    #[inline(never)]
    fn put_raw(&self, chunk: &Chunk, words: &mut Vec<u32>) {
        words.push(RAW);
        let blocks = self.values.as_chunks::<BLOCK>().0.iter().zip(chunk.inside());
        let mut bytes = [0; CHUNK * 8];
        let mut end = 0;
        for (block, inside) in blocks {
            let row = &block[..usize::from(inside)];
            K::V::write(row, &mut bytes[end..end + row.len() * K::V::BYTES]);
            end += row.len() * K::V::BYTES;
        }
        let packed = bytes[..end.next_multiple_of(4)].as_chunks::<4>().0;
        words.extend(packed.iter().map(|word| u32::from_le_bytes(*word)));
    }
}

/// The form in which a chunk is coded.
enum Blocks<W> {
    /// Residuals of kind 0, 1 or 2.
    Residual(u32, Measured),
    Referred(References<W>),
}

impl<W: Word> Blocks<W> {
    fn kind(&self) -> u32 {
        match self {
            Blocks::Residual(kind, _) => *kind,
            Blocks::Referred(_) => REFERENCE,
        }
    }

    fn measured(&self) -> &Measured {
        match self {
            Blocks::Residual(_, measured) => measured,
            Blocks::Referred(found) => &found.measured,
        }
    }
}

/// The kind of residuals whose widths have the smallest sum, and that sum.
fn narrowest(widths: &[Widths; 3]) -> (u32, usize) {
    let sums = [NONE, ONCE, TWICE].map(|kind| (kind, widths[kind as usize].sum()));
    sums.into_iter().min_by_key(|&(_, sum)| sum).unwrap_or((NONE, 0))
}

/// Words of the values of a raw chunk, without the first word.
pub(super) fn raw_words<V: Word>(chunk: &Chunk) -> usize {
    (chunk.len() * V::BITS as usize).div_ceil(32)
}

/// Appends the words of a coded chunk before its blocks.
fn put_head(kind: u32, outliers: usize, descriptors: &[u8; BLOCK], words: &mut Vec<u32>) {
    words.push(kind | (outliers as u32) << 16);
    words.extend(descriptors.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)));
}
