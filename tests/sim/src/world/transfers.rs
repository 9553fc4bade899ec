//! Transfers: operations of streams that take time, may fail, and are reported.

use unspool_core::{Event, Failure, Nanos, TierId, TransferId};

use super::{Checked, Work, World};
use crate::canary::Canary;
use crate::check::Violation;
use crate::check::ledger::Movement;
use crate::device::streams::{Fence, OpId, StreamId};
use crate::random::{Random, Topic};
use crate::world::agenda::Action;
use crate::world::order::Touched;

/// A transfer that was not reported yet.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub movement: Movement,
    pub op: OpId,
    /// Time at which it began.
    pub began: Option<Nanos>,
    fails: Option<Failure>,
    /// A planted bug: it was reported before it was over.
    reported_early: bool,
}

impl World {
    pub(crate) fn enqueue_transfer(&mut self, transfer: TransferId, movement: Movement) {
        let streams = self.plan.machine.streams;
        let stream = self.hardware.shortest_stream(movement.from.tier, movement.to.tier, streams);
        let op = self.hardware.streams.push_job(stream);
        self.ops.insert(op, Work::Transfer(transfer));
        self.jobs.insert(
            transfer,
            Job { movement, op, began: None, fails: None, reported_early: false },
        );
    }

    /// Lets idle workers take their next jobs: each determines what its job must wait for and
    /// enqueues the job, with a fence that the worker waits for before it reports.
    fn take_up_jobs(&mut self) -> Checked {
        for (op, stream) in self.hardware.streams.next_jobs() {
            let waits = match self.ops[&op] {
                Work::Transfer(transfer) => self.take_up_transfer(stream, transfer)?,
                Work::Delete { checkpoint, tier } => {
                    self.take_up_delete(stream, checkpoint, tier)?
                }
                Work::Copy(..) => unreachable!("threads enqueue their copies themselves"),
            };
            self.hardware.streams.take_up(stream, waits);
            self.record(stream, Fence(op))?;
        }
        Ok(())
    }

    fn take_up_transfer(
        &mut self,
        stream: StreamId,
        transfer: TransferId,
    ) -> Result<Vec<Fence>, Violation> {
        let Movement { checkpoint: id, bytes, from, to, .. } = self.jobs[&transfer].movement;
        let source = Touched { id, place: from, bytes, write: false };
        let target = Touched { id, place: to, bytes, write: true };
        let mut waits = self.fences_before(source)?;
        if from.tier < to.tier && !waits.is_empty() && self.strikes(Canary::UnawaitedSave) {
            waits.clear();
        }
        waits.extend(self.fences_before(target)?);
        let what = format!("transfer {} of checkpoint {}", transfer.0, id.0);
        self.enqueue(stream, &waits, &[source, target], &what)?;
        Ok(waits)
    }

    /// Begins every operation that can begin, and plans its end.
    pub(crate) fn begin_ready(&mut self) -> Checked {
        loop {
            self.take_up_jobs()?;
            let ready = self.hardware.streams.begin_ready();
            if ready.is_empty() {
                return Ok(());
            }
            for op in ready {
                let took = match self.ops[&op].clone() {
                    Work::Transfer(transfer) => self.begin_transfer(transfer)?,
                    Work::Delete { .. } => self.begin_delete(),
                    Work::Copy(_, ticket) => self.begin_copy(&ticket)?,
                };
                self.agenda.plan(self.now.plus(took), Action::OpDone(op));
            }
        }
    }

    fn begin_transfer(&mut self, transfer: TransferId) -> Result<Nanos, Violation> {
        let Movement { checkpoint, bytes, from, to, .. } = self.jobs[&transfer].movement;
        let what = format!("transfer {} of checkpoint {}", transfer.0, checkpoint.0);
        self.poison(to, bytes);
        self.check_memory(checkpoint, from, bytes, &what)?;
        let mut random = Random::of(self.plan.seed, Topic::Transfer, transfer.0);
        let fails = self.fate(&mut random, transfer);
        let took = self.duration(&mut random, from.tier, to.tier, bytes);
        let now = self.now;
        let job = self.jobs.get_mut(&transfer).expect("it has just begun");
        (job.began, job.fails) = (Some(now), fails);
        self.report_early(transfer, took);
        Ok(took)
    }

    /// Applies a planted bug to a worker: it reports a prefetch that is only enqueued.
    fn report_early(&mut self, transfer: TransferId, took: Nanos) {
        let job = &self.jobs[&transfer];
        let Movement { from, to, .. } = job.movement;
        let prefetch = job.fails.is_none() && from.tier > to.tier;
        if prefetch && self.strikes(Canary::EarlyReport) {
            self.jobs.get_mut(&transfer).expect("it has just begun").reported_early = true;
            self.report_later(Event::TransferDone { transfer, took }, None);
        }
    }

