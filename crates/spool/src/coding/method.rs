//! One region and the codec that it gets: the only place that knows which codecs there are.

use unspool_codec::{
    Achieved, Codec, CodecError, CodecErrorKind, CodecId, NvComp, Region, RegionSpec, Zfp, twine,
    zfp,
};
use unspool_gpu_codec::{NvCompLayout, ZfpLayout};
use unspool_tiers::coders::Spec;

/// Regions with fewer items are kept as they are: a stream is not smaller than they are.
pub(super) const FEW: u64 = 64;

/// How the bytes of a region are made.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// They are the values.
    Raw,
    /// A Twine stream.
    Twine(twine::Spec),
    /// A zfp stream, with its layout where a GPU can make it.
    Zfp(Zfp, Option<ZfpLayout>),
    /// A container of nvCOMP, which only a GPU makes and reads.
    NvComp(NvCompLayout),
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
            Codec::Zfp(zfp) => Ok(Method::Zfp(zfp, zfp_layout(zfp, region))),
            Codec::NvComp(format) => nvcomp_layout(format, region).map(Method::NvComp),
            _ => Ok(Method::Raw),
        }
    }

    /// How a GPU makes a region of `bytes` bytes; `None` where only the host can.
    pub(crate) fn on_gpu(&self, bytes: u64) -> Option<Spec<'_>> {
        match self {
            Method::Raw => Some(Spec::Raw { bytes }),
            Method::Twine(spec) => Some(Spec::Twine(spec)),
            Method::Zfp(_, layout) => layout.as_ref().map(Spec::Zfp),
            Method::NvComp(layout) => Some(Spec::NvComp(layout)),
        }
    }

    /// Bytes of a value, of which the address of an array on a GPU has to be a multiple.
    pub(crate) fn value_bytes(&self, region: &RegionSpec) -> u64 {
        match self {
            Method::Raw | Method::NvComp(_) => 1,
            Method::Twine(spec) => spec.layout.value_bytes() as u64,
            Method::Zfp(..) => region.dtype.itemsize(),
        }
    }

    /// What a frame calls it.
    pub(crate) fn id(&self) -> CodecId {
        match self {
            Method::Raw => CodecId::Raw,
            Method::Twine(_) => CodecId::Twine,
            Method::Zfp(..) => CodecId::Zfp,
            Method::NvComp(_) => CodecId::NvComp,
        }
    }

    /// The codec with its parameters, where a frame does not tell them.
    pub(crate) fn untold(&self) -> Option<Codec> {
        match self {
            Method::Raw | Method::Twine(_) => None,
            Method::Zfp(zfp, _) => Some(Codec::Zfp(*zfp)),
            Method::NvComp(layout) => Some(Codec::NvComp(layout.codec())),
        }
    }

    /// The most bytes that it makes of a region of `bytes` bytes.
    ///
    /// # Errors
    /// When the codec cannot take the region.
    pub(crate) fn max_bytes(&self, region: &RegionSpec, bytes: u64) -> Result<u64, CodecError> {
        match self {
            Method::Raw => Ok(bytes),
            Method::Twine(spec) => Ok(twine::max_bytes(&spec.layout)),
            Method::Zfp(zfp, _) => zfp::max_bytes(zfp, &region.dtype, &region.shape),
            Method::NvComp(layout) => Ok(layout.most()),
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
            Method::Zfp(zfp, _) => {
                let made = zfp::encode(zfp, &region.dtype, &region.shape, source, out)?;
                Ok(Made { bytes: made.bytes, achieved: Some(made.achieved) })
            }
            Method::NvComp(_) => Err(needs_gpu()),
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
            Method::Zfp(..) => zfp::decode(&region.dtype, &region.shape, stream, out),
            Method::NvComp(_) => Err(needs_gpu()),
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
        CodecId::NvComp => Err(needs_gpu()),
    }
}

/// The layout of a zfp stream that a GPU can make and read: one of fixed rate.
pub(super) fn zfp_layout(zfp: Zfp, region: &RegionSpec) -> Option<ZfpLayout> {
    let Zfp::Rate(rate) = zfp else { return None };
    ZfpLayout::of(&region.dtype, &region.shape, rate).ok()
}

/// The layout of a container of nvCOMP.
///
/// # Errors
/// When the array is too large, or a bound does not fit its values.
pub(crate) fn nvcomp_layout(
    format: NvComp,
    region: &RegionSpec,
) -> Result<NvCompLayout, CodecError> {
    NvCompLayout::of(&format, &region.dtype, &region.shape)
        .map_err(|cause| CodecError::new(CodecErrorKind::Invalid, cause.to_string()))
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

/// Items of an array.
pub(crate) fn items(shape: &[u64]) -> u64 {
    shape.iter().copied().fold(1, u64::saturating_mul)
}
