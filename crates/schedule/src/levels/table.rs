//! The cheapest use of one level on top of faster ones, by dynamic programming.
//!
//! For a chain of `l` steps let `T(l)` be what it costs with the faster levels alone, all their
//! slots free, the working state being its first. `V(c, l)` is the same with `c` slots of this
//! level, and `U(c, l)` where the first state is kept at this level besides and the working state
//! is that state. With a write `w`, a read `r` and a step `s`, `T(1) = U(c, 1) = 0`, and
//!
//! - `V(0, l) = T(l)`, `V(c, l) = min(T(l), w + U(c - 1, l))`;
//! - `U(c, l) = min(T(l), min over 0 < x < l of x s + V(c, l - x) + r + U(c, x))`.
//!
//! The first choice of `U` gives the copy up. As `T` of the next slower level serves `V` with all
//! slots. `U(c, .)` is one row of the table, with the choice: `x`, or 0 for the first. Where there
//! are more slots than any chain takes, one row says it all.
//!
//! The lengths are those of a [`grid`](super::grid). Beyond its finest scale, a level that has
//! slots enough keeps states at equal distances: the `x` for which a step costs least (Aupy and
//! Herrmann, "Periodicity in optimal hierarchical checkpointing schemes for adjoint computations",
//! Optim. Methods Softw. 32(3), 2017).

use alloc::vec::Vec;

use super::Level;
use super::grid::{Budget, Grid};
use super::rows::{Price, Row, with_slots, without_limit};

#[derive(Debug)]
pub(super) struct Table {
    price: Price,
    /// There are no faster levels: without a slot, every step is reached from the kept state.
    fastest: bool,
    /// By the length of their units.
    scales: Vec<Scale>,
    /// What stands for rows of the coarser scales where slots do not run out.
    period: Option<Period>,
}

#[derive(Debug)]
struct Scale {
    unit: u64,
    /// By the slots that are free; the last row holds for more, too.
    rows: Vec<Row>,
    /// `T`
    faster: Vec<f64>,
}

/// A chain is shortened by so many steps at a time.
#[derive(Clone, Copy, Debug)]
struct Period {
    steps: u64,
    /// What that adds to `U`.
    cost: f64,
}

impl Table {
    /// For the chains of the grid, the longest being of `steps` steps; `costs` is `T` at first and
    /// that of this level at last.
    ///
    /// `None` if it does not keep within the budget.
    pub fn new(
        level: &Level,
        costs: &mut [Vec<f64>],
        (steps, step_seconds): (u64, f64),
        grid: &Grid,
        budget: &mut Budget,
    ) -> Option<Table> {
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
        let mut table = Table { price, fastest, scales: Vec::new(), period };
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
    fn limited_rows(&self, slots: u64, faster: &[f64], unit: u64) -> Vec<Row> {
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

    /// `U`: the first state is kept, and so many slots are free besides.
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

    /// What it costs to reach every step from the first one's state.
    fn cost_from_one(&self, steps: u64) -> f64 {
        let (steps, restores) = (steps as f64, (steps - 1) as f64);
        steps * restores / 2.0 * self.price.step + restores * self.price.read
    }

    fn periodic_cost(&self, steps: u64, period: Period) -> f64 {
        let times = (steps - self.scales[0].longest()).div_ceil(period.steps);
        debug_assert!(steps > times * period.steps, "a period is within the finest scale");
        // What the finest scale has left is kept only if that is better than not to.
        let behind = self.cost(steps - times * period.steps, u64::MAX) - self.price.write;
        times as f64 * period.cost + behind
    }

    /// `V`: so many slots are free.
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

    /// The same for the chain behind an advance from a state that is kept here: periods go on.
    #[inline]
    pub fn keeps_behind(&self, steps: u64, free: u64) -> bool {
        let periods = self.period.is_some() && steps > self.scales[0].longest();
        periods || self.keeps(steps, free)
    }

    /// Over how many steps to advance from a kept state, with so many slots besides; 0 to give the
    /// copy up.
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
    fn row(&self, free: u64) -> Option<&Row> {
        let last = self.rows.len().checked_sub(1)?;
        Some(&self.rows[usize::try_from(free).unwrap_or(usize::MAX).min(last)])
    }
}

impl Period {
    fn best(row: &Row, price: Price) -> Period {
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
