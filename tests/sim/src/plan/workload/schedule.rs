//! Random schedules of an adjoint: any list of actions that the interpreter of schedules accepts,
//! with copies that are restored often, given up early, or saved again.

use unspool_core::{Nanos, Version};
use unspool_schedule::Action;

use crate::plan::script::Step;
use crate::random::Random;

/// How actions become steps of a script.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Duration of one step forward.
    pub forward: Nanos,
    /// Duration of one step of the adjoint.
    pub reverse: Nanos,
    /// Number of restores that are announced ahead; 0 for none.
    pub lookahead: usize,
}

/// A valid schedule of `steps` steps that keeps at most `slots` states, both at least 1.
///
/// State 0 is kept to the end, so that everything can be recomputed.
#[must_use]
pub fn random_actions(random: &mut Random, steps: u64, slots: usize) -> Vec<Action> {
    let mut walk = Walk { random, slots, kept: vec![], at: Some(0), left: steps, actions: vec![] };
    walk.save(0);
    while walk.left > 0 {
        walk.go_on();
    }
    walk.forget_from(0);
    walk.actions.push(Action::End);
    walk.actions
}

struct Walk<'a> {
    random: &'a mut Random,
    slots: usize,
    kept: Vec<u64>,
    /// The working state, if it can be used.
    at: Option<u64>,
    /// Steps that remain to be reversed.
    left: u64,
    actions: Vec<Action>,
}

impl Walk<'_> {
    fn go_on(&mut self) {
        let target = self.left - 1;
        match self.at {
            Some(at) if at == target => self.reverse(),
            Some(at) if at < target && !self.random.chance(0.03) => self.advance(at, target),
            _ => self.restore(target),
        }
    }

    fn reverse(&mut self) {
        self.left -= 1;
        self.actions.push(Action::Reverse { step: self.left });
        self.at = None;
        self.forget_from(self.left.max(1));
    }

    fn advance(&mut self, from: u64, target: u64) {
        if self.kept.len() < self.slots && self.random.chance(0.7) {
            self.save(from);
        }
        let to = from + 1 + self.random.below(target - from);
        self.actions.push(Action::Forward { from, to });
        self.at = Some(to);
        if self.random.chance(0.05) {
            self.give_one_up();
        }
    }

    /// Restores from the nearest copy, sometimes from another.
    fn restore(&mut self, target: u64) {
        let reachable: Vec<u64> = self.kept.iter().copied().filter(|s| *s <= target).collect();
        let nearest = reachable.iter().copied().max().expect("state 0 is kept");
        let step = if self.random.chance(0.85) { nearest } else { self.random.pick(&reachable) };
        self.actions.push(Action::Restore { step, tier: None });
        self.at = Some(step);
    }

    fn save(&mut self, step: u64) {
        if !self.kept.contains(&step) {
            self.kept.push(step);
            self.actions.push(Action::Save { step, tier: None });
        }
    }

    fn give_one_up(&mut self) {
        let others: Vec<u64> = self.kept.iter().copied().filter(|step| *step > 0).collect();
        if !others.is_empty() {
            let step = self.random.pick(&others);
            self.discard(step);
        }
    }

    fn forget_from(&mut self, first: u64) {
        let useless: Vec<u64> = self.kept.iter().copied().filter(|step| *step >= first).collect();
        useless.into_iter().for_each(|step| self.discard(step));
    }

    fn discard(&mut self, step: u64) {
        self.kept.retain(|kept| *kept != step);
        self.actions.push(Action::Discard { step, tier: None });
    }
}

/// The calls of an application that follows a schedule. Versions are `base` plus the step; each
/// restore is announced `lookahead` restores before it, and the last restore of each copy as the
/// last.
pub fn script(
    actions: &[Action],
    base: i64,
    pace: Pace,
    mut bytes: impl FnMut() -> u64,
) -> Vec<Step> {
    let hints = hints(actions, base);
    let (first, mut later) = (pace.lookahead.min(hints.len()), pace.lookahead);
    let mut steps = hints[..first].to_vec();
    let version = |step: u64| base + i64::try_from(step).expect("few steps");
    for action in actions {
        match *action {
            Action::Forward { from, to } => {
                steps.push(Step::Compute(Nanos((to - from) * pace.forward.0)));
            }
            Action::Reverse { .. } => steps.push(Step::Compute(pace.reverse)),
            Action::Save { step, .. } => steps.push(Step::save(version(step), bytes())),
            Action::Restore { step, .. } => {
                if pace.lookahead > 0 {
                    steps.extend(hints.get(later).copied());
                    later += 1;
                }
                steps.push(Step::restore(version(step)));
            }
            Action::Discard { step, .. } => steps.push(Step::Discard(Version(version(step)))),
            Action::End => {}
        }
    }
    steps
}

/// One hint for each restore.
fn hints(actions: &[Action], base: i64) -> Vec<Step> {
    let is_last = |at: usize, step: u64| {
        let next = actions[at + 1..].iter().find(|action| match **action {
            Action::Restore { step: s, .. } | Action::Discard { step: s, .. } => s == step,
            _ => false,
        });
        matches!(next, Some(Action::Discard { .. }))
    };
    let hint = |(at, action): (usize, &Action)| {
        let Action::Restore { step, .. } = *action else { return None };
        let version = Version(base + i64::try_from(step).expect("few steps"));
        let last = is_last(at, step);
        Some(if last { Step::ExpectLast(version) } else { Step::Expect(version) })
    };
    actions.iter().enumerate().filter_map(hint).collect()
}

/// The steps of the application, with random sizes.
pub(super) fn steps(random: &mut Random, sizes: &super::Sizes, base: i64) -> Vec<Step> {
    let steps = random.magnitude(2.0, 60.0) as u64;
    let slots = random.range(1, 10) as usize;
    let actions = random_actions(random, steps, slots);
    let time = |random: &mut Random| Nanos(random.magnitude(1.0, 1e5) as u64);
    let (forward, reverse) = (time(random), time(random));
    let lookahead = random.pick(&[0, 1, 3, 10, 1000]);
    let pace = Pace { forward, reverse, lookahead };
    script(&actions, base, pace, || sizes.draw(random))
}
