//! Whether nvCOMP may be chosen for a checkpoint: where it is installed and ready, the history does
//! not outlive this run, and the arrays are on a GPU anyway.

use std::sync::Arc;

use unspool_codec::{Codec, Head, NvComp, Region, RegionSpec, Zfp};
use unspool_gpu_codec::NvCompLibrary;
use unspool_tiers::coders::Coders;

use super::choice::{Choice, CodecChoice};
use super::method::{FEW, items, nvcomp_layout};
use crate::gpu::Gpu;
use crate::hub::Hub;

/// Working memory of a call beside twice the bytes of the checkpoint.
const TEMPORARY: u64 = 512 << 20;

/// What nvCOMP can do for one checkpoint.
#[derive(Debug)]
pub(super) struct Offer {
    found: Option<(Gpu, Arc<NvCompLibrary>)>,
    /// The regions that the choice is for.
    regions: Vec<RegionSpec>,
}

impl Offer {
    /// Whether it has the format for all of them.
    pub(super) fn has(&self, format: NvComp) -> bool {
        let Some((_, library)) = &self.found else { return false };
        let takes = |region: &RegionSpec| {
            library.takes(format, &region.dtype) && nvcomp_layout(format, region).is_ok()
        };
        self.regions.iter().all(takes)
    }

    /// Whether the device has memory left for its work, and much more than that: what is free
    /// belongs to the application.
    pub(super) fn has_memory(&self, head: &Head) -> bool {
        let free = self.found.as_ref().and_then(|(gpu, _)| gpu.context().memory().ok());
        let needed = 2 * head.payload_bytes + TEMPORARY.min(8 * head.payload_bytes);
        free.is_some_and(|(free, _)| free / 2 >= needed)
    }
}

impl Hub {
    /// What nvCOMP can do for `head`.
    pub(super) fn offer(&self, head: &Head, codecs: &CodecChoice) -> Offer {
        let mut offer = Offer { found: None, regions: Vec::new() };
        if !self.durable_tiers.is_empty() || !codecs.choices().all(is_for_gpu) {
            return offer;
        }
        if !self.state().tally.experience.is_from_gpu {
            return offer;
        }
        let Some(gpu) = self.some_gpu() else { return offer };
        let Some(coders) = gpu.coders() else { return offer };
        match coders.nvcomp().ready() {
            Some(library) => offer.found = Some((gpu, library)),
            None => self.prepare_nvcomp(coders),
        }
        let specs = head.regions.iter().map(Region::spec);
        let is_left = |spec: &RegionSpec| matches!(codecs.of(spec), Ok(Choice::Auto));
        offer.regions = specs.filter(|spec| items(&spec.shape) >= FEW && is_left(spec)).collect();
        offer
    }

    /// Loads the library and its kernels for the saves after this one. Where there is none, that is
    /// found once.
    fn prepare_nvcomp(&self, coders: &Coders) {
        if !std::mem::replace(&mut self.state().tally.experience.was_loaded, true) {
            coders.nvcomp().prepare();
        }
    }
}

/// Whether a GPU encodes what is chosen, so that nvCOMP may be beside it.
fn is_for_gpu(choice: Choice) -> bool {
    !matches!(choice, Choice::Fixed(Codec::Zfp(Zfp::Precision(_) | Zfp::Accuracy(_))))
}
