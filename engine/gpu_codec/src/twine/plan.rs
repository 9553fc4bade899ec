//! The plan of a call, from the caller's description to the kernels' words: checks, tiles,
//! addresses.

use unspool_codec::twine::{Array, BoundRule, Layout, Relative, Step, ValueKind};

use super::job::Coded;
use super::parts::{LaunchPart, Ways};
use super::words::{BINS, Cut, Entry, Job, Piece, how, rule};
use crate::codec::{EncodeJob, GpuLayout, StoredCheckpoint};
use crate::pending::{Slot, Start};
use crate::steps::Steps;
use unspool_cuda::Stream;
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// Alignment of records, checkpoints and jobs.
pub(super) const ALIGNMENT: u64 = 64;
/// Bytes of a raw job that one warp copies.
pub(super) const RAW_BYTES: u64 = 8192;
/// Codes of kinds of values.
pub(super) const FLOAT32: u32 = 2;
pub(super) const FLOAT64: u32 = 3;
/// In the form of a kernel variant: any kind of values with these bits.
pub(super) const ANY_KIND: u32 = 0xff;
/// Maximum number of jobs of a call.
const MOST_JOBS: usize = 1 << 16;

/// The part of a call that does not depend on addresses of the device.
#[derive(Debug, Default)]
pub(super) struct LaunchPlan {
    pub(super) jobs: Vec<Job>,
    pub(super) entries: Vec<Entry>,
    pub(super) tiles: u32,
    /// Whether a bound depends on the values, and on the squares of how many arrays.
    pub(super) measures: bool,
    pub(super) squares: u64,
    /// The launches, one after the other.
    pub(super) parts: Vec<LaunchPart>,
}

