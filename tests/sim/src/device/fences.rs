//! Fences of the application's copies that were only enqueued. They belong to the entry of a
//! checkpoint in a tier; when the entry is forgotten, they stay with its bytes (a pending range)
//! until they are reached.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, TierId};

use crate::device::streams::Fence;

/// Bytes `first..end` of a tier; in a store, the frame number `first`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    /// The tier.
    pub tier: TierId,
    /// The first byte.
    pub first: u64,
    /// The byte after the last one.
    pub end: u64,
}

impl Span {
    /// Whether the spans overlap.
    #[must_use]
    pub fn meets(&self, other: &Span) -> bool {
        self.tier == other.tier && self.first < other.end && other.first < self.end
    }
}

/// A copy that was enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enqueued {
    /// The bytes that it accesses.
    pub span: Span,
    /// Whether it writes them.
    pub write: bool,
    /// The fence after it.
    pub fence: Fence,
}

/// Fences of earlier copies, by state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Before {
    /// Reached: no wait is needed any more.
    pub reached: Vec<Fence>,
    /// Not reached, of an existing entry.
    pub entry: Vec<Fence>,
    /// Not reached, of bytes whose entry was forgotten.
    pub pending: Vec<Fence>,
}

/// The fences of all copies.
#[derive(Clone, Debug, Default)]
pub struct Fences {
    entries: BTreeMap<(TierId, CheckpointId), Vec<Enqueued>>,
    pending: Vec<Enqueued>,
}

impl Fences {
    /// Keeps the fence of a copy with the entry of its checkpoint.
    pub fn keep(&mut self, id: CheckpointId, copy: Enqueued) {
        self.entries.entry((copy.span.tier, id)).or_default().push(copy);
    }

    /// The fences to wait for before `span` is accessed, which is or will be the place of `id`.
    /// Reached fences are returned once and dropped.
    pub fn before(
        &mut self,
        id: CheckpointId,
        span: Span,
        write: bool,
        is_reached: impl Fn(Fence) -> bool,
    ) -> Before {
        let mut before = Before::default();
        if let Some(entry) = self.entries.get_mut(&(span.tier, id)) {
            sort_out(entry, span, write, &is_reached, &mut before.reached, &mut before.entry);
        }
        let Before { reached, pending, .. } = &mut before;
        sort_out(&mut self.pending, span, write, &is_reached, reached, pending);
        before
    }

    /// Forgets the entry of `id` in `tier`; its fences stay with the bytes.
    pub fn forget(&mut self, id: CheckpointId, tier: TierId) {
        self.pending.extend(self.entries.remove(&(tier, id)).unwrap_or_default());
    }

    /// Forgets the entry and its fences, as if all its copies were over. Returns whether that made
    /// a difference.
    pub fn forget_without_pending(&mut self, id: CheckpointId, tier: TierId) -> bool {
        self.entries.remove(&(tier, id)).is_some()
    }

    /// Whether the entry of `id` in `tier` has a fence that is not reached.
    #[must_use]
    pub fn is_unfinished(
        &self,
        id: CheckpointId,
        tier: TierId,
        is_reached: impl Fn(Fence) -> bool,
    ) -> bool {
        let entry = self.entries.get(&(tier, id));
        entry.is_some_and(|copies| copies.iter().any(|copy| !is_reached(copy.fence)))
    }
}

/// Removes the reached fences from those that overlap `span`, and adds the relevant others to
/// `open`.
fn sort_out(
    copies: &mut Vec<Enqueued>,
    span: Span,
    write: bool,
    is_reached: impl Fn(Fence) -> bool,
    reached: &mut Vec<Fence>,
    open: &mut Vec<Fence>,
) {
    copies.retain(|copy| {
        let meets = copy.span.meets(&span);
        let over = meets && is_reached(copy.fence);
        if over {
            reached.push(copy.fence);
        } else if meets && (write || copy.write) {
            open.push(copy.fence);
        }
        !over
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::streams::OpId;

    const ID: CheckpointId = CheckpointId(7);
    const TIER: TierId = TierId(0);

    fn span(first: u64, end: u64) -> Span {
        Span { tier: TIER, first, end }
    }

    fn fence(number: u64) -> Fence {
        Fence(OpId(number))
    }

    /// A save (fence 1) and two restores (2 and 3) of one checkpoint.
    fn saved_and_restored() -> Fences {
        let mut fences = Fences::default();
        for number in 1..=3 {
            let copy = Enqueued { span: span(0, 10), write: number == 1, fence: fence(number) };
            fences.keep(ID, copy);
        }
        fences
    }

    #[test]
    fn a_read_waits_for_the_write_and_a_write_for_all() {
        let mut fences = saved_and_restored();
        assert_eq!(fences.before(ID, span(0, 10), false, |_| false).entry, [fence(1)]);
        let all = [fence(1), fence(2), fence(3)];
        assert_eq!(fences.before(ID, span(0, 10), true, |_| false).entry, all);
    }

    #[test]
    fn what_is_reached_is_given_once() {
        let mut fences = saved_and_restored();
        let before = fences.before(ID, span(0, 10), false, |m| m != fence(3));
        assert_eq!(before, Before { reached: vec![fence(1), fence(2)], ..Before::default() });
        let again = fences.before(ID, span(0, 10), true, |m| m != fence(3));
        assert_eq!(again, Before { entry: vec![fence(3)], ..Before::default() });
    }

    #[test]
    fn the_fences_of_a_forgotten_entry_stay_with_its_bytes_until_they_are_reached() {
        let mut fences = saved_and_restored();
        assert!(fences.is_unfinished(ID, TIER, |_| false));
        fences.forget(ID, TIER);
        assert!(!fences.is_unfinished(ID, TIER, |_| false));
        let other = CheckpointId(8);
        assert_eq!(fences.before(other, span(10, 20), true, |_| false), Before::default());
        assert_eq!(fences.before(other, span(9, 20), true, |_| false).pending.len(), 3);
        assert_eq!(fences.before(other, span(9, 20), true, |_| true).reached.len(), 3);
        assert_eq!(fences.before(other, span(9, 20), true, |_| false), Before::default());
    }

    #[test]
    fn without_pending_ranges_nothing_is_left() {
        let mut fences = saved_and_restored();
        assert!(fences.forget_without_pending(ID, TIER));
        assert!(!fences.forget_without_pending(ID, TIER));
        assert_eq!(fences.before(ID, span(0, 10), true, |_| false), Before::default());
    }
}
