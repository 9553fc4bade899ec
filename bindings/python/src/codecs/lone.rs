//! Encoding and decoding one array without a spool. `unspool.codecs.coding` has taken the array in
//! before: what arrives is dense bytes, a dtype by its name, and a shape.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use unspool_codec::{
    Achieved, Codec, CodecError, CodecErrorKind, Dtype, Head, Outer, Packed as Packing, RegionSpec,
    twine, unpack, zfp,
};

use super::bytes::Bytes;
use super::word::{self, Word};
use crate::errors::{Class, error};
use crate::panics::guarded;

/// Adds the functions to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(codec_room, m)?)?;
    m.add_function(wrap_pyfunction!(codec_encode, m)?)?;
    m.add_function(wrap_pyfunction!(codec_decode, m)?)
}

/// Bytes of the length in front of what is packed.
const LENGTH: usize = 8;

/// How many bytes were made, the error where the codec tells it, and whether they are packed.
type Packed = (u64, Option<Achieved>, bool);

/// An array and what is done with it.
struct Job {
    spec: RegionSpec,
    codec: Codec,
    outer: Option<Outer>,
}

impl Job {
    fn new(
        py: Python<'_>,
        dtype: &str,
        shape: Vec<u64>,
        word: &Word,
        outer: Option<&str>,
    ) -> PyResult<Job> {
        let dtype = Dtype::from_name(dtype)
            .ok_or_else(|| PyValueError::new_err(format!("there is no dtype {dtype:?}")))?;
        let outer = outer.map(|name| outer_named(py, name)).transpose()?;
        let spec = RegionSpec { name: "0".to_owned(), dtype, shape };
        Ok(Job { spec, codec: word::codec(py, word)?, outer })
    }

    fn bytes(&self) -> u64 {
        let items = self.spec.shape.iter().copied().fold(1, u64::saturating_mul);
        items.saturating_mul(self.spec.dtype.itemsize())
    }

    /// How many values there are: a complex number has two.
    fn values(&self) -> u64 {
        let complex =
            matches!(self.spec.dtype, Dtype::Complex32 | Dtype::Complex64 | Dtype::Complex128);
        let items = self.spec.shape.iter().copied().fold(1, u64::saturating_mul);
        if complex { items.saturating_mul(2) } else { items }
    }

    fn twine(&self) -> Result<twine::Spec, CodecError> {
        let method = match self.codec {
            Codec::Bounded(bound) => twine::Method::Bound(bound),
            _ => twine::Method::Lossless,
        };
        Ok(twine::Spec { layout: twine::Layout::of(&self.spec.dtype, &self.spec.shape)?, method })
    }

    /// The most bytes that the codec alone makes.
    fn room(&self) -> Result<u64, CodecError> {
        match self.codec {
            Codec::Lossless | Codec::Bounded(_) => Ok(twine::max_bytes(&self.twine()?.layout)),
            Codec::Zfp(zfp) => zfp::max_bytes(&zfp, &self.spec.dtype, &self.spec.shape),
            _ => Ok(self.bytes()),
        }
    }

    /// The bytes that the codec made, and the error where it tells it.
    fn encode(&self, source: &[u8], out: &mut [u8]) -> Result<(u64, Option<Achieved>), CodecError> {
        match self.codec {
            Codec::Lossless | Codec::Bounded(_) => {
                let made = twine::encode(&self.twine()?, source, out)?;
                Ok((made.bytes, Some(made.achieved)))
            }
            Codec::Zfp(zfp) => {
                let (dtype, shape) = (&self.spec.dtype, &self.spec.shape);
                let made = zfp::encode(&zfp, dtype, shape, source, out)?;
                Ok((made.bytes, Some(made.achieved)))
            }
            _ => {
                out[..source.len()].copy_from_slice(source);
                let values = Achieved { values: self.values(), ..Achieved::default() };
                Ok((source.len() as u64, Some(values)))
            }
        }
    }

    fn decode(&self, stream: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let (dtype, shape) = (&self.spec.dtype, &self.spec.shape);
        match self.codec {
            Codec::Lossless | Codec::Bounded(_) => {
                twine::decode(&twine::Layout::of(dtype, shape)?, stream, out)
            }
            Codec::Zfp(_) => zfp::decode(dtype, shape, stream, out),
            _ if stream.len() == out.len() => {
                out.copy_from_slice(stream);
                Ok(())
            }
            _ => {
                let text = format!("{} bytes, and the array has {}", stream.len(), out.len());
                Err(CodecError::new(CodecErrorKind::Damaged, text))
            }
        }
    }

