//! The copies of the application: into the place of a granted save, out of that of a served
//! restore. A synchronous copy is reported when it is over. A stream-ordered one is reported when
//! it is enqueued; whatever touches its place later waits for its mark.

use unspool_core::{Event, Nanos};

use super::{Checked, Work, World};
use crate::check::Violation;
use crate::device::streams::{Mark, OpId};
use crate::random::{Random, Topic};
use crate::world::agenda::ThreadId;
use crate::world::machine::Guard;
use crate::world::threads::{State, Ticket};

impl World {
    /// Enqueues the copy of a ticket on the stream of its thread.
    pub(crate) fn enqueue_copy(&mut self, thread: ThreadId, ticket: Ticket) -> Checked {
        let (stream, known) = (self.thread(thread).stream, self.thread(thread).clock.clone());
        let mut waits = self.marks(ticket.id, ticket.place, ticket.bytes, ticket.save);
        waits.dedup();
        let op = self.hardware.streams.push(stream, waits, known.clone());
        let arena = self.hardware.memory(ticket.place.tier).is_some();
        let early = self.plan.machine.stream_ordered && arena && !ticket.abort;
        self.ops.insert(op, Work::Copy(thread, Ticket { reported: early, ..ticket }));
        if !early {
            self.thread(thread).state = State::Copying;
            return Ok(());
        }
        let span = self.hardware.span(ticket.id, ticket.place, ticket.bytes);
        self.hardware.guards.push(Guard { span, write: ticket.save, mark: Mark(op) });
        self.feed(ticket.success(), &known)?;
        self.go_on(thread);
        Ok(())
    }

    pub(crate) fn begin_copy(&mut self, op: OpId, ticket: &Ticket) -> Result<Nanos, Violation> {
        let Ticket { id, place, bytes, save, .. } = *ticket;
        let what = format!("the {} of checkpoint {}", if save { "save" } else { "restore" }, id.0);
        self.access(op, id, place, bytes, save, &what)?;
        if save {
            self.poison(place, bytes);
        } else {
            self.check_memory(id, place, bytes, &what)?;
        }
        let rate = self.plan.machine.copy_rate[usize::from(place.tier.0)];
        let took = Nanos((bytes as f64 / rate * 1e9) as u64);
        self.counters.copying = self.counters.copying.plus(took);
        Ok(took)
    }

    pub(crate) fn end_copy(&mut self, op: OpId, thread: ThreadId, ticket: Ticket) -> Checked {
        let success = if ticket.save { self.copy_in(&ticket) } else { self.copy_out(&ticket)? };
        self.hardware.streams.complete(op);
        if ticket.reported {
            return Ok(());
        }
        let known = self.hardware.streams.known_at(Mark(op));
        self.thread(thread).clock.join(&known);
        let known = self.thread(thread).clock.clone();
        self.feed(if success { ticket.success() } else { ticket.failure() }, &known)?;
        self.go_on(thread);
        Ok(())
    }

    /// Whether all the bytes are in place.
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

    /// Whether the bytes could be read; wrong ones are a violation.
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
    /// What is reported when the copy succeeded.
    pub fn success(&self) -> Event {
        let request = self.request;
        if self.save { Event::Saved { request } } else { Event::Restored { request } }
    }

    /// What is reported when it was given up.
    pub fn failure(&self) -> Event {
        let request = self.request;
        if self.save { Event::SaveAborted { request } } else { Event::RestoreAborted { request } }
    }
}
