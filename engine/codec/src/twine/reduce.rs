//! Minimum, maximum and sum of squares of an array, independent of the order of its chunks, so that
//! every encoder gets the same bound from them (docs/reference/twine.md, "Bounds").

use pulp::Arch;
use rayon::prelude::*;

use super::chunk::Chunk;
use super::grid::boxed;
use super::layout::{BLOCK, CHUNK, Layout, ValueKind};
use super::real::{Arithmetic, Bf16, F16, F32, F64, Real};
use super::simd::vectorised;
use super::word::Word;

/// The properties of values that bounds depend on. Only finite values count.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The smallest one; infinity without any.
    pub min: f64,
    /// The largest one; minus infinity without any.
    pub max: f64,
    /// How many there are.
    pub n_finite: u64,
    squares: Squares,
}

impl Summary {
    const EMPTY: Summary = Summary {
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        n_finite: 0,
        squares: Squares([0; BINS]),
    };

    /// The root mean square; 0 without finite values.
    #[must_use]
    pub fn rms(&self) -> f64 {
        self.squares.root_of_mean(self.n_finite)
    }

    fn add(&mut self, lanes: &Lanes<impl Arithmetic>) {
        self.min = lanes.min.iter().fold(self.min, |min, x| min.min(x.to_f64()));
        self.max = lanes.max.iter().fold(self.max, |max, x| max.max(x.to_f64()));
        self.n_finite += lanes.finite.iter().map(|&count| u64::from(count)).sum::<u64>();
        self.squares.add(sum_blocks(lanes.sums));
    }

    fn and(mut self, other: Summary) -> Summary {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.n_finite += other.n_finite;
        for (bin, more) in self.squares.0.iter_mut().zip(other.squares.0) {
            *bin += more;
        }
        self
    }
}

const BINS: usize = 128;
/// Powers of two of a bin.
const BIN_BITS: u64 = 16;
/// Leading bits of a sum that are kept: the sums of 2^32 chunks fit into a bin.
const KEPT_BITS: u64 = 17;
/// Bins that count, from the highest one with something in it on.
const WEIGHTY: usize = 8;

/// The sum of the squares of all chunks as whole numbers: the same in every order. Bin g has those
/// whose biased exponents are 16 g to 16 g + 15, in units of 2^(16 g - 1039).
#[derive(Clone, PartialEq, Debug)]
struct Squares([u64; BINS]);

impl Squares {
    /// Adds the sum of a chunk, cut to its leading bits. Infinity counts as 2^1024.
    fn add(&mut self, sum: f64) {
        let (exponent, mantissa) = (sum.to_bits() >> 52, sum.to_bits() & ((1 << 52) - 1));
        if exponent > 0 {
            let leading = (mantissa | 1 << 52) >> (53 - KEPT_BITS);
            self.0[(exponent / BIN_BITS) as usize] += leading << (exponent % BIN_BITS);
        }
    }

    /// The root of the sum over `n`.
    fn root_of_mean(&self, n: u64) -> f64 {
        let Some(highest) = self.0.iter().rposition(|&bin| bin > 0) else { return 0.0 };
        let lowest = (highest + 1).saturating_sub(WEIGHTY);
        // In units of the highest bin, with the small ones first.
        let sum = self.0[lowest..=highest].iter().fold(0.0, |sum, &bin| sum / 65536.0 + bin as f64);
        // A unit is an odd power of two: half of it is a square.
        (2.0 * sum / n as f64).sqrt() * power_of_two(8 * highest as i64 - 520)
    }
}

fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Chunks that a thread summarises at once.
const GROUP: usize = 64;

/// What is summarised.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub layout: &'a Layout,
    pub source: &'a [u8],
    /// Whether several threads do it.
    pub parallel: bool,
    /// Whether the squares are asked for; else they count as 0.
    pub squares: bool,
}

/// Summarises the values of an array.
pub(super) fn summarise(values: Values<'_>) -> Summary {
    match values.layout.kind {
        ValueKind::Float16 => reduce_as::<F16>(values),
        ValueKind::BFloat16 => reduce_as::<Bf16>(values),
        ValueKind::Float32 => reduce_as::<F32>(values),
        ValueKind::Float64 => reduce_as::<F64>(values),
        ValueKind::Signed | ValueKind::Unsigned => Summary::EMPTY,
    }
}

