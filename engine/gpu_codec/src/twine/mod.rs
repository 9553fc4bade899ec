//! Twine on the device: the streams of `docs/reference/twine.md`, encoded and decoded where the
//! arrays are.
//!
//! One launch encodes all regions of all checkpoints; if large regions have different forms, a few
//! do. In a small launch each block has one tile (a chunk of 1024 values for each warp) and finds
//! the place of its words by looking back at the tiles before (Merrill, Garland: "Single-pass
//! Parallel Prefix Scan with Decoupled Look-back", 2016). In a large launch, unless its regions are
//! many and small, each block takes one tile after the other, and a separate block adds up the
//! sizes; words stay in shared memory until their place is known, while their block encodes the
//! next tile. The begin of a region follows from the sizes of the regions before it. A block
//! therefore waits only for blocks that have started before it, and for the block that adds up
//! sizes, for which the launch leaves room on the device. The host reads the sizes whenever it
//! needs them.
//!
//! Where bounds depend on the values, a call has every launch twice. The first ones encode with a
//! guess of each bound, that of the array before, and measure the values on the way. The second
//! ones encode again if a guess was wrong, and report otherwise.

mod decode;
#[cfg(test)]
mod emulated_guess_tests;
#[cfg(test)]
mod emulated_many_tests;
#[cfg(test)]
mod emulated_tests;
#[cfg(test)]
mod fields;
mod guesses;
mod job;
mod modules;
mod parts;
mod plan;
mod scratch;
mod words;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::{DecodeJob, GpuCodec, GpuLayout, StoredCheckpoint};
use crate::pending::{DecodeStatus, Pending, Slot, Slots, Start};
use unspool_cuda::AccessedBytes;
use unspool_cuda::Context;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;
use unspool_cuda::kernels::{Kernels, Module};
use unspool_cuda::{Fence, FencePool};

pub(crate) use modules::sources;

use guesses::Guesses;
use job::Coded;
use modules::{BUSY_WARPS, Kernel, Variant};
use parts::{LaunchPart, WORTH_A_LAUNCH, Ways};
use plan::LaunchPlan;
use scratch::{Pool, Set};
use words::{EncodeLaunch, Entry, INLINE, Job, pass};

/// The encoder and decoder of one device. It may be used from several threads at once.
#[derive(Debug)]
pub struct Twine {
    context: Context,
    kernels: Kernels<Variant>,
    slots: Arc<Slots>,
    fences: Arc<FencePool>,
    pool: Pool,
    guesses: Guesses,
    /// Warps of a tile, if not chosen by size.
    warps: Option<u32>,
    /// Minimum number of chunks for which arrays of one form get their own launch.
    apart: u64,
}

/// How long the launches before a refused one are waited for.
const LIMIT: Duration = Duration::from_secs(10);

impl Twine {
    /// Nothing is loaded until a kernel is first needed. Where none was shipped for the device, the
    /// compiler is searched for in `folders` first, such as Python's `sys.path`.
    #[must_use]
    pub fn new(context: &Context, folders: Vec<PathBuf>) -> Twine {
        Twine {
            context: context.clone(),
            kernels: Kernels::new(context, folders),
            slots: Slots::new(context),
            fences: FencePool::new(context),
            pool: Pool::default(),
            guesses: Guesses::default(),
            warps: None,
            apart: WORTH_A_LAUNCH,
        }
    }

    /// The same encoder with tiles of 2, 4 or (for narrow values) 8 warps instead of a choice by
    /// size: for checks and measurements. The bytes are the same.
    #[must_use]
    pub fn with_warps(self, warps: u32) -> Twine {
        Twine { warps: Some(warps.max(1)), ..self }
    }

    /// The same encoder with another threshold: adjacent arrays of one form get their own launch
    /// from `chunks` chunks on. For checks and measurements. The bytes are the same.
    #[must_use]
    pub fn with_launches_from(self, chunks: u64) -> Twine {
        Twine { apart: chunks, ..self }
    }

    /// The slots of its results, shared with other encoders of this device.
    #[must_use]
    pub fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// The encoder's kernel for each part.
    fn encoders(&self, plan: &LaunchPlan) -> Result<Vec<Arc<Module>>, DeviceError> {
        let module = |part: &LaunchPart| self.module(part.variant().compiled());
        plan.parts.iter().map(module).collect()
    }

    fn module(&self, variant: Variant) -> Result<Arc<Module>, DeviceError> {
        self.kernels.get(variant, variant.kernel.name(), || variant.text())
    }

