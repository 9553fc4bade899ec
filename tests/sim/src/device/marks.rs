//! Marks of the application's copies that were only enqueued: kept with the entry of a checkpoint
//! in a tier, and once the entry is forgotten, with its bytes (a ghost) until they are reached.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, TierId};

use crate::device::streams::Mark;

/// Bytes `first..end` of a tier; in a store the frame number `first`.
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
    /// Whether both have a byte in common.
    #[must_use]
    pub fn meets(&self, other: &Span) -> bool {
        self.tier == other.tier && self.first < other.end && other.first < self.end
    }
}

/// A copy that was enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enqueued {
    /// What it touches.
    pub span: Span,
    /// Whether it writes there.
    pub write: bool,
    /// Reached when it is over.
    pub mark: Mark,
}

/// Marks to look at before bytes are touched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Before {
    /// Reached: nobody need wait for them any more.
    pub reached: Vec<Mark>,
    /// Not reached, of an entry that exists.
    pub entry: Vec<Mark>,
    /// Not reached, of bytes whose entry was forgotten.
    pub ghosts: Vec<Mark>,
}

/// All marks.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    entries: BTreeMap<(TierId, CheckpointId), Vec<Enqueued>>,
    ghosts: Vec<Enqueued>,
}

impl Marks {
    /// Keeps the mark of a copy with the entry of its checkpoint.
    pub fn keep(&mut self, id: CheckpointId, copy: Enqueued) {
        self.entries.entry((copy.span.tier, id)).or_default().push(copy);
    }

    /// What must be waited for before `span` is touched, which is or will be the place of `id`.
    /// Marks that are reached are given once and dropped.
    pub fn before(
        &mut self,
        id: CheckpointId,
        span: Span,
        write: bool,
        is_reached: impl Fn(Mark) -> bool,
    ) -> Before {
        let mut before = Before::default();
        if let Some(entry) = self.entries.get_mut(&(span.tier, id)) {
            sort_out(entry, span, write, &is_reached, &mut before.reached, &mut before.entry);
        }
        let Before { reached, ghosts, .. } = &mut before;
        sort_out(&mut self.ghosts, span, write, &is_reached, reached, ghosts);
        before
    }

    /// The entry of `id` in `tier` is forgotten: its marks stay with the bytes.
    pub fn forget(&mut self, id: CheckpointId, tier: TierId) {
        self.ghosts.extend(self.entries.remove(&(tier, id)).unwrap_or_default());
    }

    /// The same by someone who thinks that what was enqueued is over; whether it made a
    /// difference.
    pub fn forget_without_ghosts(&mut self, id: CheckpointId, tier: TierId) -> bool {
        self.entries.remove(&(tier, id)).is_some()
    }

    /// Whether the entry of `id` in `tier` has a mark that is not reached.
    #[must_use]
    pub fn is_unfinished(
        &self,
        id: CheckpointId,
        tier: TierId,
        is_reached: impl Fn(Mark) -> bool,
    ) -> bool {
        let entry = self.entries.get(&(tier, id));
        entry.is_some_and(|copies| copies.iter().any(|copy| !is_reached(copy.mark)))
    }
}

/// Takes the marks that are reached out of those that meet `span`, and adds those that are not and
/// matter to `open`.
fn sort_out(
    copies: &mut Vec<Enqueued>,
    span: Span,
    write: bool,
    is_reached: impl Fn(Mark) -> bool,
    reached: &mut Vec<Mark>,
    open: &mut Vec<Mark>,
) {
    copies.retain(|copy| {
        let meets = copy.span.meets(&span);
        let over = meets && is_reached(copy.mark);
        if over {
            reached.push(copy.mark);
        } else if meets && (write || copy.write) {
            open.push(copy.mark);
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

    fn mark(number: u64) -> Mark {
        Mark(OpId(number))
    }

    /// A save (mark 1) and two restores (2 and 3) of one checkpoint.
    fn saved_and_restored() -> Marks {
        let mut marks = Marks::default();
        for number in 1..=3 {
            let copy = Enqueued { span: span(0, 10), write: number == 1, mark: mark(number) };
            marks.keep(ID, copy);
        }
        marks
    }

    #[test]
    fn a_read_waits_for_the_write_and_a_write_for_all() {
        let mut marks = saved_and_restored();
        assert_eq!(marks.before(ID, span(0, 10), false, |_| false).entry, [mark(1)]);
        let all = [mark(1), mark(2), mark(3)];
        assert_eq!(marks.before(ID, span(0, 10), true, |_| false).entry, all);
    }

    #[test]
    fn what_is_reached_is_given_once() {
        let mut marks = saved_and_restored();
        let before = marks.before(ID, span(0, 10), false, |m| m != mark(3));
        assert_eq!(before, Before { reached: vec![mark(1), mark(2)], ..Before::default() });
        let again = marks.before(ID, span(0, 10), true, |m| m != mark(3));
        assert_eq!(again, Before { entry: vec![mark(3)], ..Before::default() });
    }

    #[test]
    fn a_forgotten_entry_haunts_its_bytes_until_its_marks_are_reached() {
        let mut marks = saved_and_restored();
        assert!(marks.is_unfinished(ID, TIER, |_| false));
        marks.forget(ID, TIER);
        assert!(!marks.is_unfinished(ID, TIER, |_| false));
        let other = CheckpointId(8);
        assert_eq!(marks.before(other, span(10, 20), true, |_| false), Before::default());
        assert_eq!(marks.before(other, span(9, 20), true, |_| false).ghosts.len(), 3);
        assert_eq!(marks.before(other, span(9, 20), true, |_| true).reached.len(), 3);
        assert_eq!(marks.before(other, span(9, 20), true, |_| false), Before::default());
    }

    #[test]
    fn without_ghosts_nothing_is_left() {
        let mut marks = saved_and_restored();
        assert!(marks.forget_without_ghosts(ID, TIER));
        assert!(!marks.forget_without_ghosts(ID, TIER));
        assert_eq!(marks.before(ID, span(0, 10), true, |_| false), Before::default());
    }
}
