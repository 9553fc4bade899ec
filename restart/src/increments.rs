//! When a checkpoint is stored in full, and when as an increment to the one before: pure functions.
//!
//! A chain is a full frame and the increments that follow it. A longer one writes less for each
//! checkpoint and reads more for each recovery. Let an increment have the share s of the bytes of a
//! full frame, let f be the recoveries for each checkpoint, and let bytes be read as fast as they
//! are written. With n increments after each full frame, a checkpoint writes (1 + n s) / (n + 1) on
//! average and f times 1 + n s / 2 is read for it: the sum is least at
//! n + 1 = sqrt(2 (1 - s) / (f s)). The increments of a chain together are never larger than its
//! full frame, so that a folder and a recovery take twice as much as without them at most.

use std::time::Duration;

/// The longest chain that is chosen for a user who names none: each of its frames is a file, and is
/// needed by those that follow.
const MOST: u32 = 100;

/// How often a checkpoint is stored in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fulls {
    /// As often as costs least.
    Auto,
    /// One in so many checkpoints, and more often where increments would be larger than that.
    OneIn(u32),
}

/// A full frame and the increments that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    /// The bytes of the full frame.
    full: u64,
    /// The number of increments.
    increments: u32,
    /// Their bytes together.
    bytes: u64,
}

impl Chain {
    /// A full frame.
    pub(crate) fn of(full: u64) -> Chain {
        Chain { full, increments: 0, bytes: 0 }
    }

    /// The chain with one more increment.
    pub(crate) fn and(self, bytes: u64) -> Chain {
        Chain { increments: self.increments + 1, bytes: self.bytes + bytes, ..self }
    }

    /// The most bytes that the next checkpoint may have as an increment; 0 when a full frame is
    /// due. `failures`: recoveries for each checkpoint.
    pub(crate) fn room(&self, fulls: Fulls, failures: f64) -> u64 {
        let most = match fulls {
            Fulls::OneIn(every) => every.saturating_sub(1),
            Fulls::Auto if self.increments == 0 => 1,
            Fulls::Auto => {
                let share = self.bytes as f64 / f64::from(self.increments) / self.full as f64;
                longest(share, failures)
            }
        };
        if self.increments < most { self.full.saturating_sub(self.bytes) } else { 0 }
    }
}

/// The recoveries that there are for each checkpoint, when checkpoints are so far apart.
pub(crate) fn failures(apart: Duration, mtbf: Duration) -> f64 {
    (apart.as_secs_f64() / mtbf.as_secs_f64()).min(1.0)
}

/// The increments after a full frame that cost least, for increments that have this share of its
/// bytes: at least 1.
fn longest(share: f64, failures: f64) -> u32 {
    let best = (2.0 * (1.0 - share).max(0.0) / (failures * share)).sqrt() - 1.0;
    // What is not a number is as large as it gets: nothing changes, or nothing fails.
    if best.is_finite() { best.round().clamp(1.0, f64::from(MOST)) as u32 } else { MOST }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a checkpoint costs in bytes written and read, of a chain with n increments.
    fn cost(n: f64, share: f64, failures: f64) -> f64 {
        (1.0 + n * share) / (n + 1.0) + failures * (1.0 + n * share / 2.0)
    }

    #[test]
    fn the_longest_chain_costs_least() {
        for share in [0.01, 0.1, 0.2, 0.5, 0.9] {
            for failures in [1e-4, 1e-3, 0.01, 0.1, 1.0] {
                let n = f64::from(longest(share, failures));
                let found = cost(n, share, failures);
                for other in [n - 1.0, n + 1.0, n + 2.0].into_iter().filter(|n| *n >= 1.0) {
                    let within = other <= f64::from(MOST);
                    // Rounding takes one of two neighbours.
                    let least = cost(other, share, failures) * 1.02;
                    assert!(!within || found <= least, "{share} {failures} {n} {other}");
                }
            }
        }
        assert_eq!((longest(0.0, 0.01), longest(0.1, 0.0)), (MOST, MOST));
    }

    #[test]
    fn more_failures_or_larger_increments_never_make_chains_longer() {
        let grid = [0.01, 0.1, 0.3, 0.7, 0.99];
        for pair in grid.windows(2) {
            for other in grid {
                assert!(longest(pair[0], other) >= longest(pair[1], other));
                assert!(longest(other, pair[0]) >= longest(other, pair[1]));
            }
        }
    }

    #[test]
    fn increments_together_are_never_larger_than_the_full_frame() {
        for fulls in [Fulls::Auto, Fulls::OneIn(1000)] {
            let mut chain = Chain::of(1000);
            while chain.room(fulls, 1e-6) >= 90 {
                chain = chain.and(90);
            }
            assert_eq!((chain.increments, chain.bytes), (11, 990));
            assert_eq!(chain.room(fulls, 1e-6), 10);
        }
    }

    #[test]
    fn one_in_so_many_is_full() {
        for every in 1..5 {
            let mut chain = Chain::of(1000);
            let mut count = 1;
            while chain.room(Fulls::OneIn(every), 0.5) > 0 {
                chain = chain.and(1);
                count += 1;
            }
            assert_eq!(count, every);
        }
        assert_eq!(Chain::of(0).room(Fulls::Auto, 0.1), 0);
    }

    #[test]
    fn failures_are_a_share_of_checkpoints() {
        let minute = Duration::from_secs(60);
        assert_eq!(failures(minute, minute * 1000), 1e-3);
        assert_eq!(failures(minute, Duration::from_secs(1)), 1.0);
    }
}
