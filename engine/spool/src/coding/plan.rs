//! What becomes of the regions of one checkpoint, before there are any values.

use unspool_codec::{
    Codec, CodecError, CodecId, EncodedStream, FrameError, Head, RegionSpec, Spec,
};
use unspool_gpu_codec::GpuLayout;

use super::automatic::Picked;
use super::codecs::Codecs;
use crate::error::{Error, ErrorKind};

/// Regions with fewer items are kept as they are: a stream is not smaller than they are.
const FEW: u64 = 64;

/// One region and its codec.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) spec: RegionSpec,
    pub(crate) codec: Spec,
    /// How a GPU encodes it; `None` where only the host can.
    pub(crate) layout: Option<GpuLayout>,
    /// Bytes of its values.
    pub(crate) bytes: u64,
    /// The most bytes that are stored of it.
    pub(crate) most: u64,
    /// The run has chosen its codec.
    pub(crate) is_auto: bool,
}

/// The regions of a checkpoint of which at least one is encoded.
#[derive(Clone, Debug)]
pub(crate) struct EncodingPlan {
    pub(crate) version: i64,
    pub(crate) regions: Vec<Planned>,
    /// What the run has chosen for the regions that leave it to it, if that is a codec.
    pub(crate) auto: Option<Picked>,
}

impl Planned {
    /// `codec` for `spec`, which it takes and which has so many bytes.
    ///
    /// # Errors
    /// When the region is larger than a stream can be, or the codec cannot take it.
    fn of(spec: RegionSpec, codec: Spec, bytes: u64) -> Result<Planned, CodecError> {
        let items = spec.shape.iter().copied().fold(1, u64::saturating_mul);
        let is_small = items < FEW || spec.dtype.itemsize() == 0;
        let codec = if is_small { Spec::Raw } else { codec };
        let layout = GpuLayout::of(&codec, &spec.dtype, &spec.shape)?;
        let most = match (&layout, codec.needs_gpu()) {
            (Some(layout), true) => layout.max_bytes(),
            _ => codec.codec()?.max_bytes(&codec, &spec.dtype, &spec.shape)?,
        };
        Ok(Planned { spec, codec, layout, bytes, most, is_auto: false })
    }

    /// Writes the bytes for `values` to the start of `out`, which has room for the most that there
    /// can be.
    ///
    /// # Errors
    /// When the codec cannot take these values, or works on a GPU only.
    pub(crate) fn encode(
        &self,
        values: &[u8],
        out: &mut [u8],
    ) -> Result<EncodedStream, CodecError> {
        let RegionSpec { dtype, shape, .. } = &self.spec;
        self.host()?.encode(&self.codec, dtype, shape, values, out)
    }

    /// The inverse of [`encode`](Self::encode), to `out`.
    ///
    /// # Errors
    /// When the stream is damaged, or only a GPU decodes it.
    pub(crate) fn decode(&self, stream: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        self.host()?.decode(&self.spec.dtype, &self.spec.shape, stream, out)
    }

    fn host(&self) -> Result<&'static dyn Codec, CodecError> {
        self.codec.codec()
    }
}

impl EncodingPlan {
    /// A plan for the regions of `head`, which is their layout as they are; `None` when none of
    /// them is encoded. `choose` decides once for those that leave it to the spool.
    ///
    /// # Errors
    /// `Invalid` when a codec cannot take its region.
    pub(crate) fn of(
        head: &Head,
        codecs: &Codecs,
        choose: impl FnOnce() -> Option<Picked>,
    ) -> Result<Option<EncodingPlan>, Error> {
        let (mut choose, mut auto) = (Some(choose), None);
        let mut regions = Vec::with_capacity(head.regions.len());
        for region in &head.regions {
            let spec = region.spec();
            let named = codecs.of(&spec)?;
            let is_auto = named == Spec::Auto;
            if let Some(choose) = choose.take_if(|_| is_auto) {
                auto = choose();
            }
            let chosen = if auto.is_some() { Spec::Lossless } else { Spec::Raw };
            let made = planned(spec, if is_auto { chosen } else { named }, region.bytes)?;
            regions.push(Planned { is_auto, ..made });
        }
        let raw = regions.iter().all(|region| region.codec == Spec::Raw);
        Ok((!raw).then_some(EncodingPlan { version: head.version, regions, auto }))
    }

    /// The codecs whose parameters a frame does not contain, by region; empty where there
    /// are none.
    pub(crate) fn codecs_in_no_stream(&self) -> Vec<Option<Spec>> {
        let missing = |codec: Spec| Some(codec).filter(|codec| !is_in_stream(codec.id()));
        let codecs = || self.regions.iter().map(|region| missing(region.codec));
        if codecs().any(|codec| codec.is_some()) { codecs().collect() } else { Vec::new() }
    }

    /// Whether the host cannot encode it.
    pub(crate) fn needs_gpu(&self) -> bool {
        self.regions.iter().any(|region| region.codec.needs_gpu())
    }

    /// The head for the largest streams, for asking room.
    ///
    /// # Errors
    /// `Invalid` when they would exceed a limit of the format.
    pub(crate) fn worst(&self) -> Result<Head, Error> {
        let most: Vec<u64> = self.regions.iter().map(|region| region.most).collect();
        let arrays = self.regions.iter().map(|r| (r.spec.clone(), r.codec.id())).collect();
        Head::worst(self.version, arrays, &most).map_err(|cause| unfit(self.version, cause))
    }
}

/// Whether a decoder needs to know no more of a codec than its id.
fn is_in_stream(codec: CodecId) -> bool {
    matches!(codec, CodecId::Raw | CodecId::Twine)
}

/// The error for a checkpoint that exceeds a limit of the format.
pub(crate) fn unfit(version: i64, cause: FrameError) -> Error {
    let message = format!("Version {version} cannot be saved: {cause}");
    Error::new(ErrorKind::Invalid, message).caused_by(cause)
}

fn planned(spec: RegionSpec, codec: Spec, bytes: u64) -> Result<Planned, Error> {
    let name = spec.name.clone();
    Planned::of(spec, codec, bytes).map_err(|cause| {
        let message = format!("Region {name:?} cannot be encoded with {codec}: {cause}");
        Error::new(ErrorKind::Invalid, message).caused_by(cause)
    })
}
