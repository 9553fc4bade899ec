//! What every codec on a device does, and how its callers describe arrays to it.

use std::fmt;

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{CodecError, CodecErrorKind, CodecId, Dtype, Spec, Zfp};
use unspool_cuda::{DeviceError, Stream};

use crate::nvcomp::NvCompLayout;
use crate::pending::{DecodeStatus, Pending, Start};
use crate::zfp::ZfpLayout;

/// A codec of one device. Its calls enqueue work on a stream of the caller's, and the host waits
/// for nothing. It may be used from several threads at once.
pub trait GpuCodec: fmt::Debug + Send + Sync {
    /// Whether it encodes arrays that are laid out like this.
    fn takes(&self, layout: &GpuLayout) -> bool;

    /// The most regions of one checkpoint.
    fn most_regions(&self) -> usize {
        usize::MAX
    }

    /// Compiles and loads what it takes to encode such checkpoints and to decode what is made of
    /// them, so that no launch has to. Addresses do not matter.
    ///
    /// # Errors
    /// When the kernels or the library cannot be had.
    fn prepare(&self, checkpoints: &[Checkpoint<'_>]) -> Result<(), DeviceError>;

    /// Encodes `checkpoints` after what is on `stream`, with as few launches as there can be. There
    /// is one result for each of them, in their order; one that is there says that the bytes are,
    /// too.
    ///
    /// # Errors
    /// When a region is not one that it [`takes`](Self::takes), addresses are not aligned, the
    /// stream is of another device, kernels or memory cannot be had, or the driver refuses. Then
    /// nothing is on its way: what was launched before was waited for, or the context is broken.
    ///
    /// # Safety
    /// The regions are memory of the device, and so is all from the begin of each checkpoint to
    /// its limit (device memory, or host memory that the device can write); both stay so until the
    /// results are there, and nothing else writes to them meanwhile. `stream` is not being
    /// captured.
    unsafe fn encode(
        &self,
        stream: &Stream,
        checkpoints: &[Checkpoint<'_>],
    ) -> Result<Vec<Pending>, DeviceError>;

    /// Decodes `jobs` after what is on `stream`. Any bytes may be there instead of a stream: then
    /// the status says so later, and the content of the array is unspecified; nothing outside of
    /// the streams was read, nothing outside of the arrays written.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode), and when a stream has a length that it cannot have.
    ///
    /// # Safety
    /// The streams and arrays are memory of the device (or host memory that the device can use)
    /// with these lengths, and stay so until the decoding is done; nothing else writes to them
    /// meanwhile. `stream` is not being captured.
    unsafe fn decode(
        &self,
        stream: &Stream,
        jobs: &[DecodeJob],
    ) -> Result<DecodeStatus, DeviceError>;
}

/// How an array is encoded on a device: all that is known before a value is seen.
#[derive(Clone, PartialEq, Debug)]
pub enum GpuLayout {
    /// The bytes are copied as they are, from any address.
    Raw {
        /// Their number.
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
    /// How `spec` is applied to an array; `None` where only the host can do it.
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

    /// What a frame calls the codec.
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

    /// The most bytes that are made of it.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        match self {
            GpuLayout::Raw { bytes } => *bytes,
            GpuLayout::Twine(array) => twine::max_bytes(&array.layout),
            GpuLayout::Zfp(layout) => layout.stored(),
            GpuLayout::NvComp(layout) => layout.most(),
        }
    }

    /// What the address of the array has to be a multiple of.
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

/// For decoding, to which the bound does not matter.
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
    /// The address of its first byte on the device. The values are dense, and lie at multiples of
    /// their size.
    pub source: u64,
    /// What is made of them.
    pub layout: GpuLayout,
}

/// Regions that are stored one after the other, each at a multiple of 64 from the first. What is
/// between them is zeros.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'a> {
    /// The regions; at least one.
    pub jobs: &'a [EncodeJob],
    /// Where the first one begins.
    pub start: Start<'a>,
    /// The address at or beyond which nothing is written.
    pub limit: u64,
}

/// One stream to decode.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodeJob {
    /// The address of its first byte on the device: a multiple of 64, or at least of 4 for Twine
    /// and of 8 for zfp.
    pub stream: u64,
    /// Its bytes.
    pub stored: u64,
    /// What it has to hold; anything else is refused.
    pub layout: GpuLayout,
    /// The address of the first byte of the dense array that it is written to, a multiple of the
    /// size of a value.
    pub target: u64,
}
