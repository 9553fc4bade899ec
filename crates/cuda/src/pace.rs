//! When the next registration may begin.
//!
//! A registration holds a lock of the driver, and that lock is not fair: chunks registered back to
//! back starve the copies of other threads, however small the chunks are. So a chunk is registered
//! after a short gap while no copy is under way, else after one at least as long as the last call
//! took, which lets every waiting copy through; and never while a save waits for room. The short
//! gap is for everything that needs the same lock and is no copy under way, such as launching a
//! kernel or recording an event on another thread: without it one call was seen to wait for 105 and
//! 418 ms, until all was registered. A new arena, whose owner is about to begin, leaves long gaps.
//!
//! The figures are in docs/decisions/0020-pacing-registrations.md.

use std::time::Duration;

/// How registrations are spaced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Back to back: the shortest time until everything is registered, at the cost of copies that
    /// run meanwhile.
    Unpaced,
    /// After a gap of this many times the last call; of half of it while the links are idle, from
    /// 100 ms after the arena was made.
    Gaps(f32),
    /// Only while the links are idle, with gaps as above.
    WhenIdle,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Gaps(1.0)
    }
}

/// What to do about the next chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Register it.
    Go,
    /// Ask again after this time, or when something changed.
    Wait(Duration),
    /// Ask again when something changed: the holder resumes, the links fall idle.
    Stop,
}

/// What the pace depends on besides the last call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moment {
    /// A save waits for room.
    pub(crate) held: bool,
    /// No copy is under way.
    pub(crate) idle: bool,
    /// How long ago the arena was made.
    pub(crate) age: Duration,
}

/// For how long an arena is new.
const NEW: Duration = Duration::from_millis(100);

/// Longest sleep between two looks at links that are busy: they are not watched by a signal.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// While the links are idle a gap is this part of the last call, and at least so long that a thread
/// which waits for the driver's lock has woken up and taken it.
const IDLE_PART: u32 = 2;
const SHORTEST_GAP: Duration = Duration::from_micros(200);

/// A gap that grew with a call that took unusually long is cut here, so that one hiccup does not
/// delay everything.
const LONGEST_GAP: Duration = Duration::from_millis(100);

impl Pace {
    /// Whether the next registration may begin, `since` after the end of the last one, which took
    /// `took`. `None` for both before the first.
    pub(crate) fn decide(self, now: Moment, last: Option<(Duration, Duration)>) -> Decision {
        if now.held {
            return Decision::Stop;
        }
        let Some((took, since)) = last else { return Decision::Go };
        match self {
            Pace::Unpaced => Decision::Go,
            _ if now.idle && now.age >= NEW => after(took / IDLE_PART, since),
            Pace::WhenIdle if now.idle => after(took, since),
            Pace::WhenIdle => Decision::Wait(LOOK_AGAIN),
            Pace::Gaps(times) => after(took.mul_f32(times.max(0.0)), since),
        }
    }
}

/// Goes once a gap has passed, `since` after its begin.
fn after(gap: Duration, since: Duration) -> Decision {
    match gap.clamp(SHORTEST_GAP, LONGEST_GAP).checked_sub(since) {
        None | Some(Duration::ZERO) => Decision::Go,
        Some(rest) => Decision::Wait(rest.min(LOOK_AGAIN)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Of an arena that is not new.
    fn now(held: bool, idle: bool) -> Moment {
        Moment { held, idle, age: NEW }
    }

    #[test]
    fn a_new_arena_leaves_long_gaps_also_while_the_links_are_idle() {
        let new = Moment { age: NEW - MS, ..now(false, true) };
        for pace in [Pace::Gaps(1.0), Pace::WhenIdle] {
            assert!(matches!(pace.decide(new, Some((8 * MS, 7 * MS))), Decision::Wait(_)));
            assert_eq!(pace.decide(new, Some((8 * MS, 8 * MS))), Decision::Go);
            assert_eq!(pace.decide(now(false, true), Some((8 * MS, 4 * MS))), Decision::Go);
        }
    }

    #[test]
    fn nothing_is_registered_while_a_save_waits() {
        for pace in [Pace::Unpaced, Pace::Gaps(1.0), Pace::WhenIdle] {
            assert_eq!(pace.decide(now(true, true), None), Decision::Stop);
            assert_eq!(pace.decide(now(true, false), Some((MS, 100 * MS))), Decision::Stop);
        }
    }

    #[test]
    fn idle_links_get_a_short_gap_for_what_is_no_copy() {
        let last = Some((8 * MS, Duration::ZERO));
        assert_eq!(Pace::Unpaced.decide(now(false, true), last), Decision::Go);
        for pace in [Pace::Gaps(1.0), Pace::WhenIdle] {
            assert_eq!(pace.decide(now(false, true), last), Decision::Wait(MS));
            assert_eq!(pace.decide(now(false, true), Some((8 * MS, 4 * MS))), Decision::Go);
            let short = Some((SHORTEST_GAP, Duration::ZERO));
            assert_eq!(pace.decide(now(false, true), short), Decision::Wait(SHORTEST_GAP));
            assert_eq!(
                pace.decide(now(false, true), None),
                Decision::Go,
                "nothing is before the first"
            );
        }
    }

    #[test]
    fn busy_links_get_a_gap_as_long_as_the_last_call() {
        let pace = Pace::default();
        assert!(matches!(
            pace.decide(now(false, false), Some((5 * MS, 4 * MS))),
            Decision::Wait(_)
        ));
        assert_eq!(pace.decide(now(false, false), Some((5 * MS, 5 * MS))), Decision::Go);
    }

    #[test]
    fn a_pace_that_needs_idle_links_waits_for_them() {
        let late = Some((MS, Duration::from_secs(10)));
        assert!(matches!(Pace::WhenIdle.decide(now(false, false), late), Decision::Wait(_)));
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_gap_that_is_left(
            took in 0u64..200_000, since in 0u64..200_000, times in 0.0f32..4.0,
        ) {
            let (took, since) = (Duration::from_micros(took), Duration::from_micros(since));
            let gap = took.mul_f32(times).clamp(SHORTEST_GAP, LONGEST_GAP);
            match Pace::Gaps(times).decide(now(false, false), Some((took, since))) {
                Decision::Go => prop_assert!(since >= gap),
                Decision::Wait(time) => {
                    prop_assert!(since < gap);
                    prop_assert!(time <= gap - since && time > Duration::ZERO);
                }
                Decision::Stop => prop_assert!(false, "nothing holds it"),
            }
        }
    }
}
