//! Looking at what an encoder made, on the spot: every value against its bound.
//!
//! PSNR and L2 error are targets by a model of evenly spread errors, so that what is achieved may
//! miss them by chance; [`chance`] says how far.

use unspool_codec::{Bound, Dtype, NvComp, Spec, Zfp};

use super::plan::Planned;
use crate::error::{Error, ErrorKind};

/// How far the root mean square of many errors may be above a target: 1 %, or 0.09 dB.
const CHANCE: f64 = 0.01;
/// Six standard deviations of the root mean square of one evenly spread error, in parts of it:
/// sqrt(4/45) * 3 / 2 = 0.447. That of `n` errors is smaller by the root of `n`.
const SIX_SIGMA: f64 = 6.0 * 0.447;

/// What does not hold.
#[derive(Clone, Debug)]
enum Violation {
    /// A value that is too far from the one that was given, or not the same.
    Value { index: usize, value: f64, decoded: f64, bound: String },
    /// The values as a whole.
    Whole { what: &'static str, achieved: f64, target: f64 },
}

/// Compares the `values` of a region with what came back as `decoded`.
///
/// # Errors
/// `BoundViolated` when its codec does not keep what it promises: nothing was saved.
pub(crate) fn check(
    version: i64,
    region: &Planned,
    values: &[u8],
    decoded: &[u8],
) -> Result<(), Error> {
    let found = compare(&region.spec.dtype, &region.codec, values, decoded);
    found.map_or(Ok(()), |found| Err(violated(version, &region.spec.name, &found)))
}

fn compare(dtype: &Dtype, codec: &Spec, values: &[u8], decoded: &[u8]) -> Option<Violation> {
    let kind = Kind::of(dtype);
    let promise = promise(codec, kind, values)?;
    let width = kind.width();
    let pairs = values.chunks_exact(width).zip(decoded.chunks_exact(width)).enumerate();
    for (index, (was, is)) in pairs {
        let (value, decoded) = (kind.value(was), kind.value(is));
        if !promise.holds(was, is, value, decoded) {
            return Some(Violation::Value { index, value, decoded, bound: promise.text() });
        }
    }
    match promise {
        CodecPromise::Target { what, root_mean_square, .. } => {
            whole(kind, values, decoded, what, root_mean_square)
        }
        _ => None,
    }
}

fn violated(version: i64, region: &str, violation: &Violation) -> Error {
    let what = match violation {
        Violation::Value { index, value, decoded, bound } => format!(
            "value {index} is {value:e} and comes back as {decoded:e}, which {bound} does not allow"
        ),
        Violation::Whole { what, achieved, target } => {
            format!("{what} is {achieved:.6e}, and {target:.6e} was asked for")
        }
    };
    let message = format!(
        "Version {version} was not saved: in region {region:?} {what}. Choose a tighter bound or \
         the lossless codec, and if it is a bound for every value, report this with the array: \
         such a bound should hold always."
    );
    Error::new(ErrorKind::BoundViolated, message)
}

/// What a codec promises for every value.
enum CodecPromise {
    Bits,
    Absolute(f64),
    Pointwise {
        bound: f64,
        floor: f64,
    },
    /// An absolute bound, and a root mean square for all of them.
    Target {
        bound: f64,
        what: &'static str,
        root_mean_square: f64,
    },
}

impl CodecPromise {
    fn holds(&self, was: &[u8], is: &[u8], value: f64, decoded: f64) -> bool {
        if was == is {
            return true;
        }
        if !value.is_finite() || !decoded.is_finite() {
            return false;
        }
        let error = (value - decoded).abs();
        match *self {
            CodecPromise::Bits => false,
            CodecPromise::Absolute(bound) | CodecPromise::Target { bound, .. } => error <= bound,
            CodecPromise::Pointwise { floor, .. } if value.abs() < floor => decoded == 0.0,
            CodecPromise::Pointwise { bound, .. } => error <= bound * value.abs(),
        }
    }

