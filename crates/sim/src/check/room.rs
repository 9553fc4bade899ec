//! Is there room for a save? A search that is kind to the core: it finds only room that the core
//! can certainly make by dropping copies that exist elsewhere, or by moving copies one tier down.

use super::copies::{Books, Holding, can_hold, size_in};
use super::ledger::Ledger;

/// A tier in which room for `bytes` bytes can certainly be made, if there is any.
#[must_use]
pub fn find(ledger: &Ledger, bytes: u64) -> Option<usize> {
    (0..ledger.tiers().len()).find(|tier| certain(ledger, *tier, bytes))
}

/// Whether room for `bytes` bytes can certainly be made in `tier`.
#[must_use]
pub fn certain(ledger: &Ledger, tier: usize, bytes: u64) -> bool {
    let config = &ledger.tiers()[tier];
    if !can_hold(config, bytes) {
        return false;
    }
    let size = size_in(config, bytes);
    let stays = |books: &Books, held: &Holding| {
        held.is_used() || !(books.is_readable_outside(tier) || can_sink(ledger, books, tier))
    };
    let mut kept = kept(ledger, tier, stays);
    let whole = config.capacity - config.capacity % config.alignment;
    if config.kind.is_arena() { largest_gap(&mut kept, whole) >= size } else {
        kept.iter().map(|(_, size)| size).sum::<u64>().saturating_add(size) <= config.capacity
    }
}

/// What stays in a tier: offsets and sizes.
fn kept(
    ledger: &Ledger,
    tier: usize,
    stays: impl Fn(&Books, &Holding) -> bool,
) -> Vec<(u64, u64)> {
    let held = ledger.all().filter_map(|books| Some((books, books.holdings[tier]?)));
    held.filter(|(books, h)| stays(books, h)).map(|(_, h)| (h.offset, h.size)).collect()
}

/// Whether the last copy of a checkpoint can go to a slower tier as things are, if it alone goes.
fn can_sink(ledger: &Ledger, books: &Books, tier: usize) -> bool {
    let live: usize = ledger.all().filter(|b| b.holdings[tier].is_some_and(|h| h.size > 0)).count();
    let slower = (tier + 1..ledger.tiers().len()).find(|t| can_hold(&ledger.tiers()[*t], books.bytes));
    live == 1 && slower.is_some_and(|t| has_room_now(ledger, t, books.bytes))
}

fn has_room_now(ledger: &Ledger, tier: usize, bytes: u64) -> bool {
    let config = &ledger.tiers()[tier];
    let size = size_in(config, bytes);
    let mut kept = kept(ledger, tier, |_, _| true);
    let whole = config.capacity - config.capacity % config.alignment;
    if config.kind.is_arena() {
        largest_gap(&mut kept, whole) >= size
    } else {
        ledger.used(tier).saturating_add(size) <= config.capacity
    }
}

fn largest_gap(kept: &mut [(u64, u64)], capacity: u64) -> u64 {
    kept.sort_unstable();
    let (mut largest, mut end) = (0, 0);
    for (offset, size) in kept.iter().filter(|(_, size)| *size > 0) {
        largest = largest.max(offset - end);
        end = offset + size;
    }
    largest.max(capacity - end)
}