    /// How a transfer will fail, if at all; a fault may damage the source.
    fn fate(&mut self, random: &mut Random, transfer: TransferId) -> Option<Failure> {
        let Movement { checkpoint, bytes, from, to, .. } = self.jobs[&transfer].movement;
        if self.ledger.is_lost(from.tier) || self.ledger.is_lost(to.tier) {
            return Some(Failure::Permanent);
        }
        if self.ledger.is_beyond(to, bytes) {
            return Some(Failure::NoSpace);
        }
        let faults = self.plan.faults;
        let draws = [(); 5].map(|()| random.unit());
        if self.calm {
            return None;
        }
        let streams = self.plan.machine.streams;
        let link = self.hardware.link(from.tier, to.tier, streams);
        link.broken |= draws[0] < faults.permanent;
        if link.broken {
            return Some(Failure::Permanent);
        }
        if draws[1] < faults.io {
            return Some(Failure::Io);
        }
        let into_store = self.hardware.store(to.tier).is_some();
        if into_store && draws[2] < faults.no_space {
            return Some(Failure::NoSpace);
        }
        if let Some(store) = self.hardware.store(from.tier) {
            if draws[3] < faults.corrupt {
                store.damage(checkpoint, random);
                self.promises.excuse(checkpoint);
            } else if draws[4] < faults.missing {
                store.remove(checkpoint);
                self.promises.excuse(checkpoint);
            }
        }
        None
    }

    /// Duration of a transfer: its own time on the link, after the transfers before it.
    fn duration(&mut self, random: &mut Random, from: TierId, to: TierId, bytes: u64) -> Nanos {
        let (first, last) = (usize::from(from.0.min(to.0)), usize::from(from.0.max(to.0)));
        let links = &self.plan.machine.links[first..last];
        let rate = |l: &crate::plan::stack::LinkSpeed| {
            if from < to { l.flush_rate } else { l.prefetch_rate }
        };
        let slowest = links.iter().map(rate).fold(f64::INFINITY, f64::min);
        let latency: u64 = links.iter().map(|link| link.latency.0).sum();
        let jitter = links.iter().map(|link| link.jitter).fold(0.0, f64::max);
        let mut wire = bytes as f64 / slowest * 1e9 * (1.0 + jitter * random.unit());
        if !self.calm && random.chance(self.plan.faults.slow) {
            wire *= 10.0;
        }
        let begins = self.now.plus(Nanos(latency));
        let streams = self.plan.machine.streams;
        let link = self.hardware.link(from, to, streams);
        let ends = begins.max(link.free_at).plus(Nanos(wire as u64));
        link.free_at = ends;
        ends.since(self.now)
    }

    pub(crate) fn op_done(&mut self, op: OpId) -> Checked {
        let Some(work) = self.ops.remove(&op) else { return Ok(()) };
        match work {
            Work::Transfer(transfer) => self.end_transfer(transfer),
            Work::Delete { checkpoint, tier } => {
                self.end_delete(op, checkpoint, tier);
                Ok(())
            }
            Work::Copy(thread, ticket) => self.end_copy(op, thread, ticket),
        }
    }

    fn end_transfer(&mut self, transfer: TransferId) -> Checked {
        let job = self.jobs.remove(&transfer).expect("a running transfer has a job");
        let result = match job.fails {
            Some(failure) => Err(failure),
            None => self.move_bytes(transfer, &job.movement)?,
        };
        let took = self.now.since(job.began.unwrap_or(self.now));
        let event = match result {
            Ok(()) => Event::TransferDone { transfer, took },
            Err(failure) => {
                self.poison(job.movement.to, job.movement.bytes);
                self.failed(failure, || format!("transfer {}", transfer.0));
                Event::TransferFailed { transfer, failure }
            }
        };
        if job.reported_early {
            self.hardware.streams.complete(job.op);
        } else {
            self.complete_and_report(job.op, event);
        }
        Ok(())
    }

    pub(crate) fn complete_and_report(&mut self, op: OpId, event: Event) {
        self.hardware.streams.complete(op);
        self.report_later(event, Some(Fence(op)));
    }

    fn report_later(&mut self, event: Event, fence: Option<Fence>) {
        let delay = self.delay(self.plan.machine.report_delay);
        self.agenda.plan(self.now.plus(delay), Action::Report(event, fence));
    }

    /// Cancels a transfer: it is dropped, aborted, or continues. One that is enqueued and waits for
    /// fences continues.
    pub(crate) fn cancel_transfer(&mut self, transfer: TransferId) {
        let Some(job) = self.jobs.get(&transfer).cloned() else { return };
        let (running, faults) = (job.began.is_some(), self.plan.faults);
        let share = if running { faults.cancel_running } else { faults.cancel_queued };
        if !self.happens(share) || !(running || self.hardware.streams.withdraw(job.op)) {
            return;
        }
        self.jobs.remove(&transfer);
        self.ops.remove(&job.op);
        let event = Event::TransferCancelled { transfer };
        if running {
            self.poison(job.movement.to, job.movement.bytes);
            self.complete_and_report(job.op, event);
        } else {
            self.report_later(event, None);
        }
    }
}
