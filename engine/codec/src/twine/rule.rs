//! From a bound to the numbers that quantise (docs/reference/twine.md, "Mode 1", "Mode 2" and
//! "Bounds").

use super::header::damaged;
use super::layout::{Layout, ValueKind};
use super::reduce::Summary;
use crate::dtype::Dtype;
use crate::error::{CodecError, CodecErrorKind};
use crate::spec::{Bound, Spec};

/// An array and the bound on its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Array {
    /// The values and their chunks.
    pub layout: Layout,
    /// The bound on the error of every value; `None` keeps every bit.
    pub bound: Option<Bound>,
}

/// A bound as far as it is known without the values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BoundRule {
    /// Mode 0.
    Exact,
    /// Mode 1 with this step.
    Step(Step),
    /// Mode 1 with the absolute bound `factor * (max - min)`.
    Range(f64),
    /// Mode 1 with the absolute bound `factor * sqrt(sum_sq / n_finite)`.
    Rms(f64),
    /// Mode 2.
    Relative(Relative),
}

impl Array {
    /// An array of `dtype` and `shape` with the bound of `spec`.
    ///
    /// # Errors
    /// [`CodecErrorKind::TooLarge`] for too many values, [`CodecErrorKind::Invalid`] when the spec
    /// is another codec's.
    pub fn of(spec: &Spec, dtype: &Dtype, shape: &[u64]) -> Result<Array, CodecError> {
        let bound = match *spec {
            Spec::Lossless => None,
            Spec::Bounded(bound) => Some(bound),
            ref other => return Err(CodecError::foreign("Twine", other)),
        };
        Ok(Array { layout: Layout::of(dtype, shape)?, bound })
    }

    /// The rule that the bound means for these values.
    ///
    /// # Errors
    /// [`CodecErrorKind::Invalid`] for a bound on values that are not floats, and for one that is
    /// negative or not finite.
    pub fn rule(&self) -> Result<BoundRule, CodecError> {
        let Some(bound) = self.bound else { return Ok(BoundRule::Exact) };
        if !self.layout.kind.is_float() {
            return Err(invalid(
                "a bound is for floating-point and complex values; take the lossless codec for \
                 integers and others",
            ));
        }
        let sqrt_3 = 3.0_f64.sqrt();
        Ok(match bound {
            Bound::Absolute(eb) => BoundRule::Step(Step::new(self.layout.kind, not_negative(eb)?)),
            Bound::Range(factor) => BoundRule::Range(not_negative(factor)?),
            Bound::Rms(factor) => BoundRule::Rms(not_negative(factor)?),
            Bound::Psnr(db) => BoundRule::Range(not_negative(sqrt_3 * 10.0_f64.powf(-db / 20.0))?),
            Bound::L2(target) => BoundRule::Rms(not_negative(sqrt_3 * target)?),
            Bound::Pointwise { bound, floor } => relative(self.layout.kind, bound, floor)?,
        })
    }
}

/// The numbers of mode 1. All are those of the arithmetic type, widened.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// The absolute bound that holds; 0 when every value is kept as it is.
    pub bound: f64,
    /// The largest error that passes; 0 when every value is kept as it is.
    pub e: f64,
    /// The distance of two reconstructions.
    pub step: f64,
    /// Its reciprocal.
    pub inv: f64,
}

impl Step {
    /// The step for an absolute bound. A bound that is not finite, not above 0, or too small gives
    /// a step of 0: nothing passes, every value is stored.
    #[must_use]
    pub fn new(kind: ValueKind, eb: f64) -> Step {
        let e = if kind == ValueKind::Float64 { margin_f64(eb) } else { margin_f32(eb) };
        let bound = if e > 0.0 { eb } else { 0.0 };
        let step = 2.0 * e;
        let inv = match kind {
            ValueKind::Float64 => 1.0 / step,
            _ => f64::from(1.0 / (step as f32)),
        };
        Step { bound, e, step, inv }
    }

    /// The step of [`BoundRule::Range`] for values with this summary.
    #[must_use]
    pub fn of_range(kind: ValueKind, factor: f64, summary: &Summary) -> Step {
        Step::new(kind, on_grid(factor * (summary.max - summary.min)))
    }

    /// The step of [`BoundRule::Rms`] for values with this summary.
    #[must_use]
    pub fn of_rms(kind: ValueKind, factor: f64, summary: &Summary) -> Step {
        Step::new(kind, on_grid(factor * summary.rms()))
    }
}

/// The largest bound of the grid that is not above `eb`: the grid has 2^3 members for each power of
/// two. Arrays that differ a little have the same bound that way, so that an encoder can guess it
/// from the array before.
fn on_grid(eb: f64) -> f64 {
    const GRID_BITS: u32 = 3;
    f64::from_bits(eb.to_bits() & (u64::MAX << (52 - GRID_BITS)))
}

