//! How a GPU decodes a region: what its frame says, what this run knows of it, and for zfp what the
//! stream says of itself.

use unspool_codec::twine::Layout;
use unspool_codec::zfp::{self, PREFIX_BYTES};
use unspool_codec::{Codec, CodecId, Region, Zfp};
use unspool_gpu_codec::{NvCompLayout, ZfpLayout};
use unspool_tiers::coders::Stored;

use super::method::{nvcomp_layout, zfp_layout};
use crate::restore::RestoreTicket;

/// A stream that a GPU decodes.
pub(super) enum OnGpu {
    Twine(Layout),
    Zfp(ZfpLayout),
    NvComp(NvCompLayout),
}

impl OnGpu {
    pub(super) fn stored(&self) -> Stored<'_> {
        match self {
            OnGpu::Twine(layout) => Stored::Twine(layout),
            OnGpu::Zfp(layout) => Stored::Zfp(layout),
            OnGpu::NvComp(layout) => Stored::NvComp(layout),
        }
    }

    /// Bytes of a value of `region`, of which the address of the target has to be a multiple.
    pub(super) fn value_bytes(&self, region: &Region) -> u64 {
        match self {
            OnGpu::Twine(layout) => layout.value_bytes() as u64,
            OnGpu::Zfp(_) => region.dtype.itemsize(),
            OnGpu::NvComp(_) => 1,
        }
    }
}

impl RestoreTicket {
    /// How a GPU decodes region `index`; `None` where only the host can, and where only the host
    /// can say what is wrong with it.
    pub(super) fn on_gpu(&self, index: usize) -> Option<OnGpu> {
        let region = &self.frame.head().regions[index];
        match region.codec {
            CodecId::Raw => None,
            CodecId::Twine => Layout::of(&region.dtype, &region.shape).ok().map(OnGpu::Twine),
            CodecId::Zfp => self.zfp_on_gpu(index, region).map(OnGpu::Zfp),
            CodecId::NvComp => {
                let Codec::NvComp(format) = self.known_codec(index)? else { return None };
                nvcomp_layout(format, &region.spec()).ok().map(OnGpu::NvComp)
            }
        }
    }

    /// What made region `index`, where this run knows.
    fn known_codec(&self, index: usize) -> Option<Codec> {
        self.decoded.as_ref()?.codec(index)
    }

    fn zfp_on_gpu(&self, index: usize, region: &Region) -> Option<ZfpLayout> {
        let mode = match self.known_codec(index) {
            Some(Codec::Zfp(mode)) => mode,
            _ => self.zfp_mode(index)?,
        };
        let layout = zfp_layout(mode, &region.spec())?;
        (layout.stored() == region.stored).then_some(layout)
    }

    /// What the stream of region `index` says, which an earlier run has saved. From the arena of a
    /// device its first bytes are fetched for that.
    fn zfp_mode(&self, index: usize) -> Option<Zfp> {
        let mut found = None;
        self.read_front(index, PREFIX_BYTES as u64, |front| found = zfp::header(front).ok())
            .ok()?;
        found.map(|prefix| prefix.mode)
    }
}
