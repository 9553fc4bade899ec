//! Twine on the device: the streams of `docs/reference/twine.md`, encoded and decoded where the
//! arrays are.
//!
//! One launch encodes all regions of all checkpoints, or a few do where large regions have
//! different forms. In a small one each block has one tile (a chunk of 1024 values for each warp)
//! and finds out where its words go by looking back at the tiles before (Merrill, Garland:
//! "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). In a large one, unless its
//! regions are many and small, blocks take tiles in order, one after the other, and one block adds
//! up their sizes instead; words wait for their place in shared memory while their block encodes
//! the next. Where a region begins is found from the sizes of those before it. So nobody waits for
//! what was not started before but the block that adds up, which leaves all others their room, and
//! the host learns the sizes when it wants to know them.

mod decode;
#[cfg(test)]
mod emulated_many_tests;
#[cfg(test)]
mod emulated_tests;
#[cfg(test)]
mod fields;
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

use crate::codec::{Checkpoint, DecodeJob, GpuCodec, GpuLayout};
use crate::pending::{DecodeStatus, Pending, Slot, Slots, Start};
use unspool_cuda::Context;
use unspool_cuda::DeviceError;
use unspool_cuda::Place;
use unspool_cuda::Stream;
use unspool_cuda::kernels::{Kernels, Module};
use unspool_cuda::{Mark, Marks};

pub(crate) use modules::sources;

use job::Coded;
use modules::{BUSY_WARPS, Kernel, REDUCE_THREADS, Variant};
use parts::{Part, WORTH_A_LAUNCH, Ways, blocks_at_once};
use plan::Plan;
use scratch::{Pool, Set};
use words::{EncodeLaunch, Entry, INLINE, Job};

/// The encoder and decoder of one device. It may be used from several threads at once.
#[derive(Debug)]
pub struct Twine {
    context: Context,
    kernels: Kernels<Variant>,
    slots: Arc<Slots>,
    marks: Arc<Marks>,
    pool: Pool,
    /// Warps of a tile, if they are not chosen by size.
    warps: Option<u32>,
    /// Chunks from which on arrays of one form get a launch of their own.
    apart: u64,
}

/// How long launches are waited for behind which one was refused.
const LIMIT: Duration = Duration::from_secs(10);

/// The kernels of a call: that of each launch that encodes, and the one before them.
type Encoders = (Vec<Arc<Module>>, Option<Arc<Module>>);

impl Twine {
    /// Loads nothing yet: that is done when a kernel is first needed. Where none was shipped for
    /// the device, the compiler is looked for in `folders` first, such as Python's `sys.path`.
    #[must_use]
    pub fn new(context: &Context, folders: Vec<PathBuf>) -> Twine {
        Twine {
            context: context.clone(),
            kernels: Kernels::new(context, folders),
            slots: Slots::new(context),
            marks: Marks::new(context),
            pool: Pool::default(),
            warps: None,
            apart: WORTH_A_LAUNCH,
        }
    }

    /// The same with tiles of 2, 4 or (for narrow values) 8 warps instead of what suits the size:
    /// for checks and measurements. The bytes are the same.
    #[must_use]
    pub fn with_warps(self, warps: u32) -> Twine {
        Twine { warps: Some(warps.max(1)), ..self }
    }

    /// The same that gives arrays of one form that stand one behind the other a launch of their own
    /// from so many chunks on, instead of where that is worth it: for checks and measurements. The
    /// bytes are the same.
    #[must_use]
    pub fn with_launches_from(self, chunks: u64) -> Twine {
        Twine { apart: chunks, ..self }
    }

    /// Where its results are written, for other encoders of this device.
    #[must_use]
    pub fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// The encoder's kernel of each part, and that for bounds if it is needed.
    fn encoders(&self, plan: &Plan) -> Result<Encoders, DeviceError> {
        let reduce = (plan.reduces > 0).then(|| self.module(Variant::reducer())).transpose()?;
        let module = |part: &Part| self.module(part.variant().compiled());
        Ok((plan.parts.iter().map(module).collect::<Result<_, _>>()?, reduce))
    }

    fn module(&self, variant: Variant) -> Result<Arc<Module>, DeviceError> {
        self.kernels.get(variant, variant.kernel.name(), || variant.text())
    }

    /// Warps that find room.
    fn warps_at_once(&self) -> u32 {
        BUSY_WARPS.saturating_mul(self.context.device().multiprocessors)
    }

