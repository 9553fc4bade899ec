//! What a codec refuses.

use std::fmt;

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

    /// The refusal of `codec` to do what `spec` asks, which is another codec's.
    pub(crate) fn foreign(codec: &str, spec: &impl fmt::Display) -> CodecError {
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
