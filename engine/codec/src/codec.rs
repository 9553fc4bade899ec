//! The trait of codecs in main memory, and the list of them.

use std::fmt;

use crate::dtype::Dtype;
use crate::spec::Spec;
use crate::twine::Twine;
use crate::zfp::ZfpCodec;

/// The codecs in main memory. A new one is a folder beside `twine` and `zfp`, and a line here.
const CODECS: [&dyn Codec; 3] = [&Raw, &Twine, &ZfpCodec];

/// A codec in main memory. The bytes that it makes depend on the values and the spec alone.
pub trait Codec: Sync + fmt::Debug {
    /// The id of the codec in a frame.
    fn id(&self) -> CodecId;

    /// The most bytes that the codec makes of an array.
    ///
    /// # Errors
    /// `Invalid` when it does not take the dtype, or the spec is another codec's or does not fit
    /// the dtype; `TooLarge` when the array is.
    fn max_bytes(&self, spec: &Spec, dtype: &Dtype, shape: &[u64]) -> Result<u64, CodecError>;

    /// Writes the bytes for `source`, the dense values of an array, to the beginning of `out`,
    /// which has at least [`max_bytes`](Self::max_bytes).
    ///
    /// # Errors
    /// Those of `max_bytes`; `Invalid` when a buffer has another length, and for values that the
    /// codec has no form for.
    fn encode(
        &self,
        spec: &Spec,
        dtype: &Dtype,
        shape: &[u64],
        source: &[u8],
        out: &mut [u8],
    ) -> Result<EncodedStream, CodecError>;

    /// Fills `out` with the values of an array from the bytes that were made of it. Any bytes are
    /// safe; after an error the content of `out` is unspecified.
    ///
    /// # Errors
    /// `Damaged` when these are not the bytes of such an array, `Newer` when a later version has
    /// made them, `Invalid` when `out` has another length than the array.
    fn decode(
        &self,
        dtype: &Dtype,
        shape: &[u64],
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError>;
}

impl Spec {
    /// The codec in main memory for this spec.
    ///
    /// # Errors
    /// `Invalid` for a codec that works on a GPU only.
    pub fn codec(&self) -> Result<&'static dyn Codec, CodecError> {
        self.id().codec()
    }
}

impl CodecId {
    /// Whether only a GPU encodes and decodes with it.
    #[must_use]
    pub fn needs_gpu(self) -> bool {
        self.codec().is_err()
    }

    /// The codec in main memory.
    ///
    /// # Errors
    /// `Invalid` for a codec that works on a GPU only.
    pub fn codec(self) -> Result<&'static dyn Codec, CodecError> {
        CODECS.into_iter().find(|codec| codec.id() == self).ok_or_else(needs_gpu)
    }
}

fn needs_gpu() -> CodecError {
    CodecError::new(
        CodecErrorKind::Invalid,
        "nvCOMP works on a GPU only, and here the host would have to: the spool is on no GPU, \
         there is no compiler for its kernels, or another region has a codec of the host (zfp \
         without a fixed rate). Open the spool on a GPU with nvCOMP installed (`pip install \
         unspool[nvcomp]`), or choose the lossless codec or a bound, which need neither.",
    )
}

/// The bytes as they are.
#[derive(Debug)]
struct Raw;

impl Codec for Raw {
    fn id(&self) -> CodecId {
        CodecId::Raw
    }

    fn max_bytes(&self, _: &Spec, dtype: &Dtype, shape: &[u64]) -> Result<u64, CodecError> {
        let bytes = items(shape).and_then(|items| items.checked_mul(dtype.itemsize()));
        bytes.ok_or_else(|| {
            let message = format!("An array of shape {shape:?} has too many bytes. Split it.");
            CodecError::new(CodecErrorKind::TooLarge, message)
        })
    }

