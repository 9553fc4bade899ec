//! The spacing of registrations.
//!
//! A registration holds a lock of the driver, and that lock is not fair: chunks registered back to
//! back starve the copies of other threads, however small the chunks are. So a chunk is registered
//! after a short gap while no copy is in flight, else after a gap at least as long as the last
//! call, which lets every waiting copy through. The short gap is for everything else that needs the
//! lock, such as launching a kernel or recording an event on another thread: without it one call
//! was seen to wait for 105 and 418 ms, until all was registered. A new arena leaves long gaps,
//! because its owner is about to begin.
//!
//! The figures are in engine/decisions/0020-pacing-registrations.md.

use std::time::Duration;

/// How registrations are spaced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Without gaps: the shortest time until everything is registered, at the cost of concurrent
    /// copies.
    Unpaced,
    /// After a gap of this many times the last call; half as long while the links are idle, from
    /// a second after the arena was made on.
    Gaps(f32),
    /// Only while the links are idle, with gaps as above.
    WhenIdle,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Gaps(1.0)
    }
}

/// The state of the arena that the pace depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moment {
    /// No copy is in flight.
    pub(crate) idle: bool,
    /// Time since the arena was made.
    pub(crate) age: Duration,
}

/// An arena counts as new for this long.
const NEW: Duration = Duration::from_secs(1);

/// Longest sleep between two polls of busy links: nothing signals that they fall idle.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// While the links are idle a gap is shorter by this factor, but long enough for a thread that
/// waits for the driver's lock to wake up and take it.
const IDLE_PART: u32 = 2;
const SHORTEST_GAP: Duration = Duration::from_micros(200);

/// Upper bound of a gap, so that one call that took unusually long does not delay everything.
const LONGEST_GAP: Duration = Duration::from_millis(100);

impl Pace {
    /// How long to wait before asking again, `since` after the end of the last registration, which
    /// took `took`; `None` where the next one may begin. `last` is `None` before the first.
    pub(crate) fn wait(self, now: Moment, last: Option<(Duration, Duration)>) -> Option<Duration> {
        let (took, since) = last?;
        let part = if now.idle && now.age >= NEW { IDLE_PART } else { 1 };
        match self {
            Pace::Unpaced => None,
            Pace::WhenIdle if now.idle => after(took / part, since),
            Pace::WhenIdle => Some(LOOK_AGAIN),
            Pace::Gaps(times) => after(took.mul_f32(times.max(0.0)) / part, since),
        }
    }
}

/// What is left of the gap that began `since` ago.
fn after(gap: Duration, since: Duration) -> Option<Duration> {
    let rest = gap.clamp(SHORTEST_GAP, LONGEST_GAP).checked_sub(since)?;
    (!rest.is_zero()).then_some(rest.min(LOOK_AGAIN))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The state of an arena that is not new.
    fn now(idle: bool) -> Moment {
        Moment { idle, age: NEW }
    }

    #[test]
    fn a_new_arena_leaves_long_gaps_also_while_the_links_are_idle() {
        let new = Moment { age: NEW - MS, ..now(true) };
        for pace in [Pace::Gaps(1.0), Pace::WhenIdle] {
            assert!(pace.wait(new, Some((8 * MS, 7 * MS))).is_some());
            assert_eq!(pace.wait(new, Some((8 * MS, 8 * MS))), None);
            assert_eq!(pace.wait(now(true), Some((8 * MS, 4 * MS))), None);
        }
    }

    #[test]
    fn idle_links_get_a_short_gap_for_what_is_not_a_copy() {
        let last = Some((8 * MS, Duration::ZERO));
        assert_eq!(Pace::Unpaced.wait(now(true), last), None);
        for pace in [Pace::Gaps(1.0), Pace::WhenIdle] {
            assert_eq!(pace.wait(now(true), last), Some(MS));
            assert_eq!(pace.wait(now(true), Some((8 * MS, 4 * MS))), None);
            let short = Some((SHORTEST_GAP, Duration::ZERO));
            assert_eq!(pace.wait(now(true), short), Some(SHORTEST_GAP));
            assert_eq!(pace.wait(now(true), None), None, "nothing is before the first");
        }
    }

    #[test]
    fn busy_links_get_a_gap_as_long_as_the_last_call() {
        let pace = Pace::default();
        assert!(pace.wait(now(false), Some((5 * MS, 4 * MS))).is_some());
        assert_eq!(pace.wait(now(false), Some((5 * MS, 5 * MS))), None);
    }

    #[test]
    fn a_pace_that_needs_idle_links_waits_for_them() {
        let late = Some((MS, Duration::from_secs(10)));
        assert!(Pace::WhenIdle.wait(now(false), late).is_some());
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_gap_that_is_left(
            took in 0u64..200_000, since in 0u64..200_000, times in 0.0f32..4.0,
        ) {
            let (took, since) = (Duration::from_micros(took), Duration::from_micros(since));
            let gap = took.mul_f32(times).clamp(SHORTEST_GAP, LONGEST_GAP);
            match Pace::Gaps(times).wait(now(false), Some((took, since))) {
                None => prop_assert!(since >= gap),
                Some(time) => {
                    prop_assert!(since < gap);
                    prop_assert!(time <= gap - since && time > Duration::ZERO);
                }
            }
        }
    }
}
