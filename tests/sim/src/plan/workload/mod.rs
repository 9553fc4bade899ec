//! Random applications: adjoints, Revolve, producers and consumers, random calls.

mod adjoint;
mod chaos;
mod revolve;
pub mod schedule;
mod sizes;

use std::collections::BTreeSet;

use unspool_core::{Config, MAX_TIERS, Nanos, TierId, TierKind};

use crate::plan::script::{Care, Life, Script, Step};
use crate::random::Random;

pub use sizes::Sizes;

/// The lives of a random application: one, or several with a crash between them.
pub fn lives(random: &mut Random, config: &Config) -> Vec<Life> {
    let stores = config.tiers.iter().any(|tier| !tier.kind.is_arena());
    let count = if stores && random.chance(0.3) { random.range(2, 3) } else { 1 };
    let sizes = Sizes::random(random, config);
    (0..count).map(|index| life(random, &sizes, index, index + 1 < count)).collect()
}

fn life(random: &mut Random, sizes: &Sizes, index: u64, crashes: bool) -> Life {
    let threads = random.pick(&[1, 1, 1, 2, 2, 3, 4]);
    let pace = Nanos(random.magnitude(1.0, 1e6) as u64);
    let mut scripts: Vec<Script> = (0..threads)
        .map(|thread| script(random, sizes, (index * 4 + thread) as i64 * 1000, pace))
        .collect();
    if crashes && random.chance(0.5) {
        scripts.iter_mut().for_each(|script| flush_often(random, &mut script.steps));
    }
    mishaps(random, &mut scripts);
    let crash_after = crashes.then(|| random.range(5, 400));
    Life { threads: scripts, crash_after }
}

fn script(random: &mut Random, sizes: &Sizes, base: i64, pace: Nanos) -> Script {
    let mut steps = match random.below(10) {
        0..=3 => adjoint::steps(random, sizes, base),
        4 => schedule::steps(random, sizes, base),
        5 => revolve::steps(random, sizes, base),
        6 => adjoint::consumer(random, base),
        _ => chaos::steps(random, sizes),
    };
    announce_ends(random, &mut steps);
    if random.chance(0.2) {
        steps = prefer_some(random, steps);
    }
    let mut paced = Vec::with_capacity(steps.len() * 2);
    for step in steps.drain(..) {
        if step.is_call() && random.chance(0.6) {
            paced.push(Step::Compute(Nanos(random.below(pace.0 * 2 + 1))));
        }
        paced.push(step);
    }
    Script { steps: paced }
}

/// Announces last restores of versions; some announcements are false.
fn announce_ends(random: &mut Random, steps: &mut [Step]) {
    if random.chance(0.5) {
        return;
    }
    let lies = random.pick(&[0.0, 0.0, 0.1]);
    let mut later = BTreeSet::new();
    for step in steps.iter_mut().rev() {
        let Step::Expect(version) = *step else { continue };
        if later.insert(version) != random.chance(lies) {
            *step = Step::ExpectLast(version);
        }
    }
}

/// Sets preferred tiers for some checkpoints; some of those tiers do not exist.
fn prefer_some(random: &mut Random, steps: Vec<Step>) -> Vec<Step> {
    let mut prefer = |step: &Step| match *step {
        Step::Save { version, .. } if random.chance(0.3) => {
            Some(Step::Prefer(version, TierId(random.below(MAX_TIERS as u64 + 1) as u8)))
        }
        _ => None,
    };
    steps.into_iter().flat_map(|step| [Some(step), prefer(&step)]).flatten().collect()
}

impl Step {
    /// Whether the step is a call that may wait.
    fn is_call(&self) -> bool {
        matches!(self, Step::Save { .. } | Step::Restore { .. } | Step::Flush(_))
    }
}

/// Withdrawn calls, aborted copies and tickets that stay open.
fn mishaps(random: &mut Random, scripts: &mut [Script]) {
    let mut share = |often: f64| if random.chance(0.5) { often * random.unit() } else { 0.0 };
    let (give_up, abort, keep) = (share(0.4), share(0.3), share(0.3));
    for step in scripts.iter_mut().flat_map(|script| &mut script.steps) {
        let Some(care) = step.care_mut() else { continue };
        *care = Care {
            give_up: random.chance(give_up).then(|| Nanos(random.magnitude(1.0, 1e7) as u64)),
            abort: random.chance(abort),
            keep: if random.chance(keep) { random.range(1, 4) as u8 } else { 0 },
        };
    }
}

/// Inserts calls to flush, or to stop and start prefetching, with the frequency `often`.
fn sprinkle(random: &mut Random, steps: &mut Vec<Step>, often: f64) {
    let mut at = 0;
    while at <= steps.len() {
        if random.chance(often) {
            let what = [Step::Flush(Care::default()), Step::HoldPrefetch, Step::StartPrefetch];
            steps.insert(at, random.pick(&what));
            at += 1;
        }
        at += 1;
    }
}

/// Inserts flushes before a crash: flushed checkpoints must survive it.
fn flush_often(random: &mut Random, steps: &mut Vec<Step>) {
    let mut at = random.below(10) as usize;
    while at <= steps.len() {
        steps.insert(at, Step::Flush(Care::default()));
        at += random.range(3, 20) as usize;
    }
}

/// The capacity of the largest tier that has a limit.
fn largest_arena(config: &Config) -> Option<u64> {
    config.tiers.iter().filter(|t| t.kind <= TierKind::Host).map(|t| t.capacity).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn workloads_contain_every_kind_of_step_and_mishap() {
        let plans: Vec<Plan> = (0..200).map(Plan::of_seed).collect();
        let steps: Vec<Step> = plans.into_iter().flat_map(|mut p| all_steps(&mut p)).collect();
        let has = |test: &dyn Fn(&Step) -> bool| assert!(steps.iter().any(test));
        has(&|s| matches!(s, Step::Save { bytes: 0, .. }));
        has(&|s| matches!(s, Step::Restore { care: Care { abort: true, .. }, .. }));
        has(&|s| matches!(s, Step::Save { care: Care { keep: 1.., .. }, .. }));
        has(&|s| matches!(s, Step::Flush(Care { give_up: Some(_), .. })));
        has(&|s| matches!(s, Step::Discard(_)));
        has(&|s| matches!(s, Step::ForgetHints));
        has(&|s| matches!(s, Step::HoldPrefetch));
    }

    fn all_steps(plan: &mut Plan) -> Vec<Step> {
        plan.scripts_mut().flat_map(|script| script.steps.clone()).collect()
    }
}
