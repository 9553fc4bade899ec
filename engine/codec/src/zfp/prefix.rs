//! The 64 bytes before a bare zfp stream.

use super::damaged;
use crate::error::{CodecError, CodecErrorKind};
use crate::spec::Zfp;

/// Bytes before the bare stream.
pub const PREFIX_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"ZFP1";
const VERSION: u8 = 1;

/// The fields of a prefix.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prefix {
    /// The low byte of the dtype's code in frames.
    pub dtype_code: u8,
    /// How it was encoded, with the parameter as it was given.
    pub mode: Zfp,
    /// Dimensions: 1 to 4.
    pub dims: u8,
    /// Their sizes, the fastest first; 0 for those that are not there.
    pub sizes: [u32; 4],
    /// Bits of a block at a fixed rate, else 0.
    pub block_bits: u32,
    /// Bytes of the bare stream.
    pub stream_bytes: u64,
}

impl Prefix {
    /// The bytes as they stand before a bare stream.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PREFIX_BYTES] {
        let (mode, parameter) = match self.mode {
            Zfp::Rate(rate) => (0, rate),
            Zfp::Precision(planes) => (1, f64::from(planes)),
            Zfp::Tolerance(tolerance) => (2, tolerance),
        };
        let mut out = [0; PREFIX_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&[VERSION, self.dtype_code, mode, self.dims]);
        for (place, size) in out[8..24].as_chunks_mut::<4>().0.iter_mut().zip(self.sizes) {
            *place = size.to_le_bytes();
        }
        out[24..32].copy_from_slice(&parameter.to_le_bytes());
        out[32..36].copy_from_slice(&self.block_bits.to_le_bytes());
        out[40..48].copy_from_slice(&self.stream_bytes.to_le_bytes());
        out
    }

    /// Reads the beginning of a stream.
    pub(super) fn parse(stream: &[u8]) -> Result<Prefix, CodecError> {
        let bytes = stream.first_chunk::<PREFIX_BYTES>().ok_or_else(|| damaged("it is cut off"))?;
        if bytes[..4] != MAGIC {
            return Err(damaged("it does not begin like one"));
        }
        if bytes[4] > VERSION {
            let message = format!(
                "The zfp stream has version {}, this Unspool reads up to {VERSION}. Read it with \
                 the version of Unspool that wrote it.",
                bytes[4]
            );
            return Err(CodecError::new(CodecErrorKind::Newer, message));
        }
        let prefix = Prefix {
            dtype_code: bytes[5],
            mode: mode(bytes[6], f64::from_le_bytes(at(bytes, 24)))?,
            dims: bytes[7],
            sizes: std::array::from_fn(|dim| u32::from_le_bytes(at(bytes, 8 + 4 * dim))),
            block_bits: u32::from_le_bytes(at(bytes, 32)),
            stream_bytes: u64::from_le_bytes(at(bytes, 40)),
        };
        // All other bytes have to be those that are written for these fields.
        if prefix.to_bytes() == *bytes { Ok(prefix) } else { Err(damaged("its prefix is not one")) }
    }
}

fn mode(code: u8, parameter: f64) -> Result<Zfp, CodecError> {
    match code {
        0 => Ok(Zfp::Rate(parameter)),
        1 => Ok(Zfp::Precision(parameter as u32)),
        2 => Ok(Zfp::Tolerance(parameter)),
        _ => Err(damaged("its mode is unknown")),
    }
}

fn at<const N: usize>(bytes: &[u8; PREFIX_BYTES], start: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[start + i])
}
