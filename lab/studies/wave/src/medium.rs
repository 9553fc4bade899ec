//! What the waves travel through: v^2 dt^2 of every cell, and the damping of the layer.

use crate::error::{WaveError, expect_length};
use crate::grid::{Grid, HALO};

/// Order of accuracy of the Laplacian.
pub const SPACE_ORDER: usize = 8;

/// Weights of the second derivative: the centre, then one to four cells away.
pub(crate) const SECOND_DERIVATIVE: [f64; 5] =
    [-205.0 / 72.0, 8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];

/// The amplitude that the layer lets return from its outer edge at normal incidence. Stronger
/// damping would reflect more at its onset than it takes from the way through (measured).
const DESIGN_REFLECTION: f64 = 3e-3;

/// The largest time step, in seconds, with which the scheme is stable at speed `v` (m/s).
///
/// Von Neumann's condition: `dt^2 v^2` times the largest eigenvalue of the negative Laplacian is at
/// most 4, and that eigenvalue belongs to the checkerboard, where all weights add up.
#[must_use]
pub fn largest_stable_step(v: f64, dx: f64, dz: f64) -> f64 {
    let weights: f64 = SECOND_DERIVATIVE[0].abs()
        + 2.0 * SECOND_DERIVATIVE[1..].iter().map(|w| w.abs()).sum::<f64>();
    2.0 / (v * (weights / (dx * dx) + weights / (dz * dz)).sqrt())
}

/// The coefficients of a step, padded like the fields.
#[derive(Debug)]
pub(crate) struct Medium {
    /// v^2 dt^2, in square metres.
    pub(crate) push: Vec<f32>,
    /// sigma dt / 2 that a row adds, by x.
    pub(crate) damp_x: Vec<f32>,
    /// sigma dt / 2 that a column adds, by z.
    pub(crate) damp_z: Vec<f32>,
}

impl Medium {
    /// Checks `velocity` (m/s, `nx * nz`, z fastest) and prepares the coefficients; the edge of the
    /// model continues through the layer.
    pub(crate) fn new(grid: &Grid, velocity: &[f32], dt: f64) -> Result<Self, WaveError> {
        expect_length("the velocity model", velocity.len(), grid.nx * grid.nz)?;
        let fastest = fastest(grid, velocity)?;
        let limit = largest_stable_step(fastest, grid.dx, grid.dz);
        if !(dt > 0.0 && dt <= limit) {
            return Err(WaveError::Unstable { dt, limit });
        }
        let (rows, columns) = grid.shape();
        Ok(Self {
            push: padded_push(grid, velocity, dt),
            damp_x: damping(rows, grid.layer, fastest, grid.dx, dt),
            damp_z: damping(columns, grid.layer, fastest, grid.dz, dt),
        })
    }
}

fn fastest(grid: &Grid, velocity: &[f32]) -> Result<f64, WaveError> {
    if let Some(at) = velocity.iter().position(|v| !(v.is_finite() && *v > 0.0)) {
        let value = velocity[at];
        return Err(WaveError::Velocity { x: at / grid.nz, z: at % grid.nz, value });
    }
    Ok(velocity.iter().fold(0.0_f32, |most, v| most.max(*v)).into())
}

fn padded_push(grid: &Grid, velocity: &[f32], dt: f64) -> Vec<f32> {
    let (rows, columns) = grid.shape();
    let inner = |padded: usize, cells: usize| padded.saturating_sub(grid.pad()).min(cells - 1);
    let cell = |x: usize, z: usize| {
        let v = f64::from(velocity[inner(x, grid.nx) * grid.nz + inner(z, grid.nz)]);
        (v * v * dt * dt) as f32
    };
    (0..rows).flat_map(|x| (0..columns).map(move |z| (x, z))).map(|(x, z)| cell(x, z)).collect()
}

/// sigma dt / 2 along one axis: zero in the model, rising with the square of the way into the
/// layer.
///
/// A wave of speed v is damped by exp(-sigma / (2 v)) per metre, so that the way into the layer and
/// back leaves [`DESIGN_REFLECTION`] when the peak of sigma is 3 v ln(1 / R) / width.
fn damping(cells: usize, layer: usize, v: f64, spacing: f64, dt: f64) -> Vec<f32> {
    let width = layer.max(1) as f64;
    let peak = 3.0 * v * (1.0 / DESIGN_REFLECTION).ln() / (width * spacing);
    let inside = |at: usize| {
        let from_edge = at.min(cells - 1 - at) as f64;
        ((HALO + layer) as f64 - from_edge).clamp(0.0, width) / width
    };
    (0..cells)
        .map(|at| if layer == 0 { 0.0 } else { (0.5 * dt * peak * inside(at).powi(2)) as f32 })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { nx: 5, nz: 4, dx: 10.0, dz: 10.0, layer: 6 };

    #[test]
    fn the_weights_differentiate_a_parabola_exactly() {
        let second: f64 = (1..5).map(|i| 2.0 * SECOND_DERIVATIVE[i] * (i * i) as f64).sum();
        let constant: f64 = SECOND_DERIVATIVE[0] + 2.0 * SECOND_DERIVATIVE[1..].iter().sum::<f64>();
        assert!((second - 2.0).abs() < 1e-12);
        assert!(constant.abs() < 1e-12);
    }

    #[test]
    fn the_layer_damps_outside_the_model_only_and_alike_on_both_sides() {
        let medium = Medium::new(&GRID, &[2000.0; 20], 1e-3).unwrap();
        let pad = GRID.pad();
        assert!(medium.damp_x[pad..pad + 5].iter().all(|s| *s == 0.0));
        assert!(medium.damp_x[pad - 1] > 0.0);
        let mirrored: Vec<f32> = medium.damp_x.iter().rev().copied().collect();
        assert_eq!(mirrored, medium.damp_x);
        assert_eq!(medium.damp_z.len(), GRID.shape().1);
    }

    #[test]
    fn the_edge_of_the_model_continues_through_the_layer() {
        let velocity: Vec<f32> = (0..20).map(|i| 1000.0 + i as f32).collect();
        let medium = Medium::new(&GRID, &velocity, 1e-3).unwrap();
        assert!((medium.push[0] - 1.0).abs() < 1e-6);
        assert!((medium.push.last().unwrap() - 1.019_f32.powi(2)).abs() < 1e-6);
    }

    #[test]
    fn a_step_beyond_the_limit_and_a_wrong_velocity_are_refused() {
        let limit = largest_stable_step(2000.0, 10.0, 10.0);
        assert!(Medium::new(&GRID, &[2000.0; 20], limit * 0.999).is_ok());
        let unstable = Medium::new(&GRID, &[2000.0; 20], limit * 1.001);
        assert!(matches!(unstable, Err(WaveError::Unstable { .. })));
        let mut velocity = [2000.0; 20];
        velocity[7] = f32::NAN;
        let wrong = Medium::new(&GRID, &velocity, 1e-3).map(|_| ());
        assert!(matches!(wrong, Err(WaveError::Velocity { x: 1, z: 3, .. })));
    }
}
