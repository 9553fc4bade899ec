//! Reciprocity, and the exact transpose that migration rests on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{grid, misfit, noise, shoot, wavelet};
use unspool_wave::{Acoustic, Grid, Options};

const DT: f64 = 1e-3;
const STEPS: usize = 700;
const GRID: Grid = Grid { nx: 90, nz: 70, dx: 8.0, dz: 6.0, layer: 20 };

/// A model with a gradient, a step and a slow lens.
fn model() -> Acoustic {
    let velocity = |x: usize, z: usize| {
        let lens = (x as f32 - 50.0).powi(2) + (z as f32 - 30.0).powi(2) < 150.0;
        1500.0 + 10.0 * z as f32 + if z > 40 { 700.0 } else { 0.0 } - if lens { 300.0 } else { 0.0 }
    };
    let velocity: Vec<f32> =
        (0..GRID.nx).flat_map(|x| (0..GRID.nz).map(move |z| velocity(x, z))).collect();
    Acoustic::new(GRID, &velocity, DT, Options::default()).unwrap()
}

#[test]
fn source_and_receiver_may_be_exchanged() {
    let (wave, signal) = (model(), wavelet(20.0, DT, STEPS));
    let (here, there) = ((83.0, 11.0), (611.0, 340.0));
    let forth = shoot(&wave, &[here], &signal, &[there], STEPS);
    let back = shoot(&wave, &[there], &signal, &[here], STEPS);
    assert!(misfit(&forth, &back) < 1e-4, "{}", misfit(&forth, &back));
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(l, r)| f64::from(*l) * f64::from(*r)).sum()
}

/// Rows of `values` in reverse order.
fn reversed(values: &[f32], row: usize) -> Vec<f32> {
    values.chunks(row).rev().flatten().copied().collect()
}

#[test]
fn injecting_records_in_reverse_is_the_exact_adjoint_of_recording() {
    let wave = model();
    let sources = [(100.0, 12.0), (333.3, 200.1), (707.0, 1.0)];
    let receivers = [(10.0, 6.0), (205.0, 399.0), (440.4, 77.7), (712.0, 414.0)];
    let (q, d) = (noise(1, STEPS * sources.len()), noise(2, STEPS * receivers.len()));
    let recorded = shoot(&wave, &sources, &q, &receivers, STEPS);
    let backward = shoot(&wave, &receivers, &reversed(&d, receivers.len()), &sources, STEPS);
    let (left, right) = (dot(&recorded, &d), dot(&q, &reversed(&backward, sources.len())));
    let scale = (dot(&recorded, &recorded) * dot(&d, &d)).sqrt();
    assert!((left - right).abs() < 1e-6 * scale, "{left} {right} of {scale}");
    assert!(left.abs() > 1e-4 * scale, "the test must compare something: {left} of {scale}");
}

#[test]
fn a_signal_in_the_corner_of_the_model_is_scaled_like_any_other() {
    let wave = Acoustic::new(grid(40, 40, 10.0, 20), &[2000.0; 1600], DT, Options::default());
    let wave = wave.unwrap();
    let signal = wavelet(20.0, DT, STEPS);
    let forth = shoot(&wave, &[(0.0, 0.0)], &signal, &[(200.0, 200.0)], STEPS);
    let back = shoot(&wave, &[(200.0, 200.0)], &signal, &[(0.0, 0.0)], STEPS);
    assert!(misfit(&forth, &back) < 1e-5);
}
