//! One region and the codec that it gets: the only place that knows which codecs there are.

use unspool_codec::{Achieved, Codec, CodecError, CodecId, Region, RegionSpec, Zfp};

/// Regions with fewer items are kept as they are: a stream is not smaller than they are.
const FEW: u64 = 64;

pub(crate) mod twine {
    use unspool_codec::{Achieved, Bound, CodecError, Dtype};
    #[derive(Clone, Debug)]
    pub struct Layout;
    impl Layout {
        pub fn of(_: &Dtype, _: &[u64]) -> Result<Layout, CodecError> {
            Ok(Layout)
        }
    }
    #[derive(Clone, Copy, Debug)]
    pub enum Method {
        Lossless,
        Bound(Bound),
    }
    #[derive(Clone, Debug)]
    pub struct Spec {
        pub layout: Layout,
        pub method: Method,
    }
    pub struct Encoded {
        pub bytes: u64,
        pub achieved: Achieved,
    }
    pub fn max_bytes(_: &Layout) -> u64 {
        0
    }
    pub fn encode(_: &Spec, _: &[u8], _: &mut [u8]) -> Result<Encoded, CodecError> {
        unreachable!()
    }
    pub fn decode(_: &Layout, _: &[u8], _: &mut [u8]) -> Result<(), CodecError> {
        unreachable!()
    }
}
mod zfp {
    use unspool_codec::{CodecError, Dtype, Zfp};
    pub fn max_bytes(_: &Zfp, _: &Dtype, _: &[u64]) -> Result<u64, CodecError> {
        Ok(0)
    }
    pub fn encode(
        _: &Zfp,
        _: &Dtype,
        _: &[u64],
        _: &[u8],
        _: &mut [u8],
    ) -> Result<u64, CodecError> {
        unreachable!()
    }
    pub fn decode(_: &Dtype, _: &[u64], _: &[u8], _: &mut [u8]) -> Result<(), CodecError> {
        unreachable!()
    }
}

/// How the bytes of a region are made.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// They are the values.
    Raw,
    /// A Twine stream.
    Twine(twine::Spec),
    /// A zfp stream.
    Zfp(Zfp),
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
            Codec::Lossless if false => twine(twine::Method::Lossless),
            Codec::Bounded(bound) if false => twine(twine::Method::Bound(bound)),
            Codec::Zfp(zfp) if false => Ok(Method::Zfp(zfp)),
            _ => Ok(Method::Raw),
        }
    }

    /// What a frame calls it.
    pub(crate) fn id(&self) -> CodecId {
        match self {
            Method::Raw => CodecId::Raw,
            Method::Twine(_) => CodecId::Twine,
            Method::Zfp(_) => CodecId::Zfp,
        }
    }

    /// The most bytes that it makes of `region`, which has `bytes` bytes.
    ///
    /// # Errors
    /// When the codec cannot take the region.
    pub(crate) fn max_bytes(&self, region: &RegionSpec, bytes: u64) -> Result<u64, CodecError> {
        match self {
            Method::Raw => Ok(bytes),
            Method::Twine(spec) => Ok(twine::max_bytes(&spec.layout)),
            Method::Zfp(zfp) => zfp::max_bytes(zfp, &region.dtype, &region.shape),
        }
    }

    /// Writes the bytes for `source`, the values of `region`, to the start of `out`, which has at
    /// least [`max_bytes`](Self::max_bytes).
    ///
    /// # Errors
    /// When the codec cannot take these values.
    pub(crate) fn encode(
        &self,
        region: &RegionSpec,
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
            Method::Zfp(zfp) => {
                let bytes = zfp::encode(zfp, &region.dtype, &region.shape, source, out)?;
                Ok(Made { bytes, achieved: None })
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
        region: &RegionSpec,
        stream: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        match self {
            Method::Raw => {
                out.copy_from_slice(stream);
                Ok(())
            }
            Method::Twine(spec) => twine::decode(&spec.layout, stream, out),
            Method::Zfp(_) => zfp::decode(&region.dtype, &region.shape, stream, out),
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
        CodecId::Zfp => zfp::decode(&region.dtype, &region.shape, stream, out),
        CodecId::NvComp => unreachable!("a spool adopts no such region and makes none"),
    }
}

/// Items of an array.
pub(crate) fn items(shape: &[u64]) -> u64 {
    shape.iter().copied().fold(1, u64::saturating_mul)
}
