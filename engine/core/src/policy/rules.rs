//! The policies: each one is a score of what a window would give up.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::policy::fragments::{Fragment, Resident};
use crate::policy::window::{WindowScore, best_window};
use crate::policy::{Choice, Need, Policy};

/// The prefetch distance of a copy that no hint names: farther than every hint.
const NO_HINT: u64 = 1 << 40;
/// The prefetch distance of a gap: farthest of all.
const GAP: u64 = 1 << 41;

/// Score, HPDC'23, section 4.1.6: maximise the prefetch distances, here the mean over the bytes.
pub(crate) struct Score;
/// Least recently used: the window whose latest use is longest ago.
pub(crate) struct Lru;
/// First in, first out: the window whose latest arrival is longest ago.
pub(crate) struct Fifo;
/// Farthest next use (Belady, 1966), for windows: maximise the nearest next use.
/// A bound for the other policies when the queue holds the whole future.
pub(crate) struct Belady;

impl Policy for Score {
    fn choose(&self, fragments: &[Fragment], parts: &[Range<usize>], need: &Need) -> Choice {
        best_window(fragments, parts, need, Mean::default())
    }

    fn judges_by_next_use(&self) -> bool {
        true
    }
}

impl Policy for Lru {
    fn choose(&self, fragments: &[Fragment], parts: &[Range<usize>], need: &Need) -> Choice {
        best_window(fragments, parts, need, Nearest::by(|r| u64::MAX - r.last_use))
    }
}

impl Policy for Fifo {
    fn choose(&self, fragments: &[Fragment], parts: &[Range<usize>], need: &Need) -> Choice {
        best_window(fragments, parts, need, Nearest::by(|r| u64::MAX - r.arrived))
    }
}

impl Policy for Belady {
    fn choose(&self, fragments: &[Fragment], parts: &[Range<usize>], need: &Need) -> Choice {
        best_window(fragments, parts, need, Nearest::by(|r| r.next_use))
    }

    fn judges_by_next_use(&self) -> bool {
        true
    }
}

/// The mean prefetch distance of the bytes. Positions stand for distances: within one pass they
/// differ from them by the same amount, the position of the head.
///
/// The paper sums the distances of the copies, whatever their sizes. Where they differ much, as
/// after compression, a sum gives up ten small copies rather than one beside a large gap.
#[derive(Default)]
struct Mean {
    weighted: u128,
    bytes: u64,
}

fn weight(fragment: &Fragment) -> u128 {
    let distance = fragment.resident.as_ref().map_or(GAP, |r| r.next_use.min(NO_HINT));
    u128::from(distance) * u128::from(fragment.bytes)
}

impl WindowScore for Mean {
    type Score = f64;

    fn enter(&mut self, _: usize, fragment: &Fragment) {
        self.weighted += weight(fragment);
        self.bytes += fragment.bytes;
    }

    fn leave(&mut self, _: usize, fragment: &Fragment) {
        self.weighted -= weight(fragment);
        self.bytes -= fragment.bytes;
    }

    fn score(&self) -> f64 {
        self.weighted as f64 / self.bytes as f64
    }

    fn reset(&mut self) {
        *self = Mean::default();
    }
}

/// The smallest key of the copies in the window, from a queue in which keys ascend.
struct Nearest<F> {
    key: F,
    ascending: VecDeque<(usize, u64)>,
}

impl<F: Fn(&Resident) -> u64> Nearest<F> {
    fn by(key: F) -> Self {
        Nearest { key, ascending: VecDeque::new() }
    }
}

impl<F: Fn(&Resident) -> u64> WindowScore for Nearest<F> {
    type Score = u64;

    fn enter(&mut self, index: usize, fragment: &Fragment) {
        let Some(resident) = &fragment.resident else { return };
        let key = (self.key)(resident);
        while self.ascending.back().is_some_and(|(_, k)| *k >= key) {
            self.ascending.pop_back();
        }
        self.ascending.push_back((index, key));
    }

    fn leave(&mut self, index: usize, _: &Fragment) {
        if self.ascending.front().is_some_and(|(i, _)| *i == index) {
            self.ascending.pop_front();
        }
    }

    fn score(&self) -> u64 {
        self.ascending.front().map_or(u64::MAX, |(_, k)| *k)
    }

    fn reset(&mut self) {
        self.ascending.clear();
    }
}
