//! MultiLevel: Revolve over several levels of storage with their costs.
//!
//! After Aupy, Herrmann, Hovland and Robert, "Optimal multistage algorithm for adjoint
//! computation", SIAM J. Sci. Comput. 38(3), 2016 (Disk-Revolve), and Herrmann and Pallez,
//! "H-Revolve", ACM TOMS 46(2), 2020. A chain of steps whose first state is kept at a level is
//! reversed in one of two ways. Either its later part is reversed first, from a state further on,
//! and then its earlier part from the first state again. Or the first state is moved to faster
//! levels, and only those are used. While a chain uses faster levels only, all their slots are
//! free. [`table`] finds the best such schedule by dynamic programming; an exhaustive search over
//! all schedules finds no better one (`levels/tests.rs`). Where that would take too long, it looks
//! for states to keep on a [`grid`] only. [`walk`] yields the actions.

mod grid;
mod plan;
mod rows;
mod table;
mod walk;

use alloc::sync::Arc;

use self::plan::LevelPlan;
use self::walk::LevelWalk;
use super::{Action, Schedule, ScheduleError};
use unspool_core::TierKind;

/// The most levels.
const MOST: usize = 3;

/// One level of storage.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// The tier that its copies name.
    pub tier: TierKind,
    /// The most copies there at a time; `u64::MAX` for no limit, 0 for a level that is not used.
    pub slots: u64,
    /// Seconds that saving a state there takes.
    pub write_seconds: f64,
    /// Seconds that restoring a state from there takes.
    pub read_seconds: f64,
}

/// The cheapest schedule for a known number of steps over up to three levels of storage.
///
/// The cost is that of all advances, writes and reads, one after the other. The schedule is the
/// cheapest possible ([`is_exact`](MultiLevel::is_exact)) if it is found with some 10^9
/// additions: for 3,000 steps with up to 200 slots, or with any number at a level where that is
/// not a limit. For more it is a good one, mostly within a percent or two of the cheapest. Costs
/// should not fall from level to level; the schedule is right if they do, but not the cheapest.
///
/// Clones share what was planned: 12 bytes a step and slot, 100 MB at the most.
#[derive(Clone, Debug)]
pub struct MultiLevel {
    plan: Arc<LevelPlan>,
    walk: LevelWalk,
}

impl MultiLevel {
    /// A schedule for so many steps of `step_seconds` each over these levels, fastest first.
    ///
    /// # Errors
    /// There are no steps; there are no levels, or more than three, or not in the order of their
    /// tiers; a cost is negative or not finite, or that of the whole schedule might not be; there
    /// is not a slot although there are two steps or more.
    pub fn new(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
    ) -> Result<MultiLevel, ScheduleError> {
        check(steps, levels, step_seconds)?;
        Ok(MultiLevel::planned(LevelPlan::new(steps, levels, step_seconds)))
    }

    fn planned(plan: LevelPlan) -> MultiLevel {
        let walk = LevelWalk::new(&plan);
        MultiLevel { plan: Arc::new(plan), walk }
    }

    /// What all advances, writes and reads take, in seconds.
    #[must_use]
    pub fn cost_seconds(&self) -> f64 {
        self.plan.cost_seconds
    }

    /// Whether no schedule over these levels costs less.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.plan.exact
    }
}

fn check(steps: u64, levels: &[Level], step_seconds: f64) -> Result<(), ScheduleError> {
    if steps == 0 {
        return Err(ScheduleError::NoSteps);
    }
    let ordered = levels.windows(2).all(|pair| pair[0].tier < pair[1].tier);
    if levels.is_empty() || levels.len() > MOST || !ordered {
        return Err(ScheduleError::Levels { most: MOST });
    }
    let costs = levels.iter().flat_map(|level| [level.write_seconds, level.read_seconds]);
    // More than reaching every step from the first one's state, on a grid that is rounded up.
    let most = |cost: f64| 4.0 * cost * steps as f64 * steps as f64;
    if costs.chain([step_seconds]).any(|cost| !most(cost).is_finite() || cost < 0.0) {
        return Err(ScheduleError::BadCost);
    }
    if steps > 1 && levels.iter().all(|level| level.slots == 0) {
        return Err(ScheduleError::TooFewSlots { slots: 0, needed: 1 });
    }
    Ok(())
}

impl Iterator for MultiLevel {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        self.walk.next(&self.plan)
    }
}

impl Schedule for MultiLevel {
    fn steps(&self) -> Option<u64> {
        Some(self.plan.steps)
    }

    fn slots(&self) -> u64 {
        self.plan.slots()
    }
}

#[cfg(test)]
mod tests;
