//! Sources and receivers anywhere in the model, by bilinear interpolation.

use crate::error::WaveError;
use crate::grid::Grid;

/// Positions of sources or receivers, with the four cells and weights of each.
///
/// A point on a grid node has one weight of 1: nothing is smeared. Between nodes the weights are
/// bilinear, and adding with them is the transpose of reading with them.
#[derive(Clone, PartialEq, Debug)]
pub struct Points {
    grid: Grid,
    corners: Vec<Corners>,
}

/// The cells around one point: offsets into a padded field, and how much each one counts.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Corners {
    offsets: [u32; 4],
    weights: [f32; 4],
}

impl Points {
    /// Places points at `positions`: (x, depth) in metres from the first cell of the model.
    ///
    /// # Errors
    /// When a position lies outside the model or is not finite.
    pub fn new(grid: &Grid, positions: &[(f64, f64)]) -> Result<Self, WaveError> {
        let grid = grid.checked()?;
        let corners = positions
            .iter()
            .enumerate()
            .map(|(index, &(x, z))| Corners::new(&grid, index, x, z))
            .collect::<Result<_, _>>()?;
        Ok(Self { grid, corners })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.corners.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.corners.is_empty()
    }

    /// Whether they were placed on this grid.
    pub(crate) fn belong_to(&self, grid: &Grid) -> bool {
        self.grid == *grid
    }

    /// Reads `field` at every point.
    pub(crate) fn read(&self, field: &[f32], values: &mut [f32]) {
        for (corners, value) in self.corners.iter().zip(values) {
            *value = corners.terms().map(|(at, weight)| weight * field[at]).sum();
        }
    }

    /// Adds `value * scale(cell)` of every point to `field`, in the order of the points.
    pub(crate) fn add(&self, field: &mut [f32], values: &[f32], scale: impl Fn(usize) -> f32) {
        for (corners, value) in self.corners.iter().zip(values) {
            for (at, weight) in corners.terms() {
                field[at] += weight * value * scale(at);
            }
        }
    }
}

impl Corners {
    fn new(grid: &Grid, index: usize, x: f64, z: f64) -> Result<Self, WaveError> {
        let extent = grid.extent();
        if !(0.0..=extent.0).contains(&x) || !(0.0..=extent.1).contains(&z) {
            return Err(WaveError::Outside { index, x, z, extent });
        }
        let columns = grid.shape().1;
        let (left, right) = neighbours(x / grid.dx, grid.nx);
        let (upper, lower) = neighbours(z / grid.dz, grid.nz);
        let offset = |x: usize, z: usize| ((x + grid.pad()) * columns + z + grid.pad()) as u32;
        let (fx, fz) = (right.1, lower.1);
        Ok(Self {
            offsets: [
                offset(left.0, upper.0),
                offset(left.0, lower.0),
                offset(right.0, upper.0),
                offset(right.0, lower.0),
            ],
            weights: [(1.0 - fx) * (1.0 - fz), (1.0 - fx) * fz, fx * (1.0 - fz), fx * fz]
                .map(|weight| weight as f32),
        })
    }

    fn terms(&self) -> impl Iterator<Item = (usize, f32)> + '_ {
        self.offsets.iter().map(|at| *at as usize).zip(self.weights)
    }
}

/// The node at or before `at` and the one after it, each with its weight.
fn neighbours(at: f64, cells: usize) -> ((usize, f64), (usize, f64)) {
    let nearest = at.round();
    // A position that means a node may miss it by the rounding of a division.
    let at = if (at - nearest).abs() < 1e-9 * nearest.max(1.0) { nearest } else { at };
    let first = (at.floor() as usize).min(cells - 1);
    let part = at - first as f64;
    ((first, 1.0 - part), ((first + 1).min(cells - 1), part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { nx: 8, nz: 5, dx: 2.0, dz: 3.0, layer: 2 };

    fn plane() -> Vec<f32> {
        let (rows, columns) = GRID.shape();
        let value = |x: usize, z: usize| {
            2.0 * (x as f32 - GRID.pad() as f32) + 3.0 * 10.0 * (z as f32 - GRID.pad() as f32)
        };
        (0..rows).flat_map(|x| (0..columns).map(move |z| value(x, z))).collect()
    }

    #[test]
    fn a_plane_is_read_exactly_anywhere() {
        let positions = [(0.0, 0.0), (14.0, 12.0), (5.0, 4.5), (13.999, 0.75)];
        let points = Points::new(&GRID, &positions).unwrap();
        let mut values = [0.0; 4];
        points.read(&plane(), &mut values);
        for ((x, z), value) in positions.iter().zip(values) {
            assert!((f64::from(value) - (x + 10.0 * z)).abs() < 1e-3, "{x} {z} {value}");
        }
    }

    #[test]
    fn adding_is_the_transpose_of_reading() {
        let points = Points::new(&GRID, &[(5.3, 4.1), (5.9, 4.4)]).unwrap();
        let (field, values) = (plane(), [0.3, -1.7]);
        let (mut read, mut added) = ([0.0; 2], vec![0.0; GRID.len()]);
        points.read(&field, &mut read);
        points.add(&mut added, &values, |_| 1.0);
        let left: f32 = read.iter().zip(values).map(|(r, v)| r * v).sum();
        let right: f32 = field.iter().zip(added).map(|(f, a)| f * a).sum();
        assert!((left - right).abs() < 1e-3 * left.abs(), "{left} {right}");
    }

    #[test]
    fn a_point_on_a_node_touches_that_node_only() {
        let points = Points::new(&GRID, &[(6.0, 9.0)]).unwrap();
        let mut field = vec![0.0; GRID.len()];
        points.add(&mut field, &[1.0], |_| 1.0);
        assert_eq!(field.iter().filter(|value| **value != 0.0).count(), 1);
    }

    #[test]
    fn a_point_outside_the_model_is_refused() {
        let outside = Points::new(&GRID, &[(1.0, 1.0), (14.1, 1.0)]);
        assert!(matches!(outside, Err(WaveError::Outside { index: 1, .. })));
        assert!(Points::new(&GRID, &[(f64::NAN, 1.0)]).is_err());
    }
}
