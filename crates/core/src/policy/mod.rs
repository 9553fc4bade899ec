//! How room is made in an arena: which run of neighbouring fragments is given up.

pub(crate) mod fragments;
mod rules;
mod window;

use core::ops::Range;

use crate::config::PolicyKind;
use crate::policy::fragments::Fragment;
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
/// Every policy prefers windows that cost no wait; they differ in what they give up then. A policy
/// never chooses a window that holds a copy which must stay.
pub(crate) trait Policy {
    /// Chooses among `fragments`, which are in address order and cover the arena.
    fn choose(&self, fragments: &[Fragment], need: &Need) -> Choice;
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
