//! Minimum, maximum and sum of squares of an array, in an order that is fixed, so that every
//! encoder gets the same bound from them (docs/twine.md, "Bounds").

use rayon::prelude::*;

use super::layout::{Layout, ValueKind};
use super::real::{Arithmetic, Bf16, F16, F32, F64, Real};
use super::word::Word;

/// What bounds that depend on the values need of them. Only finite values count.
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

    /// Both together, but for the sums: their order matters.
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
    let mut values = [R::V::ZERO; GROUP];
    let n = bytes.len() / R::V::BYTES;
    R::V::read(bytes, &mut values);
    let mut squares = [0.0; GROUP];
    let mut summary = Summary::EMPTY;
    for (square, &bits) in squares.iter_mut().zip(&values[..n]) {
        let x = R::widen(bits).to_f64();
        if x.is_finite() {
            summary.min = summary.min.min(x);
            summary.max = summary.max.max(x);
            summary.n_finite += 1;
            *square = if x.abs() < R::A::NEGLIGIBLE { 0.0 } else { x * x };
        }
    }
    Summary { sum_sq: sum_group(&squares), ..summary }
}

/// The sum of up to 1024 numbers in the order of the format.
fn sum_group(numbers: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for row in numbers.chunks(LANES) {
        for (lane, x) in lanes.iter_mut().zip(row) {
            *lane += x;
        }
    }
    for j in [16, 8, 4, 2, 1] {
        let before = lanes;
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane = before[l] + before[l ^ j];
        }
    }
    lanes[0]
}
