//! The propagator: steps in a row, driven at some points and recorded at others.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{WaveError, expect_length};
use crate::grid::{Grid, HALO};
use crate::imaging;
use crate::medium::Medium;
use crate::points::Points;
use crate::stencil::{Instructions, Row, Weights, advance_row};

/// Rows that one thread takes at least: a row of a few hundred cells is too little to hand out.
const LEAST_ROWS: usize = 8;

/// How to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Threads; 0 for one per core.
    pub threads: usize,
    /// The instruction set.
    pub instructions: Instructions,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 0, instructions: Instructions::best() }
    }
}

/// What drives the waves: one value per step and point, steps slow.
#[derive(Clone, Copy, Debug)]
pub struct Signal<'a> {
    /// Where.
    pub points: &'a Points,
    /// `steps * points` values of q, integrated over the cell.
    pub values: &'a [f32],
}

/// Where the field is read after every step.
#[derive(Debug)]
pub struct Record<'a> {
    /// Where.
    pub points: &'a Points,
    /// Receives `steps * points` values, steps slow.
    pub values: &'a mut [f32],
}

/// The acoustic propagator of one model and one time step.
#[derive(Debug)]
pub struct Acoustic {
    grid: Grid,
    medium: Medium,
    weights: Weights,
    instructions: Instructions,
    pool: ThreadPool,
}

impl Acoustic {
    /// Prepares a propagator for `velocity` (m/s, `nx * nz`, z fastest) and a time step in seconds.
    ///
    /// # Errors
    /// When the grid, a velocity or the instruction set cannot be used, when `dt` breaks the
    /// stability limit ([`crate::largest_stable_step`]), or when threads cannot be started.
    pub fn new(grid: Grid, velocity: &[f32], dt: f64, options: Options) -> Result<Self, WaveError> {
        let grid = grid.checked()?;
        let medium = Medium::new(&grid, velocity, dt)?;
        let instructions = options.instructions.checked()?;
        let pool = ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|index| format!("wave-{index}"))
            .build()
            .map_err(|error| WaveError::Threads(error.to_string()))?;
        let weights = Weights::new(grid.dx, grid.dz);
        Ok(Self { grid, medium, weights, instructions, pool })
    }

    /// The geometry of its fields.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The instruction set that it computes with.
    #[must_use]
    pub fn instructions(&self) -> Instructions {
        self.instructions
    }

    /// The number of threads that it computes with.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Takes `steps` steps from the two time levels `older` and `newer`.
    ///
    /// Each step computes the next level into the older buffer, adds the signal, records, and
    /// swaps: afterwards the newest level is in `newer` when `steps` is even, in `older` when odd.
    ///
    /// # Errors
    /// When a buffer does not fit the grid, the points or the number of steps; nothing has then
    /// been computed.
    pub fn advance(
        &self,
        older: &mut [f32],
        newer: &mut [f32],
        steps: usize,
        signal: Option<Signal<'_>>,
        record: Option<Record<'_>>,
    ) -> Result<(), WaveError> {
        expect_length("the older field", older.len(), self.grid.len())?;
        expect_length("the newer field", newer.len(), self.grid.len())?;
        if let Some(signal) = &signal {
            self.fits("the signal", signal.points, signal.values.len(), steps)?;
        }
        if let Some(record) = &record {
            self.fits("the record", record.points, record.values.len(), steps)?;
        }
        self.pool.install(|| self.run(older, newer, steps, signal, record));
        Ok(())
    }

    /// Adds `forward * backward` to `image` and `forward^2` to `illumination`.
    ///
    /// # Errors
    /// When a buffer does not fit the grid.
    pub fn correlate(
        &self,
        image: &mut [f32],
        illumination: &mut [f32],
        forward: &[f32],
        backward: &[f32],
    ) -> Result<(), WaveError> {
        expect_length("the image", image.len(), self.grid.len())?;
        expect_length("the illumination", illumination.len(), self.grid.len())?;
        expect_length("the forward field", forward.len(), self.grid.len())?;
        expect_length("the backward field", backward.len(), self.grid.len())?;
        self.pool.install(|| imaging::correlate(image, illumination, forward, backward));
        Ok(())
    }

    fn fits(
        &self,
        what: &'static str,
        points: &Points,
        values: usize,
        steps: usize,
    ) -> Result<(), WaveError> {
        if !points.belong_to(&self.grid) {
            return Err(WaveError::ForeignPoints);
        }
        expect_length(what, values, steps.saturating_mul(points.len()))
    }

    fn run<'a>(
        &self,
        mut older: &'a mut [f32],
        mut newer: &'a mut [f32],
        steps: usize,
        signal: Option<Signal<'_>>,
        mut record: Option<Record<'_>>,
    ) {
        for step in 0..steps {
            self.step(older, newer);
            if let Some(Signal { points, values }) = signal {
                let now = &values[step * points.len()..][..points.len()];
                points.add(older, now, |at| self.response(at));
            }
            if let Some(Record { points, values }) = &mut record {
                points.read(older, &mut values[step * points.len()..][..points.len()]);
            }
            std::mem::swap(&mut older, &mut newer);
        }
    }

    /// How much of a unit of q at one cell the next level receives: v^2 dt^2 / (1 + s) over the
    /// area of the cell, which makes q a point source and the scheme self-adjoint.
    fn response(&self, at: usize) -> f32 {
        let columns = self.grid.shape().1;
        let damp = self.medium.damp_x[at / columns] + self.medium.damp_z[at % columns];
        let area = (self.grid.dx * self.grid.dz) as f32;
        self.medium.push[at] / (area * (1.0 + damp))
    }

    fn step(&self, older: &mut [f32], newer: &[f32]) {
        let (rows, columns) = self.grid.shape();
        older[HALO * columns..(rows - HALO) * columns]
            .par_chunks_mut(columns)
            .with_min_len(LEAST_ROWS)
            .enumerate()
            .for_each(|(index, older)| {
                let x = index + HALO;
                let inner = HALO..columns - HALO;
                advance_row(
                    self.instructions,
                    &self.weights,
                    &self.row(newer, x),
                    &mut older[inner],
                );
            });
    }

    fn row<'a>(&'a self, field: &'a [f32], x: usize) -> Row<'a> {
        let columns = self.grid.shape().1;
        let inner = HALO..columns - HALO;
        let line = |x: usize| &field[x * columns..][..columns];
        let beside = |i: usize| (&line(x - i - 1)[inner.clone()], &line(x + i + 1)[inner.clone()]);
        Row {
            across: line(x),
            beside: std::array::from_fn(beside),
            push: &self.medium.push[x * columns..][inner.clone()],
            damp_z: &self.medium.damp_z[inner.clone()],
            damp_x: self.medium.damp_x[x],
        }
    }
}
