//! The rates of this machine that a forecast needs.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use unspool::{Error, Wait};
use unspool_core::{Nanos, TierConfig, TierKind};
use unspool_schedule::forecast::{Forecast, ForecastJob, LinkSpeed, Rate};

use crate::drive::{Measured, restore, save};
use crate::wave::Wave;
use crate::{LOOKAHEAD, Room, Shape, open};

/// Number of checkpoints of a calibration, and of its rounds: the first one touches the memory.
const VERSIONS: i64 = 24;
const ROUNDS: usize = 3;

/// Measured rates: seconds per call; bytes per second.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    step: f64,
    save: f64,
    restore: f64,
    first_touch: f64,
    contention: f64,
    /// Rates of flush and prefetch of every link.
    links: Vec<[f64; 2]>,
}

impl Machine {
    /// Measures with a small spool of the same tiers.
    pub fn measure(shape: Shape, room: Room, folder: &Path) -> Result<Machine, Error> {
        let mut wave = Wave::new(shape.state_bytes, shape.sweeps);
        let mut machine = Machine { step: median(9, || wave.step()), ..Machine::default() };
        machine.measure_copies(shape, &mut wave)?;
        if room.host > 0 {
            let two = Room { device: 2, host: VERSIONS as u64, disk: false };
            machine.measure_link(shape, two, folder, &mut wave)?;
        }
        if room.disk {
            let two = Room { device: 0, host: 2, disk: true };
            machine.measure_link(shape, two, folder, &mut wave)?;
        }
        if room.host > 0 {
            let small = Room { device: VERSIONS as u64, host: VERSIONS as u64, ..room };
            machine.measure_contention(shape, small, folder, &mut wave)?;
        }
        Ok(machine)
    }

    /// Measures copies to and from an arena, the first time and later.
    fn measure_copies(&mut self, shape: Shape, wave: &mut Wave) -> Result<(), Error> {
        let room = Room { device: VERSIONS as u64, host: 0, disk: false };
        let spool = open(room, shape, Path::new(""))?;
        let first = Instant::now();
        (0..VERSIONS).try_for_each(|version| save(&spool, version, wave))?;
        let first = first.elapsed().as_secs_f64() / VERSIONS as f64;
        (self.save, self.restore) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            (0..VERSIONS).try_for_each(|version| restore(&spool, version, wave))?;
            self.restore = self.restore.min(start.elapsed().as_secs_f64() / VERSIONS as f64);
            (0..VERSIONS).try_for_each(|version| spool.discard(version))?;
            let start = Instant::now();
            (0..VERSIONS).try_for_each(|version| save(&spool, version, wave))?;
            self.save = self.save.min(start.elapsed().as_secs_f64() / VERSIONS as f64);
        }
        self.first_touch = (first - self.save).max(0.0) / shape.state_bytes as f64;
        Ok(())
    }

    /// Measures a link while the application is idle: saves wait for flushes, restores for
    /// prefetches.
    fn measure_link(
        &mut self,
        shape: Shape,
        room: Room,
        folder: &Path,
        wave: &mut Wave,
    ) -> Result<(), Error> {
        let spool = open(room, shape, folder)?;
        let mut best = [0.0_f64; 2];
        for _ in 0..ROUNDS {
            let start = Instant::now();
            (0..VERSIONS).try_for_each(|version| save(&spool, version, wave))?;
            spool.flush(&Wait::default())?;
            let down = start.elapsed().as_secs_f64();
            // Two of the checkpoints stay in the upper tier.
            let start = Instant::now();
            spool.expect(0..VERSIONS)?;
            (0..VERSIONS).try_for_each(|version| restore(&spool, version, wave))?;
            let up = start.elapsed().as_secs_f64();
            let bytes = shape.state_bytes as f64 * VERSIONS as f64;
            best = [best[0].max(bytes / down), best[1].max(bytes / up)];
            (0..VERSIONS).try_for_each(|version| spool.discard(version))?;
        }
        self.links.push(best);
        spool.close()
    }

    /// Measures steps during a flush.
    fn measure_contention(
        &mut self,
        shape: Shape,
        room: Room,
        folder: &Path,
        wave: &mut Wave,
    ) -> Result<(), Error> {
        let spool = open(room, shape, folder)?;
        (0..VERSIONS).try_for_each(|version| save(&spool, version, wave))?;
        let done = AtomicBool::new(false);
        let mut times = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The flush only keeps the link busy; its error does not matter.
                let _ = spool.flush(&Wait::default());
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                times.push(timed(|| wave.step()));
            }
        });
        let links = f64::from(u8::from(room.host > 0) + u8::from(room.disk));
        times.sort_by(f64::total_cmp);
        let slowed = times.get(times.len() / 2).copied().unwrap_or(self.step);
        self.contention = ((slowed / self.step - 1.0) / links).max(0.0);
        spool.close()
    }

    /// The input of the forecast.
    pub fn job(&self, shape: Shape, room: Room) -> ForecastJob {
        let rate = |bytes_per_second| Rate { bytes_per_second, latency: Nanos(0) };
        let link = |[flush, prefetch]: &[f64; 2]| LinkSpeed {
            flush: Rate { latency: Nanos(20_000), ..rate(*flush) },
            prefetch: Rate { latency: Nanos(20_000), ..rate(*prefetch) },
            max_in_flight_bytes: 256 << 20,
            max_in_flight: 8,
            contention: self.contention,
        };
        let bytes = shape.state_bytes;
        ForecastJob {
            tiers: tiers(shape, room),
            links: self.links.iter().map(link).collect(),
            discard_after_restore: false,
            state_bytes: bytes,
            reverse_bytes: bytes,
            step_seconds: self.step,
            reverse_seconds: self.step,
            save: rate(bytes as f64 / self.save),
            restore: rate(bytes as f64 / self.restore),
            lookahead: LOOKAHEAD,
            on_gpu: false,
            first_touch: self.first_touch,
            compression: None,
            steps: None,
        }
    }
}