    /// A call, cut for the kernels that suit it best.
    fn plan(&self, checkpoints: &[Checkpoint<'_>]) -> Result<Plan, DeviceError> {
        let room = self.warps_at_once();
        Plan::of(checkpoints, &Ways { warps: self.warps, room, apart: self.apart })
    }

    /// # Safety
    /// As [`encode`](GpuCodec::encode).
    unsafe fn launch(
        &self,
        stream: &Stream,
        plan: &mut Plan,
        checkpoints: &[Checkpoint<'_>],
    ) -> Result<Mark, DeviceError> {
        let (encode, reduce) = self.encoders(plan)?;
        let mark = self.marks.prepare()?;
        let mut set = self.pool.take(stream, u64::from(plan.tiles), plan.jobs.len() as u64)?;
        if reduce.is_some() {
            let first = set.partials(&self.context, plan.partials)?;
            plan.jobs.iter_mut().for_each(|job| job.partials = first + 8 * job.partials);
        }
        let mut words = launch_words(stream, plan, &mut set)?;
        if let Some(module) = reduce {
            let mut list: [*mut c_void; 1] = [(&raw mut words).cast()];
            let shape = (plan.reduces, REDUCE_THREADS);
            // SAFETY: the kernel takes these words; what they name is there by the caller's word,
            // or belongs to the set and the slots.
            unsafe { module.launch_with(stream, Kernel::Reduce.name(), shape, &mut list) }?;
        }
        for (number, (part, encode)) in plan.parts.iter().zip(encode).enumerate() {
            let most = blocks_at_once(self.warps_at_once(), part.warps);
            let (blocks, tickets) = part.variant().blocks(part.count(), most);
            words.is_for(part, set.ticket);
            let mut list: [*mut c_void; 1] = [(&raw mut words).cast()];
            let shape = (blocks, 32 * part.warps);
            // SAFETY: as above.
            let launched =
                unsafe { encode.launch_with(stream, Kernel::Encode.name(), shape, &mut list) };
            if let Err(error) = launched {
                if number > 0 {
                    // Whoever gets the room now must not meet the launches before. Their counters
                    // stay as they are, so nobody gets the set.
                    let _ = mark.record(stream)?.wait(LIMIT);
                }
                return Err(error);
            }
            set.ticket = set.ticket.wrapping_add(tickets);
        }
        // Before the mark, which is behind it.
        tell(stream, checkpoints);
        let mark = mark.record(stream)?;
        self.pool.put(set, &mark);
        Ok(mark)
    }
}

impl GpuCodec for Twine {
    fn takes(&self, layout: &GpuLayout) -> bool {
        matches!(layout, GpuLayout::Raw { .. } | GpuLayout::Twine(_))
    }

    fn prepare(&self, checkpoints: &[Checkpoint<'_>]) -> Result<(), DeviceError> {
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

    /// One launch encodes all of them, further ones where large arrays have different forms, and
    /// one before them when a bound depends on the values.
    unsafe fn encode(
        &self,
        stream: &Stream,
        checkpoints: &[Checkpoint<'_>],
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
        let mark = match unsafe { self.launch(stream, &mut plan, checkpoints) } {
            Ok(mark) => mark,
            Err(error) => {
                slots.into_iter().for_each(Slot::abandon);
                return Err(error);
            }
        };
        let launched = slots.into_iter().zip(checkpoints);
        Ok(launched
            .map(|(slot, checkpoint)| slot.launched(mark.clone(), checkpoint.limit))
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

/// Where the kernels of a launch keep what is theirs.
#[derive(Clone, Copy, Debug)]
struct Places {
    ticket: u64,
    totals: u64,
    counts: u64,
    sums: u64,
    steps: u64,
    status: u64,
    /// Those of jobs and checkpoints in device memory, where they do not fit the parameters.
    tables: Option<(u64, u64)>,
}

/// The words of a launch, with its tables on the device where they do not fit.
fn launch_words(stream: &Stream, plan: &Plan, set: &mut Set) -> Result<EncodeLaunch, DeviceError> {
    let mut places = set.places();
    if plan.jobs.len() > INLINE {
        places.tables = Some(set.tables(stream, &plan.jobs, &plan.entries)?);
    }
    Ok(words_at(plan, &places, set.epoch))
}

/// Those of all parts.
fn words_at(plan: &Plan, places: &Places, epoch: u32) -> EncodeLaunch {
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
        first_ticket: 0,
        end_tile: plan.tiles,
        jobs: plan.jobs.len() as u32,
        entries: plan.entries.len() as u32,
        epoch,
        reduces: plan.reduces,
        first_tile: 0,
        first_job: 0,
        end_job: plan.jobs.len() as u32,
        unused: 0,
        inline_jobs,
        inline_entries,
    }
}

impl EncodeLaunch {
    /// Makes it that of a part, before which the counter of tickets has this value.
    fn is_for(&mut self, part: &Part, first_ticket: u32) {
        self.first_ticket = first_ticket;
        (self.first_tile, self.end_tile) = (part.tiles.start, part.tiles.end);
        (self.first_job, self.end_job) = (part.jobs.start as u32, part.jobs.end as u32);
    }
}

/// Tells the watch what is read, and what is written as far as the host knows it.
fn tell(stream: &Stream, checkpoints: &[Checkpoint<'_>]) {
    let ordinal = stream.context().ordinal();
    for checkpoint in checkpoints {
        for job in checkpoint.jobs {
            stream.saw_read("encoding", Place::device(ordinal, job.source, job.layout.bytes()));
        }
        if let Start::At(address) = checkpoint.start {
            let room = checkpoint.limit.saturating_sub(address);
            stream.saw_write("encoding", Place::device(ordinal, address, room));
        }
    }
}
