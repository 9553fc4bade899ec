//! Reduction of a failing run: lives, threads, faults and steps are removed as long as the same
//! rule is broken (delta debugging, Zeller and Hildebrandt, 2002, on each script).

use unspool_core::Nanos;

use crate::check::{Rule, Violation};
use crate::plan::Plan;
use crate::plan::faults::Faults;
use crate::plan::script::Care;
use crate::report::{Failure, run_plan};

/// Maximum number of runs.
const MOST_RUNS: usize = 3000;

/// Whether two violations are of the same kind: the same rule, and the same first words.
fn is_alike(one: &Violation, other: &Violation) -> bool {
    let words = |violation: &Violation| -> Vec<String> {
        violation.what.split(' ').take(2).map(str::to_owned).collect()
    };
    one.rule == other.rule && (words(one) == words(other) || one.rule == Rule::Assertion)
}

struct Shrinker {
    best: Failure,
    runs: usize,
}

/// The smallest run found that breaks the same rule.
#[must_use]
pub fn shrink(failure: &Failure) -> Failure {
    let mut shrinker = Shrinker { best: failure.clone(), runs: 0 };
    loop {
        let before = (shrinker.best.plan.steps(), shrinker.best.plan.clone());
        shrinker.drop_threads();
        shrinker.calm_down();
        shrinker.drop_steps();
        shrinker.simplify_steps();
        if before == (shrinker.best.plan.steps(), shrinker.best.plan.clone()) {
            return shrinker.best;
        }
    }
}

impl Shrinker {
    /// Keeps the reduced plan if it breaks the same rule.
    fn try_plan(&mut self, plan: Plan) -> bool {
        if self.runs >= MOST_RUNS || plan == self.best.plan {
            return false;
        }
        self.runs += 1;
        match run_plan(plan) {
            Err(failure) if is_alike(&failure.violation, &self.best.violation) => {
                self.best = *failure;
                true
            }
            _ => false,
        }
    }

    fn try_change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.plan.clone();
        change(&mut plan);
        self.try_plan(plan)
    }

    fn drop_threads(&mut self) {
        if self.best.plan.lives.len() > 1 {
            self.try_change(|plan| drop(plan.lives.remove(0)));
        }
        for life in 0..self.best.plan.lives.len() {
            for thread in (0..self.best.plan.lives[life].threads.len()).rev() {
                self.try_change(|plan| drop(plan.lives[life].threads.remove(thread)));
            }
        }
    }

    /// Removes faults and delays, one kind after the other.
    fn calm_down(&mut self) {
        let changes: [fn(&mut Plan); 23] = [
            |plan| plan.faults = Faults::none(),
            |plan| plan.faults.io = 0.0,
            |plan| plan.faults.permanent = 0.0,
            |plan| plan.faults.no_space = 0.0,
            |plan| plan.faults.medium = None,
            |plan| plan.faults.corrupt = 0.0,
            |plan| plan.faults.missing = 0.0,
            |plan| plan.faults.delete = 0.0,
            |plan| plan.faults.direct_write = 0.0,
            |plan| plan.faults.tick = 0.0,
            |plan| plan.faults.shrinks = None,
            |plan| plan.faults.loses = None,
            |plan| plan.codec = None,
            |plan| plan.codec.iter_mut().for_each(|codec| codec.fails = 0.0),
            |plan| plan.codec.iter_mut().for_each(|codec| codec.report_delay = Nanos(0)),
            |plan| plan.codec.iter_mut().for_each(|codec| codec.asynchronous = 0.0),
            |plan| plan.machine.stream_ordered = false,
            |plan| plan.machine.user_streams = 1,
            |plan| plan.machine.report_delay = Nanos(0),
            |plan| plan.machine.answer_delay = Nanos(0),
            |plan| plan.config.discard_after_restore = false,
            |plan| plan.config.durable = false,
            |plan| plan.learns = false,
        ];
        for change in changes {
            self.try_change(change);
        }
    }

    fn drop_steps(&mut self) {
        let scripts = self.best.plan.scripts_mut().count();
        for script in 0..scripts {
            let mut size = self.script_len(script).div_ceil(2).max(1);
            loop {
                self.drop_chunks(script, size);
                if size == 1 {
                    break;
                }
                size = size.div_ceil(2);
            }
        }
    }

    fn script_len(&mut self, script: usize) -> usize {
        self.best.plan.scripts_mut().nth(script).map_or(0, |script| script.steps.len())
    }

    fn drop_chunks(&mut self, script: usize, size: usize) {
        let mut at = 0;
        while at < self.script_len(script) {
            let dropped = self.try_change(|plan| {
                let Some(script) = plan.scripts_mut().nth(script) else { return };
                let end = script.steps.len().min(at + size);
                script.steps.drain(at..end);
            });
            if !dropped {
                at += size;
            }
        }
    }

    /// Removes aborts and delays from the steps.
    fn simplify_steps(&mut self) {
        let scripts = self.best.plan.scripts_mut().count();
        for script in 0..scripts {
            for step in 0..self.script_len(script) {
                self.try_change(|plan| {
                    let Some(script) = plan.scripts_mut().nth(script) else { return };
                    if let Some(care) = script.steps[step].care_mut() {
                        *care = Care::default();
                    }
                });
            }
        }
    }
}
