//! How each level is used: what [`walk`](super::walk) looks its decisions up in.

use alloc::vec::Vec;

use super::Level;
use super::grid::{Budget, LevelGrid};
use super::table::LevelTable;
use crate::revolve::{advances, saves};

/// A schedule as a whole, from which its actions follow.
#[derive(Debug)]
pub(super) struct LevelPlan {
    pub steps: u64,
    /// The levels that are used, fastest first.
    pub parts: Vec<PlannedLevel>,
    pub cost_seconds: f64,
    pub exact: bool,
}

/// A level with the table of its use; without a table it is used as Revolve does.
#[derive(Debug)]
pub(super) struct PlannedLevel {
    pub level: Level,
    pub table: Option<LevelTable>,
}

impl LevelPlan {
    pub fn new(steps: u64, levels: &[Level], step_seconds: f64) -> LevelPlan {
        let levels: Vec<Level> = levels.iter().copied().filter(|level| level.slots > 0).collect();
        LevelPlan::exact(steps, &levels, step_seconds, Budget::default()).unwrap_or_else(|| {
            LevelPlan::coarse(steps, &levels, step_seconds, LevelGrid::for_steps)
        })
    }

    /// The cheapest schedule, if it is found within the budget.
    pub fn exact(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
        mut budget: Budget,
    ) -> Option<LevelPlan> {
        if let [level] = levels
            && is_free(level)
        {
            return Some(LevelPlan {
                exact: true,
                ..LevelPlan::alone(steps, *level, step_seconds)
            });
        }
        LevelPlan::on_grid(steps, levels, step_seconds, &LevelGrid::exact(steps)?, &mut budget)
    }

    /// A good schedule: on a grid, or with one level alone.
    pub fn coarse(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
        grid: impl Fn(u64, &[Level]) -> LevelGrid,
    ) -> LevelPlan {
        let grid = grid(steps, levels);
        let plan = LevelPlan::on_grid(steps, levels, step_seconds, &grid, &mut Budget::unlimited());
        let alone = levels.iter().map(|level| LevelPlan::alone(steps, *level, step_seconds));
        let plans = plan.into_iter().chain(alone);
        plans.min_by(|a, b| a.cost_seconds.total_cmp(&b.cost_seconds)).unwrap_or_else(|| {
            debug_assert!(steps < 2, "only a schedule of one step has no levels");
            LevelPlan { steps, parts: Vec::new(), cost_seconds: 0.0, exact: true }
        })
    }

    fn alone(steps: u64, level: Level, step_seconds: f64) -> LevelPlan {
        let cost_seconds = revolve_seconds(steps, &level, step_seconds);
        let parts = alloc::vec![PlannedLevel { level, table: None }];
        LevelPlan { steps, parts, cost_seconds, exact: false }
    }

    pub fn on_grid(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
        grid: &LevelGrid,
        budget: &mut Budget,
    ) -> Option<LevelPlan> {
        budget.take_costs(levels.len(), grid)?;
        let mut costs = grid.costs(|steps| if steps < 2 { 0.0 } else { f64::INFINITY });
        let mut parts: Vec<PlannedLevel> = Vec::with_capacity(levels.len());
        for &level in levels {
            let table = if parts.is_empty() && is_free(&level) {
                costs = grid.costs(|steps| revolve_seconds(steps, &level, step_seconds));
                None
            } else {
                let work = (steps, step_seconds);
                Some(LevelTable::new(&level, &mut costs, work, grid, budget)?)
            };
            parts.push(PlannedLevel { level, table });
        }
        let exact = grid.is_exact();
        let mut plan = LevelPlan { steps, parts, cost_seconds: 0.0, exact };
        plan.cost_seconds = plan.cost(step_seconds);
        debug_assert!(plan.cost_seconds.is_finite(), "some level reverses every chain");
        Some(plan)
    }

    /// The most copies at a time.
    pub fn slots(&self) -> u64 {
        let used = self.parts.iter().map(|part| part.level.slots.min(self.steps - 1));
        used.fold(0, u64::saturating_add)
    }

    /// The cost of the schedule in seconds: chains of whole units of the grid cost what their
    /// tables say, the chain up to the last step is followed along the copies of the forward pass.
    fn cost(&self, step_seconds: f64) -> f64 {
        let (mut total, mut left) = (0.0, self.steps);
        for part in self.parts.iter().rev() {
            let mut free = part.level.slots;
            let Some(table) = &part.table else {
                return total + revolve_seconds(left, &part.level, step_seconds);
            };
            while left > 1 && table.keeps(left, free) {
                free -= 1;
                if table.is_in_steps(left) {
                    return total + part.level.write_seconds + table.kept_cost(left, free);
                }
                let over = table.advance(left, free);
                total += part.level.write_seconds
                    + over as f64 * step_seconds
                    + part.level.read_seconds
                    + table.kept_cost(over, free);
                left -= over;
            }
        }
        debug_assert!(left == 1, "some level reverses every chain");
        total
    }
}

fn is_free(level: &Level) -> bool {
    level.write_seconds == 0.0 && level.read_seconds == 0.0
}

/// What Revolve at one level costs.
pub(super) fn revolve_seconds(steps: u64, level: &Level, step_seconds: f64) -> f64 {
    if steps < 2 {
        return 0.0;
    }
    advances(steps, level.slots) as f64 * step_seconds
        + saves(steps, level.slots) as f64 * level.write_seconds
        + (steps - 1) as f64 * level.read_seconds
}
