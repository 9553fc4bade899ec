//! Rows of a table: the best choice for every chain of a scale with a number of slots.

use alloc::vec;
use alloc::vec::Vec;

/// Costs of chains whose first state is kept, by length, for a number of slots; and the choices.
#[derive(Debug)]
pub(super) struct LevelRow {
    pub costs: Vec<f64>,
    pub choices: Vec<u32>,
}

/// Seconds that the steps of a unit, a write and a read take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    pub step: f64,
    pub write: f64,
    pub read: f64,
}

/// The row in single steps with as many slots as it can use, and how many these are, with that of
/// the first state.
pub(super) fn without_limit(faster: &[f64], price: Price) -> (LevelRow, u64) {
    let mut row = LevelRow::start(faster.len(), |_| 0.0, 1);
    let mut after = faster[..2].to_vec();
    // The slots that chains use whose first state is kept already, and those of all chains.
    let (mut here, mut there, mut most) = (vec![0u32; 2], vec![0u32; 2], 1);
    for (length, &faster) in faster.iter().enumerate().skip(2) {
        let over = row.choose(faster, &after, price);
        let kept = price.write + row.costs[length];
        here.push(if over > 0 { here[over].max(there[length - over]) } else { 0 });
        there.push(if kept < faster { here[length] + 1 } else { 0 });
        most = most.max(there[length]);
        after.push(kept.min(faster));
    }
    debug_assert!(after.len() == faster.len(), "a cost for each length");
    (row, u64::from(most))
}

/// Rows for 0, 1, ... further slots, as far as another slot makes a difference; at least `finer`
/// of them, the number of the finer scales. `given` has, for a number of slots, the longest chain
/// whose cost is known, and these costs.
pub(super) fn with_slots(
    slots: u64,
    faster: &[f64],
    price: Price,
    finer: usize,
    given: (impl Fn(u64) -> usize, impl Fn(u64, usize) -> f64),
) -> Vec<LevelRow> {
    let mut rows: Vec<LevelRow> = Vec::new();
    let mut after = faster.to_vec();
    while (rows.len() as u64) < slots {
        let free = rows.len() as u64;
        let known = given.0(free);
        let mut row = LevelRow::start(faster.len(), |units| given.1(free, units), known);
        for length in known + 1..faster.len() {
            row.choose(faster[length], &after[..length], price);
        }
        // The row without a slot may be given as a whole, without choices.
        if rows.len() >= finer.max(2) && rows.last().is_some_and(|less| less.costs == row.costs) {
            break;
        }
        for ((after, faster), kept) in after.iter_mut().zip(faster).zip(&row.costs) {
            *after = faster.min(price.write + kept);
        }
        rows.push(row);
    }
    debug_assert!(!rows.is_empty(), "a level has a slot");
    rows
}

impl LevelRow {
    fn start(lengths: usize, cost: impl Fn(usize) -> f64, known: usize) -> LevelRow {
        let mut costs = vec![0.0; lengths];
        for (units, given) in costs.iter_mut().enumerate().take(known + 1).skip(1) {
            *given = cost(units);
        }
        LevelRow { costs, choices: vec![0; lengths] }
    }

    /// The best choice for a chain of `after.len()` units, all shorter ones being known.
    fn choose(&mut self, faster: f64, after: &[f64], price: Price) -> usize {
        let length = after.len();
        debug_assert!(length > 1, "a chain of one unit is known");
        let (mut best, mut choice) = (f64::INFINITY, 0);
        let chains = self.costs[1..length].iter().zip(after[1..].iter().rev());
        for (over, (kept, after)) in (1u32..).zip(chains) {
            let cost = f64::from(over) * price.step + kept + after;
            if cost < best {
                (best, choice) = (cost, over);
            }
        }
        best += price.read;
        if faster <= best {
            (best, choice) = (faster, 0);
        }
        (self.costs[length], self.choices[length]) = (best, choice);
        choice as usize
    }
}
