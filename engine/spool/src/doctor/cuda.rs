//! The driver, its devices, and what their links do.

use std::time::{Duration, Instant};

use unspool_cuda::probe::{self, LinkSpeeds, ProbeOptions};
use unspool_cuda::{
    Context, DeviceError, DeviceInfo, Driver as Loaded, PinnedArena, PinnedOptions,
};

use super::Checkup;
use super::bounded::{self, Report};
use super::system::System;

/// Bytes of one copy, and with little memory.
const COPY: u64 = 64 << 20;
const SMALL_COPY: u64 = 8 << 20;
const ROUNDS: u32 = 8;
/// The longest wait for a copy.
const COPY_LIMIT: Duration = Duration::from_secs(5);
/// What is pinned to see whether that counts as locked memory.
const PINNED: u64 = 4 << 20;

/// The driver and its devices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cuda {
    /// False when it was not asked for.
    pub looked_for: bool,
    /// The newest CUDA that the driver supports, when it could be loaded and has a device.
    pub version: Option<(u32, u32)>,
    /// The driver's library.
    pub path: Option<String>,
    /// The devices that this process sees.
    pub devices: Vec<Device>,
    /// Why CUDA cannot be used, with a remedy.
    pub problem: Option<String>,
}

/// A device.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// What the driver says about it.
    pub info: DeviceInfo,
    /// Bytes that are free, with this process's own context there.
    pub free: Option<u64>,
    /// How long its context took to start.
    pub start: Option<Duration>,
    /// What its links do.
    pub speeds: Option<LinkSpeeds>,
    /// Whether pinned memory counts as locked memory here, so that `RLIMIT_MEMLOCK` limits it.
    pub pins_are_locked: Option<bool>,
    /// What did not work.
    pub problem: Option<String>,
}

pub(super) fn look(checkup: &Checkup) -> Cuda {
    let empty = Cuda { looked_for: true, ..Cuda::default() };
    let budget = if checkup.measure { checkup.budget } else { Duration::ZERO };
    let (mut found, problem) =
        bounded::within(checkup.limit, empty, move |report| examine(budget, report));
    found.problem = found.problem.or(problem);
    found
}

/// Devices are measured until the time of `budget` is used up.
fn examine(budget: Duration, report: &Report<Cuda>) {
    report.begins("loading the CUDA driver and listing its devices");
    let driver = match Loaded::load() {
        Ok(driver) => driver,
        Err(error) => return report.note(|cuda| cuda.problem = Some(error.to_string())),
    };
    report.note(|cuda| {
        cuda.version = Some(driver.cuda_version());
        cuda.path = library();
        cuda.devices = driver.devices().iter().map(Device::listed).collect();
    });
    let begin = Instant::now();
    for (index, info) in driver.devices().iter().enumerate() {
        report.begins(format!("starting device {}", info.ordinal));
        let bench = Bench { report, index, measure: begin.elapsed() < budget };
        if let Err(error) = bench.run(&driver, info.ordinal) {
            bench.note(|device| device.problem = Some(error.to_string()));
        }
    }
}

/// One device being looked at.
struct Bench<'a> {
    report: &'a Report<Cuda>,
    index: usize,
    measure: bool,
}

impl Bench<'_> {
    fn note(&self, change: impl FnOnce(&mut Device)) {
        self.report.note(|cuda| change(&mut cuda.devices[self.index]));
    }

    fn run(&self, driver: &Loaded, ordinal: u32) -> Result<(), DeviceError> {
        let begin = Instant::now();
        let context = Context::new(driver, ordinal)?;
        let (free, _) = context.memory()?;
        let start = begin.elapsed();
        self.note(|device| (device.free, device.start) = (Some(free), Some(start)));
        if self.measure { self.measure(&context, free) } else { Ok(()) }
    }

    fn measure(&self, context: &Context, free: u64) -> Result<(), DeviceError> {
        let ordinal = context.ordinal();
        self.report.begins(format!("pinning memory for device {ordinal}"));
        let counted = pins_are_locked(context)?;
        self.note(|device| device.pins_are_locked = counted);
        self.report.begins(format!("copying to and from device {ordinal}"));
        let bytes = if free >= 16 * COPY { COPY } else { SMALL_COPY };
        let options = ProbeOptions { bytes, rounds: ROUNDS, limit: COPY_LIMIT };
        let speeds = probe::links(context, &options)?;
        self.note(|device| device.speeds = Some(speeds));
        Ok(())
    }
}

impl Device {
    fn listed(info: &DeviceInfo) -> Device {
        Device {
            info: info.clone(),
            free: None,
            start: None,
            speeds: None,
            pins_are_locked: None,
            problem: None,
        }
    }
}

/// Whether memory that the driver pins shows as locked or pinned in the figures of this process:
/// only then can `RLIMIT_MEMLOCK` limit it. `None` where the system keeps no such figures.
///
/// # Errors
/// When nothing can be pinned at all.
pub(crate) fn pins_are_locked(context: &Context) -> Result<Option<bool>, DeviceError> {
    let system = System::here();
    let counted = || Some(system.own_status("VmLck")? + system.own_status("VmPin").unwrap_or(0));
    let before = counted();
    // What an earlier arena has left would be pinned before.
    let options = PinnedOptions { take_turns: false, keep: false, ..PinnedOptions::default() };
    let arena = PinnedArena::new(context, PINNED, &options)?;
    arena.wait_registered(PINNED, COPY_LIMIT)?;
    Ok(before.zip(counted()).map(|(before, after)| after > before))
}

/// Where the driver's library is: the one that a test names in its place, or the one that the
/// system has loaded.
fn library() -> Option<String> {
    let named = std::env::var_os("UNSPOOL_CUDA_DRIVER").map(Into::into);
    let path = named.or_else(|| System::here().loaded("libcuda.so"));
    path.map(|path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_or_without_a_driver_there_is_an_answer() {
        let cuda = look(&Checkup { measure: false, ..Checkup::default() });
        assert!(cuda.looked_for);
        assert_eq!(cuda.version.is_none(), cuda.problem.is_some(), "{cuda:?}");
        assert!(cuda.version.is_none() || !cuda.devices.is_empty());
    }

    #[test]
    fn what_is_not_asked_for_is_not_looked_for() {
        let checkup = Checkup { cuda: false, measure: false, ..Checkup::default() };
        assert_eq!(checkup.run().cuda, Cuda::default());
    }
}
