//! What becomes of the regions of one checkpoint, before there are any values.

use unspool_codec::{Codec, CodecId, FrameError, Head, RegionSpec};

use super::automatic::Picked;
use super::choice::{Choice, CodecChoice, describe};
use super::method::Method;
use crate::error::{Error, ErrorKind};

/// One region and its codec.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) spec: RegionSpec,
    pub(crate) method: Method,
    /// Bytes of its values.
    pub(crate) bytes: u64,
    /// The most bytes that are stored of it.
    pub(crate) most: u64,
    /// The run has chosen its codec.
    pub(crate) is_auto: bool,
}

/// The regions of a checkpoint of which at least one is encoded.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) version: i64,
    pub(crate) regions: Vec<Planned>,
    /// What the run has chosen for the regions that leave it to it, if that is a codec.
    pub(crate) auto: Option<Picked>,
}

impl Plan {
    /// A plan for the regions of `head`, which is their layout as they are; `None` when none of
    /// them is encoded. `choose` decides once for those that leave it to the spool.
    ///
    /// # Errors
    /// `Invalid` when a codec cannot take its region.
    pub(crate) fn of(
        head: &Head,
        choice: &CodecChoice,
        choose: impl FnOnce() -> Option<Picked>,
    ) -> Result<Option<Plan>, Error> {
        let (mut choose, mut auto) = (Some(choose), None);
        let mut regions = Vec::with_capacity(head.regions.len());
        for region in &head.regions {
            let spec = region.spec();
            let codec = match choice.of(&spec)? {
                Choice::Fixed(codec) => Some(codec),
                Choice::Auto => None,
            };
            if codec.is_none()
                && let Some(choose) = choose.take()
            {
                auto = choose();
            }
            let chosen = || auto.map_or(Codec::Raw, |picked| picked.codec);
            let made = planned(spec, codec.unwrap_or_else(chosen), region.bytes)?;
            regions.push(Planned { is_auto: codec.is_none(), ..made });
        }
        let raw = regions.iter().all(|region| region.method.id() == CodecId::Raw);
        Ok((!raw).then_some(Plan { version: head.version, regions, auto }))
    }

    /// The codecs that a frame does not tell with their parameters, by region; empty where there
    /// are none.
    pub(crate) fn untold(&self) -> Vec<Option<Codec>> {
        let codecs = || self.regions.iter().map(|region| region.method.untold());
        if codecs().any(|codec| codec.is_some()) { codecs().collect() } else { Vec::new() }
    }

    /// Whether the host cannot encode it.
    pub(crate) fn needs_gpu(&self) -> bool {
        self.regions.iter().any(|region| region.method.id() == CodecId::NvComp)
    }

    /// Keeps the bytes of the regions whose codec the run has chosen as they are.
    pub(crate) fn keep_as_it_is(&mut self) {
        for region in self.regions.iter_mut().filter(|region| region.is_auto) {
            (region.method, region.most) = (Method::Raw, region.bytes);
        }
        self.auto = None;
    }

    /// The head for the largest streams, for asking room.
    ///
    /// # Errors
    /// `Invalid` when they would exceed a limit of the format.
    pub(crate) fn worst(&self) -> Result<Head, Error> {
        let most: Vec<u64> = self.regions.iter().map(|region| region.most).collect();
        let arrays = self.regions.iter().map(|r| (r.spec.clone(), r.method.id())).collect();
        Head::worst(self.version, arrays, &most).map_err(|cause| unfit(self.version, cause))
    }
}

/// The error for a checkpoint that exceeds a limit of the format.
pub(crate) fn unfit(version: i64, cause: FrameError) -> Error {
    let message = format!("Version {version} cannot be saved: {cause}");
    Error::new(ErrorKind::Invalid, message).caused_by(cause)
}

fn planned(spec: RegionSpec, codec: Codec, bytes: u64) -> Result<Planned, Error> {
    let made = Method::of(codec, &spec).and_then(|method| {
        let most = method.max_bytes(&spec, bytes)?;
        Ok((method, most))
    });
    let (method, most) = made.map_err(|cause| {
        let message =
            format!("Region {:?} cannot be encoded with {}: {cause}", spec.name, describe(codec));
        Error::new(ErrorKind::Invalid, message).caused_by(cause)
    })?;
    Ok(Planned { spec, method, bytes, most, is_auto: false })
}
