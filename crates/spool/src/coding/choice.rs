//! Which codec the values of a region get: what the user said, and what it means for a dtype.

use std::collections::BTreeMap;

use unspool_codec::{Bound, Codec, Dtype, NvComp, RegionSpec, Zfp};

use crate::error::{Error, ErrorKind};

/// What is done with the values of a region.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Choice {
    /// Always this codec.
    Fixed(Codec),
    /// What costs the run least, by what was measured so far: kept as they are, or a codec without
    /// any loss.
    Auto,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice::Fixed(Codec::Raw)
    }
}

/// The codecs of a spool, or of one save.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CodecChoice {
    /// For the regions that are not named. Integers, booleans and opaque items are taken without
    /// loss where this is a bound. Default: the bytes are kept as they are.
    pub default: Choice,
    /// For single regions, by name. A codec that cannot take the dtype is refused here.
    pub by_region: BTreeMap<String, Choice>,
}

impl CodecChoice {
    /// One codec for all regions.
    #[must_use]
    pub fn all(codec: Codec) -> CodecChoice {
        CodecChoice { default: Choice::Fixed(codec), by_region: BTreeMap::new() }
    }

    /// Whether the bytes of all regions are kept as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        let raw = |choice: &Choice| *choice == Choice::Fixed(Codec::Raw);
        raw(&self.default) && self.by_region.values().all(raw)
    }

    /// Every choice that is made.
    pub(crate) fn choices(&self) -> impl Iterator<Item = Choice> {
        std::iter::once(self.default).chain(self.by_region.values().copied())
    }

    /// The choice for `region`, as its dtype takes it.
    ///
    /// # Errors
    /// `Invalid` when a codec is named for this region that cannot take its dtype.
    pub(crate) fn of(&self, region: &RegionSpec) -> Result<Choice, Error> {
        let named = self.by_region.get(&region.name).copied();
        let Choice::Fixed(codec) = named.unwrap_or(self.default) else { return Ok(Choice::Auto) };
        if takes(codec, &region.dtype, named.is_some()) {
            return Ok(Choice::Fixed(codec));
        }
        match named {
            None => Ok(Choice::Fixed(Codec::Lossless)),
            Some(_) => Err(refused(codec, region)),
        }
    }
}

fn refused(codec: Codec, region: &RegionSpec) -> Error {
    let message = format!(
        "Region {:?} has items of dtype {}, which {} cannot take. Choose the lossless codec for \
         it, or none.",
        region.name,
        region.dtype.name(),
        describe(codec),
    );
    Error::new(ErrorKind::Invalid, message)
}

/// What a codec is called in a sentence.
pub(crate) fn describe(codec: Codec) -> &'static str {
    match codec {
        Codec::Raw => "no codec",
        Codec::Lossless => "the lossless codec",
        Codec::Bounded(_) => "a bound on the error",
        Codec::Zfp(_) => "zfp",
        Codec::NvComp(_) => "nvCOMP",
        _ => "this codec",
    }
}

/// Whether `codec` can take items of `dtype`. zfp loses bits of integers too, so it takes them only
/// when it is named for them.
fn takes(codec: Codec, dtype: &Dtype, is_named: bool) -> bool {
    match codec {
        Codec::Bounded(_) => is_float(dtype),
        Codec::NvComp(NvComp::BitcompLossy(_)) => has_bitcomp_bound(dtype),
        Codec::Zfp(_) if is_named && matches!(dtype, Dtype::Int32 | Dtype::Int64) => true,
        Codec::Zfp(_) => matches!(dtype, Dtype::Float32 | Dtype::Float64),
        _ => true,
    }
}

/// Whether Bitcomp can keep a bound on the error of such values.
fn has_bitcomp_bound(dtype: &Dtype) -> bool {
    is_float(dtype) && !matches!(dtype, Dtype::BFloat16 | Dtype::Complex32)
}

fn is_float(dtype: &Dtype) -> bool {
    use Dtype::{BFloat16, Complex32, Complex64, Complex128, Float16, Float32, Float64};
    let real = matches!(dtype, Float16 | BFloat16 | Float32 | Float64);
    real || matches!(dtype, Complex32 | Complex64 | Complex128)
}

