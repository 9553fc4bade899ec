//! Transfers: operations of streams that take time, may fail, and are reported.

use unspool_core::{CheckpointId, Event, Failure, Nanos, Place, TierId, TransferId};

use super::{Checked, Work, World};
use crate::canary::Canary;
use crate::check::clocks::Clock;
use crate::check::ledger::Movement;
use crate::check::{Rule, Violation};
use crate::device::streams::{Mark, OpId};
use crate::random::{Random, Topic};
use crate::world::agenda::Action;

/// A transfer that was not reported yet.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub movement: Movement,
    pub op: OpId,
    /// When it began.
    pub began: Option<Nanos>,
    fails: Option<Failure>,
}

impl World {
    pub(crate) fn enqueue_transfer(&mut self, transfer: TransferId, movement: Movement) {
        let Movement { checkpoint, bytes, from, to, .. } = movement;
        let streams = self.plan.machine.streams;
        let stream = self.hardware.shortest_stream(from.tier, to.tier, streams);
        let mut waits = self.marks(checkpoint, from, bytes, false);
        waits.extend(self.marks(checkpoint, to, bytes, true));
        let op = self.hardware.streams.push(stream, waits, self.hub.clone());
        self.ops.insert(op, Work::Transfer(transfer));
        self.jobs.insert(transfer, Job { movement, op, began: None, fails: None });
    }

    /// The marks of enqueued copies that an operation must wait for.
    pub(crate) fn marks(
        &mut self,
        id: CheckpointId,
        place: Place,
        bytes: u64,
        write: bool,
    ) -> Vec<Mark> {
        let span = self.hardware.span(id, place, bytes);
        let marks = self.hardware.marks_before(span, write);
        if !marks.is_empty() && self.sings(Canary::ForgottenMark) {
            return Vec::new();
        }
        marks
    }

    /// Begins whatever can begin, and plans its end.
    pub(crate) fn begin_ready(&mut self) -> Checked {
        loop {
            let ready = self.hardware.streams.begin_ready();
            if ready.is_empty() {
                return Ok(());
            }
            for op in ready {
                let took = match self.ops[&op].clone() {
                    Work::Transfer(transfer) => self.begin_transfer(op, transfer)?,
                    Work::Delete { checkpoint, tier } => self.begin_delete(op, checkpoint, tier)?,
                    Work::Copy(_, ticket) => self.begin_copy(op, &ticket)?,
                };
                self.agenda.plan(self.now.plus(took), Action::OpDone(op));
            }
        }
    }

    pub(crate) fn access(
        &mut self,
        op: OpId,
        id: CheckpointId,
        place: Place,
        bytes: u64,
        write: bool,
        what: &str,
    ) -> Checked {
        let span = self.hardware.span(id, place, bytes);
        let (agent, clock) = self.hardware.streams.party(op);
        let recorded = self.hardware.accesses.record(agent, clock, span, write, what);
        self.enforce(recorded.map_err(|what| Violation::new(Rule::Order, what)))
    }

    fn begin_transfer(&mut self, op: OpId, transfer: TransferId) -> Result<Nanos, Violation> {
        let Movement { checkpoint, bytes, from, to, .. } = self.jobs[&transfer].movement;
        let what = format!("transfer {} of checkpoint {}", transfer.0, checkpoint.0);
        self.access(op, checkpoint, from, bytes, false, &what)?;
        self.access(op, checkpoint, to, bytes, true, &what)?;
        self.poison(to, bytes);
        self.check_memory(checkpoint, from, bytes, &what)?;
        let mut random = Random::of(self.plan.seed, Topic::Transfer, transfer.0);
        let fails = self.fate(&mut random, transfer);
        let took = self.duration(&mut random, from.tier, to.tier, bytes);
        let now = self.now;
        let job = self.jobs.get_mut(&transfer).expect("it has just begun");
        (job.began, job.fails) = (Some(now), fails);
        Ok(took)
    }

    /// Whether and how a transfer will fail; damages the source if that is the fault.
    fn fate(&mut self, random: &mut Random, transfer: TransferId) -> Option<Failure> {
        let Movement { checkpoint, from, to, .. } = self.jobs[&transfer].movement;
        let faults = self.plan.faults;
        let draws = [(); 5].map(|()| random.unit());
        if self.calm {
            return None;
        }
        let streams = self.plan.machine.streams;
        let way = self.hardware.way(from.tier, to.tier, streams);
        way.broken |= draws[0] < faults.permanent;
        if way.broken {
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

    /// How long a transfer takes: its own time on the wire, after those before it.
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
        let way = self.hardware.way(from, to, streams);
        let ends = begins.max(way.free_at).plus(Nanos(wire as u64));
        way.free_at = ends;
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
        self.complete_and_report(job.op, event);
        Ok(())
    }

    pub(crate) fn complete_and_report(&mut self, op: OpId, event: Event) {
        self.hardware.streams.complete(op);
        let known = self.hardware.streams.known_at(Mark(op));
        self.report_later(event, known);
    }

    pub(crate) fn report_later(&mut self, event: Event, known: Clock) {
        let delay = self.delay(self.plan.machine.report_delay);
        self.agenda.plan(self.now.plus(delay), Action::Report(event, known));
    }

    /// The core wants a transfer no more: it is dropped, broken off, or goes on.
    pub(crate) fn cancel_transfer(&mut self, transfer: TransferId) {
        let Some(job) = self.jobs.get(&transfer).cloned() else { return };
        let faults = self.plan.faults;
        let share = if job.began.is_some() { faults.cancel_running } else { faults.cancel_queued };
        if !self.happens(share) {
            return;
        }
        self.jobs.remove(&transfer);
        self.ops.remove(&job.op);
        let event = Event::TransferCancelled { transfer };
        if self.hardware.streams.withdraw(job.op) {
            self.report_later(event, Clock::default());
        } else {
            self.poison(job.movement.to, job.movement.bytes);
            self.complete_and_report(job.op, event);
        }
    }
}
