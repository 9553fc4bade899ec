//! The cheapest use of one level on top of faster ones, by dynamic programming.
//!
//! For a chain of `l` steps whose first state is the working state let `faster(l)` be what it costs
//! with the faster levels alone, all their slots free; `cost(c, l)` the same with `c` slots of this
//! level besides; and `kept(c, l)` the same where the first state is kept at this level already.
//! With seconds of a write, a read and a step, `faster(1) = kept(c, 1) = 0`, and
//!
//! - `cost(0, l) = faster(l)`, `cost(c, l) = min(faster(l), write + kept(c - 1, l))`;
//! - `kept(c, l) = min(faster(l), min over 0 < x < l of
//!   x step + cost(c, l - x) + read + kept(c, x))`.
//!
//! The first choice of `kept` gives the copy up. For the next slower level, `faster` is this
//! level's `cost` with all slots. `kept(c, .)` is one row of the table, with the choices: `x`, or 0
//! for the first. Where there are more slots than any chain uses, one row is enough.
//!
//! The lengths are those of a [`grid`](super::grid). Beyond its finest scale, a level that has
//! slots enough keeps states at equal distances: the `x` for which a step costs least (Aupy and
//! Herrmann, "Periodicity in optimal hierarchical checkpointing schemes for adjoint computations",
//! Optim. Methods Softw. 32(3), 2017).

use alloc::vec::Vec;

use super::Level;
use super::grid::{Budget, LevelGrid};
use super::rows::{LevelRow, Price, with_slots, without_limit};

#[derive(Debug)]
pub(super) struct LevelTable {
    price: Price,
    /// There are no faster levels: without a slot, every step is reached from the kept state.
    fastest: bool,
    /// The scales, by the length of their units.
    scales: Vec<Scale>,
    /// Replaces rows of the coarser scales where slots do not run out.
    period: Option<Period>,
}

#[derive(Debug)]
struct Scale {
    unit: u64,
    /// The rows by the number of free slots. The last row is also that for more slots.
    rows: Vec<LevelRow>,
    /// `faster`, by length.
    faster: Vec<f64>,
}

/// The distance of states that are kept at equal distances.
#[derive(Clone, Copy, Debug)]
struct Period {
    steps: u64,
    /// What one such distance adds to `kept`.
    cost: f64,
}

impl LevelTable {
    /// The table for the chains of the grid, of which the longest has `steps` steps. `costs` is
    /// `faster` before the call and the `cost` of this level after it.
    ///
    /// `None` if that is not within the budget.
    pub fn new(
        level: &Level,
        costs: &mut [Vec<f64>],
        (steps, step_seconds): (u64, f64),
        grid: &LevelGrid,
        budget: &mut Budget,
    ) -> Option<LevelTable> {
        debug_assert!(costs.len() == grid.units.len(), "costs for each scale");
        u32::try_from(grid.length).ok()?;
        budget.take_rows(1, grid.length)?;
        let (write, read) = (level.write_seconds, level.read_seconds);
        let price = Price { step: step_seconds, write, read };
        let fastest = costs[0].last().is_some_and(|cost| cost.is_infinite());
        let (unlimited, used) = without_limit(&costs[0], price);
        let period = (!grid.is_exact()).then(|| Period::best(&unlimited, price));
        let periods = period.map_or(0, |period| steps / period.steps);
        let needed = periods.saturating_add(used);
        let limited = level.slots < needed;
        let period = period.filter(|_| !limited);
        let mut table = LevelTable { price, fastest, scales: Vec::new(), period };
        let mut unlimited = Some(unlimited);
        for (&unit, costs) in grid.units.iter().zip(costs) {
            let rows = if limited {
                budget.take_rows(level.slots, grid.length)?;
                table.limited_rows(level.slots, costs, unit)
            } else {
                unlimited.take().into_iter().collect()
            };
            let faster = costs.clone();
            table.scales.push(Scale { unit, rows, faster });
            for (units, cost) in (0..).zip(costs).skip(1) {
                *cost = table.cost(unit.saturating_mul(units), level.slots);
            }
        }
        Some(table)
    }

    /// The rows of the next scale.
    fn limited_rows(&self, slots: u64, faster: &[f64], unit: u64) -> Vec<LevelRow> {
        let price = Price { step: self.price.step * unit as f64, ..self.price };
        let (longest, finer) = match self.scales.last() {
            None => (1, 0),
            Some(finer) => ((finer.longest() / unit) as usize, finer.rows.len()),
        };
        let known = |free| match self.fastest && free == 0 {
            true => faster.len() - 1,
            false => longest.min(faster.len() - 1),
        };
        let cost = |free, units| self.kept_cost(unit.saturating_mul(units as u64), free);
        with_slots(slots, faster, price, finer, (known, cost))
    }

