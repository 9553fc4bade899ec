//! An array as zfp takes it: its dimensions as zfp counts them, and the parameters.

use zfp_rs::{ZfpConfig, ZfpDimensionality, ZfpStreamAlignment};

use super::prefix::{PREFIX_BYTES, Prefix};
use super::value::ValueKind;
use super::{damaged, invalid};
use crate::dtype::Dtype;
use crate::error::{CodecError, CodecErrorKind};
use crate::spec::Zfp;

/// The most values of an array, so that no count of bits overflows.
const MOST_VALUES: u64 = 1 << 44;

/// An array and how it is encoded.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) kind: ValueKind,
    pub(super) config: ZfpConfig,
    mode: Zfp,
    dtype_code: u8,
    /// Dimensions, fastest first; 0 for those that are not there.
    sizes: [u32; 4],
    dims: u8,
    /// Values of the array.
    values: u64,
    /// Bits of a block, at a fixed rate.
    block_bits: Option<u32>,
}

impl Field {
    pub(super) fn of(mode: &Zfp, dtype: &Dtype, shape: &[u64]) -> Result<Field, CodecError> {
        let kind = ValueKind::of(dtype).ok_or_else(|| {
            invalid(format!(
                "zfp takes float32, float64, int32 and int64, not {dtype}. Use Twine for it."
            ))
        })?;
        let (sizes, dims) = dimensions(shape)?;
        let values = sizes[..usize::from(dims)].iter().map(|&size| u64::from(size)).product();
        if values > MOST_VALUES {
            return Err(too_large(shape));
        }
        let config = config(mode, kind, dims)?;
        let block_bits = matches!(mode, Zfp::Rate(_)).then(|| config.max_bits());
        let dtype_code = dtype.code() as u8;
        Ok(Field { kind, config, mode: *mode, dtype_code, sizes, dims, values, block_bits })
    }

    /// Bytes of the array.
    pub(super) fn bytes(&self) -> u64 {
        self.values * u64::from(self.kind.bits() / 8)
    }

    pub(super) fn dims(&self) -> [usize; 4] {
        self.sizes.map(|size| size as usize)
    }

    /// The most bytes of prefix and stream.
    pub(super) fn max_bytes(&self) -> u64 {
        PREFIX_BYTES as u64 + self.fixed_bytes().unwrap_or_else(|| self.most_stream_bytes())
    }

    /// Whether a bare stream can have this length.
    pub(super) fn can_have(&self, bytes: u64) -> bool {
        let fits = match self.fixed_bytes() {
            Some(fixed) => bytes == fixed,
            None => bytes <= self.most_stream_bytes(),
        };
        fits && bytes.is_multiple_of(8) && (bytes > 0) == (self.values > 0)
    }

    /// Bytes of every bare stream, at a fixed rate.
    fn fixed_bytes(&self) -> Option<u64> {
        self.block_bits.map(|bits| self.words(bits))
    }

    /// A block of `4^d` values takes at most all its bits, the tests of groups, and the exponent.
    fn most_stream_bytes(&self) -> u64 {
        let values = 1 << (2 * u32::from(self.dims));
        self.words(values * self.kind.bits() + values + 16)
    }

    /// Bytes of all blocks, in whole words of 64 bits.
    fn words(&self, block_bits: u32) -> u64 {
        let sizes = &self.sizes[..usize::from(self.dims)];
        let blocks: u64 = sizes.iter().map(|size| u64::from(size.div_ceil(4))).product();
        (u128::from(blocks) * u128::from(block_bits)).div_ceil(64) as u64 * 8
    }

    pub(super) fn prefix(&self, stream_bytes: u64) -> Prefix {
        Prefix {
            dtype_code: self.dtype_code,
            mode: self.mode,
            dims: self.dims,
            sizes: self.sizes,
            block_bits: self.block_bits.unwrap_or(0),
            stream_bytes,
        }
    }
}

/// At most four dimensions, fastest first: the leading ones of more are one.
fn dimensions(shape: &[u64]) -> Result<([u32; 4], u8), CodecError> {
    if shape.is_empty() {
        return Ok(([1, 0, 0, 0], 1));
    }
    let empty = shape.contains(&0);
    let mut sizes = [0; 4];
    for (place, &size) in shape.iter().rev().enumerate() {
        let before = if place > 3 { u64::from(sizes[3]) } else { 1 };
        let folded = before.checked_mul(size).and_then(|size| u32::try_from(size).ok());
        // In the shape of an array without values only the zeros matter.
        let folded = if empty { Some(u32::try_from(size).unwrap_or(0)) } else { folded };
        sizes[place.min(3)] = folded.ok_or_else(|| too_large(shape))?;
    }
    let dims = shape.len().min(4) as u8;
    if empty {
        sizes[..usize::from(dims)].fill(0);
    }
    Ok((sizes, dims))
}

fn config(mode: &Zfp, kind: ValueKind, dims: u8) -> Result<ZfpConfig, CodecError> {
    match *mode {
        Zfp::Rate(rate) => {
            let dims = ZfpDimensionality::try_from(u32::from(dims))
                .map_err(|_| damaged("it has no dimensions"))?;
            let unaligned = ZfpStreamAlignment::Unaligned;
            let possible = rate > 0.0 && rate.is_finite();
            ZfpConfig::fixed_rate(rate, kind.scalar(), dims, unaligned)
                .ok()
                .filter(|_| possible)
                .ok_or_else(|| {
                    let most = kind.bits();
                    let message = format!(
                        "zfp has no rate of {rate} bits for each value. Give one above 0, \
                         usually up to {most}."
                    );
                    invalid(message)
                })
        }
        Zfp::Precision(planes) if (1..=kind.bits()).contains(&planes) => {
            Ok(ZfpConfig::fixed_precision(planes))
        }
        Zfp::Precision(planes) => Err(invalid(format!(
            "zfp has no precision of {planes} bit planes. Give 1 to {}.",
            kind.bits()
        ))),
        Zfp::Tolerance(tolerance) if !kind.is_float() => Err(invalid(format!(
            "A tolerance of {tolerance} is for floating-point values; zfp takes integers with a \
             rate or a precision."
        ))),
        Zfp::Tolerance(tolerance) if tolerance > 0.0 && tolerance.is_finite() => {
            Ok(ZfpConfig::fixed_accuracy(tolerance))
        }
        Zfp::Tolerance(tolerance) => {
            Err(invalid(format!("zfp has no tolerance of {tolerance}. Give a number above 0.")))
        }
    }
}

fn too_large(shape: &[u64]) -> CodecError {
    let message =
        format!("zfp takes no array of shape {shape:?}: its sizes are below 2^32. Split it.");
    CodecError::new(CodecErrorKind::TooLarge, message)
}
