//! What this machine has for a spool: the driver and its devices, the rates of their links, what
//! may be pinned, a disk, the compiler for kernels.
//!
//! The modules here only look, and fill plain data ([`Diagnosis`]). The Python package adds what
//! needs no extension (`unspool/_doctor/system.py`), and judges what is missing or poor
//! (`findings.py` there). Nothing here prints, every wait has a limit, and a machine
//! without CUDA or with a broken driver is an answer and not an error. A driver that ends the
//! process cannot be survived from within it: the command line looks in a process of its own.

mod automatic;
mod bounded;
pub mod cuda;
pub mod disk;
pub mod host;
mod kernels;
mod nvrtc;
pub(crate) mod system;

use std::path::PathBuf;
use std::time::Duration;

pub use automatic::Automatic;
pub use cuda::{Cuda, Device};
pub use disk::Disk;
pub use host::Host;
pub use kernels::Kernels;
pub use nvrtc::Nvrtc;

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
    /// Main memory and its limits.
    pub host: Host,
    /// The driver and its devices.
    pub cuda: Cuda,
    /// The kernels that came with the library.
    pub kernels: Kernels,
    /// The compiler for those of other devices.
    pub nvrtc: Nvrtc,
    /// The directory that was asked about.
    pub disk: Option<Disk>,
    /// What `device_memory="auto"` and `host_memory="auto"` would take now.
    pub automatic: Automatic,
}

impl Checkup {
    /// Looks. Takes about a second for each device, and less than two for a disk; never more than
    /// three times the limit.
    #[must_use]
    pub fn run(&self) -> Diagnosis {
        let cuda = if self.cuda { cuda::look(self) } else { Cuda::default() };
        let host = Host::look();
        let automatic = automatic::of(&host, &cuda);
        Diagnosis {
            nvrtc: nvrtc::look(self),
            disk: self.disk.as_deref().map(|dir| disk::look(dir, self)),
            host,
            kernels: kernels::look(&cuda),
            cuda,
            automatic,
        }
    }
}

#[cfg(test)]
mod tests;
