//! Which codec the values of an array get, and with which bound or parameters.

use std::fmt;

use crate::dtype::Dtype;
use crate::error::{CodecError, CodecErrorKind};

/// Which codec the values of an array get, with its bound or parameters.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Spec {
    /// The bytes are kept as they are.
    #[default]
    Raw,
    /// [`Raw`](Spec::Raw) or [`Lossless`](Spec::Lossless), whichever costs the run less. Decided
    /// for each checkpoint before it is encoded.
    Auto,
    /// Twine without any loss.
    Lossless,
    /// Twine with a bound on the error of every finite value.
    Bounded(Bound),
    /// zfp, for exchange with other programs.
    Zfp(Zfp),
    /// A codec of NVIDIA's nvCOMP, in the memory of machines that have it.
    NvComp(NvComp),
}

/// How far a value may be from the one that was saved. NaN, infinities and what a bound cannot
/// express come back bit for bit.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Bound {
    /// At most this far, in the unit of the values.
    Absolute(f64),
    /// At most this part of the range (largest minus smallest finite value).
    Range(f64),
    /// At most this part of the root mean square of the finite values.
    Rms(f64),
    /// A target for the peak signal-to-noise ratio in dB, the range being the peak; met for errors
    /// that are spread evenly.
    Psnr(f64),
    /// A target for the norm of the error divided by that of the values; met for errors that are
    /// spread evenly.
    L2(f64),
    /// At most this part of the value itself; values smaller than `floor` become 0.
    Pointwise {
        /// The largest |x - x'| / |x|.
        bound: f64,
        /// The magnitude below which a value counts as 0; 0 for none.
        floor: f64,
    },
}

/// The three ways of zfp to say how much is kept.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Zfp {
    /// Bits for each value, fixed.
    Rate(f64),
    /// Bit planes for each block.
    Precision(u32),
    /// The largest error, in the unit of the values.
    Tolerance(f64),
}

/// A codec of nvCOMP.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum NvComp {
    /// Bitcomp without loss.
    Bitcomp,
    /// Bitcomp with an absolute bound.
    BitcompLossy(f64),
    /// ANS entropy coding.
    Ans,
    /// LZ4.
    Lz4,
    /// Run lengths, differences and bit packing.
    Cascaded,
    /// GDeflate.
    Gdeflate,
    /// Zstandard.
    Zstd,
}

impl NvComp {
    /// The formats without loss, by their names.
    pub const LOSSLESS: [(&str, NvComp); 6] = [
        ("bitcomp", NvComp::Bitcomp),
        ("ans", NvComp::Ans),
        ("lz4", NvComp::Lz4),
        ("cascaded", NvComp::Cascaded),
        ("gdeflate", NvComp::Gdeflate),
        ("zstd", NvComp::Zstd),
    ];
}

impl Spec {
    /// The id in a frame of the codec that makes the bytes; [`CodecId::Raw`] for [`Spec::Auto`],
    /// until it is decided.
    #[must_use]
    pub fn id(&self) -> CodecId {
        match self {
            Spec::Raw | Spec::Auto => CodecId::Raw,
            Spec::Lossless | Spec::Bounded(_) => CodecId::Twine,
            Spec::Zfp(_) => CodecId::Zfp,
            Spec::NvComp(_) => CodecId::NvComp,
        }
    }

    /// Whether values may come back changed.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        let lossy_format = matches!(self, Spec::NvComp(NvComp::BitcompLossy(_)));
        lossy_format || matches!(self, Spec::Bounded(_) | Spec::Zfp(_))
    }

    /// Whether what it does to a value depends on the rest of the array: a bound that depends on
    /// the values, and zfp, which transforms blocks of neighbours.
    #[must_use]
    pub fn depends_on_array(&self) -> bool {
        match self {
            Spec::Raw | Spec::Auto | Spec::Lossless | Spec::NvComp(_) => false,
            Spec::Bounded(bound) => bound.depends_on_values(),
            Spec::Zfp(_) => true,
        }
    }

    /// Whether only a GPU encodes and decodes with it.
    #[must_use]
    pub fn needs_gpu(&self) -> bool {
        self.id().needs_gpu()
    }

    /// Whether it can take items of `dtype`.
    #[must_use]
    pub fn takes(&self, dtype: &Dtype) -> bool {
        use Dtype::{BFloat16, Complex32, Float32, Float64, Int32, Int64};
        match self {
            Spec::Bounded(_) => dtype.is_float(),
            Spec::NvComp(NvComp::BitcompLossy(_)) => {
                dtype.is_float() && !matches!(dtype, BFloat16 | Complex32)
            }
            Spec::Zfp(_) => matches!(dtype, Float32 | Float64 | Int32 | Int64),
            Spec::Raw | Spec::Auto | Spec::Lossless | Spec::NvComp(_) => true,
        }
    }

    /// Refuses numbers that make no sense for any array.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<(), CodecError> {
        match *self {
            Spec::Bounded(bound) => bound.check(),
            Spec::Zfp(zfp) => zfp.check(),
            _ => Ok(()),
        }
    }
}

/// Which codec made the stored bytes of a region, as a frame names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u16)]
pub enum CodecId {
    /// No codec: the stored bytes are the values.
    #[default]
    Raw = 0,
    /// A Twine stream.
    Twine = 1,
    /// A zfp stream.
    Zfp = 2,
    /// Chunks of nvCOMP with a table; never in a durable frame.
    NvComp = 3,
}

