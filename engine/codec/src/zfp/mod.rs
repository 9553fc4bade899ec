//! zfp in host memory: fixed rate, precision or tolerance, for exchange with other programs.
//!
//! A stream is a prefix of 64 bytes that says what the field is and how it was encoded, and then
//! the bytes that libzfp writes for it without a header of its own (Lindstrom, "Fixed-Rate
//! Compressed Floating-Point Arrays", IEEE TVCG 2014). `docs/reference/format.md`, "zfp streams",
//! is the specification.
//!
//! - The bytes do not depend on the number of threads.
//! - zfp has no form for NaN and infinities, and none for integers near the ends of their range:
//!   [`encode`] refuses them and names the first.
//! - Any bytes can be given to [`decode`].
//!
//! ```
//! use unspool_codec::{CodecError, Dtype, Zfp, zfp};
//!
//! # fn main() -> Result<(), CodecError> {
//! let wave: Vec<f32> = (0..6400).map(|i| (i as f32 * 0.01).sin()).collect();
//! let source: Vec<u8> = wave.iter().flat_map(|x| x.to_le_bytes()).collect();
//! let (mode, shape) = (Zfp::Tolerance(1e-3), [80, 80]);
//!
//! let mut stream = vec![0; zfp::max_bytes(&mode, &Dtype::Float32, &shape)? as usize];
//! let encoded = zfp::encode(&mode, &Dtype::Float32, &shape, &source, &mut stream)?;
//! stream.truncate(encoded.bytes as usize);
//! assert!(encoded.achieved.max_error <= 1e-3);
//!
//! let mut back = vec![0; source.len()];
//! zfp::decode(&Dtype::Float32, &shape, &stream, &mut back)?;
//! # Ok(())
//! # }
//! ```

mod field;
mod prefix;
mod value;

use crate::codec::{Achieved, Codec, EncodedStream};
use crate::dtype::Dtype;
use crate::error::{CodecError, CodecErrorKind};
use crate::spec::{CodecId, Spec, Zfp};
use crate::workers::{self, WorkFor};
use field::Field;
use value::{Value, ValueKind, compare};

pub use prefix::{PREFIX_BYTES, Prefix};

/// The bytes from which on an array is shared between threads.
const PARALLEL_BYTES: usize = 256 << 10;

/// zfp as one of the codecs.
#[derive(Debug)]
pub(crate) struct ZfpCodec;

impl Codec for ZfpCodec {
    fn id(&self) -> CodecId {
        CodecId::Zfp
    }

    fn max_bytes(&self, spec: &Spec, dtype: &Dtype, shape: &[u64]) -> Result<u64, CodecError> {
        max_bytes(mode(spec)?, dtype, shape)
    }

    fn encode(
        &self,
        spec: &Spec,
        dtype: &Dtype,
        shape: &[u64],
        source: &[u8],
        out: &mut [u8],
    ) -> Result<EncodedStream, CodecError> {
        encode(mode(spec)?, dtype, shape, source, out)
    }

    fn decode(
        &self,
        dtype: &Dtype,
        shape: &[u64],
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        decode(dtype, shape, stored, out)
    }
}

fn mode(spec: &Spec) -> Result<&Zfp, CodecError> {
    match spec {
        Spec::Zfp(mode) => Ok(mode),
        other => Err(CodecError::foreign("zfp", other)),
    }
}

/// The length of the longest stream that an array can have with this mode, in bytes; at a fixed
/// rate the length of every stream.
///
/// # Errors
/// `Invalid` when zfp does not know the dtype or the mode does not fit it, `TooLarge` when the
/// array has more than zfp can count.
pub fn max_bytes(mode: &Zfp, dtype: &Dtype, shape: &[u64]) -> Result<u64, CodecError> {
    Ok(Field::of(mode, dtype, shape)?.max_bytes())
}