    /// Number of warps that the device runs concurrently.
    fn warps_at_once(&self) -> u32 {
        BUSY_WARPS.saturating_mul(self.context.device().multiprocessors)
    }

    /// The plan of a call, divided into launches for the kernels that suit it best.
    fn plan(&self, checkpoints: &[StoredCheckpoint<'_>]) -> Result<LaunchPlan, DeviceError> {
        let room = self.warps_at_once();
        LaunchPlan::of(checkpoints, &Ways { warps: self.warps, room, apart: self.apart })
    }

    /// # Safety
    /// As [`encode`](GpuCodec::encode).
    unsafe fn launch(
        &self,
        stream: &Stream,
        plan: &mut LaunchPlan,
        checkpoints: &[StoredCheckpoint<'_>],
    ) -> Result<Fence, DeviceError> {
        let encoders = self.encoders(plan)?;
        let fence = self.fences.prepare()?;
        let mut set = self.pool.take(stream, u64::from(plan.tiles), plan.jobs.len() as u64)?;
        let (mut doubt, mut passes) = (0, &[pass::ONLY][..]);
        if plan.measures {
            let bins = set.squares(stream, plan.squares)?;
            doubt = self.guesses.assign(stream, plan, bins)?;
            passes = &[pass::FIRST, pass::SECOND];
        }
        let mut words = EncodeLaunch { doubt, ..launch_words(stream, plan, &mut set)? };
        let mut is_first = true;
        for (&pass, epoch) in passes.iter().zip(set.epoch..) {
            (words.pass, words.epoch) = (pass, epoch);
            for (part, encode) in plan.parts.iter().zip(&encoders) {
                // SAFETY: the caller's duty.
                let launched = unsafe { self.launch_part(stream, part, encode, &mut words) };
                if let Err(error) = launched {
                    // The caller reuses the room, so the earlier launches have to end first. The
                    // counters of the set may not be reset, so it is not returned to the pool.
                    let is_done = is_first
                        || fence.record(stream).and_then(|fence| fence.wait(LIMIT)).is_ok();
                    return Err(if is_done { error } else { error.with_work_left() });
                }
                is_first = false;
            }
        }
        set.ticket = words.first_ticket;
        // Reported to the watch before the fence is recorded, which comes after it.
        report(stream, checkpoints);
        let fence = fence.record(stream)?;
        self.pool.put(set, &fence);
        Ok(fence)
    }

    /// Launches a part, and passes over its tickets.
    ///
    /// # Safety
    /// As [`encode`](GpuCodec::encode).
    unsafe fn launch_part(
        &self,
        stream: &Stream,
        part: &LaunchPart,
        encode: &Module,
        words: &mut EncodeLaunch,
    ) -> Result<(), DeviceError> {
        let variant = part.variant();
        let most = variant.blocks_at_once(self.warps_at_once());
        let (blocks, tickets) = variant.blocks(part.count(), most);
        words.is_for(part, tickets);
        let mut list: [*mut c_void; 1] = [std::ptr::from_mut(words).cast()];
        let shape = (blocks, 32 * part.warps);
        // SAFETY: the kernel takes these words; they name memory that the caller guarantees, or
        // that of the set, the slots and the guesses.
        unsafe { encode.launch_with(stream, Kernel::Encode.name(), shape, &mut list) }?;
        words.first_ticket = words.first_ticket.wrapping_add(tickets);
        Ok(())
    }
}

impl GpuCodec for Twine {
    fn takes(&self, layout: &GpuLayout) -> bool {
        matches!(layout, GpuLayout::Raw { .. } | GpuLayout::Twine(_))
    }

    fn prepare(&self, checkpoints: &[StoredCheckpoint<'_>]) -> Result<(), DeviceError> {
        self.encoders(&self.plan(checkpoints)?)?;
        let jobs = checkpoints.iter().flat_map(|one| one.jobs);
        let arrays = jobs.filter_map(|job| match &job.layout {
            GpuLayout::Twine(array) => Some(&array.layout),
            _ => None,
        });
        arrays
            .map(|layout| decode::variant([layout]))
            .try_for_each(|variant| self.module(variant).map(drop))
    }

    /// One launch encodes all of them; there are more where large arrays have different forms, and
    /// twice as many when a bound depends on the values: the first ones encode with guesses of the
    /// bounds, the second ones encode again if one was wrong.
    unsafe fn encode(
        &self,
        stream: &Stream,
        checkpoints: &[StoredCheckpoint<'_>],
    ) -> Result<Vec<Pending>, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        if checkpoints.is_empty() {
            return Ok(Vec::new());
        }
        let mut plan = self.plan(checkpoints)?;
        let slots = checkpoints.iter().map(|checkpoint| self.slots.begin(checkpoint.jobs.len()));
        let mut slots = slots.collect::<Result<Vec<_>, _>>()?;
        plan.anchor(stream, checkpoints, &mut slots)?;
        // SAFETY: the caller's duty.
        let fence = match unsafe { self.launch(stream, &mut plan, checkpoints) } {
            Ok(fence) => fence,
            Err(error) => {
                slots.into_iter().for_each(Slot::abandon);
                return Err(error);
            }
        };
        let launched = slots.into_iter().zip(checkpoints);
        Ok(launched
            .map(|(slot, checkpoint)| slot.launched(fence.clone(), checkpoint.limit))
            .collect())
    }

    unsafe fn decode(
        &self,
        stream: &Stream,
        jobs: &[DecodeJob],
    ) -> Result<DecodeStatus, DeviceError> {
        let coded = jobs.iter().map(Coded::of).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the caller's duty.
        unsafe { self.decode_all(stream, &coded) }
    }
}

/// Addresses of the memory of a launch.
#[derive(Clone, Copy, Debug)]
struct Places {
    ticket: u64,
    totals: u64,
    counts: u64,
    sums: u64,
    steps: u64,
    status: u64,
    /// Addresses of the tables of jobs and checkpoints in device memory, where they do not fit into
    /// the parameters.
    tables: Option<(u64, u64)>,
}

/// The words of a launch; tables go to the device where they do not fit.
fn launch_words(
    stream: &Stream,
    plan: &LaunchPlan,
    set: &mut Set,
) -> Result<EncodeLaunch, DeviceError> {
    let mut places = set.places();
    if plan.jobs.len() > INLINE {
        places.tables = Some(set.tables(stream, &plan.jobs, &plan.entries)?);
    }
    Ok(EncodeLaunch { first_ticket: set.ticket, ..words_at(plan, &places, set.epoch) })
}

/// The words that all parts of a call share.
fn words_at(plan: &LaunchPlan, places: &Places, epoch: u32) -> EncodeLaunch {
    let mut inline_jobs = [Job::default(); INLINE];
    let mut inline_entries = [Entry::default(); INLINE];
    if places.tables.is_none() {
        inline_jobs[..plan.jobs.len()].copy_from_slice(&plan.jobs);
        inline_entries[..plan.entries.len()].copy_from_slice(&plan.entries);
    }
    let (job_table, entry_table) = places.tables.unwrap_or_default();
    EncodeLaunch {
        job_table,
        entry_table,
        status: places.status,
        totals: places.totals,
        sums: places.sums,
        steps: places.steps,
        counts: places.counts,
        ticket: places.ticket,
        doubt: 0,
        first_ticket: 0,
        end_tile: plan.tiles,
        jobs: plan.jobs.len() as u32,
        entries: plan.entries.len() as u32,
        epoch,
        pass: pass::ONLY,
        first_tile: 0,
        first_job: 0,
        end_job: plan.jobs.len() as u32,
        tickets: 0,
        inline_jobs,
        inline_entries,
    }
}

impl EncodeLaunch {
    /// Specialises the words for a part that takes `tickets` tickets.
    fn is_for(&mut self, part: &LaunchPart, tickets: u32) {
        self.tickets = tickets;
        (self.first_tile, self.end_tile) = (part.tiles.start, part.tiles.end);
        (self.first_job, self.end_job) = (part.jobs.start as u32, part.jobs.end as u32);
    }
}

/// Reports to the watch what is read, and what is written as far as the host knows it.
fn report(stream: &Stream, checkpoints: &[StoredCheckpoint<'_>]) {
    let ordinal = stream.context().ordinal();
    for checkpoint in checkpoints {
        for job in checkpoint.jobs {
            let bytes = job.layout.reach(job.steps.as_ref());
            stream.saw_read("encoding", AccessedBytes::device(ordinal, job.source, bytes));
        }
        if let Start::At(address) = checkpoint.start {
            let room = checkpoint.limit.saturating_sub(address);
            stream.saw_write("encoding", AccessedBytes::device(ordinal, address, room));
        }
    }
}
