//! The memory in which values wait: a ring on the device, filled on the streams of their arrays.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use unspool_codec::Spec;
use unspool_core::TierKind;
use unspool_cuda::{DeviceError, Fence, Stream};
use unspool_gpu_codec::GpuLayout;
use unspool_transfer::sync::{Mutex, lock};

use super::Accumulate;
use super::ring::{Ring, RingLease};
use crate::coding::EncodingPlan;
use crate::error::Error;
use crate::gpu::{self, DeviceArray, Gpu};
use crate::runtime::shared::Shared;
use crate::save::{Checkpoint, MOST_REGIONS};
use crate::spool::Spool;

/// The values of one region.
pub(super) struct RegionValues {
    pub(super) region: usize,
    pub(super) lease: RingLease,
    /// The end of the copy into it.
    pub(super) ready: Fence,
}

/// See the module.
pub(super) struct Store {
    most: Accumulate,
    /// The GPU under the spool's fastest tier; `None` where nothing is kept.
    gpu: Option<Gpu>,
    shared: Arc<Shared>,
    ring: Mutex<Option<Ring>>,
    /// The stream on which batches are encoded.
    lane: OnceLock<Stream>,
    /// The kernels that are there, so that a batch does not fail for want of them: a bit for each
    /// [`kernels`].
    prepared: AtomicU32,
}

impl Store {
    pub(super) fn new(spool: &Spool, most: Accumulate) -> Store {
        let shared = spool.shared();
        let is_on_gpu =
            shared.kinds.first() == Some(&TierKind::Device) && !shared.settings.check_codec;
        Store {
            most,
            gpu: shared.gpu.clone().filter(|_| is_on_gpu),
            shared: Arc::clone(shared),
            ring: Mutex::default(),
            lane: OnceLock::new(),
            prepared: AtomicU32::new(0),
        }
    }

    /// Whether a checkpoint may wait here for others.
    pub(super) fn takes(&self, checkpoint: &Checkpoint<'_>) -> bool {
        let Some(gpu) = &self.gpu else { return false };
        let bytes: u64 = checkpoint.head().regions.iter().map(|region| region.bytes).sum();
        bytes <= self.most.bytes && checkpoint.together(gpu).is_some()
    }

    /// The stream on which batches are encoded: of its own, since that of the application may be
    /// gone when they are.
    ///
    /// # Errors
    /// When CUDA refuses.
    pub(super) fn lane(&self, gpu: &Gpu) -> Result<&Stream, Error> {
        if let Some(lane) = self.lane.get() {
            return Ok(lane);
        }
        let made = Stream::new(gpu.context())?;
        Ok(self.lane.get_or_init(|| made))
    }

    /// Copies the arrays of a checkpoint aside; `None` where there is no room for them now.
    ///
    /// # Errors
    /// `Device` when CUDA refuses, or a stream is being captured.
    pub(super) fn keep(
        &self,
        checkpoint: &Checkpoint<'_>,
    ) -> Result<Option<Vec<RegionValues>>, Error> {
        let found = self.gpu.as_ref().zip(checkpoint.prepared().plan());
        let Some((gpu, plan)) = found else { return Ok(None) };
        let Some(ring) = self.ring(gpu, plan) else { return Ok(None) };
        let mut pieces = Vec::new();
        for (region, array, stream) in checkpoint.arrays() {
            gpu::check_stream(stream)?;
            match copy_aside(gpu, &ring, (array, stream))? {
                Some((lease, ready)) => pieces.push(RegionValues { region, lease, ready }),
                None => return Ok(None),
            }
        }
        Ok(Some(pieces))
    }

    /// The ring for checkpoints of `plan`, large enough for two batches of them: one is filled
    /// while the other is encoded. A larger one takes its place when larger checkpoints come.
    fn ring(&self, gpu: &Gpu, plan: &EncodingPlan) -> Option<Ring> {
        if !self.is_prepared(gpu, plan) {
            return None;
        }
        let sizes = plan.regions.iter().map(|region| Ring::size_of(region.bytes));
        let each = sizes.sum::<u64>().max(1);
        let count = (self.most.bytes / each).clamp(1, self.count(plan) as u64);
        self.drop_stuck_ring();
        let mut kept = lock(&self.ring);
        if let Some(ring) = kept.as_ref().filter(|ring| ring.bytes() >= 2 * count * each) {
            return Some(ring.clone());
        }
        match Ring::new(gpu, 2 * count * each) {
            Ok(ring) => Some(kept.insert(ring).clone()),
            Err(cause) => {
                let smaller = kept.clone();
                drop(kept);
                self.shared.note_once(&format!(
                    "Checkpoints are encoded in smaller batches or alone, because there is no \
                     memory to hold more of them: {cause}"
                ));
                smaller
            }
        }
    }

    /// The most checkpoints like that of `plan` in one launch, as far as their number goes.
    fn count(&self, plan: &EncodingPlan) -> usize {
        (MOST_REGIONS / plan.regions.len().max(1)).clamp(1, self.most.checkpoints.max(1) as usize)
    }

    /// Has another ring made where nothing gets past a piece of this one any more. Its memory is
    /// freed after everything on the device.
    fn drop_stuck_ring(&self) {
        let stuck = lock(&self.ring).take_if(|ring| ring.is_stuck());
        if stuck.is_some() {
            self.shared.note_once(
                "The memory in which checkpoints wait was given up and taken anew, because CUDA \
                 refused to tell when a copy into it is done.",
            );
        }
    }

    /// Sees to it that the encoder's kernels are there before anything waits for it.
    fn is_prepared(&self, gpu: &Gpu, plan: &EncodingPlan) -> bool {
        let Some(coders) = gpu.coders() else { return false };
        let kernels = 1 << kernels(plan);
        if self.prepared.load(Ordering::Relaxed) & kernels != 0 {
            return true;
        }
        let layouts: Vec<GpuLayout> =
            plan.regions.iter().filter_map(|region| region.layout.clone()).collect();
        let is_there = coders.prepare(&layouts, self.count(plan)).is_ok();
        if is_there {
            self.prepared.fetch_or(kernels, Ordering::Relaxed);
        }
        is_there
    }
}

/// Copies `array` into a piece of `ring`, after what is on `stream`; `None` where there is no room
/// for it now.
fn copy_aside(
    gpu: &Gpu,
    ring: &Ring,
    (array, stream): (&DeviceArray, &Stream),
) -> Result<Option<(RingLease, Fence)>, DeviceError> {
    let Some(mut lease) = ring.take(array.bytes(), stream)? else { return Ok(None) };
    lease.begin();
    let copied = array.gather(gpu.strided(), stream, &lease.span());
    // A copy that was refused may be enqueued in part: the bytes can be used again after it.
    let ready = gpu.device().fence(stream);
    if let Ok(ready) = &ready {
        lease.done(ready.clone());
    }
    copied?;
    Ok(Some((lease, ready?)))
}

/// Which kernels `plan` takes at least: 1 for those of 64-bit values, 2 for the one before bounds
/// that depend on the values, 4 for those around nvCOMP.
fn kernels(plan: &EncodingPlan) -> u32 {
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
