//! Predicted against measured: a real spool (memory in place of the device, host memory, a disk in
//! a temporary folder) driven through schedules by a wave equation, and the forecast of the same
//! run from rates that were measured just before.
//!
//! `cargo run --release -p unspool --example forecast -- [steps] [MiB of a state] [sweeps a step]`
#![allow(clippy::print_stdout)]

mod calibrate;
mod drive;
mod wave;

use unspool::{DiskSettings, Error, Settings, Spool};
use unspool_schedule::forecast::{Forecast, forecast};
use unspool_schedule::{Revolve, Schedule, StoreAll};

use calibrate::{Machine, in_hindsight};
use drive::{Measured, drive};
use wave::Wave;

const MIB: u64 = 1 << 20;
const LOOKAHEAD: usize = 64;

/// Number of states that fit into each tier.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    device: u64,
    host: u64,
    disk: bool,
}

/// Parameters of the run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    steps: u64,
    state_bytes: u64,
    sweeps: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at: usize, default: u64| -> u64 {
        std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let shape = Shape {
        steps: number(1, 200),
        state_bytes: number(2, 8) * MIB,
        sweeps: number(3, 2) as usize,
    };
    let rooms = [
        Room { device: shape.steps, host: 0, disk: false },
        Room { device: 8, host: shape.steps, disk: false },
        Room { device: 8, host: 24, disk: true },
    ];
    for room in rooms {
        let folder = tempfile::tempdir()?;
        let machine = Machine::measure(shape, room, folder.path())?;
        println!("{room:?}\n{machine}");
        println!("{}", Row::head());
        let steps = shape.steps;
        compare("store all", || StoreAll::new(steps), shape, room, &machine, folder.path())?;
        for slots in [4, 12, 30] {
            let name = format!("revolve {slots}");
            compare(&name, || Revolve::new(steps, slots), shape, room, &machine, folder.path())?;
        }
    }
    Ok(())
}

fn compare<S: Schedule + Clone, E: std::error::Error + 'static>(
    name: &str,
    schedule: impl Fn() -> Result<S, E>,
    shape: Shape,
    room: Room,
    machine: &Machine,
    folder: &std::path::Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let job = machine.job(shape, room);
    let started = std::time::Instant::now();
    let predicted = forecast(schedule()?, &job)?;
    let took = started.elapsed();
    let spool = open(room, shape, folder)?;
    let mut wave = Wave::new(shape.state_bytes, shape.sweeps);
    let measured = drive(&spool, schedule()?, LOOKAHEAD, &mut wave)?;
    spool.close()?;
    let again = forecast(schedule()?, &in_hindsight(&job, &predicted, &measured))?;
    let took = took.as_secs_f64();
    let hindsight = again.seconds / measured.seconds;
    println!("{}", Row { name, predicted: &predicted, measured: &measured, hindsight, took });
    Ok(())
}

/// A spool with this room; each tier has space for alignment, so that the states fit.
fn open(room: Room, shape: Shape, folder: &std::path::Path) -> Result<Spool, Error> {
    let bytes = |states: u64| (states > 0).then_some(states * shape.state_bytes);
    Spool::open(Settings {
        device: bytes(room.device),
        host: bytes(room.host),
        disk: room.disk.then(|| DiskSettings::new(folder)),
        ..Settings::default()
    })
}

/// One line of the table.
struct Row<'a> {
    name: &'a str,
    predicted: &'a Forecast,
    measured: &'a Measured,
    /// Ratio of the forecast that knows the steps and copies of the run itself.
    hindsight: f64,
    took: f64,
}

impl Row<'_> {
    fn head() -> String {
        format!(
            "{:<12} {:>16} {:>6} {:>6} {:>16} {:>16} {:>16} {:>16} {:>9} {:>8}",
            "seconds: p/m",
            "total",
            "ratio",
            "model",
            "compute",
            "copies",
            "save stall",
            "restore stall",
            "lead",
            "ms"
        )
    }
}

impl std::fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (p, m) = (self.predicted, self.measured);
        write!(
            f,
            "{:<12} {:>7.3} /{:>7.3} {:>6.2} {:>6.2}",
            self.name,
            p.seconds,
            m.seconds,
            p.seconds / m.seconds,
            self.hindsight
        )?;
        for (p, m) in [
            (p.compute_seconds, m.compute),
            (p.copy_seconds, m.copies),
            (p.save_stall_seconds, m.save_stall),
            (p.restore_stall_seconds, m.restore_stall),
        ] {
            write!(f, " {p:>7.3} /{m:>7.3}")?;
        }
        write!(f, " {:>4}/{:>4} {:>8.1}", p.lead.median, m.lead, self.took * 1e3)
    }
}
