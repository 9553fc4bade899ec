//! The interface of all codecs on a device, and the description of arrays.

use std::fmt;

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{CodecError, CodecErrorKind, CodecId, Dtype, Spec, Zfp};
use unspool_cuda::{DeviceError, Stream, StridedLayout};

use crate::nvcomp::layout::NvCompLayout;
use crate::pending::{DecodeStatus, Pending, Start};
use crate::steps::Steps;
use crate::zfp::layout::ZfpLayout;

/// A codec of one device. Its calls enqueue work on a stream of the caller's without making the
/// host wait. Several threads may use it at once.
pub trait GpuCodec: fmt::Debug + Send + Sync {
    /// Whether it encodes arrays of this layout.
    fn takes(&self, layout: &GpuLayout) -> bool;

    /// Maximum number of regions of one checkpoint.
    fn most_regions(&self) -> usize {
        usize::MAX
    }

    /// Compiles and loads the kernels that encode such checkpoints and decode the results, so that
    /// no launch has to. Addresses do not matter.
    ///
    /// # Errors
    /// When the kernels or the library are not available.
    fn prepare(&self, checkpoints: &[StoredCheckpoint<'_>]) -> Result<(), DeviceError>;

    /// Encodes `checkpoints` after what is on `stream`, with as few launches as possible. Returns
    /// one result per checkpoint, in their order; once a result is present, so are the bytes.
    ///
    /// # Errors
    /// When the codec does not [take](Self::takes) a region, addresses are not aligned, the stream
    /// is of another device, kernels or memory are not available, or the driver refuses. Then
    /// nothing is in flight: earlier launches of the call were waited for, or the context is
    /// broken.
    ///
    /// # Safety
    /// The regions are memory of the device, and so is all from the begin of each checkpoint to its
    /// limit (device memory, or host memory that the device can write); both stay allocated until
    /// the results are present, and nothing else writes to them meanwhile. `stream` is not being
    /// captured.
    unsafe fn encode(
        &self,
        stream: &Stream,
        checkpoints: &[StoredCheckpoint<'_>],
    ) -> Result<Vec<Pending>, DeviceError>;

    /// Decodes `jobs` after what is on `stream`. Arbitrary bytes are safe: a damaged stream is
    /// reported by the status later, and the content of its array is unspecified; nothing outside
    /// of the streams is read, nothing outside of the arrays written.
    ///
    /// # Errors
    /// As [`encode`](Self::encode), and when a stream has an impossible length.
    ///
    /// # Safety
    /// The streams and arrays are memory of the device (or host memory that the device can use)
    /// with these lengths, and stay allocated until the decoding is done; nothing else writes to
    /// them meanwhile. `stream` is not being captured.
    unsafe fn decode(
        &self,
        stream: &Stream,
        jobs: &[DecodeJob],
    ) -> Result<DecodeStatus, DeviceError>;
}

/// The encoding of an array on a device: all that is known before its values are.
#[derive(Clone, PartialEq, Debug)]
pub enum GpuLayout {
    /// The bytes are copied as they are, from any address.
    Raw {
        /// Number of bytes.
        bytes: u64,
    },
    /// A Twine stream.
    Twine(Array),
    /// A zfp stream of fixed rate.
    Zfp(ZfpLayout),
    /// A container of nvCOMP.
    NvComp(NvCompLayout),
}

impl GpuLayout {
    /// The layout of an array that is encoded by `spec`; `None` where only the host can do it.
    ///
    /// # Errors
    /// `TooLarge` and `Invalid` when the codec does not take the array.
    pub fn of(spec: &Spec, dtype: &Dtype, shape: &[u64]) -> Result<Option<GpuLayout>, CodecError> {
        match spec {
            Spec::Lossless | Spec::Bounded(_) => {
                Ok(Some(GpuLayout::Twine(Array::of(spec, dtype, shape)?)))
            }
            Spec::Zfp(Zfp::Rate(rate)) => {
                Ok(ZfpLayout::of(dtype, shape, *rate).ok().map(GpuLayout::Zfp))
            }
            Spec::Zfp(_) => Ok(None),
            Spec::NvComp(format) => NvCompLayout::of(format, dtype, shape)
                .map(|layout| Some(GpuLayout::NvComp(layout)))
                .map_err(|cause| CodecError::new(CodecErrorKind::Invalid, cause.to_string())),
            _ => {
                let items = shape.iter().copied().fold(1, u64::saturating_mul);
                Ok(Some(GpuLayout::Raw { bytes: items.saturating_mul(dtype.itemsize()) }))
            }
        }
    }

    /// The identifier of the codec in a frame.
    #[must_use]
    pub fn id(&self) -> CodecId {
        match self {
            GpuLayout::Raw { .. } => CodecId::Raw,
            GpuLayout::Twine(_) => CodecId::Twine,
            GpuLayout::Zfp(_) => CodecId::Zfp,
            GpuLayout::NvComp(_) => CodecId::NvComp,
        }
    }

    /// Bytes of the array.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            GpuLayout::Raw { bytes } => *bytes,
            GpuLayout::Twine(array) => array.layout.bytes(),
            GpuLayout::Zfp(layout) => layout.bytes(),
            GpuLayout::NvComp(layout) => layout.bytes(),
        }
    }

    /// The steps of an array that is encoded or decoded where it is; `None` where it needs a dense
    /// copy, as for all codecs but Twine.
    #[must_use]
    pub fn steps(&self, strided: &StridedLayout) -> Option<Steps> {
        let GpuLayout::Twine(array) = self else { return None };
        Steps::of(&array.layout, strided)
    }

    /// Bytes from the first value to the end of the last one.
    pub(crate) fn reach(&self, steps: Option<&Steps>) -> u64 {
        match (self, steps) {
            (GpuLayout::Twine(array), Some(steps)) => {
                steps.reach(&array.layout).unwrap_or(u64::MAX)
            }
            _ => self.bytes(),
        }
    }

    /// Maximum size of the encoded array in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        match self {
            GpuLayout::Raw { bytes } => *bytes,
            GpuLayout::Twine(array) => twine::max_bytes(&array.layout),
            GpuLayout::Zfp(layout) => layout.stored(),
            GpuLayout::NvComp(layout) => layout.most(),
        }
    }

    /// Required alignment of the array's address.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        match self {
            GpuLayout::Raw { .. } | GpuLayout::NvComp(_) => 1,
            GpuLayout::Twine(array) => array.layout.value_bytes() as u64,
            GpuLayout::Zfp(layout) => layout.value_bytes(),
        }
    }
}

