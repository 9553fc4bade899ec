//! Copies of the application: into the place of a granted save, and out of the place of a served
//! restore. All are enqueued on streams of the thread. A synchronous copy is reported when it is
//! over. A stream-ordered one, into or out of a device tier, is reported when it is enqueued; the
//! entry keeps its fence, and later accesses to the place wait for it.

use unspool_core::{Event, Nanos, TierKind};

use super::{Checked, Work, World};
use crate::check::Violation;
use crate::device::fences::Enqueued;
use crate::device::streams::{Fence, OpId};
use crate::random::{Random, Topic};
use crate::world::agenda::ThreadId;
use crate::world::order::Touched;
use crate::world::threads::{State, Ticket};

impl World {
    /// Enqueues the copy of a ticket on a stream of its thread.
    pub(crate) fn enqueue_copy(&mut self, thread: ThreadId, ticket: Ticket) -> Checked {
        if ticket.save && self.ledger.is_beyond(ticket.place, ticket.bytes) {
            self.feed(ticket.failure())?;
            self.go_on(thread);
            return Ok(());
        }
        let stream = self.thread(thread).stream_of(&ticket);
        let granted = ticket;
        let (ticket, before) = self.encode(ticket);
        let mut waits = self.fences_before(ticket.touched())?;
        waits.extend(before);
        self.enqueue(stream, &waits, &[ticket.touched()], &ticket.what())?;
        let op = self.hardware.streams.push(stream, waits);
        self.record(stream, Fence(op))?;
        let tier = self.plan.config.tiers[usize::from(ticket.place.tier.0)];
        let early =
            self.plan.machine.stream_ordered && tier.kind == TierKind::Device && !ticket.abort;
        let early = early || ticket.asynchronous;
        self.ops.insert(op, Work::Copy(thread, Ticket { reported: early, ..ticket }));
        if !early {
            self.thread(thread).state = State::Copying;
            return Ok(());
        }
        if ticket.asynchronous {
            return self.leave_in_flight(thread, &granted, ticket, op);
        }
        let (span, write) = (self.span(ticket.touched()), ticket.save);
        self.hardware.fences.keep(ticket.id, Enqueued { span, write, fence: Fence(op) });
        self.feed(ticket.success())?;
        self.go_on(thread);
        Ok(())
    }

    pub(crate) fn begin_copy(&mut self, ticket: &Ticket) -> Result<Nanos, Violation> {
        let Ticket { id, place, bytes, save, .. } = *ticket;
        if save {
            self.poison(place, bytes);
        } else {
            self.check_memory(id, place, bytes, &ticket.what())?;
        }
        let rate = self.plan.machine.copy_rate[usize::from(place.tier.0)];
        let took = Nanos((bytes as f64 / rate * 1e9) as u64);
        self.counters.copying = self.counters.copying.plus(took);
        Ok(took)
    }

    pub(crate) fn end_copy(&mut self, op: OpId, thread: ThreadId, ticket: Ticket) -> Checked {
        let success = if ticket.save { self.copy_in(&ticket) } else { self.copy_out(&ticket)? };
        self.hardware.streams.complete(op);
        if ticket.asynchronous {
            self.ended_in_background(op);
        }
        if ticket.reported {
            return Ok(());
        }
        self.host_learns(Fence(op))?;
        self.feed(if success { ticket.success() } else { ticket.failure() })?;
        self.go_on(thread);
        Ok(())
    }

    /// Copies the bytes in; returns whether all are in place.
    fn copy_in(&mut self, ticket: &Ticket) -> bool {
        let Ticket { id, place, bytes, abort, .. } = *ticket;
        if let Some(memory) = self.hardware.memory(place.tier) {
            memory.fill(id, place.offset, bytes, if abort { 0.5 } else { 1.0 });
            return !abort;
        }
        let mut random = Random::of(self.plan.seed, Topic::Copy, ticket.request.0);
        let fails = !self.calm && random.chance(self.plan.faults.direct_write);
        if abort || fails {
            return false;
        }
        let bytes = self.payload(id, bytes);
        self.write_bytes(id, place, &bytes).is_ok()
    }

    fn payload(&self, id: unspool_core::CheckpointId, bytes: u64) -> Vec<u8> {
        if self.plan.content { crate::content::payload(self.plan.seed, id, bytes) } else { vec![] }
    }

    /// Copies the bytes out; returns whether they could be read. Wrong bytes are a violation.
    fn copy_out(&mut self, ticket: &Ticket) -> Result<bool, Violation> {
        let Ticket { id, place, bytes, abort, .. } = *ticket;
        self.check_memory(id, place, bytes, "a restore")?;
        let arena = self.hardware.memory(place.tier).is_some();
        if arena || abort || !self.plan.content {
            return Ok(!abort);
        }
        let mut random = Random::of(self.plan.seed, Topic::Copy, ticket.request.0);
        let damaged = !self.calm && random.chance(self.plan.faults.corrupt);
        if let Some(store) = self.hardware.store(place.tier).filter(|_| damaged) {
            store.damage(id, &mut random);
            self.promises.excuse(id);
        }
        Ok(self.read_bytes(id, place, bytes)?.is_ok())
    }
}

impl Ticket {
    pub fn touched(&self) -> Touched {
        Touched { id: self.id, place: self.place, bytes: self.bytes, write: self.save }
    }

    fn what(&self) -> String {
        let call = if self.save { "save" } else { "restore" };
        format!("the {call} of checkpoint {}", self.id.0)
    }

    /// The event that reports success.
    pub fn success(&self) -> Event {
        let request = self.request;
        if self.save {
            Event::Saved { request, kept: self.kept }
        } else {
            Event::Restored { request }
        }
    }

    /// The event that reports an abort.
    pub fn failure(&self) -> Event {
        let request = self.request;
        if self.save { Event::SaveAborted { request } } else { Event::RestoreAborted { request } }
    }
}
