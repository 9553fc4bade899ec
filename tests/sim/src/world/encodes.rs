//! Saves that are compressed on their way into a tier: how many bytes they take is known when they
//! are over. Where they end in the background, the thread goes on and a settler reports them later,
//! one after the other. A save whose room stands directly behind that of one which was not reported
//! yet begins where that one ends, as an encoder on a device does.

use unspool_core::{Event, Kept, Nanos, Size, TierId, TierKind, Version};

use super::{Checked, World};
use crate::canary::Canary;
use crate::device::marks::Enqueued;
use crate::device::streams::{Mark, OpId};
use crate::world::agenda::{Action, ThreadId};
use crate::world::threads::Ticket;

/// A save that ends in the background.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    ticket: Ticket,
    op: OpId,
    tier: TierId,
    /// Where the room that was granted ends.
    room_end: u64,
    /// Where its bytes end.
    end: u64,
    /// When it can be reported, once it is over.
    due: Option<Nanos>,
}

impl World {
    /// Whether a save of this version says how many bytes it has, or how many at most.
    pub(crate) fn size_of_save(&self, version: Version) -> Size {
        let codec = self.plan.codec.filter(|codec| codec.takes(self.plan.seed, version));
        if codec.is_some() { Size::AtMost } else { Size::Exact }
    }

    /// The ticket of a save with the bytes that it will really write, and the mark behind the
    /// save that it comes after.
    pub(crate) fn encode(&mut self, ticket: Ticket) -> (Ticket, Option<Mark>) {
        let codec = self.plan.codec.filter(|_| ticket.save && ticket.size == Size::AtMost);
        let Some(codec) = codec else { return (ticket, None) };
        let fate = codec.fate(self.plan.seed, self.ever[&ticket.id].0, ticket.bytes);
        let tier = self.plan.config.tiers[usize::from(ticket.place.tier.0)];
        let mut encoded = Ticket { bytes: fate.kept, abort: ticket.abort || fate.fails, ..ticket };
        let ordered = self.plan.machine.stream_ordered && tier.kind == TierKind::Device;
        encoded.handed = tier.kind.is_arena() && (ordered || fate.handed);
        // Reports of a chain come in its order, which the settler keeps.
        let before = self.chained_to(&ticket).filter(|_| encoded.handed);
        if let Some(before) = before {
            encoded.place.offset = before.end.next_multiple_of(tier.alignment);
        }
        encoded.kept = Some(Kept { offset: encoded.place.offset, bytes: encoded.bytes });
        self.ever.entry(ticket.id).and_modify(|(_, bytes)| *bytes = fate.kept);
        (encoded, before.map(|before| Mark(before.op)))
    }

    /// The save in the background whose room ends where that of `ticket` begins.
    fn chained_to(&self, ticket: &Ticket) -> Option<Pending> {
        let mut pending = self.pending.iter();
        let place = ticket.place;
        let is_before = |p: &&Pending| {
            p.tier == place.tier && p.room_end == place.offset && p.ticket.place.offset < p.room_end
        };
        if ticket.bytes == 0 { None } else { pending.find(is_before).copied() }
    }

    /// The thread is done with a save that was enqueued as `op`.
    pub(crate) fn hand_over(
        &mut self,
        thread: ThreadId,
        granted: &Ticket,
        ticket: Ticket,
        op: OpId,
    ) -> Checked {
        let tier = self.plan.config.tiers[usize::from(ticket.place.tier.0)];
        let room_end = granted.place.offset + granted.bytes.next_multiple_of(tier.alignment);
        // What fails may have written anything: what comes next begins in room of its own.
        let end = if ticket.abort { room_end } else { ticket.place.offset + ticket.bytes };
        let span = self.span(ticket.touched());
        self.hardware.marks.keep(ticket.id, Enqueued { span, write: true, mark: Mark(op) });
        let pending = Pending { ticket, op, tier: ticket.place.tier, room_end, end, due: None };
        self.pending.push_back(pending);
        self.feed(Event::SaveHanded { request: ticket.request })?;
        self.go_on(thread);
        Ok(())
    }

    /// The save that was enqueued as `op` is over: the settler will look at it.
    pub(crate) fn ended_in_background(&mut self, op: OpId) {
        let delay = self.plan.codec.map_or(Nanos(0), |codec| codec.settle_delay);
        let due = self.now.plus(self.delay(delay));
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.op == op) {
            pending.due = Some(due);
            self.agenda.plan(due, Action::Settle);
        }
    }

    /// Reports the saves that are over, in the order in which they were handed over.
    pub(crate) fn settle(&mut self) -> Checked {
        while let Some(first) = self.pending.front().copied() {
            if first.due.is_none_or(|due| due > self.now) {
                break;
            }
            self.pending.pop_front();
            let Ticket { id, place, request, .. } = first.ticket;
            if first.ticket.abort {
                self.hardware.marks.forget(id, place.tier);
                self.feed(Event::SaveAborted { request })?;
            } else {
                let event = self.settled(&first);
                self.feed(event)?;
            }
        }
        Ok(())
    }

    /// What is reported of a save in the background; a planted bug reports the wrong place.
    fn settled(&mut self, pending: &Pending) -> Event {
        let Pending { ticket, room_end, .. } = pending;
        let unit = self.plan.config.tiers[usize::from(pending.tier.0)].alignment;
        let request = ticket.request;
        match ticket.kept {
            Some(Kept { offset, bytes: bytes @ 1.. })
                if offset + unit + bytes.next_multiple_of(unit) <= *room_end
                    && self.sings(Canary::ShiftedReport) =>
            {
                Event::Saved { request, kept: Some(Kept { offset: offset + unit, bytes }) }
            }
            _ => ticket.success(),
        }
    }
}
