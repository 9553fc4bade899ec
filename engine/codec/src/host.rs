//! The codecs in main memory: which there are, and the one that keeps the bytes as they are.

use crate::codec::{Achieved, Codec, EncodedStream};
use crate::dtype::Dtype;
use crate::error::{CodecError, CodecErrorKind};
use crate::spec::{CodecId, Spec};
use crate::twine::Twine;
use crate::zfp::ZfpCodec;

/// The codecs in main memory. A new one is a folder beside `twine` and `zfp`, and a line here.
const CODECS: [&dyn Codec; 3] = [&Raw, &Twine, &ZfpCodec];

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
