//! Checks that a refusal is justified, by the ledger as it was before the step that refused.

use unspool_core::{Failure, Refusal, Version};

use super::copies::{Books, Stage};
use super::ledger::Ledger;
use super::requests::{Call, Requests};
use super::{Rule, Violation, ensure, room};

/// The state that a refusal is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Court<'a> {
    /// The ledger.
    pub ledger: &'a Ledger,
    /// The calls; the refused one has been answered.
    pub requests: &'a Requests,
    /// Whether any operation has failed in this life.
    pub failures: bool,
}

impl Court<'_> {
    /// Checks a refusal of `call`.
    pub fn judge(&self, call: Call, refusal: Refusal) -> Result<(), Violation> {
        let just = match call {
            Call::Save { version, bytes, .. } => self.save(version, bytes, refusal),
            Call::Restore { version } => self.restore(version, refusal),
            Call::Flush { .. } => self.flush(refusal),
        };
        ensure(just, Rule::Refusal, || format!("{call:?} is refused as {refusal:?}"))
    }

    fn save(&self, version: Version, bytes: u64, refusal: Refusal) -> bool {
        let tiers = self.ledger.tiers();
        match refusal {
            Refusal::Duplicate => self.is_taken(version),
            Refusal::TooLarge { largest } => {
                let real = tiers.iter().map(|tier| tier.capacity).max();
                real == Some(largest) && !self.fits_anywhere(bytes)
            }
            Refusal::Full { failure, .. } => {
                let fits = self.fits_anywhere(bytes);
                let room = room::for_save(self.ledger, bytes);
                let pending = self.ledger.in_flight().next().is_some();
                fits && !pending && (self.failures || (failure.is_none() && room.is_none()))
            }
            _ => false,
        }
    }

    fn fits_anywhere(&self, bytes: u64) -> bool {
        (0..self.ledger.tiers().len()).any(|tier| self.ledger.can_hold(tier, bytes))
    }

    fn is_taken(&self, version: Version) -> bool {
        self.ledger.named(version).is_some() || self.requests.is_saving(version)
    }

    fn restore(&self, version: Version, refusal: Refusal) -> bool {
        let books = self.ledger.named(version);
        let stage = books.map(|books| books.stage);
        match refusal {
            Refusal::Unknown => !self.is_taken(version) && !self.ledger.was_discarded(version),
            Refusal::Discarded => !self.is_taken(version) && self.ledger.was_discarded(version),
            Refusal::NotYetSaved => {
                stage == Some(Stage::Saving) || (books.is_none() && self.is_taken(version))
            }
            Refusal::Lost { failure } => books.is_some_and(|b| {
                b.stage == Stage::Live && !b.is_readable() && b.harm == Some(failure)
            }),
            _ => false,
        }
    }

    fn flush(&self, refusal: Refusal) -> bool {
        let Refusal::FlushFailed { version, tier, failure } = refusal else { return false };
        let Some(books) = self.ledger.named(version) else { return false };
        let below = self.ledger.tiers().iter().any(|t| t.kind == tier);
        let full = failure == Failure::NoSpace && self.is_any_stopped();
        let pending = self.ledger.in_flight().next().is_some();
        self.is_unflushed(books) && below && !pending && (self.failures || full)
    }

    fn is_unflushed(&self, books: &Books) -> bool {
        let bottom = self.ledger.bottom(books.bytes);
        bottom.is_none_or(|tier| !books.holdings[tier].is_some_and(|held| held.is_good()))
    }

    /// Whether a flush of any checkpoint is stopped. Without any failure of the machine, only a
    /// tier without space stops it. One checkpoint is enough, because flushes need not overtake
    /// each other.
    fn is_any_stopped(&self) -> bool {
        let mut waiting = self.ledger.live().filter(|books| self.is_unflushed(books));
        waiting.any(|books| {
            let slowest = books.holdings.iter().rposition(Option::is_some).unwrap_or(0);
            let tiers = self.ledger.tiers().len();
            let next = (slowest + 1..tiers).find(|t| self.ledger.can_hold(*t, books.bytes));
            next.is_some_and(|tier| !room::for_flush(self.ledger, tier, books.bytes))
        })
    }
}
