//! Revolve: the fewest recomputed steps that a number of slots allows.
//!
//! Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26(1), 2000. A chain is the steps from
//! a kept state to the first step that is reversed already. One of `l > 1` steps with `s` slots,
//! its first state's own among them, is split: advance over `m` steps, keep the state there,
//! reverse the `l - m` steps after it with `s - 1` slots, then go back to the first state and
//! reverse the `m` steps before with `s`. [`binomial`] has the numbers of the paper: `m`, and what
//! it costs in total. Within a chain everything that `m` needs follows from its last value by
//! subtraction and one division, so an action takes constant time and a kept state a few numbers.

pub mod binomial;

use alloc::vec::Vec;

use self::binomial::Split;
use super::walk::{Next, Walk};
use super::{Action, Schedule, ScheduleError};

pub use binomial::{advances, saves};

/// The binomial schedule for a known number of steps.
///
/// It makes [`advances`] steps and [`saves`] copies, the fewest possible, and `steps - 1` restores:
/// one before each `Reverse` but the first.
#[derive(Clone, Debug)]
pub struct Revolve {
    steps: u64,
    slots: u64,
    /// Steps that are left to reverse.
    left: u64,
    /// The working state's step.
    at: u64,
    /// The kept states, upwards. The chain of the last one is being reversed.
    kept: Vec<SplitChain>,
    next: Next,
}

/// A kept state, and how the steps after it are split.
#[derive(Clone, Copy, Debug)]
struct SplitChain {
    start: u64,
    split: Split,
}

impl Revolve {
    /// A schedule for so many steps with at most so many copies at a time; more slots than
    /// `steps - 1` are not used.
    ///
    /// # Errors
    /// There are no steps, or there is no slot although there are two steps or more.
    pub fn new(steps: u64, slots: u64) -> Result<Revolve, ScheduleError> {
        let next = Next::first(steps, slots)?;
        let slots = slots.min(steps - 1);
        Ok(Revolve { steps, slots, left: steps, at: 0, kept: Vec::new(), next })
    }
}

impl Walk for Revolve {
    #[inline]
    fn next_kind(&mut self) -> &mut Next {
        &mut self.next
    }

    #[inline]
    fn at(&self) -> u64 {
        self.at
    }

    fn save(&mut self) -> Action {
        let length = self.left - self.at;
        let split = match self.kept.last() {
            Some(chain) => chain.split.after(length),
            None => Split::new(length, self.slots),
        };
        debug_assert!((self.kept.len() as u64) < self.slots, "every slot is taken");
        self.kept.push(SplitChain { start: self.at, split });
        self.next = Next::Forward;
        Action::Save { step: self.at, tier: None }
    }

    /// Advances from the last kept state, which is the working state, with two steps or more left.
    fn forward(&mut self) -> Action {
        let from = self.at;
        let over = self.kept.last().map_or(1, |chain| chain.split.advance(self.left - from));
        self.at = from + over;
        debug_assert!(self.at < self.left, "past the state of the last step");
        self.next = if self.left - self.at == 1 { Next::Reverse } else { Next::Save };
        Action::Forward { from, to: self.at }
    }

    fn restore(&mut self) -> Action {
        if let Some(chain) = self.kept.last_mut() {
            debug_assert!(chain.start < self.left, "a chain that is worked off is given up");
            self.at = chain.start;
            let length = self.left - chain.start;
            self.next = if length == 1 { Next::Discard } else { Next::Forward };
            chain.split.shorten(length);
        }
        Action::Restore { step: self.at, tier: None }
    }

    fn discard(&mut self) -> Action {
        self.kept.pop();
        self.next = Next::Reverse;
        Action::Discard { step: self.at, tier: None }
    }

    fn reverse(&mut self) -> Action {
        debug_assert!(self.left > 0, "every step is reversed");
        self.left -= 1;
        self.next = if self.left == 0 { Next::End } else { Next::Restore };
        Action::Reverse { step: self.left }
    }
}

impl Iterator for Revolve {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        self.go_on()
    }
}

impl Schedule for Revolve {
    fn steps(&self) -> Option<u64> {
        Some(self.steps)
    }

    fn slots(&self) -> u64 {
        self.slots
    }
}

#[cfg(test)]
mod tests;