impl From<Array> for GpuLayout {
    fn from(array: Array) -> GpuLayout {
        GpuLayout::Twine(array)
    }
}

/// A layout for decoding, which does not depend on the bound.
impl From<Layout> for GpuLayout {
    fn from(layout: Layout) -> GpuLayout {
        GpuLayout::Twine(Array { layout, bound: None })
    }
}

impl From<ZfpLayout> for GpuLayout {
    fn from(layout: ZfpLayout) -> GpuLayout {
        GpuLayout::Zfp(layout)
    }
}

impl From<NvCompLayout> for GpuLayout {
    fn from(layout: NvCompLayout) -> GpuLayout {
        GpuLayout::NvComp(layout)
    }
}

/// One region of a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct EncodeJob {
    /// The address of its first byte on the device. The values are aligned to their size.
    pub source: u64,
    /// Where they are, if they are not dense.
    pub steps: Option<Steps>,
    /// How the values are encoded.
    pub layout: GpuLayout,
}

/// Regions that are stored one after the other, each at a multiple of 64 from the first, with zeros
/// between them.
#[derive(Clone, Copy, Debug)]
pub struct StoredCheckpoint<'a> {
    /// The regions; at least one.
    pub jobs: &'a [EncodeJob],
    /// The begin of the first region.
    pub start: Start<'a>,
    /// The end of the memory that may be written.
    pub limit: u64,
}

/// One stream to decode.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodeJob {
    /// The address of its first byte on the device: a multiple of 64, or at least of 4 for Twine
    /// and of 8 for zfp.
    pub stream: u64,
    /// Length of the stream in bytes.
    pub stored: u64,
    /// The expected content; anything else is refused.
    pub layout: GpuLayout,
    /// The address of the first byte of the array that is written, aligned to the size of a value.
    pub target: u64,
    /// Where its values are, if they are not dense; no two are in one place.
    pub steps: Option<Steps>,
}
