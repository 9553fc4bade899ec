//! What is done with the bytes of a region: nothing, or one of the codecs, and with which bound.
//! And what a store may do with the whole payload.

use std::fmt;

/// What the user wants done with the values of one region.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Codec {
    /// The bytes are kept as they are.
    #[default]
    Raw,
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
    Relative {
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
    /// An absolute tolerance, in the unit of the values.
    Accuracy(f64),
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

/// Which codec made the stored bytes of a region, as a frame names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u16)]
pub enum CodecId {
    /// None: the stored bytes are the values.
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

impl Codec {
    /// The codec whose streams this choice makes.
    #[must_use]
    pub fn id(&self) -> CodecId {
        match self {
            Codec::Raw => CodecId::Raw,
            Codec::Lossless | Codec::Bounded(_) => CodecId::Twine,
            Codec::Zfp(_) => CodecId::Zfp,
            Codec::NvComp(_) => CodecId::NvComp,
        }
    }
}

/// What packs whole payloads on their way into a store. The memory tiers never see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outer {
    /// Zstandard with this level, from 1 (fast) to 22 (small).
    Zstd(i32),
    /// LZ4: faster, and less small.
    Lz4,
    /// The smallest lossless form, slow to write: pco for numbers that are not encoded already,
    /// Zstandard for the rest.
    Archive,
}

/// Which outer coder packed a payload, as a frame names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum OuterId {
    /// Zstandard.
    Zstd = 1,
    /// LZ4.
    Lz4 = 2,
    /// pco and Zstandard.
    Archive = 3,
}

impl OuterId {
    /// The number that stands for it in a frame; 0 is a payload that is not packed.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The outer coder with this number, if this version knows it.
    #[must_use]
    pub fn from_code(code: u16) -> Option<OuterId> {
        [OuterId::Zstd, OuterId::Lz4, OuterId::Archive].into_iter().find(|id| id.code() == code)
    }
}

impl Outer {
    /// The outer coder, without its level.
    #[must_use]
    pub fn id(self) -> OuterId {
        match self {
            Outer::Zstd(_) => OuterId::Zstd,
            Outer::Lz4 => OuterId::Lz4,
            Outer::Archive => OuterId::Archive,
        }
    }
}

impl Default for Outer {
    /// Zstandard at its own default level.
    fn default() -> Outer {
        Outer::Zstd(3)
    }
}

/// The error that an encoder made, over the finite values.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Achieved {
    /// The largest |x - x'|, in the unit of the values.
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

    /// Both together, as if they were one array.
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
}

impl CodecError {
    /// An error with this text.
    pub fn new(kind: CodecErrorKind, what: impl Into<String>) -> CodecError {
        CodecError { kind, what: what.into() }
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
