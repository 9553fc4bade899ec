//! How each level is used: what [`walk`](super::walk) looks its decisions up in.

use alloc::vec::Vec;

use super::Level;
use super::blocks;
use super::table::{Budget, Table};
use crate::schedule::revolve::{advances, saves};

/// A schedule, before its actions are asked for.
#[derive(Debug)]
pub(super) struct Plan {
    pub steps: u64,
    /// The levels that have slots, fastest first.
    pub parts: Vec<Part>,
    pub cost_seconds: f64,
    pub exact: bool,
}

/// A level, and how it is used.
#[derive(Debug)]
pub(super) struct Part {
    pub level: Level,
    pub how: How,
}

#[derive(Debug)]
pub(super) enum How {
    /// Revolve over blocks of so many steps each, the last one maybe shorter; each block is left to
    /// the faster levels. With blocks of one step nothing is left.
    Blocks(u64),
    /// As the table says.
    Table(Table),
}

impl Plan {
    pub fn new(steps: u64, levels: &[Level], step_seconds: f64) -> Plan {
        let levels: Vec<Level> = levels.iter().copied().filter(|level| level.slots > 0).collect();
        Plan::exact(steps, &levels, step_seconds, Budget::default())
            .unwrap_or_else(|| blocks::plan(steps, &levels, step_seconds))
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
            let cost_seconds = revolve_seconds(steps, level, step_seconds);
            let parts = alloc::vec![Part { level: *level, how: How::Blocks(1) }];
            return Some(Plan { steps, parts, cost_seconds, exact: true });
        }
        let length = usize::try_from(steps).ok().filter(|length| *length < usize::MAX)?;
        budget.take_costs(levels.len(), length)?;
        // What a chain of each length costs with the levels so far: without any, one step is free.
        let mut costs: Vec<f64> = core::iter::repeat_n(f64::INFINITY, length + 1).collect();
        costs[..2].fill(0.0);
        let mut parts = Vec::with_capacity(levels.len());
        for (number, &level) in levels.iter().enumerate() {
            let how = if number == 0 && is_free(&level) {
                for (cost, steps) in costs.iter_mut().zip(0..) {
                    *cost = revolve_seconds(steps, &level, step_seconds);
                }
                How::Blocks(1)
            } else {
                How::Table(Table::new(&level, &mut costs, step_seconds, &mut budget)?)
            };
            parts.push(Part { level, how });
        }
        Some(Plan { steps, parts, cost_seconds: costs[length], exact: true })
    }

    /// The most copies at a time.
    pub fn slots(&self) -> u64 {
        let used = self.parts.iter().map(|part| part.level.slots.min(self.steps - 1));
        used.fold(0, u64::saturating_add)
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
