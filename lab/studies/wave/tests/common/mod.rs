//! What the tests of the propagator share.
#![allow(dead_code, reason = "each test file uses its part")]

use std::f64::consts::PI;

use unspool_wave::{Acoustic, Grid, Options, Points, Record, Signal};

/// A Ricker wavelet of peak frequency `f` (Hz) at time `t` (s), centred at `1.2 / f`.
pub fn ricker(f: f64, t: f64) -> f64 {
    let a = (PI * f * (t - 1.2 / f)).powi(2);
    (1.0 - 2.0 * a) * (-a).exp()
}

/// `steps` samples of the wavelet.
pub fn wavelet(f: f64, dt: f64, steps: usize) -> Vec<f32> {
    (0..steps).map(|step| ricker(f, step as f64 * dt) as f32).collect()
}

/// A grid with equal spacings.
pub fn grid(nx: usize, nz: usize, spacing: f64, layer: usize) -> Grid {
    Grid { nx, nz, dx: spacing, dz: spacing, layer }
}

/// A propagator of one velocity.
pub fn uniform(grid: Grid, velocity: f32, dt: f64) -> Acoustic {
    Acoustic::new(grid, &vec![velocity; grid.nx * grid.nz], dt, Options::default()).unwrap()
}

/// Two empty time levels.
pub fn silence(grid: &Grid) -> (Vec<f32>, Vec<f32>) {
    (vec![0.0; grid.len()], vec![0.0; grid.len()])
}

/// Drives the waves at `from` and returns what is recorded at `to`, steps slow.
pub fn shoot(
    wave: &Acoustic,
    from: &[(f64, f64)],
    signal: &[f32],
    to: &[(f64, f64)],
    steps: usize,
) -> Vec<f32> {
    let sources = Points::new(wave.grid(), from).unwrap();
    let receivers = Points::new(wave.grid(), to).unwrap();
    let (mut older, mut newer) = silence(wave.grid());
    let mut values = vec![0.0; steps * to.len()];
    let signal = Signal { points: &sources, values: signal };
    let record = Record { points: &receivers, values: &mut values };
    wave.advance(&mut older, &mut newer, steps, Some(signal), Some(record)).unwrap();
    values
}

/// The largest magnitude.
pub fn peak(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// The root of the mean square of the difference, over that of `right`.
pub fn misfit(left: &[f32], right: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference =
        square(&mut left.iter().zip(right).map(|(l, r)| f64::from(*l) - f64::from(*r)));
    (difference / square(&mut right.iter().map(|r| f64::from(*r)))).sqrt()
}

/// Numbers between -1 and 1 from a seed (SplitMix64).
pub fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
