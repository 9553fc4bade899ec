//! The driver, its devices, and what their links do.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool_cuda::probe::{self, LinkSpeeds, ProbeOptions};
use unspool_cuda::{
    Context, DeviceError, DeviceInfo, Driver as Loaded, PinnedArena, PinnedOptions,
};

use super::Checkup;
use super::bounded::{self, Report};
use super::pci::{self, PciLink};
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
    /// False when nobody asked.
    pub looked_for: bool,
    /// The driver, when it could be loaded and has a device.
    pub driver: Option<Driver>,
    /// The devices that this process sees.
    pub devices: Vec<Device>,
    /// Why CUDA cannot be used, with a remedy.
    pub problem: Option<String>,
}

/// The driver of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Driver {
    /// The newest CUDA that it supports.
    pub cuda: (u32, u32),
    /// Its library.
    pub path: Option<PathBuf>,
    /// The version of its kernel module.
    pub module: Option<String>,
}

/// A device.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// What the driver says about it.
    pub info: DeviceInfo,
    /// Its PCI link.
    pub pci: PciLink,
    /// Bytes that are free, with this process's own context there.
    pub free: Option<u64>,
    /// How long its context took to start.
    pub start: Option<Duration>,
    /// What its links do.
    pub links: Option<Links>,
    /// Whether pinned memory counts as locked memory here, so that `RLIMIT_MEMLOCK` limits it.
    pub pins_are_locked: Option<bool>,
    /// What did not work.
    pub problem: Option<String>,
}

/// What the links of a device do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Links {
    /// Bytes per second.
    pub speeds: LinkSpeeds,
    /// Bytes of each copy.
    pub bytes: u64,
    /// Copies of each kind.
    pub rounds: u32,
}

impl Cuda {
    pub(super) fn not_looked_for() -> Cuda {
        Cuda::default()
    }

    /// Whether there is a device that works.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.devices.iter().any(|device| device.free.is_some())
    }
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
    let system = System::here();
    report.note(|cuda| {
        cuda.driver = Some(Driver {
            cuda: driver.cuda_version(),
            path: library(&system),
            module: module_version(&system),
        });
        let devices = driver.devices().iter();
        cuda.devices = devices.map(|info| Device::listed(info, &system)).collect();
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
        self.note(|device| {
            device.links = Some(Links { speeds, bytes, rounds: ROUNDS });
            // Links that were idle before were slow then.
            device.pci = pci::link(&System::here(), &device.info.pci);
        });
        Ok(())
    }
}

impl Device {
    fn listed(info: &DeviceInfo, system: &System) -> Device {
        Device {
            info: info.clone(),
            pci: pci::link(system, &info.pci),
            free: None,
            start: None,
            links: None,
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
    let options = PinnedOptions { take_turns: false, ..PinnedOptions::default() };
    let arena = PinnedArena::new(context, PINNED, &options)?;
    arena.wait_registered(PINNED, COPY_LIMIT)?;
    Ok(before.zip(counted()).map(|(before, after)| after > before))
}

/// Where the driver's library is: the one that a test names in its place, or the one that the
/// system has loaded.
fn library(system: &System) -> Option<PathBuf> {
    let named = std::env::var_os("UNSPOOL_CUDA_DRIVER").map(PathBuf::from);
    named.or_else(|| system.loaded("libcuda.so"))
}

/// The version in a line such as `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64
/// 580.82.07  Release Build`.
fn module_version(system: &System) -> Option<String> {
    let text = system.text("proc/driver/nvidia/version")?;
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        parts.clone().count() >= 2
            && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::Fake;

    #[test]
    fn the_version_of_the_kernel_module_is_the_first_one_in_its_line() {
        let fake = Fake::new();
        let version = || module_version(&fake.system());
        assert_eq!(version(), None);
        fake.write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\n\
             GCC version:  gcc version 12.3.0\n",
        );
        assert_eq!(version().as_deref(), Some("580.82.07"));
        fake.write("proc/driver/nvidia/version", "NVRM version: unknown\n");
        assert_eq!(version(), None);
    }

    #[test]
    fn with_or_without_a_driver_there_is_an_answer() {
        let cuda = look(&Checkup { measure: false, ..Checkup::default() });
        assert!(cuda.looked_for);
        assert_eq!(cuda.driver.is_none(), cuda.problem.is_some(), "{cuda:?}");
        assert!(cuda.driver.is_none() || !cuda.devices.is_empty());
    }

    #[test]
    fn what_is_not_asked_for_is_not_looked_for() {
        let checkup = Checkup { cuda: false, measure: false, ..Checkup::default() };
        let diagnosis = checkup.run();
        assert_eq!(diagnosis.cuda, Cuda::default());
    }
}
