//! The first 64 bytes of a stream (docs/reference/twine.md, "Header").

use super::layout::Layout;
use super::rule::{Relative, Step};
use crate::error::{CodecError, CodecErrorKind};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"TWN1";
const VERSION: u8 = 1;

/// The fields of a header. Made by [`header`](super::header); its numbers are as they
/// stand in the stream.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Header {
    /// The low byte of the dtype's code in the frame format.
    pub dtype: u8,
    /// 0 lossless, 1 step, 2 relative.
    pub mode: u8,
    /// Dimensions of a chunk.
    pub profile: u8,
    /// How many values there are.
    pub n: u64,
    /// Mode 1: the absolute bound that holds. Mode 2: the relative bound.
    pub bound: f64,
    /// Mode 1: the step. Mode 2: the floor.
    pub step: f64,
    /// Mode 2: mantissa bits that are kept.
    pub kept: u32,
    /// How many chunks there are.
    pub n_chunks: u32,
    /// The last three dimensions, as far as the profile uses them; the last one first.
    pub dimensions: [u32; 3],
    /// Words after the table.
    pub payload_words: u32,
    /// The largest |x - x'| of the finite values.
    pub max_error: f64,
}

/// The rule by which coefficients become values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Mode {
    Exact,
    Step(Step),
    Relative(Relative),
}

impl Header {
    pub(super) fn new(layout: &Layout, mode: &Mode) -> Header {
        let (number, bound, step, kept) = match mode {
            Mode::Exact => (0, 0.0, 0.0, 0),
            Mode::Step(step) => (1, step.bound, step.step, 0),
            Mode::Relative(relative) => (2, relative.bound, relative.floor, relative.kept),
        };
        Header {
            dtype: layout.dtype,
            mode: number,
            profile: layout.profile as u8,
            n: layout.n,
            bound,
            step,
            kept,
            n_chunks: layout.n_chunks,
            dimensions: [layout.nx, layout.ny, layout.nz],
            payload_words: 0,
            max_error: 0.0,
        }
    }

    pub(super) fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        to[..4].copy_from_slice(&MAGIC);
        to[4..8].copy_from_slice(&[VERSION, self.dtype, self.mode, self.profile]);
        to[8..16].copy_from_slice(&self.n.to_le_bytes());
        to[16..24].copy_from_slice(&self.bound.to_le_bytes());
        to[24..32].copy_from_slice(&self.step.to_le_bytes());
        let [nx, ny, nz] = self.dimensions;
        let words = [self.kept, self.n_chunks, nx, ny, nz, self.payload_words];
        to[32..56].copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        to[56..].copy_from_slice(&self.max_error.to_le_bytes());
    }

    /// Reads a header, and checks its first five bytes only.
    pub(super) fn read(stream: &[u8]) -> Result<Header, CodecError> {
        let Some(from) = stream.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged(format!("it has {} bytes, fewer than a header", stream.len())));
        };
        if from[..4] != MAGIC {
            return Err(damaged("it does not begin with TWN1".to_owned()));
        }
        if from[4] != VERSION {
            let what = format!(
                "a Twine stream of version {} needs a newer Unspool than this one, which reads \
                 version {VERSION}.",
                from[4]
            );
            return Err(CodecError::new(CodecErrorKind::Newer, what));
        }
        let word =
            |at: usize| u32::from_le_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Ok(Header {
            dtype: from[5],
            mode: from[6],
            profile: from[7],
            n: long(8),
            bound: f64::from_bits(long(16)),
            step: f64::from_bits(long(24)),
            kept: word(32),
            n_chunks: word(36),
            dimensions: [word(40), word(44), word(48)],
            payload_words: word(52),
            max_error: f64::from_bits(long(56)),
        })
    }

    /// Bytes that the whole stream has.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + 4 * (u64::from(self.n_chunks) + 1 + u64::from(self.payload_words))
    }

    /// How values are to be made for this array.
    pub(super) fn mode_for(&self, layout: &Layout) -> Result<Mode, CodecError> {
        let own = (self.dtype, u32::from(self.profile), self.n, self.n_chunks, self.dimensions);
        let asked = (
            layout.dtype,
            layout.profile,
            layout.n,
            layout.n_chunks,
            [layout.nx, layout.ny, layout.nz],
        );
        if own != asked {
            return Err(damaged(format!(
                "it is of another array: dtype, profile, values, chunks and dimensions are \
                 {own:?}, not {asked:?}"
            )));
        }
        match (self.mode, layout.kind.is_float()) {
            (0, _) => Ok(Mode::Exact),
            (1, true) => Step::from_stream(layout.kind, self.step).map(Mode::Step),
            (2, true) => Relative::from_stream(layout.kind, self.kept).map(Mode::Relative),
            (mode, _) => Err(damaged(format!("mode {mode} does not exist for such values"))),
        }
    }
}

/// An error for a stream that breaks the rules.
pub(super) fn damaged(what: String) -> CodecError {
    let what = format!("a Twine stream is damaged: {what}. Save the array again.");
    CodecError::new(CodecErrorKind::Damaged, what)
}