impl CodecId {
    /// The number that stands for it in a frame.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The codec with this number, if this version knows it.
    #[must_use]
    pub fn from_code(code: u16) -> Option<CodecId> {
        [CodecId::Raw, CodecId::Twine, CodecId::Zfp, CodecId::NvComp]
            .get(usize::from(code))
            .copied()
    }
}

/// The codec as it is called in a sentence.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Spec::Raw => "no codec",
            Spec::Auto => "the automatic codec",
            Spec::Lossless => "the lossless codec",
            Spec::Bounded(_) => "a bound on the error",
            Spec::Zfp(_) => "zfp",
            Spec::NvComp(_) => "nvCOMP",
        })
    }
}

impl Bound {
    /// Whether the step of the codec depends on the values: on their range or root mean square.
    #[must_use]
    pub fn depends_on_values(&self) -> bool {
        !matches!(self, Bound::Absolute(_) | Bound::Pointwise { .. })
    }

    fn check(self) -> Result<(), CodecError> {
        let (what, value) = match self {
            Bound::Absolute(value) => ("absolute bound", value),
            Bound::Range(value) => ("bound relative to the range", value),
            Bound::Rms(value) => ("bound relative to the root mean square", value),
            Bound::L2(value) => ("relative L2 error", value),
            Bound::Pointwise { bound, floor } => {
                check_number("floor of a pointwise bound", floor, floor >= 0.0)?;
                ("pointwise bound", bound)
            }
            Bound::Psnr(value) => return check_number("PSNR in dB", value, true),
        };
        check_number(what, value, value > 0.0)
    }
}

impl Zfp {
    fn check(self) -> Result<(), CodecError> {
        match self {
            Zfp::Rate(rate) => check_number("rate of zfp in bits for each value", rate, rate > 0.0),
            Zfp::Tolerance(most) => check_number("tolerance of zfp", most, most > 0.0),
            Zfp::Precision(planes) => {
                check_number("precision of zfp in bits", f64::from(planes), planes > 0)
            }
        }
    }
}

fn check_number(what: &str, value: f64, is_right: bool) -> Result<(), CodecError> {
    if is_right && value.is_finite() {
        return Ok(());
    }
    let message = format!("The {what} is {value}: give a positive, finite number.");
    Err(CodecError::new(CodecErrorKind::Invalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_are_no_positive_numbers_are_refused() {
        let bad = [
            Bound::Absolute(0.0),
            Bound::Range(-1.0),
            Bound::Rms(f64::NAN),
            Bound::L2(f64::INFINITY),
            Bound::Psnr(f64::NAN),
            Bound::Pointwise { bound: 1e-3, floor: -1.0 },
            Bound::Pointwise { bound: 0.0, floor: 0.0 },
        ];
        for bound in bad {
            assert!(Spec::Bounded(bound).check().is_err(), "{bound:?}");
        }
        let good = Bound::Pointwise { bound: 1e-3, floor: 0.0 };
        assert_eq!(Spec::Bounded(good).check(), Ok(()));
        for zfp in [Zfp::Rate(0.0), Zfp::Precision(0), Zfp::Tolerance(-1.0)] {
            assert!(Spec::Zfp(zfp).check().is_err(), "{zfp:?}");
        }
    }

    #[test]
    fn what_depends_on_the_array_is_relative_or_of_zfp() {
        let alone = [
            Spec::Raw,
            Spec::Auto,
            Spec::Lossless,
            Spec::Bounded(Bound::Absolute(1e-3)),
            Spec::Bounded(Bound::Pointwise { bound: 1e-3, floor: 0.0 }),
            Spec::NvComp(NvComp::BitcompLossy(1e-3)),
        ];
        let together = [
            Spec::Bounded(Bound::Range(1e-3)),
            Spec::Bounded(Bound::Rms(1e-3)),
            Spec::Bounded(Bound::Psnr(80.0)),
            Spec::Bounded(Bound::L2(1e-3)),
            Spec::Zfp(Zfp::Rate(8.0)),
        ];
        assert_eq!(alone.map(|spec| spec.depends_on_array()), [false; 6]);
        assert_eq!(together.map(|spec| spec.depends_on_array()), [true; 5]);
    }

    #[test]
    fn each_codec_takes_the_dtypes_that_it_knows() {
        let bound = Spec::Bounded(Bound::Absolute(1e-3));
        let bitcomp = Spec::NvComp(NvComp::BitcompLossy(1e-3));
        let zfp = Spec::Zfp(Zfp::Rate(8.0));
        let taken = |spec: Spec| {
            let all = [Dtype::Int16, Dtype::Int32, Dtype::BFloat16, Dtype::Float32];
            all.map(|dtype| spec.takes(&dtype))
        };
        assert_eq!(taken(Spec::Lossless), [true; 4]);
        assert_eq!(taken(bound), [false, false, true, true]);
        assert_eq!(taken(bitcomp), [false, false, false, true]);
        assert_eq!(taken(zfp), [false, true, false, true]);
        assert!(bound.is_lossy() && bitcomp.is_lossy() && zfp.is_lossy());
        assert!(!Spec::Lossless.is_lossy() && !Spec::NvComp(NvComp::Lz4).is_lossy());
    }
}
