//! How room is made in an arena: which run of neighbouring fragments is given up.

pub(crate) mod fragments;
mod rules;
mod window;

use core::ops::Range;

use crate::config::PolicyKind;
use crate::policy::fragments::{Fragment, Fragments};
use crate::types::Nanos;

/// What is asked of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes of room, at least 1.
    pub bytes: u64,
    /// The time of the question.
    pub now: Nanos,
    /// Only copies whose next use comes after this position may go: a prefetch must not push out
    /// what is needed sooner than what it brings.
    pub later_than: Option<u64>,
}

/// What a policy answers. Windows are ranges of fragment indices.
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
/// It is asked when no single gap is large enough. Every policy prefers windows that cost no wait;
/// they differ in what they give up then. A policy never chooses a window that holds a copy which
/// must stay.
pub(crate) trait Policy {
    /// Chooses among `fragments`, which are in address order and cover the arena.
    fn choose(&self, fragments: &[Fragment], need: &Need) -> Choice;

    /// Whether a single copy is judged by its next use alone.
    fn judges_by_next_use(&self) -> bool {
        false
    }
}

/// Chooses in an arena: by an index where that gives the same answer, else by a pass.
///
/// When every copy is at least as large as what is needed, no window that cannot be shortened
/// holds more than one; the best is then the evictable copy whose next use is last.
pub(crate) fn choose(policy: &dyn Policy, arena: &Fragments, need: &Need) -> Choice {
    if let Some(gap) = arena.smallest_gap(need.bytes) {
        return Choice::Take(gap..gap + 1);
    }
    let single = arena.smallest_copy().is_some_and(|bytes| bytes >= need.bytes);
    if single && policy.judges_by_next_use() {
        let limit = need.later_than;
        match arena.last_used_ready() {
            Some((next_use, index)) if limit.is_none_or(|l| next_use > l) => {
                return Choice::Take(index..index + 1);
            }
            // Whoever may only push out what is used later does not wait either.
            _ if limit.is_some() => return Choice::Nothing,
            _ => {}
        }
    }
    policy.choose(arena.as_slice(), need)
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
