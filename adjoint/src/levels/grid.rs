//! The lengths of chains that tables are made for: all of them, or those on a grid.
//!
//! A scale holds the chains of 1, 2, 3, ... units, each coarser one in units of more steps. A chain
//! is looked up in the finest scale that is long enough, rounded up to whole units; so states are
//! kept at multiples of the unit, and the closer to the end of a chain, the finer. With one scale,
//! in single steps, the tables are exact. With more the schedule is somewhat more expensive than
//! the best (`levels/tests.rs` has bounds for coarse grids; with scales as long as they are made,
//! 0 to 1.2 % were measured for 6,000 steps), but the tables stay small for any number of steps.

use alloc::vec::Vec;

use super::Level;

/// How much longer the chains of a scale are than the units of the next one.
const OVERLAP: u64 = 16;

/// Additions that the tables of all scales may take.
const ADDITIONS: u64 = 300_000_000;

/// The additions and bytes that may be spent on tables.
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
    /// A budget for any tables.
    pub fn unlimited() -> Budget {
        Budget { additions: u64::MAX, bytes: u64::MAX }
    }

    /// Spends what the costs of all chains need, without levels and with each one. `None` when that
    /// is too much, or when one row of a table would be.
    pub fn take_costs(&mut self, levels: usize, grid: &LevelGrid) -> Option<()> {
        let mut least = *self;
        least.take_rows(1, grid.length)?;
        let costs = (levels as u64 + 1).saturating_mul(grid.units.len() as u64);
        self.take_bytes((grid.length as u64).saturating_mul(8).saturating_mul(costs))
    }

    fn take_bytes(&mut self, bytes: u64) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(())
    }

    /// Spends what so many rows of this length need; `None` when that is too much.
    pub fn take_rows(&mut self, rows: u64, length: usize) -> Option<()> {
        let length = length as u64;
        let additions = length.saturating_mul(length) / 2;
        self.additions = self.additions.checked_sub(additions.saturating_mul(rows))?;
        self.take_bytes(length.saturating_mul(rows).saturating_mul(12))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LevelGrid {
    /// Steps to a unit, scale by scale; the first is 1, and each is a multiple of the one before.
    pub units: Vec<u64>,
    /// Units of the longest chain of each scale.
    pub length: usize,
}

impl LevelGrid {
    /// Every length up to so many steps.
    pub fn exact(steps: u64) -> Option<LevelGrid> {
        let length = usize::try_from(steps).ok().filter(|length| *length < usize::MAX)?;
        Some(LevelGrid { units: alloc::vec![1], length })
    }

    /// Scales up to so many steps, each of this length, which is more than [`OVERLAP`].
    pub fn with_length(steps: u64, length: u64) -> LevelGrid {
        debug_assert!(length > OVERLAP, "scales get longer");
        let (mut units, mut unit) = (alloc::vec![1], 1u64);
        while unit.saturating_mul(length) < steps {
            let wanted = steps.div_ceil(length).div_ceil(unit);
            unit = unit.saturating_mul(wanted.min(length / OVERLAP).max(2));
            units.push(unit);
        }
        LevelGrid { units, length: length as usize }
    }

    /// Scales for such a number of steps and slots, as long as is affordable.
    pub fn for_steps(steps: u64, levels: &[Level]) -> LevelGrid {
        let mut length = 4096;
        loop {
            let grid = LevelGrid::with_length(steps, length);
            let rows: u64 = levels.iter().map(|level| level.rows(steps, length)).sum();
            let rows = rows * grid.units.len() as u64;
            if length <= 4 * OVERLAP || rows * (length * length / 2) <= ADDITIONS {
                return grid;
            }
            length -= length / 8;
        }
    }

    pub fn is_exact(&self) -> bool {
        self.units.len() == 1
    }

    /// A number for each chain: by scale, then by units, from 0.
    pub fn costs(&self, of: impl Fn(u64) -> f64) -> Vec<Vec<f64>> {
        let scale =
            |unit: u64| (0..=self.length as u64).map(|n| of(n.saturating_mul(unit))).collect();
        self.units.iter().map(|&unit| scale(unit)).collect()
    }
}

impl Level {
    /// Rows of a table of that length: one if no number of copies is too many.
    fn rows(&self, steps: u64, length: u64) -> u64 {
        if self.slots >= steps { 1 } else { self.slots.min(length) }
    }
}
