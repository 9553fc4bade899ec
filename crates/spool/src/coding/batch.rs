//! Checkpoints of a GPU that are held: their values are copied aside on the device, their calls
//! return, and one launch encodes all of them later ("accumulated compression", Maurya et al.,
//! HiPC 2023, Section IV).
//!
//! - A held save is a handed one that is still to be launched: it is in the queue of
//!   [`settle`](crate::settle), in the order in which it will be reported.
//! - What is held is launched on a stream of the spool's own, behind the copies, when the batch is
//!   full or somebody waits, when a save is launched alone, and after a bounded time.
//! - Launches come one after the other, so that each finds those before it launched. Nobody waits
//!   for that with the lock of the core or of the queue held.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use unspool_codec::Spec;
use unspool_cuda::{DeviceError, Stream};
use unspool_gpu_codec::GpuLayout;
use unspool_tiers::WriteGuard;
use unspool_transfer::sync::{Mutex, lock};

use super::encoded::Encoded;
use super::launch::{Chain, Source};
use super::plan::Plan;
use super::together::together;
use crate::gpu::{DeviceArray, Gpu, Ring};
use crate::hub::Hub;

/// The most regions of one launch.
pub(super) const MOST_REGIONS: usize = 4096;

/// How checkpoints of a GPU are held and encoded together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accumulate {
    /// The most checkpoints of one launch. Default: 32.
    pub checkpoints: u32,
    /// The most bytes of their values: larger checkpoints are encoded alone. Up to twice as much
    /// memory of the GPU is taken for them, beside the tiers and what an encoder works in, which
    /// for nvCOMP is about the size of a batch. Default: 64 MiB.
    pub bytes: u64,
    /// The longest that a checkpoint is held before it is launched without a reason.
    /// Default: 20 ms.
    pub held_at_most: Duration,
}

impl Accumulate {
    /// The most checkpoints like that of `plan` in one launch, as far as their number goes.
    fn count(&self, plan: &Plan) -> usize {
        (MOST_REGIONS / plan.regions.len().max(1)).clamp(1, self.checkpoints.max(1) as usize)
    }

    /// Whether nothing should be added to so many checkpoints with so many bytes.
    pub(crate) fn is_full(&self, (checkpoints, bytes): (u32, u64)) -> bool {
        // Half of the ring is the batch: another one of the mean size would go beyond it.
        let mean = bytes / u64::from(checkpoints.max(1));
        checkpoints >= self.checkpoints || bytes.saturating_add(mean) > self.bytes
    }
}

impl Default for Accumulate {
    fn default() -> Self {
        let held_at_most = Duration::from_millis(20);
        Accumulate { checkpoints: 32, bytes: 64 << 20, held_at_most }
    }
}

/// When a checkpoint that a GPU encodes is launched. It says nothing where the settings do not
/// accumulate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Launch {
    /// At once, alone, behind all that are held.
    Alone,
    /// Later, together with others.
    #[default]
    Held,
    /// At once, together with all that are held.
    WithHeld,
}

/// How checkpoints of a GPU were launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchStats {
    /// Calls of encoders: each is one launch, or a few where large arrays have different forms.
    pub launches: u64,
    /// Checkpoints that they took.
    pub checkpoints: u64,
    /// The most of one launch.
    pub most: u64,
}

impl LaunchStats {
    pub(crate) fn add(&mut self, checkpoints: u64) {
        self.launches += 1;
        self.checkpoints += checkpoints;
        self.most = self.most.max(checkpoints);
    }
}

/// What the held saves of a spool share.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Held while something is launched. The stream is made for the first batch.
    pub(super) lane: Mutex<Option<Stream>>,
    ring: Mutex<Option<Ring>>,
    /// The kernels that are there, so that a batch does not fail for want of them: a bit for each
    /// [`kernels`].
    prepared: AtomicU32,
}

/// A save that is held.
#[derive(Debug)]
pub(crate) struct Held {
    /// Present until it is launched.
    pub(crate) guard: Option<WriteGuard>,
    pub(crate) encoded: Box<Encoded>,
    pub(crate) chain: Option<Chain>,
    pub(crate) since: Instant,
}

impl Held {
    /// Bytes of its values.
    pub(crate) fn bytes(&self) -> u64 {
        self.encoded.plan().regions.iter().map(|region| region.bytes).sum()
    }
}

