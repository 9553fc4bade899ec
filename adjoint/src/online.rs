//! OnlineRevolve: which states to keep while the number of steps is not known yet.
//!
//! Stumm and Walther, "New algorithms for optimal online checkpointing", SIAM J. Sci. Comput.
//! 32(2), 2010: while the forward pass goes on, a copy is given up for every new one, such that
//! whenever the pass ends the kept states lie about where Revolve would have put them.
//! [`placing`] decides that. [`sweep`] is the reverse sweep from the states that are kept then.
//!
//! What is compared here is the number of steps advanced over. The pass reaches state `n`, one
//! further than that of a schedule which knows `n`, so the bound is Revolve's for `n + 1` steps
//! ([`advances`](super::revolve::advances)`(n + 1, slots)`, at most the repetition number more than
//! for `n`). For `n` up to `binom(slots + 2, 2)` it is met; up to `binom(slots + 3, 3)` it is
//! missed by a step or two, and in general by up to a few percent, by 12 with two slots:
//! `online/tests.rs` has the numbers.

mod placing;
mod sweep;

use alloc::vec::Vec;

use self::placing::Placing;
use self::sweep::{Sweep, SweepState};
use super::{Action, Schedule, ScheduleError};

/// A schedule for a number of steps that becomes known only at the end of the forward pass.
///
/// It yields `Forward { from, to }` where `to` is a place at which it has something to do; the
/// caller may stop at any state of `from..=to` and call [`finish`](Schedule::finish) with that
/// state's step, before it asks for the next action. With one slot there is nothing to do but to
/// advance: `to` is `u64::MAX` then, and without `finish` nothing follows.
#[derive(Clone, Debug)]
pub struct OnlineRevolve {
    slots: u64,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Forward(Placing),
    Reverse { steps: u64, kept: Vec<SweepState>, sweep: Sweep },
}

impl OnlineRevolve {
    /// A schedule with at most so many copies at a time.
    ///
    /// # Errors
    /// There is no slot.
    pub fn new(slots: u64) -> Result<OnlineRevolve, ScheduleError> {
        if slots == 0 {
            return Err(ScheduleError::TooFewSlots { slots, needed: 1 });
        }
        Ok(OnlineRevolve { slots, phase: Phase::Forward(Placing::new(slots)) })
    }
}

impl Iterator for OnlineRevolve {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        match &mut self.phase {
            Phase::Forward(placing) => placing.next(),
            Phase::Reverse { kept, sweep, .. } => sweep.next(kept),
        }
    }
}

impl Schedule for OnlineRevolve {
    fn steps(&self) -> Option<u64> {
        match self.phase {
            Phase::Forward(_) => None,
            Phase::Reverse { steps, .. } => Some(steps),
        }
    }

    fn slots(&self) -> u64 {
        self.slots
    }

    /// Reports that the forward pass has ended with the working state being state `steps`.
    ///
    /// # Errors
    /// [`ScheduleError::NoSteps`] for 0, [`ScheduleError::NotThere`] when the working state cannot
    /// be that one (nothing has changed then, and it may be called again with another), and
    /// [`ScheduleError::StepsAreKnown`] the second time.
    fn finish(&mut self, steps: u64) -> Result<(), ScheduleError> {
        let Phase::Forward(placing) = &self.phase else {
            return Err(ScheduleError::StepsAreKnown { steps: self.steps().unwrap_or(steps) });
        };
        if steps == 0 {
            return Err(ScheduleError::NoSteps);
        }
        let (from, to) = placing.between();
        if !(from..=to).contains(&steps) {
            return Err(ScheduleError::NotThere { steps, from, to });
        }
        let kept: Vec<SweepState> = placing.kept().map(SweepState::new).collect();
        let sweep = Sweep::new(steps, self.slots, &kept);
        self.phase = Phase::Reverse { steps, kept, sweep };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
