//! The trait of codecs in main memory.

use std::fmt;

use crate::dtype::Dtype;
use crate::error::CodecError;
use crate::spec::{CodecId, Spec};

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