/// Refuses a codec whose numbers make no sense, before anything is made.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check(choice: &CodecChoice) -> Result<(), Error> {
    choice.choices().try_for_each(|choice| match choice {
        Choice::Fixed(Codec::Bounded(bound)) => check_bound(bound),
        Choice::Fixed(Codec::Zfp(zfp)) => check_zfp(zfp),
        _ => Ok(()),
    })
}

/// Refuses codecs whose streams may not outlive this machine's libraries.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_durable(choice: &CodecChoice) -> Result<(), Error> {
    if !choice.choices().any(|choice| matches!(choice, Choice::Fixed(Codec::NvComp(_)))) {
        return Ok(());
    }
    let message = "A durable history is not encoded with nvCOMP, whose streams only its library \
                   can read. Choose the lossless codec, a bound or zfp.";
    Err(Error::new(ErrorKind::Invalid, message))
}

fn check_zfp(zfp: Zfp) -> Result<(), Error> {
    match zfp {
        Zfp::Rate(rate) => check_number("rate of zfp in bits for each value", rate, rate > 0.0),
        Zfp::Accuracy(bound) => check_number("tolerance of zfp", bound, bound > 0.0),
        Zfp::Precision(planes) => {
            check_number("precision of zfp in bits", f64::from(planes), planes > 0)
        }
        _ => Ok(()),
    }
}

fn check_bound(bound: Bound) -> Result<(), Error> {
    let (what, value, least) = match bound {
        Bound::Absolute(value) => ("absolute bound", value, 0.0),
        Bound::Range(value) => ("bound relative to the range", value, 0.0),
        Bound::Rms(value) => ("bound relative to the root mean square", value, 0.0),
        Bound::L2(value) => ("relative L2 error", value, 0.0),
        Bound::Relative { bound, floor } => {
            check_number("floor of a relative bound", floor, floor >= 0.0)?;
            ("relative bound", bound, 0.0)
        }
        Bound::Psnr(value) => return check_number("PSNR in dB", value, true),
        _ => return Ok(()),
    };
    check_number(what, value, value > least)
}

fn check_number(what: &str, value: f64, is_right: bool) -> Result<(), Error> {
    if is_right && value.is_finite() {
        return Ok(());
    }
    let message = format!("The {what} is {value}: give a positive, finite number.");
    Err(Error::new(ErrorKind::Invalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, dtype: Dtype) -> RegionSpec {
        RegionSpec { name: name.to_owned(), dtype, shape: vec![100] }
    }

    #[test]
    fn integers_under_a_bound_for_all_regions_are_taken_without_loss() {
        let choice = CodecChoice::all(Codec::Bounded(Bound::Absolute(1e-3)));
        let lossless = Choice::Fixed(Codec::Lossless);
        for dtype in [Dtype::Int32, Dtype::Bool, Dtype::UInt8, Dtype::Float8E5m2] {
            assert_eq!(choice.of(&region("u", dtype)).unwrap(), lossless);
        }
        assert_ne!(choice.of(&region("u", Dtype::Complex64)).unwrap(), lossless);
    }

    #[test]
    fn a_bound_that_is_named_for_integers_is_refused_with_what_to_do() {
        let bound = Choice::Fixed(Codec::Bounded(Bound::Absolute(1e-3)));
        let by_region = BTreeMap::from([("k".to_owned(), bound)]);
        let choice = CodecChoice { by_region, ..CodecChoice::default() };
        let error = choice.of(&region("k", Dtype::Int16)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("int16") && error.message().contains("lossless"));
        assert_eq!(choice.of(&region("u", Dtype::Int16)).unwrap(), Choice::default());
        assert!(!choice.is_raw() && CodecChoice::default().is_raw());
    }

    #[test]
    fn bounds_that_are_no_positive_numbers_are_refused() {
        let bad = [
            Bound::Absolute(0.0),
            Bound::Range(-1.0),
            Bound::Rms(f64::NAN),
            Bound::L2(f64::INFINITY),
            Bound::Psnr(f64::NAN),
            Bound::Relative { bound: 1e-3, floor: -1.0 },
            Bound::Relative { bound: 0.0, floor: 0.0 },
        ];
        for bound in bad {
            assert!(check(&CodecChoice::all(Codec::Bounded(bound))).is_err(), "{bound:?}");
        }
        let good = Bound::Relative { bound: 1e-3, floor: 0.0 };
        assert!(check(&CodecChoice::all(Codec::Bounded(good))).is_ok());
    }
}