    /// Whether the costs of chains of that length are those of all its steps, not rounded up.
    pub fn is_in_steps(&self, steps: u64) -> bool {
        self.period.is_some() || steps <= self.scales[0].longest()
    }

    /// `kept`: the cost of a chain whose first state is kept, with so many slots besides.
    #[inline]
    pub fn kept_cost(&self, steps: u64, free: u64) -> f64 {
        if steps == 1 || self.fastest && free == 0 {
            return self.cost_from_one(steps);
        }
        let (scale, units) = self.find(steps);
        match (scale.row(free), self.period) {
            (Some(row), _) => row.costs[units],
            (None, Some(period)) => self.periodic_cost(steps, period),
            (None, None) => f64::INFINITY,
        }
    }

    /// The cost of a chain in which every step is reached from the first state.
    fn cost_from_one(&self, steps: u64) -> f64 {
        let (steps, restores) = (steps as f64, (steps - 1) as f64);
        steps * restores / 2.0 * self.price.step + restores * self.price.read
    }

    fn periodic_cost(&self, steps: u64, period: Period) -> f64 {
        let times = (steps - self.scales[0].longest()).div_ceil(period.steps);
        debug_assert!(steps > times * period.steps, "a period is within the finest scale");
        // The state after the last period is kept only if that costs less.
        let rest = self.cost(steps - times * period.steps, u64::MAX) - self.price.write;
        times as f64 * period.cost + rest
    }

    /// `cost`: that of a chain with so many free slots.
    fn cost(&self, steps: u64, free: u64) -> f64 {
        let (scale, units) = self.find(steps);
        match free.checked_sub(1) {
            Some(free) => scale.faster[units].min(self.price.write + self.kept_cost(steps, free)),
            None => scale.faster[units],
        }
    }

    /// Whether the first state of a chain of two steps or more is kept here, with so many slots.
    #[inline]
    pub fn keeps(&self, steps: u64, free: u64) -> bool {
        let (scale, units) = self.find(steps);
        free > 0 && self.price.write + self.kept_cost(steps, free - 1) < scale.faster[units]
    }

    /// As [`LevelTable::keeps`], for the chain after an advance from a state that is kept here,
    /// where periods continue.
    #[inline]
    pub fn keeps_after(&self, steps: u64, free: u64) -> bool {
        let periods = self.period.is_some() && steps > self.scales[0].longest();
        periods || self.keeps(steps, free)
    }

    /// The steps to advance over from a kept state, with so many slots besides; 0 to give the copy
    /// up.
    #[inline]
    pub fn advance(&self, steps: u64, free: u64) -> u64 {
        if self.fastest && free == 0 {
            return steps - 1;
        }
        let (scale, units) = self.find(steps);
        match scale.row(free) {
            Some(row) => u64::from(row.choices[units]) * scale.unit,
            None => self.period.map_or(0, |period| period.steps),
        }
    }

    /// The finest scale that has the chain, and how many units it is there.
    #[inline]
    fn find(&self, steps: u64) -> (&Scale, usize) {
        let last = self.scales.len() - 1;
        let fits = |scale: &&Scale| steps <= scale.longest();
        let scale = self.scales.iter().find(fits).unwrap_or(&self.scales[last]);
        (scale, steps.div_ceil(scale.unit) as usize)
    }
}

impl Scale {
    fn longest(&self) -> u64 {
        self.unit.saturating_mul(self.faster.len() as u64 - 1)
    }

    #[inline]
    fn row(&self, free: u64) -> Option<&LevelRow> {
        let last = self.rows.len().checked_sub(1)?;
        Some(&self.rows[usize::try_from(free).unwrap_or(usize::MAX).min(last)])
    }
}

impl Period {
    fn best(row: &LevelRow, price: Price) -> Period {
        let mut best = (f64::INFINITY, Period { steps: 1, cost: f64::INFINITY });
        for (steps, kept) in (0u64..).zip(&row.costs).skip(1) {
            let cost = steps as f64 * price.step + price.write + price.read + kept;
            if cost / (steps as f64) < best.0 {
                best = (cost / steps as f64, Period { steps, cost });
            }
        }
        best.1
    }
}