fn reduce_as<R: Real>(Values { layout, source, parallel, squares }: Values<'_>) -> Summary {
    let group = |first: u32| {
        let (mut values, mut summary) = (boxed::<R::V, CHUNK>(R::V::ZERO), Summary::EMPTY);
        for c in (first..layout.n_chunks).take(GROUP) {
            read(&layout.chunk(c), source, &mut values);
            summary.add(&lanes::<R>(Arch::new(), &values, squares));
        }
        summary
    };
    let firsts = (0..layout.n_chunks).step_by(GROUP);
    if parallel {
        let firsts: Vec<u32> = firsts.collect();
        return firsts.into_par_iter().map(group).reduce(|| Summary::EMPTY, Summary::and);
    }
    firsts.map(group).fold(Summary::EMPTY, Summary::and)
}

/// Reads the values of a chunk.
fn read<V: Word>(chunk: &Chunk, source: &[u8], values: &mut [V; CHUNK]) {
    chunk.gather(source, values);
    if !chunk.is_full() {
        // Positions outside are NaN, which does not count.
        for (block, inside) in values.as_chunks_mut::<BLOCK>().0.iter_mut().zip(chunk.inside()) {
            block[usize::from(inside)..].fill(V::ONES);
        }
    }
}

vectorised! {
    /// The summaries of the lanes of a chunk.
    fn lanes<'a, R: Real>(values: &'a [R::V; CHUNK], squares: bool) -> Lanes<R::A> {
        let mut lanes = Lanes::<R::A>::new();
        let blocks = values.as_chunks::<BLOCK>().0;
        for block in blocks {
            for (i, &bits) in block.iter().enumerate() {
                lanes.add(i, R::widen(bits));
            }
        }
        if squares {
            for (sum, block) in lanes.sums.iter_mut().zip(blocks) {
                let mut parts = [0.0; PARTS];
                for four in block.as_chunks::<PARTS>().0 {
                    for (part, &bits) in parts.iter_mut().zip(four) {
                        *part += square(R::widen(bits));
                    }
                }
                *sum = (parts[0] + parts[2]) + (parts[1] + parts[3]);
            }
        }
        lanes
    }
}

/// Sums of a block side by side: sum j has the values 4 i + j.
const PARTS: usize = 4;

/// What is found out about a chunk: minima, maxima and numbers of finite values of the positions i
/// of all blocks, and the sum of the squares of each block.
pub(super) struct Lanes<A> {
    min: [A; BLOCK],
    max: [A; BLOCK],
    finite: [u32; BLOCK],
    sums: [f64; BLOCK],
}

impl<A: Arithmetic> Lanes<A> {
    #[inline(always)]
    fn new() -> Lanes<A> {
        Lanes {
            min: [A::from_f64(f64::INFINITY); BLOCK],
            max: [A::from_f64(f64::NEG_INFINITY); BLOCK],
            finite: [0; BLOCK],
            sums: [0.0; BLOCK],
        }
    }

    /// Adds a value of position `i` of a block.
    #[inline(always)]
    fn add(&mut self, i: usize, x: A) {
        let (magnitude, zero) = (x.magnitude(), A::default());
        let finite = magnitude < A::from_f64(f64::INFINITY);
        // Subnormal numbers count as 0 here, as they do where a program has set the processor so.
        let x = if magnitude < A::TINY { zero } else { x };
        self.min[i] = if finite & (x < self.min[i]) { x } else { self.min[i] };
        self.max[i] = if finite & (x > self.max[i]) { x } else { self.max[i] };
        self.finite[i] += u32::from(finite);
    }
}

/// The square of a value; 0 of one that does not count.
#[inline(always)]
fn square<A: Arithmetic>(x: A) -> f64 {
    let magnitude = x.magnitude();
    let weighs = (magnitude < A::from_f64(f64::INFINITY)) & (magnitude >= A::NEGLIGIBLE);
    let wide = (if weighs { x } else { A::default() }).to_f64();
    wide * wide
}

/// The sum of the sums of all blocks in the order of the format.
fn sum_blocks(mut sums: [f64; BLOCK]) -> f64 {
    for j in [16, 8, 4, 2, 1] {
        let before = sums;
        for (b, sum) in sums.iter_mut().enumerate() {
            *sum = before[b] + before[b ^ j];
        }
    }
    sums[0]
}
