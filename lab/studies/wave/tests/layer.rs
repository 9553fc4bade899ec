//! The layer around the model lets waves out and sends almost nothing back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{grid, noise, peak, shoot, silence, uniform, wavelet};
use unspool_wave::{Points, Signal};

const SPACING: f64 = 10.0;
const DT: f64 = 1.2e-3;
const STEPS: usize = 800;

/// Receivers along an edge of a model of 100 by 100 cells, from above the source to the corner.
fn receivers(shift: f64) -> Vec<(f64, f64)> {
    (0..10).map(|i| (shift + 500.0 + 48.0 * f64::from(i), shift + 30.0)).collect()
}

/// The largest wave that a layer of so many cells sends back, over the largest that passes. The
/// wavelength is 17 cells; the receivers see it at up to 45 degrees.
fn reflected(layer: usize) -> f32 {
    let small = uniform(grid(100, 100, SPACING, layer), 2000.0, DT);
    let large = uniform(grid(300, 300, SPACING, 40), 2000.0, DT);
    let signal = wavelet(12.0, DT, STEPS);
    let (shift, source) = (1000.0, 600.0);
    let near = shoot(&small, &[(source, source)], &signal, &receivers(0.0), STEPS);
    let inside = (shift + source, shift + source);
    let far = shoot(&large, &[inside], &signal, &receivers(shift), STEPS);
    let difference: Vec<f32> = near.iter().zip(&far).map(|(near, far)| near - far).collect();
    peak(&difference) / peak(&far)
}

#[test]
fn the_layer_reflects_a_few_percent_of_a_wave_and_less_the_wider_it_is() {
    let (narrow, wide) = (reflected(40), reflected(60));
    assert!(narrow < 0.03, "{narrow}");
    assert!(wide < 0.01, "{wide}");
}

#[test]
fn a_wave_leaves_the_model_and_its_energy_goes_on_falling() {
    let wave = uniform(grid(80, 80, SPACING, 40), 2500.0, 1e-3);
    let points = Points::new(wave.grid(), &[(400.0, 400.0)]).unwrap();
    let values = wavelet(15.0, 1e-3, 250);
    let (mut older, mut newer) = silence(wave.grid());
    let signal = Signal { points: &points, values: &values };
    wave.advance(&mut older, &mut newer, 250, Some(signal), None).unwrap();
    let mut energies = vec![];
    for _ in 0..5 {
        energies.push(newer.iter().map(|u| f64::from(*u).powi(2)).sum::<f64>());
        wave.advance(&mut older, &mut newer, 500, None, None).unwrap();
    }
    assert!(energies.windows(2).all(|pair| pair[1] < pair[0]), "{energies:?}");
    assert!(energies[2] < 1e-4 * energies[0], "{energies:?}");
}

#[test]
fn noise_of_every_wavelength_dies_out() {
    let grid = grid(40, 40, SPACING, 20);
    let wave = uniform(grid, 2000.0, DT);
    let (mut older, mut newer) = (silence(&grid).0, noise(3, grid.len()));
    let (rows, columns) = grid.shape();
    for (at, value) in newer.iter_mut().enumerate() {
        let edge = (at / columns).min(rows - 1 - at / columns).min(at % columns);
        if edge.min(columns - 1 - at % columns) < 4 {
            *value = 0.0;
        }
    }
    wave.advance(&mut older, &mut newer, 20_000, None, None).unwrap();
    assert!(peak(&newer) < 1e-2, "{}", peak(&newer));
}
