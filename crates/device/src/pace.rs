//! When the next registration may begin.
//!
//! A registration holds a lock of the driver, and that lock is not fair: chunks registered back to
//! back starve the copies of other threads, however small the chunks are. So a chunk is registered
//! after a short gap while no copy is under way, else after one at least as long as the last call
//! took, which lets every waiting copy through; and never while a save waits for room. The short
//! gap is for everything that needs the same lock and is no copy, such as launching a kernel or
//! recording an event on another thread: without it a single call was seen to wait for 30 and 130
//! ms behind registrations made back to back.
//!
//! The figures are in docs/decisions/0020-pacing-registrations.md.

use std::time::Duration;

/// How registrations are spaced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Back to back: the shortest time until everything is registered, at the cost of copies that
    /// run meanwhile.
    Unpaced,
    /// After an eighth of the last call while the links are idle; else after a gap of this many
    /// times the last call.
    Gaps(f32),
    /// Only while the links are idle, after an eighth of the last call.
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

/// Longest sleep between two looks at links that are busy: they are not watched by a signal.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// While the links are idle a gap is this part of the last call, and at least so long that a thread
/// which waits for the driver's lock has woken up and taken it.
const IDLE_PART: u32 = 8;
const SHORTEST_GAP: Duration = Duration::from_micros(100);

/// A gap that grew with a call that took unusually long is cut here, so that one hiccup does not
/// delay everything.
const LONGEST_GAP: Duration = Duration::from_millis(100);

impl Pace {
    /// Whether the next registration may begin, `since` after the end of the last one, which took
    /// `took`. `None` for both before the first.
    pub(crate) fn decide(
        self,
        held: bool,
        idle: bool,
        last: Option<(Duration, Duration)>,
    ) -> Decision {
        if held {
            return Decision::Stop;
        }
        let Some((took, since)) = last else { return Decision::Go };
        match self {
            Pace::Unpaced => Decision::Go,
            _ if idle => after(took / IDLE_PART, since),
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

    #[test]
    fn nothing_is_registered_while_a_save_waits() {
        for pace in [Pace::Unpaced, Pace::Gaps(1.0), Pace::WhenIdle] {
            assert_eq!(pace.decide(true, true, None), Decision::Stop);
            assert_eq!(pace.decide(true, false, Some((MS, 100 * MS))), Decision::Stop);
        }
    }

    #[test]
    fn idle_links_get_a_short_gap_for_what_is_no_copy() {
        let now = Some((8 * MS, Duration::ZERO));
        assert_eq!(Pace::Unpaced.decide(false, true, now), Decision::Go);
        for pace in [Pace::Gaps(1.0), Pace::WhenIdle] {
            assert_eq!(pace.decide(false, true, now), Decision::Wait(MS));
            assert_eq!(pace.decide(false, true, Some((8 * MS, MS))), Decision::Go);
            let short = Some((SHORTEST_GAP, Duration::ZERO));
            assert_eq!(pace.decide(false, true, short), Decision::Wait(SHORTEST_GAP));
            assert_eq!(pace.decide(false, true, None), Decision::Go, "nothing is before the first");
        }
    }

    #[test]
    fn busy_links_get_a_gap_as_long_as_the_last_call() {
        let pace = Pace::default();
        assert!(matches!(pace.decide(false, false, Some((5 * MS, 4 * MS))), Decision::Wait(_)));
        assert_eq!(pace.decide(false, false, Some((5 * MS, 5 * MS))), Decision::Go);
    }

    #[test]
    fn a_pace_that_needs_idle_links_waits_for_them() {
        let late = Some((MS, Duration::from_secs(10)));
        assert!(matches!(Pace::WhenIdle.decide(false, false, late), Decision::Wait(_)));
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_gap_that_is_left(
            took in 0u64..200_000, since in 0u64..200_000, times in 0.0f32..4.0,
        ) {
            let (took, since) = (Duration::from_micros(took), Duration::from_micros(since));
            let gap = took.mul_f32(times).clamp(SHORTEST_GAP, LONGEST_GAP);
            match Pace::Gaps(times).decide(false, false, Some((took, since))) {
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
