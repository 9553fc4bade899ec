//! How each level is used: what [`walk`](super::walk) looks its decisions up in.

use alloc::vec::Vec;

use super::Level;
use super::grid::{Budget, Grid};
use super::table::Table;
use crate::revolve::{advances, saves};

/// A schedule, before its actions are asked for.
#[derive(Debug)]
pub(super) struct Plan {
    pub steps: u64,
    /// The levels that are used, fastest first.
    pub parts: Vec<Part>,
    pub cost_seconds: f64,
    pub exact: bool,
}

/// A level, and how it is used: as the table says, or without one as Revolve does.
#[derive(Debug)]
pub(super) struct Part {
    pub level: Level,
    pub table: Option<Table>,
}

impl Plan {
    pub fn new(steps: u64, levels: &[Level], step_seconds: f64) -> Plan {
        let levels: Vec<Level> = levels.iter().copied().filter(|level| level.slots > 0).collect();
        Plan::exact(steps, &levels, step_seconds, Budget::default())
            .unwrap_or_else(|| Plan::coarse(steps, &levels, step_seconds, Grid::for_steps))
    }

    /// The cheapest schedule, if it is found within the budget.
    pub fn exact(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
        mut budget: Budget,
    ) -> Option<Plan> {
        if let [level] = levels
            && is_free(level)
        {
            return Some(Plan { exact: true, ..Plan::alone(steps, *level, step_seconds) });
        }
        Plan::on_grid(steps, levels, step_seconds, &Grid::exact(steps)?, &mut budget)
    }

    /// A good schedule: on a grid, or with one level alone.
    pub fn coarse(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
        grid: impl Fn(u64, &[Level]) -> Grid,
    ) -> Plan {
        let grid = grid(steps, levels);
        let plan = Plan::on_grid(steps, levels, step_seconds, &grid, &mut Budget::unlimited());
        let alone = levels.iter().map(|level| Plan::alone(steps, *level, step_seconds));
        let plans = plan.into_iter().chain(alone);
        plans.min_by(|a, b| a.cost_seconds.total_cmp(&b.cost_seconds)).unwrap_or_else(|| {
            debug_assert!(steps < 2, "there are no levels");
            Plan { steps, parts: Vec::new(), cost_seconds: 0.0, exact: true }
        })
    }

    fn alone(steps: u64, level: Level, step_seconds: f64) -> Plan {
        let cost_seconds = revolve_seconds(steps, &level, step_seconds);
        let parts = alloc::vec![Part { level, table: None }];
        Plan { steps, parts, cost_seconds, exact: false }
    }

    pub fn on_grid(
        steps: u64,
        levels: &[Level],
        step_seconds: f64,
        grid: &Grid,
        budget: &mut Budget,
    ) -> Option<Plan> {
        budget.take_costs(levels.len(), grid)?;
        let mut costs = grid.costs(|steps| if steps < 2 { 0.0 } else { f64::INFINITY });
        let mut parts: Vec<Part> = Vec::with_capacity(levels.len());
        for &level in levels {
            let table = if parts.is_empty() && is_free(&level) {
                costs = grid.costs(|steps| revolve_seconds(steps, &level, step_seconds));
                None
            } else {
                let work = (steps, step_seconds);
                Some(Table::new(&level, &mut costs, work, grid, budget)?)
            };
            parts.push(Part { level, table });
        }
        let exact = grid.is_exact();
        let mut plan = Plan { steps, parts, cost_seconds: 0.0, exact };
        plan.cost_seconds = plan.cost(step_seconds);
        debug_assert!(plan.cost_seconds.is_finite(), "a chain that no level works off");
        Some(plan)
    }

    /// The most copies at a time.
    pub fn slots(&self) -> u64 {
        let used = self.parts.iter().map(|part| part.level.slots.min(self.steps - 1));
        used.fold(0, u64::saturating_add)
    }

    /// What the schedule costs: chains of whole units of the grid by their tables, and the one up
    /// to the last step along the copies of the forward pass.
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
        debug_assert!(left == 1, "a chain that no level works off");
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
