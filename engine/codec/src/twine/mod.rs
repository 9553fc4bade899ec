//! Twine: Unspool's own codec for arrays of numbers, without loss or with a bound that holds for
//! every finite value. The format, its rules and an example are in docs/reference/twine.md.
//!
//! - The bytes depend on the values and the bound only, not on the number of threads, on the
//!   instructions of the processor, or on whether it treats subnormal numbers as 0.
//! - Any bytes can be given to [`decode`] and [`add`]: what breaks the format is refused.
//! - A stream can be kept as its [`difference`] to another one of such an array.
//!
//! ```
//! use unspool_codec::twine::{self, Array, Layout};
//! use unspool_codec::{Bound, CodecError, Dtype};
//!
//! # fn main() -> Result<(), CodecError> {
//! let wave: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.01).sin()).collect();
//! let source: Vec<u8> = wave.iter().flat_map(|x| x.to_le_bytes()).collect();
//! let layout = Layout::of(&Dtype::Float32, &[5000])?;
//! let array = Array { layout, bound: Some(Bound::Absolute(1e-3)) };
//!
//! let mut stream = vec![0; twine::max_bytes(&layout) as usize];
//! let encoded = twine::encode(&array, &source, &mut stream)?;
//! stream.truncate(encoded.bytes as usize);
//! assert!(encoded.bytes < 4000 && encoded.achieved.max_error <= 1e-3);
//!
//! let mut back = vec![0; source.len()];
//! twine::decode(&layout, &stream, &mut back)?;
//! for (x, back) in wave.iter().zip(back.as_chunks::<4>().0) {
//!     assert!((x - f32::from_le_bytes(*back)).abs() <= 1e-3);
//! }
//! # Ok(())
//! # }
//! ```

mod block;
mod chunk;
mod decode;
mod delta;
mod encode;
mod grid;
mod header;
mod layout;
mod real;
mod reduce;
mod rule;
mod simd;
mod stream;
mod values;
mod word;

use crate::codec::{Codec, EncodedStream};
use crate::dtype::Dtype;
use crate::error::CodecError;
use crate::spec::{CodecId, Spec};

pub use delta::{add, difference};
pub use header::{HEADER_BYTES, Header};
pub use layout::{BLOCK, CHUNK, Layout, ValueKind};
pub use reduce::Summary;
pub use rule::{Array, BoundRule, Relative, Step};
pub use stream::{decode, encode, header, max_bytes, reduce};

/// Twine as one of the codecs.
#[derive(Debug)]
pub(crate) struct Twine;

impl Codec for Twine {
    fn id(&self) -> CodecId {
        CodecId::Twine
    }

    fn max_bytes(&self, spec: &Spec, dtype: &Dtype, shape: &[u64]) -> Result<u64, CodecError> {
        Ok(max_bytes(&Array::of(spec, dtype, shape)?.layout))
    }

    fn encode(
        &self,
        spec: &Spec,
        dtype: &Dtype,
        shape: &[u64],
        source: &[u8],
        out: &mut [u8],
    ) -> Result<EncodedStream, CodecError> {
        encode(&Array::of(spec, dtype, shape)?, source, out)
    }

    fn decode(
        &self,
        dtype: &Dtype,
        shape: &[u64],
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        decode(&Layout::of(dtype, shape)?, stored, out)
    }
}