/// The same input with the steps and copies of the run itself: the remaining difference is due to
/// the model of the links, not to the rates.
pub fn in_hindsight(job: &ForecastJob, found: &Forecast, measured: &Measured) -> ForecastJob {
    let steps = (found.counts.advances + found.counts.reverses) as f64;
    let factor = found.copy_seconds / measured.copies;
    let times = |rate: Rate| Rate { bytes_per_second: rate.bytes_per_second * factor, ..rate };
    ForecastJob {
        step_seconds: measured.compute / steps,
        reverse_seconds: measured.compute / steps,
        save: times(job.save),
        restore: times(job.restore),
        links: job.links.iter().map(|link| LinkSpeed { contention: 0.0, ..*link }).collect(),
        ..job.clone()
    }
}

fn tiers(shape: Shape, room: Room) -> Vec<TierConfig> {
    let alignment = if room.disk { 4096 } else { 64 };
    let arenas = [(TierKind::Device, room.device), (TierKind::Host, room.host)];
    let arena = |(kind, states): (TierKind, u64)| {
        (states > 0).then_some(TierConfig { kind, capacity: states * shape.state_bytes, alignment })
    };
    let disk =
        room.disk.then_some(TierConfig { kind: TierKind::Disk, capacity: u64::MAX, alignment });
    arenas.into_iter().filter_map(arena).chain(disk).collect()
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(rounds: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds).map(|_| timed(&mut work)).collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {:.2} ms, save {:.2} ms, restore {:.2} ms, first touch {:.2} ns/KiB, \
             contention {:.2}, links",
            self.step * 1e3,
            self.save * 1e3,
            self.restore * 1e3,
            self.first_touch * 1024e9,
            self.contention
        )?;
        let pair = |[down, up]: &[f64; 2]| format!(" {:.2}/{:.2} GB/s", down / 1e9, up / 1e9);
        self.links.iter().try_for_each(|link| f.write_str(&pair(link)))
    }
}