/// Writes the stream for `source`, the dense values of an array, to the beginning of `out`, which
/// has at least [`max_bytes`]. The error that was made is found by decoding again.
///
/// # Errors
/// Those of [`max_bytes`]; `Invalid` when `source` or `out` has another length, and for values that
/// zfp cannot hold: NaN, infinities, integers outside of the middle half of their range.
pub fn encode(
    mode: &Zfp,
    dtype: &Dtype,
    shape: &[u64],
    source: &[u8],
    out: &mut [u8],
) -> Result<EncodedStream, CodecError> {
    let field = Field::of(mode, dtype, shape)?;
    if source.len() as u64 != field.bytes() || (out.len() as u64) < field.max_bytes() {
        return Err(invalid(format!(
            "An array of shape {shape:?} has {} bytes of {dtype} and streams of up to {}; {} and \
             {} were given.",
            field.bytes(),
            field.max_bytes(),
            source.len(),
            out.len()
        )));
    }
    let out = &mut out[..field.max_bytes() as usize];
    match field.kind {
        ValueKind::I32 => encode_values::<i32>(&field, source, out),
        ValueKind::I64 => encode_values::<i64>(&field, source, out),
        ValueKind::F32 => encode_values::<f32>(&field, source, out),
        ValueKind::F64 => encode_values::<f64>(&field, source, out),
    }
}

fn encode_values<T: Value>(
    field: &Field,
    source: &[u8],
    out: &mut [u8],
) -> Result<EncodedStream, CodecError> {
    let values = value::read::<T>(source);
    if let Some(index) = values.iter().position(|value| !value.has_a_form()) {
        return Err(refused(values[index], index));
    }
    let (prefix, stream) = out.split_at_mut(PREFIX_BYTES);
    let len = if values.is_empty() { 0 } else { compress(field, &values, stream)? };
    prefix.copy_from_slice(&field.prefix(len as u64).to_bytes());
    let mut back = vec![T::default(); values.len()];
    if len > 0 {
        decompress(field, &stream[..len], &mut back)?;
    }
    let achieved = on_threads(source.len(), |execution| {
        compare(&values, &back, execution != zfp_rs::ZfpExecution::Serial)
    });
    Ok(EncodedStream { bytes: (PREFIX_BYTES + len) as u64, achieved })
}

/// Reads the prefix of a stream.
///
/// # Errors
/// `Damaged` when it does not begin like a stream, `Newer` for one of a later version.
pub fn header(stream: &[u8]) -> Result<Prefix, CodecError> {
    Prefix::parse(stream)
}

/// Fills `out` with the values of an array from its stream. Any bytes are safe.
///
/// # Errors
/// `Damaged` when the bytes are not a whole stream of an array of this dtype and shape, `Newer` for
/// a stream of a later version, `Invalid` when `out` has another length than the array.
pub fn decode(
    dtype: &Dtype,
    shape: &[u64],
    stream: &[u8],
    out: &mut [u8],
) -> Result<(), CodecError> {
    let prefix = Prefix::parse(stream)?;
    let field = Field::of(&prefix.mode, dtype, shape).map_err(|cause| {
        // A stream with a mode that the dtype does not have is damaged.
        let known = ValueKind::of(dtype).is_some() && cause.kind() == CodecErrorKind::Invalid;
        if known { damaged(&cause.to_string()) } else { cause }
    })?;
    let body = &stream[PREFIX_BYTES..];
    if prefix != field.prefix(body.len() as u64) || !field.can_have(body.len() as u64) {
        return Err(damaged("it is one of another array, or cut off"));
    }
    if out.len() as u64 != field.bytes() {
        let message = format!("The array has {} bytes, not {}.", field.bytes(), out.len());
        return Err(invalid(message));
    }
    match field.kind {
        ValueKind::I32 => decode_values::<i32>(&field, body, out),
        ValueKind::I64 => decode_values::<i64>(&field, body, out),
        ValueKind::F32 => decode_values::<f32>(&field, body, out),
        ValueKind::F64 => decode_values::<f64>(&field, body, out),
    }
}

