//! The one interpreter of schedules: it follows the actions, says which rule the first wrong one
//! breaks, and counts what they cost.
//!
//! It knows which state the working state is and which copies exist, so a schedule that passes can
//! be carried out whatever the states are. The rules are the variants of [`Rule`].

use alloc::collections::BTreeSet;

use super::fault::{Fault, Rule};
use super::{Action, Schedule};
use unspool_core::TierKind;

/// How many kinds of tiers there are.
const KINDS: usize = 4;

/// What a schedule may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The number of steps; without it the first `Reverse` decides.
    pub steps: Option<u64>,
    /// The most copies at a time, in all tiers together.
    pub slots: u64,
    /// The most copies at a time in each tier, by [`TierKind`] as a number; copies that name no
    /// tier count towards `slots` alone.
    pub tiers: [u64; KINDS],
}

impl Limits {
    /// Limits that allow everything.
    #[must_use]
    pub fn none() -> Limits {
        Limits { steps: None, slots: u64::MAX, tiers: [u64::MAX; KINDS] }
    }

    /// The number of steps and of copies that the schedule itself gives.
    #[must_use]
    pub fn of(schedule: &impl Schedule) -> Limits {
        Limits { steps: schedule.steps(), slots: schedule.slots(), ..Limits::none() }
    }

    /// These limits, with at most so many copies in that tier.
    #[cfg(test)]
    pub(crate) fn with_tier(mut self, kind: TierKind, slots: u64) -> Limits {
        self.tiers[kind as usize] = slots;
        self
    }
}

/// What a schedule costs. Sums stop at `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// The number of steps: known from the limits or from the first `Reverse`, 0 before.
    pub steps: u64,
    /// Steps advanced over by `Forward`. The pass in which a step is reversed is not counted.
    pub advances: u64,
    /// Copies made.
    pub saves: u64,
    /// Copies read.
    pub restores: u64,
    /// Steps reversed.
    pub reverses: u64,
    /// Copies given up.
    pub discards: u64,
    /// The most copies at a time, in all tiers together.
    pub peak: u64,
    /// The most copies at a time in each tier, by [`TierKind`] as a number.
    pub tiers: [u64; KINDS],
}

impl Counts {
    /// Steps advanced over more than once: storing everything needs `steps - 1` advances.
    #[must_use]
    pub fn recomputed(&self) -> u64 {
        self.advances.saturating_sub(self.steps.saturating_sub(1))
    }

    /// The most copies at a time in that tier.
    #[must_use]
    pub fn peak_of(&self, kind: TierKind) -> u64 {
        self.tiers[kind as usize]
    }
}

/// A kept copy: the step, and the tier that it was saved with.
type KeptCopy = (u64, Option<TierKind>);

/// Follows a schedule action by action.
///
/// Where the number of steps is not known, [`Interpreter::stopped_at`] reports it.
#[derive(Clone, Debug)]
pub struct Interpreter {
    limits: Limits,
    counts: Counts,
    /// Actions seen, which is the place of the next one.
    seen: u64,
    /// The step of the working state; `None` when no action may rely on it.
    working: Option<u64>,
    /// The farthest state that was computed.
    farthest: u64,
    /// Where the last action began if it was a `Forward`, which may still be cut short.
    begun: Option<u64>,
    /// Steps that are left to reverse, once their number is known.
    left: Option<u64>,
    kept: BTreeSet<KeptCopy>,
    kept_in: [u64; KINDS],
    ended: bool,
}

impl Interpreter {
    /// An interpreter before the first action, whose working state is state 0.
    #[must_use]
    pub fn new(limits: Limits) -> Interpreter {
        Interpreter {
            limits,
            counts: Counts { steps: limits.steps.unwrap_or(0), ..Counts::default() },
            seen: 0,
            working: Some(0),
            farthest: 0,
            begun: None,
            left: limits.steps,
            kept: BTreeSet::new(),
            kept_in: [0; KINDS],
            ended: false,
        }
    }

    /// Follows one action.
    ///
    /// # Errors
    /// The action breaks a rule. Nothing of it was carried out, and results of later actions are
    /// meaningless.
    pub fn see(&mut self, action: &Action) -> Result<(), Fault> {
        let place = self.seen;
        self.carry_out(action).map_err(|rule| Fault { place, action: Some(*action), rule })?;
        self.seen += 1;
        self.begun = match *action {
            Action::Forward { from, .. } => Some(from),
            _ => None,
        };
        debug_assert_eq!(self.kept.len() as u64, self.counts.saves - self.counts.discards);
        Ok(())
    }

    /// Notes that the forward pass has ended with the working state being state `steps`: the
    /// `Forward` that was seen last went so far and no further.
    ///
    /// # Errors
    /// The number of steps was known already, or the last action did not lead to that state.
    pub fn stopped_at(&mut self, steps: u64) -> Result<(), Fault> {
        let fault = |rule| Fault { place: self.seen, action: None, rule };
        if let Some(steps) =
            self.limits.steps.or((self.counts.reverses > 0).then_some(self.counts.steps))
        {
            return Err(fault(Rule::StepsAreKnown { steps }));
        }
        let to = self.working;
        let from = self.begun.or(to);
        if steps == 0 || from.is_none_or(|from| steps < from) || to.is_none_or(|to| steps > to) {
            return Err(fault(Rule::NotThere { steps, from, to }));
        }
        let undone = to.map_or(0, |to| to - steps);
        self.counts.advances = self.counts.advances.saturating_sub(undone);
        self.counts.steps = steps;
        self.limits.steps = Some(steps);
        (self.working, self.left, self.begun) = (Some(steps), Some(steps), None);
        Ok(())
    }