/// Whether a checkpoint of `plan`, of which every region is given by a GPU, may be held.
pub(crate) fn may_hold(plan: &Plan, most: &Accumulate) -> bool {
    let bytes: u64 = plan.regions.iter().map(|region| region.bytes).sum();
    // What is measured is launched by its own call.
    let is_alone = plan.auto.is_some_and(|picked| picked.is_timed);
    !is_alone
        && bytes <= most.bytes
        && plan.regions.len() <= MOST_REGIONS
        && together(plan).is_some()
}

impl Hub {
    /// Copies `array` aside, into memory in which it may be held; `None` where there is none.
    /// `plan` is that of its checkpoint.
    ///
    /// # Errors
    /// When CUDA refuses.
    pub(crate) fn set_aside(
        &self,
        gpu: &Gpu,
        plan: &Plan,
        (array, stream): (&DeviceArray, &Stream),
    ) -> Result<Option<Source>, DeviceError> {
        let Some(ring) = self.ring(gpu, plan) else { return Ok(None) };
        let mut lease = ring.take(array.bytes(), stream)?;
        if lease.is_none() {
            // Behind their encoder the pieces can be used again.
            self.launch_held();
            lease = ring.take(array.bytes(), stream)?;
        }
        let Some(mut lease) = lease else { return Ok(None) };
        lease.begin();
        let copied = array.gather(gpu.strided(), stream, &lease.span());
        // A copy that was refused may be enqueued in part: the bytes can be used again behind it.
        let ready = gpu.device().mark(stream);
        if let Ok(ready) = &ready {
            lease.done(ready.clone());
        }
        copied?;
        Ok(Some(Source::held(lease, ready?)))
    }

    /// The ring for checkpoints of `plan`, large enough for two batches of them: one is filled
    /// while the other is encoded. A larger one takes its place when larger checkpoints come.
    fn ring(&self, gpu: &Gpu, plan: &Plan) -> Option<Ring> {
        let most = self.settings.accumulate?;
        if !self.is_prepared(gpu, plan, most) {
            return None;
        }
        let sizes = plan.regions.iter().map(|region| Ring::size_of(region.bytes));
        let each = sizes.sum::<u64>().max(1);
        let count = (most.bytes / each).clamp(1, most.count(plan) as u64);
        self.drop_stuck_ring();
        let mut kept = lock(&self.holding.ring);
        if let Some(ring) = kept.as_ref().filter(|ring| ring.bytes() >= 2 * count * each) {
            return Some(ring.clone());
        }
        match Ring::new(gpu, 2 * count * each) {
            Ok(ring) => Some(kept.insert(ring).clone()),
            Err(cause) => {
                let smaller = kept.clone();
                drop(kept);
                self.note_once(&format!(
                    "Checkpoints are encoded in smaller batches or alone, because there is no \
                     memory to hold more of them: {cause}"
                ));
                smaller
            }
        }
    }

    /// Has another ring made where nothing gets past a piece of this one any more. Its memory is
    /// freed behind everything on the device.
    fn drop_stuck_ring(&self) {
        let stuck = lock(&self.holding.ring).take_if(|ring| ring.is_stuck());
        if stuck.is_some() {
            self.note_once(
                "The memory in which checkpoints are held was given up and taken anew, because \
                 CUDA refused to tell when a copy into it is done.",
            );
        }
    }

    /// Sees to it that the encoder's kernels are there before anything is held for it.
    fn is_prepared(&self, gpu: &Gpu, plan: &Plan, most: Accumulate) -> bool {
        let Some(coders) = gpu.coders() else { return false };
        let kernels = 1 << kernels(plan);
        if self.holding.prepared.load(Ordering::Relaxed) & kernels != 0 {
            return true;
        }
        let layouts: Vec<GpuLayout> =
            plan.regions.iter().filter_map(|region| region.layout.clone()).collect();
        let is_there = coders.prepare(&layouts, most.count(plan)).is_ok();
        if is_there {
            self.holding.prepared.fetch_or(kernels, Ordering::Relaxed);
        }
        is_there
    }
}

/// Which kernels `plan` takes at least: 1 for those of 64-bit values, 2 for the one before bounds
/// that depend on the values, 4 for those around nvCOMP.
fn kernels(plan: &Plan) -> u32 {
    plan.regions.iter().fold(0, |all, region| {
        let is_wide = match &region.layout {
            Some(GpuLayout::Twine(array)) => array.layout.bits == 64,
            _ => false,
        };
        let reduces = matches!(region.codec, Spec::Bounded(bound) if bound.depends_on_values());
        let needs_gpu = region.codec.needs_gpu();
        all | u32::from(is_wide) | u32::from(reduces) << 1 | u32::from(needs_gpu) << 2
    })
}