fn decode_values<T: Value>(field: &Field, stream: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    if out.is_empty() {
        return Ok(());
    }
    if let Ok(values) = bytemuck::try_cast_slice_mut::<u8, T>(out) {
        return decompress(field, stream, values);
    }
    let mut values = vec![T::default(); out.len() / size_of::<T>()];
    decompress(field, stream, &mut values)?;
    out.copy_from_slice(bytemuck::cast_slice(&values));
    Ok(())
}

/// Writes the bare stream and gives its length.
fn compress<T: Value>(field: &Field, values: &[T], out: &mut [u8]) -> Result<usize, CodecError> {
    let bytes = size_of_val(values);
    let failed = |cause: &dyn std::fmt::Display| invalid(format!("zfp cannot encode: {cause}."));
    let input = zfp_rs::ZfpField::new(values, field.dims()).map_err(|cause| failed(&cause))?;
    if let Some(mut stream) = zfp_rs::ZfpBitStreamRefMut::from_bytes(out) {
        let made = on_threads(bytes, |execution| {
            stream.compress_with_execution(&field.config, &input, execution)
        });
        return made.map_err(|cause| failed(&cause));
    }
    // Words of the stream are aligned; this memory is not.
    let mut stream = zfp_rs::ZfpBitStream::new(out.len()).map_err(|cause| failed(&cause))?;
    let made = on_threads(bytes, |execution| {
        stream.compress_with_execution(&field.config, &input, execution)
    });
    let len = made.map_err(|cause| failed(&cause))?;
    out[..len].copy_from_slice(&stream.as_bytes()[..len]);
    Ok(len)
}

/// Reads the bare stream, which has to be used up.
fn decompress<T: Value>(field: &Field, stream: &[u8], values: &mut [T]) -> Result<(), CodecError> {
    let bytes = size_of_val(values);
    let mut output = zfp_rs::ZfpFieldMut::new(values, field.dims())
        .map_err(|cause| invalid(format!("zfp cannot decode: {cause}.")))?;
    let read = if let Some(mut input) = zfp_rs::ZfpBitStreamRef::from_bytes(stream) {
        on_threads(bytes, |execution| {
            input.decompress_with_execution(&field.config, &mut output, execution)
        })
    } else {
        let mut input = zfp_rs::ZfpBitStream::from_bytes(stream)
            .map_err(|cause| invalid(format!("zfp cannot decode: {cause}.")))?;
        on_threads(bytes, |execution| {
            input.decompress_with_execution(&field.config, &mut output, execution)
        })
    };
    match read {
        Ok(len) if len == stream.len() => Ok(()),
        Ok(len) => Err(damaged(&format!("it ends after {len} of {} bytes", stream.len()))),
        Err(cause) => Err(damaged(&cause.to_string())),
    }
}

/// Runs `run` on the codecs' threads, and tells it how zfp is to work on `bytes` bytes: on one
/// thread, or on several.
fn on_threads<R: Send>(bytes: usize, run: impl FnOnce(zfp_rs::ZfpExecution) -> R + Send) -> R {
    let parts = if bytes < PARALLEL_BYTES { 1 } else { 2 };
    workers::share(WorkFor::Urgent, parts, |shared| {
        let many = zfp_rs::ZfpExecution::Rayon { threads: 0, chunk_size: 0 };
        run(if shared { many } else { zfp_rs::ZfpExecution::Serial })
    })
}

fn refused<T: Value>(value: T, index: usize) -> CodecError {
    invalid(format!(
        "zfp has no form for {value}, value {index} of the array. Use Twine, which keeps every \
         value, or replace those that are not finite or out of range."
    ))
}

fn invalid(message: String) -> CodecError {
    CodecError::new(CodecErrorKind::Invalid, message)
}

fn damaged(what: &str) -> CodecError {
    let message = format!("The zfp stream is damaged: {what}. Save the array again.");
    CodecError::new(CodecErrorKind::Damaged, message)
}

/// The error of an array without values.
const NONE: Achieved = Achieved { max_error: 0.0, sum_sq_error: 0.0, values: 0, outliers: 0 };
