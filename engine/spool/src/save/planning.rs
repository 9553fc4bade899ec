//! What becomes of the regions of a save before there is room for it.

use std::sync::Arc;

use unspool_codec::{Head, RegionSpec};
use unspool_core::{LinkStats, TransferKind};
use unspool_cuda::Bytes;
use unspool_transfer::Frame;

use crate::coding::{Codecs, EncodingPlan, LEARNED, Picked, check_formats};
use crate::error::{Error, ErrorKind};
use crate::runtime::counters::Call;
use crate::runtime::memory;
use crate::runtime::shared::Shared;
use crate::runtime::stack::check_writable;
use crate::runtime::state::State;
use crate::time::nanos;

/// A checkpoint before there is room for it: its regions, and how they are encoded.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// With the largest streams, where a region is encoded.
    frame: Arc<Frame>,
    /// `None` where all regions are kept as they are.
    plan: Option<EncodingPlan>,
}

impl Prepared {
    /// Plans a checkpoint of these regions, if the spool takes another one.
    ///
    /// # Errors
    /// `Invalid` when the regions make no sense, or a codec cannot take its region; `ReadOnly`,
    /// `Full` without memory for what is known of it, `Forked`.
    pub(crate) fn of(
        shared: &Shared,
        version: i64,
        regions: Vec<RegionSpec>,
        codecs: &Codecs,
    ) -> Result<Prepared, Error> {
        memory::check_for_save(shared)?;
        check_writable(&shared.settings, version, "saved")?;
        let head = Head::layout(version, regions).map_err(|cause| {
            let message = format!("Version {version} cannot be saved: {cause}");
            Error::new(ErrorKind::Invalid, message).caused_by(cause)
        })?;
        let plan = plan(shared, &head, codecs)?;
        let (head, plan) = plan.map_or((head, None), |(worst, plan)| (worst, Some(plan)));
        Ok(Prepared { frame: Arc::new(Frame::new(head)), plan })
    }

    /// A checkpoint that is encoded already.
    pub(super) fn found(frame: Frame) -> Prepared {
        Prepared { frame: Arc::new(frame), plan: None }
    }

    /// The regions and where they lie in the payload; those of an encoded checkpoint where they lie
    /// at most.
    pub(crate) fn head(&self) -> &Arc<Head> {
        self.frame.head()
    }

    pub(super) fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    pub(crate) fn plan(&self) -> Option<&EncodingPlan> {
        self.plan.as_ref()
    }
}

/// The codecs for the regions of `head`, and the head for asking room; `None` when all are kept as
/// they are. That is so also where the longest streams would not fit into the tier that the values
/// fit into: a checkpoint that nearly fills a tier can then still be saved there.
///
/// # Errors
/// `Invalid` when a codec cannot take its region.
fn plan(
    shared: &Shared,
    head: &Head,
    codecs: &Codecs,
) -> Result<Option<(Head, EncodingPlan)>, Error> {
    if codecs.is_raw() {
        return Ok(None);
    }
    codecs.check()?;
    if !shared.durable_tiers.is_empty() {
        codecs.check_durable()?;
    }
    let Some(plan) = EncodingPlan::of(head, codecs, || choose(shared, head))? else {
        return Ok(None);
    };
    let worst = plan.worst()?;
    if let Some(gpu) = &shared.gpu {
        check_formats(gpu, &plan)?;
    }
    let (most, bytes) = (worst.payload_bytes, head.payload_bytes);
    let fits = fastest_for(shared, most) == fastest_for(shared, bytes);
    if !fits {
        note_kept_raw(shared, bytes, most);
    }
    Ok(fits.then_some((worst, plan)))
}

/// Adds a note, once: a checkpoint is stored uncompressed, since its largest possible encoding does
/// not fit.
fn note_kept_raw(shared: &Shared, bytes: u64, most: u64) {
    let prefix = "Checkpoints are kept as they are where";
    let note = format!(
        "{prefix} the most that a codec may make of them does not fit into a tier that they \
         themselves fit into; the first one has {:#} and may take up to {:#}. Make that tier \
         larger, or save with no codec.",
        Bytes(bytes),
        Bytes(most)
    );
    shared.note_first(prefix, note);
}

/// The fastest tier that `bytes` fit into when it is empty.
fn fastest_for(shared: &Shared, bytes: u64) -> Option<usize> {
    let state = shared.state();
    let tiers = &state.driver.core().config().tiers;
    tiers.iter().position(|tier| {
        let unit = tier.alignment;
        let head = if tier.kind.is_arena() { 0 } else { unit };
        let whole = bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        whole.saturating_add(head) <= tier.capacity & !(unit - 1)
    })
}

/// Decides whether the regions of a checkpoint that leave it to the run are encoded; `None` for
/// their bytes as they are.
fn choose(shared: &Shared, head: &Head) -> Option<Picked> {
    shared.collect_readings();
    let now = shared.clock.now();
    let mut state = shared.state();
    let restores = state.driver.core().stats().restores;
    let link = slowest_link(&state);
    let stalled = nanos(state.counters.stall(Call::Save));
    state.counters.experience.choose(head, (now, stalled), restores, link)
}

/// The rate of the slowest link that the history goes over, once the fastest tier is half full.
fn slowest_link(state: &State) -> Option<f64> {
    let core = state.driver.core().stats();
    let first = core.tiers.first()?;
    let moves = core.links.iter().any(|link| link.flush.transfers > 0);
    if !moves && first.used < first.capacity / 2 {
        return None;
    }
    let rate = |(index, link): (usize, &LinkStats)| {
        let busy = state.counters.link(index).busy(TransferKind::Flush).as_secs_f64();
        let is_new = (1..LEARNED).contains(&link.flush.transfers) && busy > 0.0;
        if is_new { link.flush.bytes as f64 / busy } else { link.flush.rate }
    };
    core.links.iter().enumerate().map(rate).reduce(f64::min)
}