    fn text(&self) -> String {
        match *self {
            CodecPromise::Bits => "a codec without loss".to_owned(),
            CodecPromise::Absolute(bound) | CodecPromise::Target { bound, .. } => {
                format!("a bound of {bound:e}")
            }
            CodecPromise::Pointwise { bound, floor } => {
                format!("a pointwise bound of {bound:e} with a floor of {floor:e}")
            }
        }
    }
}

/// `None` where nothing is promised.
fn promise(codec: &Spec, kind: Kind, values: &[u8]) -> Option<CodecPromise> {
    let bound = match *codec {
        Spec::Bounded(bound) => bound,
        Spec::Zfp(Zfp::Tolerance(bound)) | Spec::NvComp(NvComp::BitcompLossy(bound)) => {
            return Some(CodecPromise::Absolute(bound));
        }
        Spec::Lossless | Spec::NvComp(_) => return Some(CodecPromise::Bits),
        _ => return None,
    };
    let whole = Whole::of(kind, values);
    let target = |what, root_mean_square: f64| CodecPromise::Target {
        bound: 3f64.sqrt() * root_mean_square,
        what,
        root_mean_square,
    };
    Some(match bound {
        Bound::Absolute(bound) => CodecPromise::Absolute(bound),
        Bound::Range(part) => CodecPromise::Absolute(part * whole.range()),
        Bound::Rms(part) => CodecPromise::Absolute(part * whole.root_mean_square()),
        Bound::Psnr(level) => {
            target("the error by the PSNR", whole.range() * 10f64.powf(-level / 20.0))
        }
        Bound::L2(part) => target("the error by the L2 norm", part * whole.root_mean_square()),
        Bound::Pointwise { bound, floor } => CodecPromise::Pointwise { bound, floor },
        _ => return None,
    })
}

fn whole(
    kind: Kind,
    values: &[u8],
    decoded: &[u8],
    what: &'static str,
    target: f64,
) -> Option<Violation> {
    let width = kind.width();
    let pairs = values.chunks_exact(width).zip(decoded.chunks_exact(width));
    let (mut sum, mut count) = (0.0, 0u64);
    let unit = if target > 0.0 && target.is_finite() { target } else { 1.0 };
    for (was, is) in pairs {
        let (value, decoded) = (kind.value(was), kind.value(is));
        if value.is_finite() {
            // In units of the target, so that squares of large numbers stay finite.
            sum += ((value - decoded) / unit).powi(2);
            count += 1;
        }
    }
    let achieved = unit * (sum / count.max(1) as f64).sqrt();
    let most = target * (1.0 + chance(count));
    (achieved > most).then_some(Violation::Whole { what, achieved, target })
}

/// How far the root mean square of `count` errors may be above a target, in parts of it.
fn chance(count: u64) -> f64 {
    CHANCE + SIX_SIGMA / (count.max(1) as f64).sqrt()
}

/// Figures of all finite values.
struct Whole {
    least: f64,
    most: f64,
    sum_sq: f64,
    count: u64,
}

impl Whole {
    fn of(kind: Kind, values: &[u8]) -> Whole {
        let none = Whole { least: f64::MAX, most: f64::MIN, sum_sq: 0.0, count: 0 };
        let finite = values.chunks_exact(kind.width()).map(|value| kind.value(value));
        finite.filter(|value| value.is_finite()).fold(none, |whole, value| Whole {
            least: whole.least.min(value),
            most: whole.most.max(value),
            sum_sq: whole.sum_sq + value * value,
            count: whole.count + 1,
        })
    }

    fn range(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.most - self.least }
    }

    fn root_mean_square(&self) -> f64 {
        (self.sum_sq / self.count.max(1) as f64).sqrt()
    }
}

/// What the bytes of a value are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Byte,
    Half,
    Driver,
    Single,
    Double,
}

impl Kind {
    fn of(dtype: &Dtype) -> Kind {
        match dtype {
            Dtype::Float16 | Dtype::Complex32 => Kind::Half,
            Dtype::BFloat16 => Kind::Driver,
            Dtype::Float32 | Dtype::Complex64 => Kind::Single,
            Dtype::Float64 | Dtype::Complex128 => Kind::Double,
            _ => Kind::Byte,
        }
    }

    fn width(self) -> usize {
        match self {
            Kind::Byte => 1,
            Kind::Half | Kind::Driver => 2,
            Kind::Single => 4,
            Kind::Double => 8,
        }
    }

