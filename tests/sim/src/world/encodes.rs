//! Saves that are compressed on their way into a tier: their size is known when they are over. An
//! asynchronous one lets the thread continue, and is reported later in the order of the calls. A
//! save whose space begins where that of an unreported save ends is placed directly after the bytes
//! of that save, as an encoder on a device does.

use unspool_core::{Event, Kept, Nanos, Size, TierId, TierKind, Version};

use super::{Checked, World};
use crate::canary::Canary;
use crate::device::fences::Enqueued;
use crate::device::streams::{Fence, OpId};
use crate::world::agenda::{Action, ThreadId};
use crate::world::threads::Ticket;

/// An asynchronous save that was not reported yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    ticket: Ticket,
    op: OpId,
    tier: TierId,
    /// End of the granted space.
    room_end: u64,
    /// End of its bytes.
    end: u64,
    /// Time of the report, once the save is over.
    due: Option<Nanos>,
}

impl Pending {
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl World {
    /// Whether the size of a save of this version is exact or a maximum.
    pub(crate) fn size_of_save(&self, version: Version) -> Size {
        let codec = self.plan.codec.filter(|codec| codec.takes(self.plan.seed, version));
        if codec.is_some() { Size::AtMost } else { Size::Exact }
    }

    /// The ticket of a save with the number of bytes that it will write, and the fence after the
    /// save that precedes it.
    pub(crate) fn encode(&mut self, ticket: Ticket) -> (Ticket, Option<Fence>) {
        let codec = self.plan.codec.filter(|_| ticket.save && ticket.size == Size::AtMost);
        let Some(codec) = codec else { return (ticket, None) };
        let fate = codec.fate(self.plan.seed, self.ever[&ticket.id].0, ticket.bytes);
        let tier = self.plan.config.tiers[usize::from(ticket.place.tier.0)];
        let mut encoded = Ticket { bytes: fate.kept, abort: ticket.abort || fate.fails, ..ticket };
        let ordered = self.plan.machine.stream_ordered && tier.kind == TierKind::Device;
        encoded.asynchronous = tier.kind.is_arena() && (ordered || fate.asynchronous);
        // Reports of a chain come in the order of the chain.
        let before = self.chained_to(&ticket).filter(|_| encoded.asynchronous);
        if let Some(before) = before {
            encoded.place.offset = before.end.next_multiple_of(tier.alignment);
        }
        encoded.kept = Some(Kept { offset: encoded.place.offset, bytes: encoded.bytes });
        self.ever.entry(ticket.id).and_modify(|(_, bytes)| *bytes = fate.kept);
        (encoded, before.map(|before| Fence(before.op)))
    }

    /// The unreported save whose space ends where that of `ticket` begins.
    fn chained_to(&self, ticket: &Ticket) -> Option<Pending> {
        let mut pending = self.pending.iter();
        let place = ticket.place;
        let is_before = |p: &&Pending| {
            p.tier == place.tier && p.room_end == place.offset && p.ticket.place.offset < p.room_end
        };
        if ticket.bytes == 0 { None } else { pending.find(is_before).copied() }
    }

    /// Leaves a save in flight that was enqueued as `op`; the thread continues.
    pub(crate) fn leave_in_flight(
        &mut self,
        thread: ThreadId,
        granted: &Ticket,
        ticket: Ticket,
        op: OpId,
    ) -> Checked {
        let tier = self.plan.config.tiers[usize::from(ticket.place.tier.0)];
        let room_end = granted.place.offset + granted.bytes.next_multiple_of(tier.alignment);
        // A failed save may have written anything: its successor begins in space of its own.
        let end = if ticket.abort { room_end } else { ticket.place.offset + ticket.bytes };
        let span = self.span(ticket.touched());
        self.hardware.fences.keep(ticket.id, Enqueued { span, write: true, fence: Fence(op) });
        let pending = Pending { ticket, op, tier: ticket.place.tier, room_end, end, due: None };
        self.pending.push_back(pending);
        self.feed(Event::SaveInFlight { request: ticket.request })?;
        self.go_on(thread);
        Ok(())
    }

    /// Plans the report of a save that was enqueued as `op` and is over.
    pub(crate) fn ended_in_background(&mut self, op: OpId) {
        let delay = self.plan.codec.map_or(Nanos(0), |codec| codec.report_delay);
        let due = self.now.plus(self.delay(delay));
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.op == op) {
            pending.due = Some(due);
            self.agenda.plan(due, Action::ReportSaves);
        }
    }

    /// Reports the saves that are over, in the order of their calls.
    pub(crate) fn report_saves(&mut self) -> Checked {
        while let Some(first) = self.pending.front().copied() {
            if first.due.is_none_or(|due| due > self.now) {
                break;
            }
            self.pending.pop_front();
            let Ticket { id, place, request, .. } = first.ticket;
            if first.ticket.abort {
                self.hardware.fences.forget(id, place.tier);
                self.feed(Event::SaveAborted { request })?;
            } else {
                let event = self.report_of(&first);
                self.feed(event)?;
            }
        }
        Ok(())
    }

    /// The report of an asynchronous save; a planted bug reports the wrong place.
    fn report_of(&mut self, pending: &Pending) -> Event {
        let Pending { ticket, room_end, .. } = pending;
        let unit = self.plan.config.tiers[usize::from(pending.tier.0)].alignment;
        let request = ticket.request;
        match ticket.kept {
            Some(Kept { offset, bytes: bytes @ 1.. })
                if offset + unit + bytes.next_multiple_of(unit) <= *room_end
                    && self.strikes(Canary::ShiftedReport) =>
            {
                Event::Saved { request, kept: Some(Kept { offset: offset + unit, bytes }) }
            }
            _ => ticket.success(),
        }
    }
}
