//! The geometry of a model and of the padded fields around it.

use crate::error::WaveError;

/// Cells beyond the absorbing layer that the stencil reads and never writes: half the space order.
pub(crate) const HALO: usize = 4;

/// Elements of a padded field at most, so that an offset fits a `u32` with room to spare.
const MOST_ELEMENTS: usize = 1 << 30;

/// A model of `nx` by `nz` cells, and the layer that absorbs waves around it.
///
/// Fields are padded: [`Grid::pad`] more cells on every side, of which the outer four, the halo,
/// stay zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    /// Cells of the model along x.
    pub nx: usize,
    /// Cells of the model in depth.
    pub nz: usize,
    /// Spacing along x, in metres.
    pub dx: f64,
    /// Spacing in depth, in metres.
    pub dz: f64,
    /// Width of the absorbing layer, in cells.
    pub layer: usize,
}

impl Grid {
    /// Checks the geometry.
    ///
    /// # Errors
    /// When the model is empty, a spacing is not a positive finite length, or a padded field would
    /// have more than 2^30 elements.
    pub fn checked(self) -> Result<Self, WaveError> {
        let problem = |reason: String| Err(WaveError::Grid(reason));
        if self.nx == 0 || self.nz == 0 {
            return problem(format!("{} by {} cells is empty", self.nx, self.nz));
        }
        if ![self.dx, self.dz].iter().all(|spacing| spacing.is_finite() && *spacing > 0.0) {
            return problem(format!("a spacing of {} m by {} m", self.dx, self.dz));
        }
        match self.elements() {
            Some(elements) if elements <= MOST_ELEMENTS => Ok(self),
            _ => problem(format!("{} by {} cells are too many", self.nx, self.nz)),
        }
    }

    /// Cells between the edge of a padded field and the model.
    #[must_use]
    pub fn pad(&self) -> usize {
        self.layer + HALO
    }

    /// The shape of a padded field: (x, z), z fastest.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.nx + 2 * self.pad(), self.nz + 2 * self.pad())
    }

    /// Elements of a padded field.
    #[must_use]
    pub fn len(&self) -> usize {
        let (rows, columns) = self.shape();
        rows * columns
    }

    /// Whether a field has no element; never true of a checked grid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The extent of the model in metres, from the first cell's centre to the last one's.
    #[must_use]
    pub fn extent(&self) -> (f64, f64) {
        ((self.nx - 1) as f64 * self.dx, (self.nz - 1) as f64 * self.dz)
    }

    fn elements(&self) -> Option<usize> {
        let pad = self.layer.checked_add(HALO)?.checked_mul(2)?;
        self.nx.checked_add(pad)?.checked_mul(self.nz.checked_add(pad)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { nx: 10, nz: 6, dx: 5.0, dz: 2.0, layer: 3 };

    #[test]
    fn a_padded_field_has_layer_and_halo_on_every_side() {
        assert_eq!(GRID.pad(), 7);
        assert_eq!(GRID.shape(), (24, 20));
        assert_eq!(GRID.len(), 480);
        assert_eq!(GRID.extent(), (45.0, 10.0));
    }

    #[test]
    fn an_impossible_grid_is_refused_with_a_reason() {
        assert!(Grid { nx: 0, ..GRID }.checked().is_err());
        assert!(Grid { dz: f64::NAN, ..GRID }.checked().is_err());
        assert!(Grid { nx: usize::MAX / 2, ..GRID }.checked().is_err());
        assert!(GRID.checked().is_ok());
    }
}