impl Step {
    /// The numbers that a decoder needs, from the header of a stream.
    pub(super) fn from_stream(kind: ValueKind, step: f64) -> Result<Step, CodecError> {
        let exact = kind == ValueKind::Float64 || f64::from(step as f32) == step;
        if step.is_finite() && step >= 0.0 && exact {
            return Ok(Step { bound: 0.0, e: 0.0, step, inv: 0.0 });
        }
        Err(damaged(format!("its step is {step}")))
    }
}

/// The bounds are such that the step, its reciprocal and every reconstruction are normal numbers.
fn margin_f32(eb: f64) -> f64 {
    const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);
    const LARGEST: f32 = f32::from_bits((127 + 125) << 23);
    if !(eb > 0.0 && eb.is_finite()) {
        return 0.0;
    }
    let exact = eb * (1.0 - 1.0 / f64::from(1 << 21));
    let nearest = exact as f32;
    let e = if f64::from(nearest) > exact { nearest.next_down() } else { nearest };
    if e < SMALLEST { 0.0 } else { f64::from(e.min(LARGEST)) }
}

fn margin_f64(eb: f64) -> f64 {
    const SMALLEST: f64 = f64::from_bits((1023 - 900) << 52);
    const LARGEST: f64 = f64::from_bits((1023 + 1021) << 52);
    if !(eb > 0.0 && eb.is_finite()) {
        return 0.0;
    }
    let e = eb * (1.0 - 1.0 / (1_u64 << 48) as f64);
    if e < SMALLEST { 0.0 } else { e.min(LARGEST) }
}

/// The numbers of mode 2.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Relative {
    /// The largest |x - x'| / |x|.
    pub bound: f64,
    /// The magnitude below which a value becomes 0.
    pub floor: f64,
    /// Mantissa bits that are kept.
    pub kept: u32,
    /// Mantissa bits that are cut off.
    pub shift: u32,
    /// The smallest bit pattern that is not below the floor.
    pub floor_bits: u64,
}

impl Relative {
    /// The numbers that a decoder needs, from the header of a stream.
    pub(super) fn from_stream(kind: ValueKind, kept: u32) -> Result<Relative, CodecError> {
        match kind.mantissa_bits().checked_sub(kept) {
            Some(shift) => Ok(Relative { bound: 0.0, floor: 0.0, kept, shift, floor_bits: 0 }),
            None => Err(damaged(format!("it keeps {kept} mantissa bits"))),
        }
    }
}

fn relative(kind: ValueKind, bound: f64, floor: f64) -> Result<BoundRule, CodecError> {
    let (bound, floor) = (not_negative(bound)?, not_negative(floor)?);
    let mantissa = kind.mantissa_bits();
    let kept = (0..mantissa).find(|&k| 0.5_f64.powi(k as i32 + 1) <= bound).unwrap_or(mantissa);
    if kept == mantissa && floor == 0.0 {
        return Ok(BoundRule::Exact);
    }
    let shift = mantissa - kept;
    let floor_bits = pattern_at_least(kind, floor);
    Ok(BoundRule::Relative(Relative { bound, floor, kept, shift, floor_bits }))
}

/// The smallest pattern of the kind whose value is at least `value`, which is finite and not
/// negative: patterns ascend with their values, so it is found by halving.
fn pattern_at_least(kind: ValueKind, value: f64) -> u64 {
    if kind == ValueKind::Float64 {
        return value.to_bits();
    }
    let (mut low, mut high) = (0_u64, infinity(kind));
    while low < high {
        let middle = low.midpoint(high);
        if magnitude(kind, middle) < value {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The bit pattern of infinity.
pub(super) fn infinity(kind: ValueKind) -> u64 {
    match kind {
        ValueKind::Float16 => 0x7c00,
        ValueKind::BFloat16 => 0x7f80,
        ValueKind::Float32 => 0x7f80_0000,
        _ => 0x7ff0_0000_0000_0000,
    }
}

/// The value of a finite pattern without sign of the narrower kinds, by integers and a product of
/// normal numbers, so that it is right where subnormal numbers count as 0.
fn magnitude(kind: ValueKind, bits: u64) -> f64 {
    let mantissa = kind.mantissa_bits();
    let bias = if kind == ValueKind::Float16 { 15 } else { 127 };
    let exponent = (bits >> mantissa) as i32;
    let fraction = bits & ((1 << mantissa) - 1);
    let (whole, exponent) =
        if exponent == 0 { (fraction, 1) } else { (fraction | 1 << mantissa, exponent) };
    whole as f64 * 2.0_f64.powi(exponent - bias - mantissa as i32)
}

fn not_negative(value: f64) -> Result<f64, CodecError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value.abs());
    }
    Err(invalid("a bound and its floor are finite numbers that are not negative"))
}

fn invalid(what: &str) -> CodecError {
    CodecError::new(CodecErrorKind::Invalid, format!("{what}."))
}
