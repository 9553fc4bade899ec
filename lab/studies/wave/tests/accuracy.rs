//! The propagator against exact solutions, and the orders of accuracy that it promises.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::f64::consts::PI;

use common::{grid, misfit, ricker, shoot, silence, uniform, wavelet};
use unspool_wave::{SPACE_ORDER, largest_stable_step};

const VELOCITY: f64 = 2000.0;
const FREQUENCY: f64 = 15.0;

/// The exact wave of a point source in two dimensions, at distance `r` and time `t`.
///
/// The Green's function H(t - r/v) / (2 pi sqrt(t^2 - r^2/v^2)) is convolved with the wavelet;
/// with t = r/v cosh(a) the integrand is smooth, and the trapezoidal rule is exact enough.
fn exact(r: f64, t: f64) -> f64 {
    let (arrival, fine) = (r / VELOCITY, 4000);
    if t <= arrival {
        return 0.0;
    }
    let step = (t / arrival).acosh() / f64::from(fine);
    let at = |i: i32| ricker(FREQUENCY, t - arrival * (f64::from(i) * step).cosh());
    let ends = 0.5 * (at(0) + at(fine));
    ((1..fine).map(at).sum::<f64>() + ends) * step / (2.0 * PI)
}

/// The misfit of the recorded wave to the exact one, on a grid of `spacing` metres.
fn error_at(spacing: f64) -> f64 {
    let cells = (1200.0 / spacing) as usize + 1;
    let grid = grid(cells, cells, spacing, (400.0 / spacing) as usize);
    let dt = 0.8 * largest_stable_step(VELOCITY, spacing, spacing);
    let steps = (0.42 / dt) as usize;
    let wave = uniform(grid, VELOCITY as f32, dt);
    let signal = wavelet(FREQUENCY, dt, steps);
    let recorded = shoot(&wave, &[(400.0, 600.0)], &signal, &[(800.0, 600.0)], steps);
    let expected: Vec<f32> =
        (1..=steps).map(|step| exact(400.0, step as f64 * dt) as f32).collect();
    misfit(&recorded, &expected)
}

#[test]
fn waves_converge_to_the_exact_solution_with_the_square_of_the_step() {
    let errors = [16.0, 8.0, 4.0].map(error_at);
    let order = (errors[1] / errors[2]).log2();
    assert!(errors[2] < 0.01, "{errors:?}");
    assert!((1.8..2.4).contains(&order), "order {order} of {errors:?}");
}

/// The relative error of the Laplacian of a plane wave with so many cells per wavelength.
///
/// With the older level at twice the newer one, a step leaves v^2 dt^2 times the Laplacian alone.
fn laplacian_error(cells_per_wavelength: f64) -> f64 {
    let (grid, dt) = (grid(120, 24, 1.0, 0), 1e-4);
    let (wave, push) = (uniform(grid, 1000.0, dt), (1000.0 * dt).powi(2));
    let (rows, columns) = grid.shape();
    let wavenumber = 2.0 * PI / cells_per_wavelength;
    let (mut older, mut newer) = silence(&grid);
    for x in 0..rows {
        newer[x * columns..][..columns].fill((wavenumber * x as f64).sin() as f32);
    }
    older.iter_mut().zip(&newer).for_each(|(older, newer)| *older = 2.0 * newer);
    wave.advance(&mut older, &mut newer, 1, None, None).unwrap();
    let inner = |x: &usize| (20..rows - 20).contains(x);
    let line = |of: &[f32]| -> Vec<f32> {
        (0..rows).filter(inner).map(|x| of[x * columns + columns / 2]).collect()
    };
    let expected: Vec<f32> =
        line(&newer).iter().map(|u| (-wavenumber.powi(2) * push * f64::from(*u)) as f32).collect();
    misfit(&line(&older), &expected)
}

#[test]
fn the_laplacian_is_accurate_to_the_eighth_order() {
    let (coarse, fine) = (laplacian_error(6.0), laplacian_error(9.0));
    let order = (coarse / fine).ln() / 1.5_f64.ln();
    assert!((order - SPACE_ORDER as f64).abs() < 0.5, "order {order}: {coarse} {fine}");
}

#[test]
fn unequal_spacings_give_the_same_wave() {
    let (dt, steps) = (8e-4, 500);
    let signal = wavelet(FREQUENCY, dt, steps);
    let square = uniform(grid(151, 151, 6.0, 40), 2000.0, dt);
    let oblong = unspool_wave::Grid { nx: 151, nz: 301, dx: 6.0, dz: 3.0, layer: 60 };
    let flat = uniform(oblong, 2000.0, dt);
    let [left, right] = [square, flat]
        .map(|wave| shoot(&wave, &[(300.0, 450.0)], &signal, &[(600.0, 600.0)], steps));
    assert!(misfit(&left, &right) < 0.01, "{}", misfit(&left, &right));
}

#[test]
fn the_scheme_stays_bounded_at_the_stability_limit() {
    let grid = grid(60, 60, 10.0, 10);
    let dt = largest_stable_step(3000.0, 10.0, 10.0);
    let wave = uniform(grid, 3000.0, dt);
    let (mut older, mut newer) = (vec![0.0; grid.len()], common::noise(7, grid.len()));
    let (rows, columns) = grid.shape();
    for (at, value) in newer.iter_mut().enumerate() {
        let (x, z) = (at / columns, at % columns);
        if x < 4 || z < 4 || x >= rows - 4 || z >= columns - 4 {
            *value = 0.0;
        }
    }
    wave.advance(&mut older, &mut newer, 4000, None, None).unwrap();
    assert!(common::peak(&newer) < 10.0, "{}", common::peak(&newer));
}