    /// What was counted until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The step of the working state; `None` when no action may rely on it.
    #[must_use]
    pub fn working(&self) -> Option<u64> {
        self.working
    }

    /// The kept copies by step.
    pub fn kept(&self) -> impl Iterator<Item = (u64, Option<TierKind>)> {
        self.kept.iter().copied()
    }

    /// All counts, once `End` was seen.
    ///
    /// # Errors
    /// `End` was not seen: the schedule stops too early.
    pub fn finish(&self) -> Result<Counts, Fault> {
        if self.ended {
            return Ok(self.counts);
        }
        Err(Fault { place: self.seen, action: None, rule: Rule::NoEnd })
    }

    fn carry_out(&mut self, action: &Action) -> Result<(), Rule> {
        if self.ended {
            return Err(Rule::AfterEnd);
        }
        match *action {
            Action::Forward { from, to } => self.forward(from, to),
            Action::Save { step, tier } => self.save((step, tier)),
            Action::Restore { step, tier } => self.restore((step, tier)),
            Action::Reverse { step } => self.reverse(step),
            Action::Discard { step, tier } => self.discard((step, tier)),
            Action::End => self.end(),
        }
    }

    fn needs(&self, step: u64) -> Result<(), Rule> {
        if self.working == Some(step) {
            return Ok(());
        }
        Err(Rule::WrongState { needed: step, working: self.working })
    }

    fn forward(&mut self, from: u64, to: u64) -> Result<(), Rule> {
        self.needs(from)?;
        if to <= from {
            return Err(Rule::NoAdvance);
        }
        match self.left {
            Some(left) if to >= left => return Err(Rule::TooFar { left }),
            _ => {}
        }
        self.working = Some(to);
        self.farthest = self.farthest.max(to);
        self.counts.advances = self.counts.advances.saturating_add(to - from);
        Ok(())
    }

    fn save(&mut self, copy: KeptCopy) -> Result<(), Rule> {
        self.needs(copy.0)?;
        if self.kept.contains(&copy) {
            return Err(Rule::KeptAlready);
        }
        let total = self.kept.len() as u64 + 1;
        if total > self.limits.slots {
            return Err(Rule::Full { slots: self.limits.slots, tier: None });
        }
        if let Some(kind) = copy.1 {
            self.take_place(kind)?;
        }
        let new = self.kept.insert(copy);
        debug_assert!(new, "{copy:?} was kept already");
        self.counts.saves += 1;
        self.counts.peak = self.counts.peak.max(total);
        Ok(())
    }

    fn take_place(&mut self, kind: TierKind) -> Result<(), Rule> {
        let (kept, slots) = (self.kept_in[kind as usize] + 1, self.limits.tiers[kind as usize]);
        if kept > slots {
            return Err(Rule::Full { slots, tier: Some(kind) });
        }
        self.kept_in[kind as usize] = kept;
        let peak = &mut self.counts.tiers[kind as usize];
        *peak = (*peak).max(kept);
        Ok(())
    }

    fn restore(&mut self, copy: KeptCopy) -> Result<(), Rule> {
        if !self.kept.contains(&copy) {
            return Err(Rule::NotKept);
        }
        self.working = Some(copy.0);
        self.counts.restores += 1;
        Ok(())
    }

    fn reverse(&mut self, step: u64) -> Result<(), Rule> {
        let left = match self.left {
            Some(left) => left,
            None => self.decided_by(step)?,
        };
        if left.checked_sub(1) != Some(step) {
            return Err(Rule::OutOfOrder { next: left.checked_sub(1) });
        }
        self.needs(step)?;
        self.left = Some(step);
        self.counts.steps = self.counts.steps.max(left);
        self.counts.reverses += 1;
        self.working = None;
        Ok(())
    }

    /// The number of steps if reversing `step` begins the reverse sweep: the pass may have stopped
    /// before that step or after it, but no further.
    fn decided_by(&self, step: u64) -> Result<u64, Rule> {
        match step.checked_add(1) {
            Some(steps) if steps >= self.farthest => Ok(steps),
            _ => Err(Rule::OutOfOrder { next: self.farthest.checked_sub(1) }),
        }
    }

    fn discard(&mut self, copy: KeptCopy) -> Result<(), Rule> {
        if !self.kept.remove(&copy) {
            return Err(Rule::NotKept);
        }
        if let Some(kind) = copy.1 {
            self.kept_in[kind as usize] -= 1;
        }
        self.counts.discards += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Rule> {
        match self.left {
            Some(0) if self.counts.reverses > 0 => {}
            left => return Err(Rule::NotReversed { left: left.filter(|left| *left > 0) }),
        }
        if !self.kept.is_empty() {
            return Err(Rule::StillKept { copies: self.kept.len() as u64 });
        }
        debug_assert_eq!(self.counts.steps, self.counts.reverses);
        self.ended = true;
        Ok(())
    }
}

/// Follows a whole schedule within these limits.
///
/// # Errors
/// The first action that breaks a rule, or that there is no `End`.
pub fn check(actions: impl IntoIterator<Item = Action>, limits: Limits) -> Result<Counts, Fault> {
    let mut interpreter = Interpreter::new(limits);
    for action in actions {
        interpreter.see(&action)?;
    }
    interpreter.finish()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "check_model_tests.rs"]
mod model_tests;
