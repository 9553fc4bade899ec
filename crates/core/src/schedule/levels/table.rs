//! The cheapest use of one level on top of faster ones, by dynamic programming.
//!
//! For a chain of `l` steps let `T(l)` be what it costs with the faster levels alone, all their
//! slots free, the working state being its first. `V(c, l)` is the same with `c` slots of this
//! level, and `U(c, l)` where the first state is kept at this level besides and the working state is
//! that state. With a write `w`, a read `r` and a step `s`, `T(1) = U(c, 1) = 0`, and
//!
//! - `V(0, l) = T(l)`, `V(c, l) = min(T(l), w + U(c - 1, l))`;
//! - `U(c, l) = min(T(l), min over 0 < x < l of x s + V(c, l - x) + r + U(c, x))`.
//!
//! The first choice of `U` gives the copy up. As `T` of the next slower level serves `V` with all
//! slots. `U(c, .)` is one row of the table, with the choice: `x`, or 0 for the first.

use alloc::vec::Vec;

use super::Level;

/// What may be spent on tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    additions: u64,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { additions: 1_000_000_000, bytes: 100_000_000 }
    }
}

impl Budget {
    #[cfg(test)]
    pub fn unlimited() -> Budget {
        Budget { additions: u64::MAX, bytes: u64::MAX }
    }

    /// The costs of chains up to this length, without levels and with each one, and what else the
    /// lengths alone forbid.
    pub fn take_costs(&mut self, levels: usize, length: usize) -> Option<()> {
        self.clone().take_rows(1, length)?;
        let rows = levels as u64 + 1;
        self.take_bytes((length as u64).saturating_mul(8).saturating_mul(rows))
    }

    fn take_bytes(&mut self, bytes: u64) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(())
    }

    /// So many rows for chains up to this length.
    fn take_rows(&mut self, rows: u64, length: usize) -> Option<()> {
        let length = length as u64;
        let additions = length.saturating_mul(length) / 2;
        self.additions = self.additions.checked_sub(additions.saturating_mul(rows))?;
        self.take_bytes(length.saturating_mul(rows).saturating_mul(12))
    }
}

#[derive(Debug)]
pub(super) struct Table {
    /// By the slots that are free; the last row holds for more, too.
    rows: Vec<Row>,
    /// `w`
    write: f64,
    /// `T`
    faster: Vec<f64>,
}

/// `U` with some slots, by length.
#[derive(Debug)]
struct Row {
    costs: Vec<f64>,
    choices: Vec<u32>,
}

impl Table {
    /// For chains as long as `costs`, which is `T` at first and that of this level at last.
    ///
    /// `None` if it does not keep within the budget.
    pub fn new(
        level: &Level,
        costs: &mut Vec<f64>,
        step_seconds: f64,
        budget: &mut Budget,
    ) -> Option<Table> {
        let length = costs.len() - 1;
        budget.take_rows(1, length)?;
        u32::try_from(length).ok()?;
        let price =
            Price { step: step_seconds, write: level.write_seconds, read: level.read_seconds };
        let (unlimited, used) = without_limit(costs, price);
        let rows = if used <= level.slots {
            alloc::vec![unlimited]
        } else {
            budget.take_rows(level.slots, length)?;
            with_slots(level.slots, costs, price)
        };
        let used = rows.last().map_or(&[][..], |row| &row.costs);
        let whole = with_a_slot(costs, used, price.write);
        let faster = core::mem::replace(costs, whole);
        Some(Table { rows, write: level.write_seconds, faster })
    }

    /// Whether the first state of a chain of two steps or more is kept here, with so many slots.
    #[inline]
    pub fn keeps(&self, length: usize, free: u64) -> bool {
        free > 0 && self.write + self.row(free - 1).costs[length] < self.faster[length]
    }

    /// Over how many steps to advance from a kept state, with so many slots besides; 0 to give the
    /// copy up.
    #[inline]
    pub fn advance(&self, length: usize, free: u64) -> u64 {
        u64::from(self.row(free).choices[length])
    }

    fn row(&self, free: u64) -> &Row {
        &self.rows[usize::try_from(free).unwrap_or(usize::MAX).min(self.rows.len() - 1)]
    }
}

#[derive(Clone, Copy)]
struct Price {
    step: f64,
    write: f64,
    read: f64,
}

/// Rows for 0, 1, ... further slots, as far as another slot makes a difference.
fn with_slots(slots: u64, faster: &[f64], price: Price) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    while (rows.len() as u64) < slots {
        let row = match rows.last() {
            None => row(faster, faster, price),
            Some(less) => row(faster, &with_a_slot(faster, &less.costs, price.write), price),
        };
        if rows.last().is_some_and(|less| less.costs == row.costs) {
            break;
        }
        rows.push(row);
    }
    rows
}

/// `V(c, .)` from `T` and `U(c - 1, .)`.
fn with_a_slot(faster: &[f64], kept: &[f64], write: f64) -> Vec<f64> {
    faster.iter().zip(kept).map(|(&faster, &kept)| faster.min(write + kept)).collect()
}

/// `U(c, .)` from `T` and `V(c, .)`.
fn row(faster: &[f64], behind: &[f64], price: Price) -> Row {
    let mut row = Row::new(faster.len());
    for length in 2..faster.len() {
        row.choose(length, faster[length], &behind[..length], price);
    }
    row
}

/// `U` with as many slots as it takes, and how many it takes with the first state's.
fn without_limit(faster: &[f64], price: Price) -> (Row, u64) {
    let mut row = Row::new(faster.len());
    let mut behind: Vec<f64> = faster[..2].to_vec();
    // The slots that `U` and `V` take.
    let (mut here, mut there) = (alloc::vec![0u32; faster.len()], alloc::vec![0u32; faster.len()]);
    let mut most = 1;
    for length in 2..faster.len() {
        row.choose(length, faster[length], &behind, price);
        let kept = price.write + row.costs[length];
        behind.push(kept.min(faster[length]));
        let over = row.choices[length] as usize;
        if over > 0 {
            here[length] = here[over].max(there[length - over]);
        }
        if kept < faster[length] {
            there[length] = here[length] + 1;
            most = most.max(there[length]);
        }
    }
    (row, u64::from(most))
}

impl Row {
    /// A chain of one step costs nothing, and gives its copy up.
    fn new(lengths: usize) -> Row {
        Row { costs: alloc::vec![0.0; lengths], choices: alloc::vec![0; lengths] }
    }

    /// The best choice for a chain of `behind.len()` steps, all shorter ones being known.
    fn choose(&mut self, length: usize, faster: f64, behind: &[f64], price: Price) {
        let (mut best, mut choice) = (f64::INFINITY, 0);
        let chains = self.costs[1..length].iter().zip(behind[1..].iter().rev());
        for (over, (kept, behind)) in (1u32..).zip(chains) {
            let cost = f64::from(over) * price.step + kept + behind;
            if cost < best {
                (best, choice) = (cost, over);
            }
        }
        best += price.read;
        if faster <= best {
            (best, choice) = (faster, 0);
        }
        (self.costs[length], self.choices[length]) = (best, choice);
    }
}
