//! One region and the codec that it gets: the only place that knows which codecs there are.

use unspool_codec::{
    Achieved, Codec, CodecError, CodecErrorKind, CodecId, Region, RegionSpec, twine,
};

/// Regions with fewer items are kept as they are: a stream is not smaller than they are.
const FEW: u64 = 64;

/// How the bytes of a region are made.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// They are the values.
    Raw,
    /// A Twine stream.
    Twine(twine::Spec),
}

/// What an encoder made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Made {
    /// Bytes of the stream.
    pub(crate) bytes: u64,
    /// The error, where the codec tells it.
    pub(crate) achieved: Option<Achieved>,
}

impl Method {
    /// How `codec` is applied to `region`, which it takes.
    ///
    /// # Errors
    /// When the region is larger than a stream can be.
    pub(crate) fn of(codec: Codec, region: &RegionSpec) -> Result<Method, CodecError> {
        if items(&region.shape) < FEW || region.dtype.itemsize() == 0 {
            return Ok(Method::Raw);
        }
        let twine = |method| {
            let layout = twine::Layout::of(&region.dtype, &region.shape)?;
            Ok(Method::Twine(twine::Spec { layout, method }))
        };
        match codec {
            Codec::Lossless => twine(twine::Method::Lossless),
            Codec::Bounded(bound) => twine(twine::Method::Bound(bound)),
            _ => Ok(Method::Raw),
        }
    }

    /// What a frame calls it.
    pub(crate) fn id(&self) -> CodecId {
        match self {
            Method::Raw => CodecId::Raw,
            Method::Twine(_) => CodecId::Twine,
        }
    }

    /// The most bytes that it makes of a region of `bytes` bytes.
    ///
    /// # Errors
    /// When the codec cannot take the region.
    pub(crate) fn max_bytes(&self, _region: &RegionSpec, bytes: u64) -> Result<u64, CodecError> {
        match self {
            Method::Raw => Ok(bytes),
            Method::Twine(spec) => Ok(twine::max_bytes(&spec.layout)),
        }
    }

    /// Writes the bytes for `source`, the values of `region`, to the start of `out`, which has at
    /// least [`max_bytes`](Self::max_bytes).
    ///
    /// # Errors
    /// When the codec cannot take these values.
    pub(crate) fn encode(
        &self,
        _region: &RegionSpec,
        source: &[u8],
        out: &mut [u8],
    ) -> Result<Made, CodecError> {
        match self {
            Method::Raw => {
                out[..source.len()].copy_from_slice(source);
                Ok(Made { bytes: source.len() as u64, achieved: None })
            }
            Method::Twine(spec) => {
                let made = twine::encode(spec, source, out)?;
                Ok(Made { bytes: made.bytes, achieved: Some(made.achieved) })
            }
        }
    }
}

impl Method {
    /// The inverse of [`encode`](Self::encode), to `out`.
    ///
    /// # Errors
    /// When the stream is damaged.
    pub(crate) fn decode(
        &self,
        _region: &RegionSpec,
        stream: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        match self {
            Method::Raw => {
                out.copy_from_slice(stream);
                Ok(())
            }
            Method::Twine(spec) => twine::decode(&spec.layout, stream, out),
        }
    }
}

/// Writes the values of `region`, whose bytes in a payload are `stream`, to `out`.
///
/// # Errors
/// When the stream is damaged or not one of this region.
pub(crate) fn decode(region: &Region, stream: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    match region.codec {
        CodecId::Raw => {
            out.copy_from_slice(stream);
            Ok(())
        }
        CodecId::Twine => {
            let layout = twine::Layout::of(&region.dtype, &region.shape)?;
            twine::decode(&layout, stream, out)
        }
        other => Err(CodecError::new(
            CodecErrorKind::Invalid,
            format!("it was made by codec {other:?}, which is not there. Restore it where it is."),
        )),
    }
}

/// Items of an array.
pub(crate) fn items(shape: &[u64]) -> u64 {
    shape.iter().copied().fold(1, u64::saturating_mul)
}
