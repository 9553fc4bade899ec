//! Prints the time of one step on a grid of 1601 by 401 cells: `cargo run --release --example
//! step_time -p unspool-wave`.

use std::time::Instant;

use unspool_wave::{Acoustic, Grid, Instructions, Options, Points, Signal};

const STEPS: usize = 400;

fn milliseconds_a_step(grid: Grid, options: Options) -> Result<f64, unspool_wave::WaveError> {
    let velocity = vec![2000.0; grid.nx * grid.nz];
    let wave = Acoustic::new(grid, &velocity, 1e-3, options)?;
    let points = Points::new(&grid, &[(600.0, 300.0)])?;
    let values: Vec<f32> = (0..STEPS).map(|step| (step as f32 * 0.1).sin()).collect();
    let (mut older, mut newer) = (vec![0.0; grid.len()], vec![0.0; grid.len()]);
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let begin = Instant::now();
        let signal = Signal { points: &points, values: &values };
        wave.advance(&mut older, &mut newer, STEPS, Some(signal), None)?;
        best = best.min(begin.elapsed().as_secs_f64() * 1e3 / STEPS as f64);
    }
    Ok(best)
}

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), unspool_wave::WaveError> {
    for layer in [0, 40] {
        let grid = Grid { nx: 1601, nz: 401, dx: 7.5, dz: 7.5, layer };
        for instructions in [Instructions::Portable, Instructions::best()] {
            for threads in [1, 2, 4] {
                let time = milliseconds_a_step(grid, Options { threads, instructions })?;
                let name = instructions.name();
                println!("layer {layer:2}, {name:8}, {threads} threads: {time:.3} ms a step");
            }
        }
    }
    Ok(())
}
