//! A conservative search for space in a tier: it finds only space that the core can certainly free
//! by dropping copies that exist elsewhere, or by moving a copy one tier down.

use super::copies::{Books, Holding, Stage, size_in};
use super::ledger::Ledger;

/// A tier in which space for a save of `bytes` bytes can certainly be freed, at the latest when the
/// current restores have ended.
#[must_use]
pub fn for_save(ledger: &Ledger, bytes: u64) -> Option<usize> {
    (0..ledger.tiers().len()).find(|tier| {
        fits(ledger, *tier, bytes, |books, held| {
            let gone = books.stage == Stage::Gone;
            let idle = held.readers == 0;
            let leaves = is_deeper(books, *tier) || (idle && sinks(ledger, books, *tier));
            !(held.filling || held.deleting || held.sources > 0) && (gone || leaves)
        })
    })
}

/// Whether space for a flush of `bytes` bytes into `tier` can certainly be freed.
#[must_use]
pub fn for_flush(ledger: &Ledger, tier: usize, bytes: u64) -> bool {
    fits(ledger, tier, bytes, |books, held| !held.is_used() && is_deeper(books, tier))
}

/// Whether a slower tier has the bytes too: only then may the core evict the copy.
fn is_deeper(books: &Books, tier: usize) -> bool {
    books.holdings.iter().skip(tier + 1).flatten().any(Holding::is_good)
}

/// Whether `bytes` bytes fit into `tier` once every evictable copy is gone.
fn fits(
    ledger: &Ledger,
    tier: usize,
    bytes: u64,
    may_go: impl Fn(&Books, &Holding) -> bool,
) -> bool {
    let config = &ledger.tiers()[tier];
    if !ledger.can_hold(tier, bytes) {
        return false;
    }
    let size = size_in(config, bytes);
    let held = ledger.all().filter_map(|books| Some((books, books.holdings[tier]?)));
    let stays = held.filter(|(books, held)| !may_go(books, held));
    let mut kept: Vec<(u64, u64)> = stays.map(|(_, h)| (h.offset, h.size)).collect();
    if config.kind.is_arena() {
        largest_gap(&mut kept, config.capacity - config.capacity % config.alignment) >= size
    } else {
        kept.iter().fold(size, |sum, (_, size)| sum.saturating_add(*size)) <= config.capacity
    }
}

/// Whether this copy is alone in its tier and fits into the next slower one.
fn sinks(ledger: &Ledger, books: &Books, tier: usize) -> bool {
    let others = ledger.all().filter(|b| b.holdings[tier].is_some_and(|h| h.size > 0)).count();
    let next = (tier + 1..ledger.tiers().len()).find(|t| ledger.can_hold(*t, books.bytes));
    others == 1 && next.is_some_and(|t| fits(ledger, t, books.bytes, |_, _| false))
}

fn largest_gap(kept: &mut [(u64, u64)], capacity: u64) -> u64 {
    kept.sort_unstable();
    let (mut largest, mut end) = (0, 0);
    // What was there when an arena lost memory may reach beyond its end.
    for (offset, size) in kept.iter().filter(|(offset, size)| *size > 0 && *offset < capacity) {
        largest = largest.max(offset - end);
        end = offset + size;
    }
    largest.max(capacity.saturating_sub(end))
}
