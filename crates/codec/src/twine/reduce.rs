//! Minimum, maximum and sum of squares of an array, in an order that is fixed, so that every
//! encoder gets the same bound from them (docs/reference/twine.md, "Bounds").

use pulp::Arch;
use rayon::prelude::*;

use super::layout::{Layout, ValueKind};
use super::real::{Arithmetic, Bf16, F16, F32, F64, Real};
use super::simd::vectorised;
use super::word::Word;

/// The properties of values that bounds depend on. Only finite values count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The smallest one; infinity without any.
    pub min: f64,
    /// The largest one; minus infinity without any.
    pub max: f64,
    /// The sum of the squares, those of tiny values left out.
    pub sum_sq: f64,
    /// How many there are.
    pub n_finite: u64,
}

impl Summary {
    const EMPTY: Summary =
        Summary { min: f64::INFINITY, max: f64::NEG_INFINITY, sum_sq: 0.0, n_finite: 0 };

    /// The root mean square; NaN without finite values.
    #[must_use]
    pub fn rms(&self) -> f64 {
        (self.sum_sq / self.n_finite as f64).sqrt()
    }

    /// Both together, without the sums, whose order matters.
    fn and(self, other: Summary) -> Summary {
        Summary {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum_sq: self.sum_sq,
            n_finite: self.n_finite + other.n_finite,
        }
    }
}

const GROUP: usize = 1024;
const LANES: usize = 32;

/// Summarises the values of an array, by several threads if asked to.
pub(super) fn summarise(layout: &Layout, source: &[u8], parallel: bool) -> Summary {
    match layout.kind {
        ValueKind::Float16 => reduce_as::<F16>(source, parallel),
        ValueKind::BFloat16 => reduce_as::<Bf16>(source, parallel),
        ValueKind::Float32 => reduce_as::<F32>(source, parallel),
        ValueKind::Float64 => reduce_as::<F64>(source, parallel),
        ValueKind::Signed | ValueKind::Unsigned => Summary::EMPTY,
    }
}

fn reduce_as<R: Real>(source: &[u8], parallel: bool) -> Summary {
    let bytes = GROUP * R::V::BYTES;
    let parts: Vec<Summary> = if parallel {
        source.par_chunks(bytes).with_min_len(64).map(group::<R>).collect()
    } else {
        source.chunks(bytes).map(group::<R>).collect()
    };
    let mut sums: Vec<f64> = parts.iter().map(|part| part.sum_sq).collect();
    while sums.len() > 1 {
        sums = sums.chunks(GROUP).map(sum_group).collect();
    }
    let mut summary = parts.into_iter().fold(Summary::EMPTY, Summary::and);
    summary.sum_sq = sums.first().copied().unwrap_or(0.0);
    summary
}

fn group<R: Real>(bytes: &[u8]) -> Summary {
    // Missing values at the end are NaN, which does not count.
    let mut values = [R::V::ONES; GROUP];
    R::V::read(bytes, &mut values);
    lanes::<R>(Arch::new(), &values).summary()
}

vectorised! {
    /// The summaries of the lanes of a group.
    fn lanes<'a, R: Real>(values: &'a [R::V; GROUP]) -> Lanes<R::A> {
        let mut lanes = Lanes::<R::A>::new();
        for row in values.as_chunks::<LANES>().0 {
            for (l, &bits) in row.iter().enumerate() {
                lanes.add(l, R::widen(bits));
            }
        }
        lanes
    }
}

/// Summaries side by side: lane l has the values 32 i + l.
pub(super) struct Lanes<A> {
    min: [A; LANES],
    max: [A; LANES],
    sums: [f64; LANES],
    finite: [u32; LANES],
}

impl<A: Arithmetic> Lanes<A> {
    #[inline(always)]
    fn new() -> Lanes<A> {
        Lanes {
            min: [A::from_f64(f64::INFINITY); LANES],
            max: [A::from_f64(f64::NEG_INFINITY); LANES],
            sums: [0.0; LANES],
            finite: [0; LANES],
        }
    }

    #[inline(always)]
    fn add(&mut self, l: usize, x: A) {
        let (magnitude, zero) = (x.magnitude(), A::default());
        let finite = magnitude < A::from_f64(f64::INFINITY);
        // Subnormal numbers count as 0 here, as they do where a program has set the processor so.
        let x = if magnitude < A::TINY { zero } else { x };
        self.min[l] = if finite & (x < self.min[l]) { x } else { self.min[l] };
        self.max[l] = if finite & (x > self.max[l]) { x } else { self.max[l] };
        let weighs = finite & (magnitude >= A::NEGLIGIBLE);
        let wide = (if weighs { x } else { zero }).to_f64();
        self.sums[l] += wide * wide;
        self.finite[l] += u32::from(finite);
    }

    fn summary(&self) -> Summary {
        let min = self.min.iter().fold(f64::INFINITY, |min, x| min.min(x.to_f64()));
        let max = self.max.iter().fold(f64::NEG_INFINITY, |max, x| max.max(x.to_f64()));
        let n_finite = self.finite.iter().map(|&count| u64::from(count)).sum();
        Summary { min, max, sum_sq: sum_lanes(self.sums), n_finite }
    }
}
/// The sum of up to 1024 sums in the order of the format.
fn sum_group(sums: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for row in sums.chunks(LANES) {
        for (lane, x) in lanes.iter_mut().zip(row) {
            *lane += x;
        }
    }
    sum_lanes(lanes)
}

fn sum_lanes(mut lanes: [f64; LANES]) -> f64 {
    for j in [16, 8, 4, 2, 1] {
        let before = lanes;
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane = before[l] + before[l ^ j];
        }
    }
    lanes[0]
}
