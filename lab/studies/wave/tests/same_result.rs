//! What does not change a result: threads, runs, the way steps are grouped; and what may change
//! its last digits only: the instruction set.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{grid, misfit, noise, shoot, silence, wavelet};
use unspool_wave::{Acoustic, Grid, Instructions, Options, Points, Record, Signal, WaveError};

const STEPS: usize = 300;
const DT: f64 = 1e-3;

fn velocity(grid: &Grid) -> Vec<f32> {
    noise(11, grid.nx * grid.nz).iter().map(|v| 2200.0 + 300.0 * v).collect()
}

fn recorded(threads: usize, instructions: Instructions) -> Vec<f32> {
    let grid = grid(83, 57, 9.0, 20);
    let wave = Acoustic::new(grid, &velocity(&grid), DT, Options { threads, instructions });
    let receivers: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i) * 18.0, 13.0)).collect();
    let signal = wavelet(20.0, DT, STEPS);
    shoot(&wave.unwrap(), &[(100.0, 100.0)], &signal, &receivers, STEPS)
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let one = recorded(1, Instructions::best());
    for threads in [2, 3, 7] {
        assert_eq!(one, recorded(threads, Instructions::best()), "{threads} threads");
    }
    assert!(common::peak(&one) > 0.0);
}

#[test]
fn instruction_sets_agree_to_rounding() {
    let (best, portable) = (recorded(2, Instructions::best()), recorded(2, Instructions::Portable));
    assert!(misfit(&best, &portable) < 1e-5, "{}", misfit(&best, &portable));
}

#[test]
fn steps_may_be_taken_one_by_one_or_together() {
    let grid = grid(50, 40, 10.0, 10);
    let wave = Acoustic::new(grid, &velocity(&grid), DT, Options::default()).unwrap();
    let points = Points::new(&grid, &[(200.0, 100.0)]).unwrap();
    let signal = wavelet(20.0, DT, 31);
    let run = |group: usize| {
        let (mut older, mut newer) = silence(&grid);
        let mut values = vec![0.0; 31];
        for (signal, record) in signal.chunks(group).zip(values.chunks_mut(group)) {
            let steps = signal.len();
            let signal = Signal { points: &points, values: signal };
            let record = Record { points: &points, values: record };
            wave.advance(&mut older, &mut newer, steps, Some(signal), Some(record)).unwrap();
            if steps % 2 == 1 {
                std::mem::swap(&mut older, &mut newer);
            }
        }
        (newer, values)
    };
    assert_eq!(run(1), run(31));
    assert_eq!(run(4), run(31));
}

#[test]
fn the_image_adds_the_products_of_both_fields() {
    let grid = grid(200, 150, 10.0, 10);
    let (u, v) = (noise(5, grid.len()), noise(6, grid.len()));
    let run = |threads| {
        let options = Options { threads, ..Options::default() };
        let wave = Acoustic::new(grid, &velocity(&grid), DT, options).unwrap();
        let (mut image, mut light) = silence(&grid);
        wave.correlate(&mut image, &mut light, &u, &v).unwrap();
        wave.correlate(&mut image, &mut light, &u, &v).unwrap();
        (image, light)
    };
    let (image, light) = run(1);
    assert_eq!((image.clone(), light.clone()), run(4));
    assert_eq!(image[1234], u[1234] * v[1234] + u[1234] * v[1234]);
    assert_eq!(light[77], u[77] * u[77] * 2.0);
}

#[test]
fn buffers_that_do_not_fit_are_refused_before_anything_is_computed() {
    let grid = grid(20, 20, 10.0, 5);
    let wave = Acoustic::new(grid, &velocity(&grid), DT, Options::default()).unwrap();
    let points = Points::new(&grid, &[(50.0, 50.0)]).unwrap();
    let foreign = Points::new(&common::grid(21, 20, 10.0, 5), &[(50.0, 50.0)]).unwrap();
    let (mut older, mut newer) = silence(&grid);
    let mut try_signal = |points, values: &[f32]| {
        wave.advance(&mut older, &mut newer, 3, Some(Signal { points, values }), None)
    };
    assert!(matches!(try_signal(&points, &[1.0; 2]), Err(WaveError::Length { .. })));
    assert_eq!(try_signal(&foreign, &[1.0; 3]), Err(WaveError::ForeignPoints));
    assert!(wave.advance(&mut older[1..], &mut newer, 1, None, None).is_err());
    assert!(older.iter().chain(&newer).all(|value| *value == 0.0));
}

#[test]
fn no_subnormal_number_spreads_ahead_of_a_wave() {
    let grid = grid(200, 200, 10.0, 20);
    let wave = Acoustic::new(grid, &velocity(&grid), DT, Options::default()).unwrap();
    let points = Points::new(&grid, &[(1000.0, 1000.0)]).unwrap();
    let (mut older, mut newer) = silence(&grid);
    let values = wavelet(20.0, DT, 200);
    let signal = Signal { points: &points, values: &values };
    wave.advance(&mut older, &mut newer, 200, Some(signal), None).unwrap();
    let smallest = newer.iter().filter(|u| **u != 0.0).fold(f32::INFINITY, |s, u| s.min(u.abs()));
    assert!(common::peak(&newer) > 1e-3);
    assert!((1e-18..1e-12).contains(&smallest), "the smallest amplitude is {smallest}");
}
