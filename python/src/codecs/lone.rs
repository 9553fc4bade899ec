//! Encoding and decoding one array without a spool. `unspool.codecs.coding` has taken the array in
//! before: what arrives is dense bytes, a dtype by its name, and a shape.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use unspool_codec::memory::{copied, zeros};
use unspool_codec::{
    Achieved, CodecError, CodecErrorKind, Dtype, EncodedStream, Head, Outer, Packed as Packing,
    RegionSpec, Spec, checksum, unpack,
};

use super::bytes::ByteBuffer;
use super::spec::{self, made_by};
use crate::errors::{Class, error};
use crate::panics::guarded;

/// Adds the functions to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(spec::codecs_of, m)?)?;
    m.add_function(wrap_pyfunction!(codec_room, m)?)?;
    m.add_function(wrap_pyfunction!(codec_encode, m)?)?;
    m.add_function(wrap_pyfunction!(codec_checksum, m)?)?;
    m.add_function(wrap_pyfunction!(codec_decode, m)?)
}

/// Bytes of the length in front of what is packed.
const LENGTH: usize = 8;

/// How many bytes were made, the error, and whether they are packed.
type Packed = (u64, Achieved, bool);

/// An array and what is done with it.
struct LoneJob {
    spec: RegionSpec,
    codec: Spec,
    outer: Option<Outer>,
}

impl LoneJob {
    fn new(
        py: Python<'_>,
        dtype: &str,
        shape: Vec<u64>,
        codec: &Bound<'_, PyAny>,
        outer: Option<&str>,
    ) -> PyResult<LoneJob> {
        let dtype = Dtype::from_name(dtype)
            .ok_or_else(|| PyValueError::new_err(format!("there is no dtype {dtype:?}")))?;
        let outer = outer.map(|name| outer_named(py, name)).transpose()?;
        let spec = RegionSpec { name: "0".to_owned(), dtype, shape };
        Ok(LoneJob { spec, codec: spec::spec(codec, "codec")?, outer })
    }

    fn bytes(&self) -> u64 {
        let items = self.spec.shape.iter().copied().fold(1, u64::saturating_mul);
        items.saturating_mul(self.spec.dtype.itemsize())
    }

    /// The most bytes that the codec alone makes.
    fn room(&self) -> Result<u64, CodecError> {
        let RegionSpec { dtype, shape, .. } = &self.spec;
        self.codec.codec()?.max_bytes(&self.codec, dtype, shape)
    }

    fn encode(&self, source: &[u8], out: &mut [u8]) -> Result<EncodedStream, CodecError> {
        let RegionSpec { dtype, shape, .. } = &self.spec;
        self.codec.codec()?.encode(&self.codec, dtype, shape, source, out)
    }

    fn decode(&self, stream: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        self.codec.codec()?.decode(&self.spec.dtype, &self.spec.shape, stream, out)
    }

    /// Encodes into `out`, and packs that: the bytes, the error, and whether packing made it
    /// shorter. What is packed begins with the length that it had before.
    fn pack(&self, source: &[u8], out: &mut [u8]) -> Result<Packed, CodecError> {
        let EncodedStream { bytes: stored, achieved } = self.encode(source, out)?;
        let Some(outer) = self.outer.filter(|_| stored > LENGTH as u64) else {
            return Ok((stored, achieved, false));
        };
        let head = self.head(stored)?;
        let inner = copied(&out[..stored as usize]).ok_or_else(no_memory)?;
        let short = outer.pack(&head, &inner, &mut out[LENGTH..inner.len()]);
        let Some(packed) = short else {
            out[..inner.len()].copy_from_slice(&inner);
            return Ok((stored, achieved, false));
        };
        out[..LENGTH].copy_from_slice(&stored.to_le_bytes());
        Ok(((LENGTH + packed) as u64, achieved, true))
    }

    /// The inverse of [`pack`](Self::pack) where that has made it shorter.
    fn unpack(&self, stored: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let Some(outer) = self.outer else { return self.decode(stored, out) };
        let damaged = || CodecError::new(CodecErrorKind::Damaged, "It is not a packed stream.");
        let (length, packed) = stored.split_first_chunk::<LENGTH>().ok_or_else(damaged)?;
        let length = u64::from_le_bytes(*length);
        // What a codec can make is the most that is believed.
        if length > self.room()? {
            return Err(damaged());
        }
        let packing = Packing { coder: outer.id(), bytes: packed.len() as u64 };
        let head = self
            .head(length)
            .and_then(|head| head.with_packed(Some(packing)).map_err(|_| damaged()))?;
        let mut inner = zeros(length as usize).ok_or_else(no_memory)?;
        unpack(&head, packed, &mut inner)?;
        self.decode(&inner, out)
    }