impl LaunchPlan {
    /// Checks `checkpoints`, and divides them into launches and tiles.
    pub(super) fn of(
        checkpoints: &[StoredCheckpoint<'_>],
        ways: &Ways,
    ) -> Result<LaunchPlan, DeviceError> {
        let mut plan = LaunchPlan::default();
        let mut limit = 0;
        for checkpoint in checkpoints {
            check(checkpoint, &mut limit, plan.entries.is_empty())?;
            plan.add(checkpoint)?;
        }
        for mut part in LaunchPart::all_of(&plan.jobs, ways) {
            let first = plan.tiles;
            part.jobs.clone().try_for_each(|number| plan.place(number, part.warps))?;
            part.take_tiles(first..plan.tiles, &plan.jobs, ways.room);
            plan.parts.push(part);
        }
        Ok(plan)
    }

    fn add(&mut self, checkpoint: &StoredCheckpoint<'_>) -> Result<(), DeviceError> {
        let (number, job0) = (self.entries.len() as u32, self.jobs.len() as u32);
        for job in checkpoint.jobs {
            let mut words = job_words(job)?;
            words.entry = number;
            let measures = matches!(words.rule & 0xff, rule::RANGE | rule::RMS);
            self.measures |= measures;
            self.squares += u64::from(words.rule & 0xff == rule::RMS);
            self.jobs.push(words);
        }
        if self.jobs.len() > MOST_JOBS {
            return Err(invalid(&format!("more than {MOST_JOBS} regions in one call")));
        }
        let (how, align) = match checkpoint.start {
            Start::At(_) => (how::AT, ALIGNMENT),
            Start::After { align, .. } => (how::AFTER, align),
            Start::Next { align } => (how::NEXT, align),
        };
        let before = self.entries.last().map_or(0, |entry| entry.head);
        let head = if how == how::NEXT { before } else { number };
        let jobs = checkpoint.jobs.len() as u32;
        // The kernel rounds the end up to the alignment.
        let limit = checkpoint.limit.min(u64::MAX - ALIGNMENT);
        let entry = Entry { align, limit, job0, jobs, how, head, ..Entry::default() };
        self.entries.push(entry);
        Ok(())
    }

    /// Sets the tiles of a job, of `warps` warps.
    fn place(&mut self, number: usize, warps: u32) -> Result<(), DeviceError> {
        let job = &mut self.jobs[number];
        let parts = match job.rule & 0xff {
            rule::RAW => job.n.div_ceil(RAW_BYTES),
            _ => u64::from(job.cut.n_chunks),
        };
        // An array without values still has a header.
        job.tiles = few(parts.div_ceil(u64::from(warps)).max(1))?;
        job.tile0 = self.tiles;
        self.tiles = few(u64::from(self.tiles) + u64::from(job.tiles))?;
        Ok(())
    }

    /// Sets the addresses of what jobs need whose bounds depend on their values: of the guess for
    /// each, which `guess` gives for a job and its number in its checkpoint, and of the sums of
    /// squares, one after the other from `bins` on.
    pub(super) fn measure_at(&mut self, mut guess: impl FnMut(&Job, u32) -> u64, mut bins: u64) {
        for (number, job) in (0..).zip(&mut self.jobs) {
            if matches!(job.rule & 0xff, rule::RANGE | rule::RMS) {
                job.guess = guess(job, number - self.entries[job.entry as usize].job0);
            }
        }
        for job in self.jobs.iter_mut().filter(|job| job.rule & 0xff == rule::RMS) {
            job.bins = bins;
            bins += 8 * BINS;
        }
    }

    /// Sets the begin of each checkpoint and the place of its result.
    pub(super) fn anchor(
        &mut self,
        stream: &Stream,
        checkpoints: &[StoredCheckpoint<'_>],
        slots: &mut [Slot],
    ) -> Result<(), DeviceError> {
        let all = self.entries.iter_mut().zip(checkpoints).zip(slots);
        let mut lead = None;
        for ((entry, checkpoint), slot) in all {
            entry.start = match checkpoint.start {
                Start::At(address) => {
                    lead = None;
                    address
                }
                Start::After { pending, .. } => {
                    lead = Some(pending);
                    pending.lead(stream, slot)?
                }
                Start::Next { .. } => {
                    // Every checkpoint of a chain reads the record before the chain, even after the
                    // first one is done.
                    lead.inspect(|pending| pending.stay_for(slot));
                    0
                }
            };
            entry.slot = slot.address();
            entry.sequence = slot.sequence();
            entry.record = slot.record();
        }
        Ok(())
    }
}

fn check(
    checkpoint: &StoredCheckpoint<'_>,
    limit: &mut u64,
    is_first: bool,
) -> Result<(), DeviceError> {
    if checkpoint.jobs.is_empty() {
        return Err(invalid("a checkpoint without regions"));
    }
    let least = match checkpoint.start {
        Start::At(address) => {
            aligned(address, ALIGNMENT, "the begin of a checkpoint")?;
            address
        }
        Start::After { pending, align } => {
            power(align)?;
            pending.limit()
        }
        Start::Next { .. } if is_first => {
            return Err(invalid("the first checkpoint of a call has none before it"));
        }
        Start::Next { align } => {
            power(align)?;
            *limit
        }
    };
    if checkpoint.limit < least {
        return Err(invalid(
            "the limit of a checkpoint lies before its begin, or before the limit \
                            of the one that it follows",
        ));
    }
    *limit = checkpoint.limit;
    Ok(())
}

fn job_words(job: &EncodeJob) -> Result<Job, DeviceError> {
    let words = match &job.layout {
        GpuLayout::Raw { bytes } => Job { n: *bytes, ..Job::default() },
        GpuLayout::Twine(array) => {
            aligned(job.source, array.layout.value_bytes() as u64, "an array to encode")?;
            let steps = job.steps.unwrap_or_else(|| Steps::dense(&array.layout));
            Job { steps, ..array_words(array)? }
        }
        _ => return Err(invalid("an array for another codec")),
    };
    Ok(Job { source: job.source, ..words })
}

fn array_words(array: &Array) -> Result<Job, DeviceError> {
    let known = array.rule().map_err(|error| invalid(&error.to_string()))?;
    let mut job = match known {
        BoundRule::Exact => Job { rule: rule::EXACT, ..Job::default() },
        BoundRule::Step(Step { bound, e, step, inv, .. }) => {
            Job { rule: rule::STEP, bound, e, step, inv, ..Job::default() }
        }
        BoundRule::Range(bound) => Job { rule: rule::RANGE, bound, ..Job::default() },
        BoundRule::Rms(bound) => Job { rule: rule::RMS, bound, ..Job::default() },
        BoundRule::Relative(Relative { bound, floor, kept, shift, floor_bits, .. }) => {
            let step = floor;
            Job { rule: rule::RELATIVE, bound, step, kept, shift, floor_bits, ..Job::default() }
        }
    };
    job.rule |= u32::from(array.layout.dtype) << 8;
    (job.n, job.cut) = (array.layout.n, cut(&array.layout));
    Ok(job)
}

pub(super) fn cut(layout: &Layout) -> Cut {
    let kind: u32 = match layout.kind {
        ValueKind::Float16 => 0,
        ValueKind::BFloat16 => 1,
        ValueKind::Float32 => FLOAT32,
        ValueKind::Float64 => FLOAT64,
        ValueKind::Signed => 4,
        ValueKind::Unsigned => 5,
    };
    let (width, height, depth) = match layout.profile {
        1 => (u32::MAX, u32::MAX, u32::MAX),
        2 => (32, 32, u32::MAX),
        _ => (32, 8, 4),
    };
    Cut {
        n_chunks: layout.n_chunks,
        nx: layout.nx,
        ny: layout.ny,
        nz: layout.nz,
        px: layout.nx.div_ceil(width),
        py: layout.ny.div_ceil(height),
        pz: layout.nz.max(1).div_ceil(depth),
        form: form(layout.bits, kind, layout.profile, layout.components),
    }
}

/// The value of `Cut::form` for an array.
pub(super) fn form(bits: u32, kind: u32, profile: u32, components: u32) -> u32 {
    bits | kind << 8 | profile << 16 | components << 24
}

/// A piece, whose tiles of `warps` warps begin at `tile0`.
pub(super) fn piece(job: &Coded<'_>, tile0: u32, warps: u32) -> Result<Piece, DeviceError> {
    aligned(job.stream, 4, "an encoded array")?;
    aligned(job.target, job.layout.value_bytes() as u64, "an array to decode to")?;
    Ok(Piece {
        stream: job.stream,
        stored: job.stored,
        target: job.target,
        n: job.layout.n,
        cut: cut(job.layout),
        tile0,
        tiles: job.layout.n_chunks.div_ceil(warps).max(1),
        dtype: u32::from(job.layout.dtype),
        zero: 0,
        steps: job.steps,
    })
}

fn power(align: u64) -> Result<(), DeviceError> {
    if align.is_power_of_two() && align >= ALIGNMENT {
        return Ok(());
    }
    Err(invalid(&format!(
        "{align} is not a power of two from 64 on, as alignments of checkpoints are"
    )))
}

fn aligned(number: u64, unit: u64, what: &str) -> Result<(), DeviceError> {
    if number.is_multiple_of(unit) {
        return Ok(());
    }
    Err(invalid(&format!("{what} ({number:#x}) is not a multiple of {unit}")))
}

fn few(number: u64) -> Result<u32, DeviceError> {
    let fits = u32::try_from(number).ok().filter(|&number| number < 1 << 31);
    fits.ok_or_else(|| invalid("more to encode than one launch takes: split the call"))
}

pub(super) fn invalid(what: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::OutOfRange, format!("Twine on the device: {what}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use unspool_fakecuda::Fake;

    use super::*;
    use crate::pending::Slots;
    use unspool_cuda::Context;
    use unspool_cuda::Driver;
    use unspool_cuda::FencePool;

    /// Simulates that the device has written the whole slot.
    fn end(slot: (u64, u64)) {
        // SAFETY: pinned memory of the slot, of which nothing else is read here.
        unsafe { AtomicU64::from_ptr(slot.0 as *mut u64) }.store(slot.1, Ordering::Release);
    }

    #[test]
    fn what_a_chain_begins_after_stays_until_the_last_of_it_is_done() {
        let _fake = Fake::start();
        let context = Context::new(&Driver::load().unwrap(), 0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let (slots, fences) = (Slots::new(&context), FencePool::new(&context));
        let before = slots.begin(1).unwrap();
        let (record, slot) = (before.record(), (before.address(), before.sequence()));
        let before = before.launched(fences.record(&stream).unwrap(), 1 << 20);
        let jobs = [EncodeJob { source: 0, steps: None, layout: GpuLayout::Raw { bytes: 64 } }];
        let starts = [Start::After { pending: &before, align: 64 }, Start::Next { align: 64 }];
        let asked = starts.map(|start| StoredCheckpoint { jobs: &jobs, start, limit: 1 << 20 });
        let ways = Ways { warps: None, room: 16, apart: u64::MAX };
        let mut plan = LaunchPlan::of(&asked, &ways).unwrap();
        let mut two = vec![slots.begin(1).unwrap(), slots.begin(1).unwrap()];
        plan.anchor(&stream, &asked, &mut two).unwrap();
        assert_eq!(plan.entries[0].start, record);
        let places: Vec<_> = two.iter().map(|slot| (slot.address(), slot.sequence())).collect();
        let fence = fences.record(&stream).unwrap();
        let all = two.into_iter().map(|slot| slot.launched(fence.clone(), 1 << 20));
        let [one, other] = all.collect::<Vec<_>>().try_into().unwrap();
        end(slot);
        assert!(before.try_result().is_some());
        drop(before);
        end(places[0]);
        assert!(one.try_result().is_some() && other.try_result().is_none());
        let free = |slots: &std::sync::Arc<Slots>| {
            let taken: Vec<Slot> = (0..200).map(|_| slots.begin(1).unwrap()).collect();
            taken.iter().any(|slot| slot.record() == record)
        };
        assert!(!free(&slots), "the second one still reads the record");
        end(places[1]);
        assert!(other.try_result().is_some() && free(&slots));
    }
}
