//! How a GPU decodes a region: what its frame says, what this run knows of it, and for zfp what the
//! stream says of itself.

use unspool_codec::zfp::{self, PREFIX_BYTES};
use unspool_codec::{CodecId, Spec};
use unspool_gpu_codec::GpuLayout;

use crate::restore::RestoreTicket;

impl RestoreTicket {
    /// How a GPU decodes region `index`; `None` where only the host can, and where only the host
    /// can say what is wrong with it.
    pub(super) fn on_gpu(&self, index: usize) -> Option<GpuLayout> {
        let region = &self.served.frame.head().regions[index];
        let codec = match region.codec {
            CodecId::Raw => return None,
            CodecId::Twine => Spec::Lossless,
            CodecId::Zfp => self.known_codec(index).or_else(|| self.zfp_mode(index))?,
            _ => self.known_codec(index)?,
        };
        let layout = GpuLayout::of(&codec, &region.dtype, &region.shape).ok()??;
        // A rate makes streams of one length.
        let is_whole = region.codec != CodecId::Zfp || layout.max_bytes() == region.stored;
        Some(layout).filter(|layout| is_whole && layout.id() == region.codec)
    }

    /// What made region `index`, where this run knows.
    fn known_codec(&self, index: usize) -> Option<Spec> {
        self.decoded()?.codec(index)
    }

    /// What the stream of region `index` says, which an earlier run has saved. From the arena of a
    /// device its first bytes are fetched for that.
    fn zfp_mode(&self, index: usize) -> Option<Spec> {
        let mut found = None;
        self.read_front(index, PREFIX_BYTES as u64, |front| found = zfp::header(front).ok())
            .ok()?;
        found.map(|prefix| Spec::Zfp(prefix.mode))
    }
}