    /// The head of a frame with only this array, of `stored` bytes: what an outer coder needs.
    fn head(&self, stored: u64) -> Result<Head, CodecError> {
        let head = Head::encoded(0, vec![(self.spec.clone(), self.codec.id())], &[stored]);
        head.map_err(|why| CodecError::new(CodecErrorKind::Invalid, why.to_string()))
    }
}

/// The most bytes that `codec_encode` may write.
#[pyfunction]
fn codec_room(
    py: Python<'_>,
    dtype: &str,
    shape: Vec<u64>,
    codec: &Bound<'_, PyAny>,
    outer: Option<&str>,
) -> PyResult<u64> {
    let job = LoneJob::new(py, dtype, shape, codec, outer)?;
    job.room().map_err(|why| refused(py, &why))
}

/// What an encoder has made: its codec in a word, the bytes, values, largest and root mean square
/// error, and outliers; and whether the bytes are packed.
type Told = (&'static str, u64, (u64, f64, f64, u64), bool);

/// Encodes dense bytes into `target`: what made the bytes and how many they are; number of
/// values, largest and root mean square error, and outliers; whether the bytes are packed, which
/// they are not where that would not make them fewer.
#[pyfunction]
fn codec_encode(
    py: Python<'_>,
    source: PyBuffer<u8>,
    dtype: &str,
    shape: Vec<u64>,
    codec: &Bound<'_, PyAny>,
    outer: Option<&str>,
    target: PyBuffer<u8>,
) -> PyResult<Told> {
    let job = LoneJob::new(py, dtype, shape, codec, outer)?;
    let source = ByteBuffer::readable(source)?;
    let mut target = ByteBuffer::writable(target, &source)?;
    let room = job.room().map_err(|why| refused(py, &why))?;
    if source.get().len() as u64 != job.bytes() || (target.get_mut().len() as u64) < room {
        return Err(PyValueError::new_err("the buffers do not have the sizes that were told"));
    }
    let made = guarded(py, || Ok(py.detach(|| job.pack(source.get(), target.get_mut()))))?;
    let (stored, achieved, packed) = made.map_err(|why| refused(py, &why))?;
    let Achieved { values, max_error, outliers, .. } = achieved;
    let told = (values, max_error, achieved.rms_error(), outliers);
    Ok((made_by(job.codec.id()), stored, told, packed))
}

/// The inverse of `codec_encode`.
#[pyfunction]
fn codec_decode(
    py: Python<'_>,
    stored: PyBuffer<u8>,
    dtype: &str,
    shape: Vec<u64>,
    codec: &Bound<'_, PyAny>,
    outer: Option<&str>,
    target: PyBuffer<u8>,
) -> PyResult<()> {
    let job = LoneJob::new(py, dtype, shape, codec, outer)?;
    let stored = ByteBuffer::readable(stored)?;
    let mut target = ByteBuffer::writable(target, &stored)?;
    if target.get_mut().len() as u64 != job.bytes() {
        return Err(PyValueError::new_err("the buffer does not have the size of the array"));
    }
    let done = guarded(py, || Ok(py.detach(|| job.unpack(stored.get(), target.get_mut()))))?;
    done.map_err(|why| refused(py, &why))
}

/// The checksum of encoded bytes, as frames have one.
#[pyfunction]
fn codec_checksum(py: Python<'_>, data: PyBuffer<u8>) -> PyResult<u64> {
    let data = ByteBuffer::readable(data)?;
    Ok(py.detach(|| checksum(data.get())))
}

fn no_memory() -> CodecError {
    let what = "This machine has no memory left for the bytes between the codec and `outer`. Free \
                some, or encode without `outer`.";
    CodecError::new(CodecErrorKind::NoMemory, what)
}

fn outer_named(py: Python<'_>, name: &str) -> PyResult<Outer> {
    Outer::named(name).ok_or_else(|| {
        let text = format!("outer={name:?}: write None, \"zstd\", \"lz4\" or \"archive\".");
        error(py, Class::Option, text)
    })
}

/// What a codec refuses is an option that makes no sense, and what it cannot read is damaged.
fn refused(py: Python<'_>, why: &CodecError) -> PyErr {
    let class = match why.kind() {
        CodecErrorKind::Damaged | CodecErrorKind::Newer => Class::Corrupt,
        CodecErrorKind::NoMemory => Class::Capacity,
        _ => Class::Option,
    };
    error(py, class, why.to_string())
}