    /// The value of so many little-endian bytes.
    fn value(self, bytes: &[u8]) -> f64 {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        match self {
            Kind::Byte => word as f64,
            Kind::Half => half(word as u16),
            Kind::Driver => f64::from(f32::from_bits((word as u32) << 16)),
            Kind::Single => f64::from(f32::from_bits(word as u32)),
            Kind::Double => f64::from_bits(word),
        }
    }
}

/// The value of an IEEE half.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn check(bound: Bound, was: &[f32], is: &[f32]) -> Option<Violation> {
        compare(&Dtype::Float32, &Spec::Bounded(bound), &bytes(was), &bytes(is))
    }

    #[test]
    fn a_value_beyond_its_bound_is_found_with_its_place() {
        let was: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let mut is = was.clone();
        is[40] += 0.5;
        assert!(check(Bound::Absolute(0.5), &was, &is).is_none());
        let found = check(Bound::Absolute(0.4), &was, &is).unwrap();
        assert!(matches!(found, Violation::Value { index: 40, .. }), "{found:?}");
        assert!(check(Bound::Range(0.004), &was, &is).is_some());
        assert!(check(Bound::Range(0.006), &was, &is).is_none());
        assert!(check(Bound::Pointwise { bound: 0.0126, floor: 0.0 }, &was, &is).is_none());
        assert!(check(Bound::Pointwise { bound: 0.0124, floor: 0.0 }, &was, &is).is_some());
        let text = violated(7, "u", &found).to_string();
        assert!(text.contains("Version 7") && text.contains("value 40"), "{text}");
    }

    #[test]
    fn what_is_not_finite_must_come_back_bit_for_bit() {
        let mut was = vec![1.0; 64];
        was[3] = f32::NAN;
        was[5] = f32::INFINITY;
        assert!(check(Bound::Absolute(1.0), &was, &was).is_none());
        for (at, wrong) in [(3, f32::from_bits(0x7fc0_0001)), (5, f32::MAX), (9, f32::NAN)] {
            let mut is = was.clone();
            is[at] = wrong;
            assert!(check(Bound::Absolute(1.0), &was, &is).is_some(), "{at}");
        }
    }

    #[test]
    fn a_target_is_judged_by_all_values_together() {
        let was: Vec<f32> = (0..200_000).map(|i| (i as f32 / 9.0).sin()).collect();
        let shifted = |by: f32| was.iter().map(|value| value + by).collect::<Vec<f32>>();
        // A PSNR of 60 dB of a range of 2: a root mean square of 2e-3.
        assert!(check(Bound::Psnr(60.0), &was, &shifted(1.9e-3)).is_none());
        let found = check(Bound::Psnr(60.0), &was, &shifted(2.1e-3)).unwrap();
        assert!(matches!(found, Violation::Whole { .. }), "{found:?}");
        assert!(check(Bound::L2(1e-3), &was, &shifted(6e-4)).is_none());
        assert!(check(Bound::L2(1e-3), &was, &shifted(8e-4)).is_some());
    }

    #[test]
    fn few_values_may_miss_a_target_by_chance_as_far_as_their_bound_lets_them() {
        // 1 % and six standard deviations: what one in a billion arrays exceeds.
        assert!((chance(1000) - 0.0948).abs() < 1e-4, "{}", chance(1000));
        assert!((chance(100_000_000) - 0.0103).abs() < 1e-4);
        let was: Vec<f32> = (0..1000).map(|i| (i as f32 / 9.0).sin()).collect();
        let shifted = |by: f32| was.iter().map(|value| value + by).collect::<Vec<f32>>();
        // The range is 2, so that the target is 2e-3.
        assert!(check(Bound::Psnr(60.0), &was, &shifted(2.15e-3)).is_none());
        assert!(check(Bound::Psnr(60.0), &was, &shifted(2.25e-3)).is_some());
    }

    #[test]
    fn halves_are_read_as_what_they_are() {
        let table: [(u16, f64); 7] = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2f64.powi(-24)),
            (0x03ff, 1023.0 * 2f64.powi(-24)),
            (0x0400, 2f64.powi(-14)),
            (0x7bff, 65504.0),
            (0x7c00, f64::INFINITY),
        ];
        for (bits, value) in table {
            assert_eq!(half(bits), value, "{bits:#x}");
        }
        assert!(half(0x7e00).is_nan());
    }
}
