//! An arena that loses memory to another process while it is still being mapped: what fills bytes
//! that are gone is given up by whoever does, unless it was begun before. It has them again later.
//! And a device that is lost.

use unspool_core::{CheckpointId, Event, TierId};

use super::{Checked, Work, World};
use crate::world::agenda::Action;
use crate::world::threads::Ticket;

const FASTEST: TierId = TierId(0);

impl World {
    pub(crate) fn shrink(&mut self) -> Checked {
        let config = self.ledger.tiers()[0];
        let Some((after, share)) = self.plan.faults.shrinks.filter(|_| config.kind.is_arena())
        else {
            return Ok(());
        };
        self.agenda.plan(self.now.plus(after), Action::Grow);
        let mapped = self.ledger.all().filter_map(|books| {
            let held = books.at(FASTEST)?;
            let is_there = held.ready || self.is_being_filled(books.id);
            is_there.then_some(held.offset + held.size)
        });
        let kept = (config.capacity as f64 * share) as u64;
        let capacity = mapped.max().unwrap_or(0).max(kept);
        if capacity >= config.capacity {
            return Ok(());
        }
        self.feed(Event::Shrunk { tier: FASTEST, capacity })
    }

    pub(crate) fn grow(&mut self) -> Checked {
        let capacity = self.plan.config.tiers[0].capacity;
        self.feed(Event::Grown { tier: FASTEST, capacity })
    }

    /// Nothing moves into or out of the device any more; what is read there already is read to its
    /// end.
    pub(crate) fn lose_device(&mut self) -> Checked {
        if !self.ledger.tiers()[0].kind.is_arena() {
            return Ok(());
        }
        self.failures = true;
        self.feed(Event::TierFailed { tier: FASTEST })
    }

    /// Whether an operation that fills the place of a checkpoint in the fastest tier was begun, or
    /// enqueued by the application.
    fn is_being_filled(&self, id: CheckpointId) -> bool {
        let saves = |ticket: &Ticket| ticket.save && ticket.id == id;
        let fills = |work: &Work| match work {
            Work::Copy(_, ticket) => saves(ticket),
            Work::Transfer(transfer) => self.jobs.get(transfer).is_some_and(|job| {
                let movement = job.movement;
                movement.checkpoint == id && movement.to.tier == FASTEST && job.began.is_some()
            }),
            Work::Delete { .. } => false,
        };
        self.ops.values().any(fills) || self.pending.iter().any(|pending| saves(pending.ticket()))
    }
}