    /// Encodes into `out`, and packs that: the bytes, the error where the codec tells it, and
    /// whether packing made it shorter. What is packed begins with the length that it had before.
    fn pack(&self, source: &[u8], out: &mut [u8]) -> Result<Packed, CodecError> {
        let (stored, achieved) = self.encode(source, out)?;
        let Some(outer) = self.outer.filter(|_| stored > LENGTH as u64) else {
            return Ok((stored, achieved, false));
        };
        let head = self.head(stored)?;
        let inner = out[..stored as usize].to_vec();
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
        let damaged = || CodecError::new(CodecErrorKind::Damaged, "It is no packed stream.");
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
        let mut inner = vec![0; length as usize];
        unpack(&head, packed, &mut inner)?;
        self.decode(&inner, out)
    }

    /// The head of a frame with only this array, of `stored` bytes: what an outer coder needs.
    fn head(&self, stored: u64) -> Result<Head, CodecError> {
        let head = Head::encoded(0, vec![(self.spec.clone(), self.codec.id())], &[stored]);
        head.map_err(|why| CodecError::new(CodecErrorKind::Invalid, why.to_string()))
    }
}

/// The most bytes that [`codec_encode`] may write.
#[pyfunction]
fn codec_room(
    py: Python<'_>,
    dtype: &str,
    shape: Vec<u64>,
    word: Word,
    outer: Option<&str>,
) -> PyResult<u64> {
    let job = Job::new(py, dtype, shape, &word, outer)?;
    job.room().map_err(|why| refused(py, &why))
}

/// What a codec tells about the values: how many there are, the largest and the root mean square
/// error, and outliers.
type Told = (u64, f64, f64, u64);

/// Encodes dense bytes into `target`: the bytes that took, what the codec tells, and whether they
/// are packed: where packing would not make them fewer they are not.
#[pyfunction]
fn codec_encode(
    py: Python<'_>,
    source: PyBuffer<u8>,
    dtype: &str,
    shape: Vec<u64>,
    word: Word,
    outer: Option<&str>,
    target: PyBuffer<u8>,
) -> PyResult<(u64, Option<Told>, bool)> {
    let job = Job::new(py, dtype, shape, &word, outer)?;
    let source = Bytes::readable(source)?;
    let mut target = Bytes::writable(target, &source)?;
    let room = job.room().map_err(|why| refused(py, &why))?;
    if source.get().len() as u64 != job.bytes() || (target.get_mut().len() as u64) < room {
        return Err(PyValueError::new_err("the buffers do not have the sizes that were told"));
    }
    let made = guarded(py, || Ok(py.detach(|| job.pack(source.get(), target.get_mut()))))?;
    let (stored, achieved, packed) = made.map_err(|why| refused(py, &why))?;
    let told = |a: Achieved| (a.values, a.max_error, a.rms_error(), a.outliers);
    Ok((stored, achieved.map(told), packed))
}

/// The inverse of [`codec_encode`].
#[pyfunction]
fn codec_decode(
    py: Python<'_>,
    stored: PyBuffer<u8>,
    dtype: &str,
    shape: Vec<u64>,
    word: Word,
    outer: Option<&str>,
    target: PyBuffer<u8>,
) -> PyResult<()> {
    let job = Job::new(py, dtype, shape, &word, outer)?;
    let stored = Bytes::readable(stored)?;
    let mut target = Bytes::writable(target, &stored)?;
    if target.get_mut().len() as u64 != job.bytes() {
        return Err(PyValueError::new_err("the buffer does not have the size of the array"));
    }
    let done = guarded(py, || Ok(py.detach(|| job.unpack(stored.get(), target.get_mut()))))?;
    done.map_err(|why| refused(py, &why))
}

fn outer_named(py: Python<'_>, name: &str) -> PyResult<Outer> {
    word::outer(name).ok_or_else(|| {
        let text = format!("outer={name:?}: write None, \"zstd\", \"lz4\" or \"archive\".");
        error(py, Class::Option, text)
    })
}

/// What a codec refuses is an option that makes no sense, and what it cannot read is damaged.
fn refused(py: Python<'_>, why: &CodecError) -> PyErr {
    let class = match why.kind() {
        CodecErrorKind::Damaged | CodecErrorKind::Newer => Class::Corrupt,
        _ => Class::Option,
    };
    error(py, class, why.to_string())
}