    fn encode(
        &self,
        _: &Spec,
        dtype: &Dtype,
        shape: &[u64],
        source: &[u8],
        out: &mut [u8],
    ) -> Result<EncodedStream, CodecError> {
        let room = out.len();
        let Some(out) = out.get_mut(..source.len()) else {
            let message = format!("{} bytes do not fit {room}. Give more room.", source.len());
            return Err(CodecError::new(CodecErrorKind::Invalid, message));
        };
        out.copy_from_slice(source);
        let values = items(shape).unwrap_or(0).saturating_mul(dtype.components());
        Ok(EncodedStream {
            bytes: source.len() as u64,
            achieved: Achieved { values, ..Achieved::default() },
        })
    }

    fn decode(
        &self,
        _: &Dtype,
        _: &[u64],
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        if stored.len() == out.len() {
            out.copy_from_slice(stored);
            return Ok(());
        }
        let message = format!("{} bytes, and the array has {}", stored.len(), out.len());
        Err(CodecError::new(CodecErrorKind::Damaged, message))
    }
}

fn items(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size))
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

/// The result of an encoder.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EncodedStream {
    /// How many bytes it has written.
    pub bytes: u64,
    /// The error of the values that come back.
    pub achieved: Achieved,
}

/// The error that an encoder made, over the finite values.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Achieved {
    /// The largest |x - x'|, in the unit of the values. Twine counts one below the smallest normal
    /// number of its arithmetic (2^-126, for float64 2^-1022) as 0, so that encoders agree where
    /// processors flush such numbers.
    pub max_error: f64,
    /// The sum of the squares of all |x - x'|.
    pub sum_sq_error: f64,
    /// How many values there are.
    pub values: u64,
    /// How many of them are stored as they are, because the bound could not be held otherwise.
    pub outliers: u64,
}

impl Achieved {
    /// The root mean square of the error.
    #[must_use]
    pub fn rms_error(&self) -> f64 {
        if self.values == 0 { 0.0 } else { (self.sum_sq_error / self.values as f64).sqrt() }
    }

    /// The error of both arrays together, as if they were one.
    #[must_use]
    pub fn and(self, other: Achieved) -> Achieved {
        Achieved {
            max_error: self.max_error.max(other.max_error),
            sum_sq_error: self.sum_sq_error + other.sum_sq_error,
            values: self.values + other.values,
            outliers: self.outliers + other.outliers,
        }
    }
}

/// Values that a codec cannot take, or a stream that it cannot read.
///
/// Its text says what is wrong and what can be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodecError {
    kind: CodecErrorKind,
    what: String,
}

/// The kinds of refusal of a codec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CodecErrorKind {
    /// The codec, the bound or the buffers do not fit the values.
    Invalid,
    /// The values are more than the format can hold.
    TooLarge,
    /// The stream is damaged, or not one of this codec.
    Damaged,
    /// The stream is of a newer version.
    Newer,
    /// The machine has no memory left for the work.
    NoMemory,
}

impl CodecError {
    /// An error with this text.
    pub fn new(kind: CodecErrorKind, what: impl Into<String>) -> CodecError {
        CodecError { kind, what: what.into() }
    }

    /// The refusal of `codec` to do what is another codec's.
    pub(crate) fn foreign(codec: &str, spec: &Spec) -> CodecError {
        let message = format!("{codec} was asked for {spec}. Ask the codec that the spec names.");
        CodecError::new(CodecErrorKind::Invalid, message)
    }

    /// What kind of refusal it is.
    #[must_use]
    pub fn kind(&self) -> CodecErrorKind {
        self.kind
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for CodecError {}

#[cfg(test)]
mod tests {
    use super::Achieved;

    #[test]
    fn errors_of_two_arrays_add_up_as_those_of_one() {
        let a = Achieved { max_error: 0.5, sum_sq_error: 3.0, values: 4, outliers: 1 };
        let b = Achieved { max_error: 0.25, sum_sq_error: 1.0, values: 12, outliers: 0 };
        let both = a.and(b);
        assert_eq!((both.max_error, both.values, both.outliers), (0.5, 16, 1));
        assert_eq!(both.rms_error(), 0.5);
        assert_eq!(Achieved::default().rms_error(), 0.0);
    }
}
