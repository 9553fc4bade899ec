//! The sliding window over the fragments of an arena (Score, HPDC'23, Algorithm 1).
//!
//! The printed listing is garbled (it grows the window for `size_target`, a name that it does not
//! define, and may end before the last windows are judged); this follows its prose: slide a window
//! of variable length over all fragments, keep both scores up to date as fragments enter and
//! leave, and retain the best. Each fragment enters and leaves once, so a pass is O(fragments).

use core::ops::Range;

use crate::policy::fragments::Fragment;
use crate::policy::{Choice, Need};
use crate::types::Nanos;

/// The second score of a window, kept up to date while it slides.
pub(crate) trait WindowScore {
    /// What windows are compared by.
    type Score: PartialOrd + Copy;
    /// The fragment at `index` enters on the right.
    fn enter(&mut self, index: usize, fragment: &Fragment);
    /// The fragment at `index` leaves on the left.
    fn leave(&mut self, index: usize, fragment: &Fragment);
    /// The score of the window: larger is better to give up.
    fn score(&self) -> Self::Score;
    /// The window is empty again.
    fn reset(&mut self);
}

/// The best window seen so far.
struct Best<S> {
    window: Range<usize>,
    wait: u64,
    score: S,
    /// When its copy was used last, where it holds only one. Of two that are equal otherwise the
    /// one that was used longer ago goes: a device may still be reading the other.
    last_use: u64,
}

/// The window with the smallest wait, then the largest score, of those that lie in one of `parts`.
///
/// Generic over the score: a pass is the longest thing that the core does, and this keeps it at a
/// few nanoseconds a fragment.
pub(crate) fn best_window<T: WindowScore>(
    fragments: &[Fragment],
    parts: &[Range<usize>],
    need: &Need,
    mut score: T,
) -> Choice {
    assert!(need.bytes > 0, "a copy of zero bytes needs no room");
    let mut best: Option<Best<T::Score>> = None;
    for part in parts {
        score.reset();
        let mut slide = Slide { start: part.start, end: part.start, bytes: 0, wait: 0 };
        while slide.end < part.end {
            slide.grow(fragments, need, &mut score);
            while slide.bytes >= need.bytes {
                // Only windows that cannot be shortened: nothing is given up needlessly.
                if slide.bytes - fragments[slide.start].bytes < need.bytes {
                    slide.offer(fragments, &mut best, &score);
                }
                slide.shrink(fragments, need, &mut score);
            }
        }
    }
    match best {
        None => Choice::Nothing,
        Some(b) if b.wait == 0 => Choice::Take(b.window),
        Some(b) => Choice::Wait(b.window, need.now.plus(Nanos(b.wait))),
    }
}

/// The window `start..end` with its size and its total wait in nanoseconds.
struct Slide {
    start: usize,
    end: usize,
    bytes: u64,
    wait: u64,
}

impl Slide {
    /// Makes this window the best one if it is better.
    fn offer<T: WindowScore>(
        &self,
        fragments: &[Fragment],
        best: &mut Option<Best<T::Score>>,
        score: &T,
    ) {
        // A score costs a division, which windows that wait longer do not need.
        if best.as_ref().is_some_and(|best| best.wait < self.wait) {
            return;
        }
        let value = score.score();
        let last_use = match &fragments[self.start..self.end] {
            [Fragment { resident: Some(resident), .. }] => resident.last_use,
            _ => u64::MAX,
        };
        let better =
            |b: &Best<T::Score>| (self.wait, b.score, last_use) < (b.wait, value, b.last_use);
        if best.as_ref().is_none_or(better) {
            let (window, wait) = (self.start..self.end, self.wait);
            *best = Some(Best { window, wait, score: value, last_use });
        }
    }

    /// Takes in the next fragment, or begins again after it when it must stay.
    fn grow(&mut self, fragments: &[Fragment], need: &Need, score: &mut impl WindowScore) {
        let fragment = &fragments[self.end];
        self.end += 1;
        let Some(wait) = wait_for(fragment, need) else {
            (self.start, self.bytes, self.wait) = (self.end, 0, 0);
            score.reset();
            return;
        };
        self.bytes += fragment.bytes;
        self.wait += wait;
        score.enter(self.end - 1, fragment);
    }

    /// Gives up the leftmost fragment.
    fn shrink(&mut self, fragments: &[Fragment], need: &Need, score: &mut impl WindowScore) {
        let fragment = &fragments[self.start];
        self.bytes -= fragment.bytes;
        self.wait -= wait_for(fragment, need).expect("only what may go is in the window");
        score.leave(self.start, fragment);
        self.start += 1;
    }
}

/// The fragments around the one at `index` that a window with it can hold: as many on either side
/// as are needed, up to what cannot go now.
pub(crate) fn around(fragments: &[Fragment], index: usize, need: &Need) -> Range<usize> {
    let reach = |side: &mut dyn Iterator<Item = &Fragment>| {
        let mut bytes = 0;
        let inside = |f: &&Fragment| {
            let within = bytes < need.bytes && wait_for(f, need) == Some(0);
            bytes += f.bytes;
            within
        };
        side.take_while(inside).count()
    };
    let before = reach(&mut fragments[..index].iter().rev());
    let after = reach(&mut fragments[index..].iter());
    index - before..index + after
}

/// What is not evictable yet costs some wait, even when its estimate has passed.
pub(super) const SHORTEST_WAIT: Nanos = Nanos(1);
/// About 13 days, so that the waits of a whole window can be added up.
pub(super) const LONGEST_WAIT: Nanos = Nanos(1 << 50);

/// Nanoseconds until the fragment may be overwritten; `None` when it must stay.
fn wait_for(fragment: &Fragment, need: &Need) -> Option<u64> {
    let Some(resident) = &fragment.resident else { return Some(0) };
    let needed_sooner = need.later_than.is_some_and(|limit| resident.next_use <= limit);
    if needed_sooner || resident.ready_at == Nanos::NEVER {
        return None;
    }
    if resident.ready_at == Nanos(0) {
        return Some(0);
    }
    Some(resident.ready_at.since(need.now).clamp(SHORTEST_WAIT, LONGEST_WAIT).0)
}
