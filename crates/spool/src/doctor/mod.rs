//! What this machine has and how good it is: the driver and its devices, what may be pinned, the
//! links, a disk, the compiler for kernels; and for each thing that is missing or poor what that
//! means and what to do about it.
//!
//! Looking is apart from judging: the modules here fill plain data ([`Diagnosis`]), and
//! [`findings`] reads nothing else. Nothing here prints, every wait has a limit, and a machine
//! without CUDA or with a broken driver is an answer and not an error. A driver that ends the
//! process cannot be survived from within it: the command line looks in a process of its own.

mod automatic;
mod bounded;
pub mod cuda;
pub mod disk;
pub mod findings;
pub mod host;
mod kernels;
mod leftovers;
mod mounts;
mod nvrtc;
mod pci;
pub(crate) mod system;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

pub use automatic::Automatic;
pub use cuda::{Cuda, Device, Driver, Links};
pub use disk::Disk;
pub use findings::{Finding, Level};
pub use host::{Host, HugePages};
pub use kernels::Kernels;
pub use leftovers::{Leftover, Owner};
pub use mounts::Mount;
pub use nvrtc::Nvrtc;
pub use pci::{PciLink, PciPort};
pub use turns::Turns;

pub(crate) use findings::Bytes;
use system::System;

/// What to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkup {
    /// The directory of a disk tier to look at. Default: none.
    pub disk: Option<PathBuf>,
    /// Whether to load the driver and start its devices. Default: yes.
    pub cuda: bool,
    /// Whether to measure the links and the disk. Default: yes.
    pub measure: bool,
    /// No further device is measured once the measurements took this long. Default: 2 s.
    pub budget: Duration,
    /// Folders in which the compiler for kernels may be, such as Python's `sys.path`.
    pub nvrtc_folders: Vec<PathBuf>,
    /// The longest that the driver, and then the disk, may take to answer. Default: 30 s.
    pub limit: Duration,
}

impl Default for Checkup {
    fn default() -> Checkup {
        Checkup {
            disk: None,
            cuda: true,
            measure: true,
            budget: Duration::from_secs(2),
            nvrtc_folders: Vec::new(),
            limit: Duration::from_secs(30),
        }
    }
}

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnosis {
    /// The version of this library.
    pub version: &'static str,
    /// Main memory and its limits.
    pub host: Host,
    /// The driver and its devices.
    pub cuda: Cuda,
    /// The kernels that came with the library.
    pub kernels: Kernels,
    /// The compiler for those of other devices.
    pub nvrtc: Nvrtc,
    /// The lock by which processes of this node take turns to pin memory.
    pub turns: Turns,
    /// The directory that was asked about.
    pub disk: Option<Disk>,
    /// What `device="auto"` and `host="auto"` would take now.
    pub automatic: Automatic,
    /// What is missing or poor, the worst first.
    pub findings: Vec<Finding>,
}

impl Checkup {
    /// Looks. Takes about a second for each device, and less than two for a disk; never more than
    /// three times the limit.
    #[must_use]
    pub fn run(&self) -> Diagnosis {
        let system = System::here();
        let cuda = if self.cuda { cuda::look(self) } else { Cuda::not_looked_for() };
        let mut diagnosis = Diagnosis {
            version: env!("CARGO_PKG_VERSION"),
            host: Host::look(&system),
            kernels: kernels::look(&cuda),
            cuda,
            nvrtc: nvrtc::look(self),
            turns: turns::look(&system),
            disk: self.disk.as_deref().map(|dir| disk::look(dir, self, &system)),
            automatic: Automatic::default(),
            findings: Vec::new(),
        };
        diagnosis.automatic = automatic::of(&diagnosis);
        diagnosis.findings = findings::all(&diagnosis);
        diagnosis
    }
}

#[cfg(test)]
mod tests;
