//! How room is made in an arena: which run of neighbouring fragments is given up.

mod evictable;
pub(crate) mod fragments;
mod rules;
mod window;

use alloc::vec::Vec;
use core::ops::Range;

use crate::config::PolicyKind;
use crate::policy::fragments::{Fragment, Fragments};
use crate::policy::window::around;
use crate::types::Nanos;

/// A question to a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes of room, at least 1.
    pub bytes: u64,
    /// The present time, which the arena knows as well.
    pub now: Nanos,
    /// Only copies whose next use comes after this position may go: a prefetch must not push out
    /// what is needed sooner than what it brings.
    pub later_than: Option<u64>,
}

/// The answer of a policy. Windows are ranges of fragment indices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Every copy in the window may be evicted now.
    Take(Range<usize>),
    /// The copies in the window may probably be evicted after this time.
    Wait(Range<usize>, Nanos),
    /// No window is possible.
    Nothing,
}

/// A way to choose a window.
///
/// It is used when no single gap is large enough. Every policy prefers windows that cost no wait;
/// policies differ in which of these they choose. A policy never chooses a window that holds a copy
/// which must stay.
pub(crate) trait Policy {
    /// Chooses among `fragments`, which are in address order and cover the arena, a window in one
    /// of `parts` of them.
    fn choose(&self, fragments: &[Fragment], parts: &[Range<usize>], need: &Need) -> Choice;

    /// Whether a single copy is judged by its next use alone.
    fn judges_by_next_use(&self) -> bool {
        false
    }
}

/// Chooses in an arena: by an index where that gives the same answer, else by a pass.
///
/// When every copy is at least as large as what is needed, no window that cannot be shortened
/// holds more than one; the best is then the evictable copy whose next use is last, or else the
/// one that has to be waited for the shortest. Where copies have many sizes and are many, windows
/// are looked for around those that are given up first and around the largest gaps; the others only
/// if none of these is there to be taken.
pub(crate) fn choose(policy: &dyn Policy, arena: &Fragments, need: &Need) -> Choice {
    if let Some(gap) = arena.smallest_gap(need.bytes) {
        return Choice::Take(gap..gap + 1);
    }
    let fragments = arena.as_slice();
    let all = 0..fragments.len();
    if !policy.judges_by_next_use() {
        return policy.choose(fragments, &[all], need);
    }
    let later = |next_use| need.later_than.is_none_or(|limit| next_use > limit);
    let best = arena.last_used_ready().filter(|(next_use, _)| later(*next_use));
    if best.is_none() && need.later_than.is_some() {
        // Every window holds a copy, and a prefetch does not wait for copies to become evictable.
        return Choice::Nothing;
    }
    let single = arena.smallest_copy().is_some_and(|bytes| bytes >= need.bytes);
    if single {
        return single_copy(arena, best.map(|(_, index)| index));
    }
    if let Some(window) = best.filter(|_| fragments.len() > FEW).and_then(|_| {
        let likely = likely_parts(arena, need);
        match policy.choose(fragments, &likely, need) {
            Choice::Take(window) => Some(window),
            _ => None,
        }
    }) {
        return Choice::Take(window);
    }
    policy.choose(fragments, &[all], need)
}

/// The choice where every window is one copy: the best one that may go now, or one to wait for.
fn single_copy(arena: &Fragments, best: Option<usize>) -> Choice {
    if let Some(index) = best {
        return Choice::Take(index..index + 1);
    }
    let soonest = arena.soonest_ready();
    soonest.map_or(Choice::Nothing, |(at, index)| Choice::Wait(index..index + 1, at))
}

/// The most fragments that are looked at one by one.
const FEW: usize = 256;
/// The parts that are looked at where there are more, around as many copies.
const LIKELY: usize = 8;
/// The copies that are tried for that, since some lie between others that must stay.
const TRIED: usize = 64;

/// Parts of an arena in which all may go now and that are large enough: around the copies that are
/// given up first, and around the largest gaps.
fn likely_parts(arena: &Fragments, need: &Need) -> Vec<Range<usize>> {
    let fragments = arena.as_slice();
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut look_at = |index: usize, most: usize| {
        if !parts.iter().any(|part| part.contains(&index)) {
            let part = around(fragments, index, need);
            let bytes: u64 = fragments[part.clone()].iter().map(|f| f.bytes).sum();
            parts.extend((bytes >= need.bytes).then_some(part));
        }
        parts.len() < most
    };
    let _ = arena.first_to_go().take(TRIED).all(|index| look_at(index, LIKELY));
    let _ = arena.largest_gaps().take(LIKELY).all(|index| look_at(index, 2 * LIKELY));
    parts
}

/// The policy of that kind.
pub(crate) fn policy(kind: PolicyKind) -> &'static (dyn Policy + Send + Sync) {
    match kind {
        PolicyKind::Score => &rules::Score,
        PolicyKind::Lru => &rules::Lru,
        PolicyKind::Fifo => &rules::Fifo,
        PolicyKind::Belady => &rules::Belady,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
