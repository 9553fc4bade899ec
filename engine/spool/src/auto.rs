//! `device_memory="auto"` and `host_memory="auto"`: how much an arena takes of what is free, and
//! the sentence that says so. Deciding is apart from reading: the decisions here depend on figures
//! alone.
//!
//! - Device tier: [`DEVICE_PERCENT`] of what is free on the device after [`DEVICE_SPARED`].
//! - Host tier: [`HOST_PERCENT`] of what the machine and the control groups leave, and no more than
//!   may be locked, where pinning counts as locking.
//! - Device tier in main memory (`device="cpu"`): [`STAND_IN_PERCENT`] of the same.
//! - Disk tier of a spool that is given no tier at all: [`DISK_PERCENT`] of what is free where
//!   temporary files go, if that is a disk of this machine.
//!
//! Sizes of memory are whole pages of 2 MiB. A size in main memory is an upper limit: the tier
//! takes memory when it needs it, and what the machine has left then is asked then. So it is at
//! least [`LEAST`], however little is free. Where a launcher says how many processes it has started
//! on the node, each of them gets an equal part of that share, whichever opens first.

mod ranks;

use std::path::PathBuf;

use unspool_cuda::Bytes;
use unspool_cuda::{Context, Driver, HostLimits, current_ordinal, memory_left};

use crate::doctor::cuda::pins_are_locked;
use crate::doctor::disk;
use crate::doctor::system::System;
use crate::error::{Error, ErrorKind};
use crate::gpu::On;
use crate::runtime::devices;
use crate::settings::{DiskSettings, Settings};

pub use ranks::Ranks;

/// The share of what is free on a device.
pub const DEVICE_PERCENT: u64 = 50;
/// What is left on a device before that: libraries load kernels and make buffers later.
pub const DEVICE_SPARED: u64 = 512 << 20;
/// The share of what is free in main memory.
pub const HOST_PERCENT: u64 = 50;
/// The share of main memory for a device tier that has no device.
pub const STAND_IN_PERCENT: u64 = 25;
/// The share of what is free on a disk.
pub const DISK_PERCENT: u64 = 50;
/// What is left of what may be locked: the staging buffers are pinned too.
pub const LOCKED_SPARED: u64 = 64 << 20;
/// The smallest size of a tier that is worth having.
pub const LEAST: u64 = 64 << 20;

const PAGE: u64 = 2 << 20;

/// What was picked. Keep it until the spool is open: it holds the device's context, which takes
/// some hundred milliseconds to start.
#[derive(Clone, Debug)]
pub struct Picked {
    /// The size of the tier in bytes.
    pub bytes: u64,
    /// What was picked and why, for people.
    pub sentence: String,
    /// Started to read the figures.
    _context: Option<Context>,
}

/// What is known of a device. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceMemoryFound {
    /// Its number.
    pub ordinal: u32,
    /// What is free.
    pub free: u64,
    /// All of it.
    pub total: u64,
    /// Processes of a job that share it; 0 and 1 stand for this one alone.
    pub sharing: u64,
}

/// What is known of main memory. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostMemoryFound {
    /// What this process can still get; `None` when it cannot be read.
    pub free: Option<u64>,
    /// Who sets that limit, in words.
    pub limit: String,
    /// What this process could get if nothing else took memory; `None` when it cannot be read.
    pub most: Option<u64>,
    /// The processes of a job that share the node.
    pub ranks: Option<Ranks>,
    /// What may still be locked, where pinning counts as locking and there is a limit.
    pub lockable: Option<u64>,
}

/// The size of a device tier `on` a device, or on main memory for [`On::Cpu`].
///
/// # Errors
/// `NoDevice` without CUDA unless main memory was asked for, `Device` when the device refuses,
/// `Io` when too little is free on it, or nothing says how much main memory is.
pub fn device(on: &On) -> Result<Picked, Error> {
    let ordinal = match on {
        On::Cpu => return stand_in(&read_host()),
        On::Cuda(Some(ordinal)) => *ordinal,
        On::Auto | On::Cuda(None) => current_ordinal().unwrap_or(0),
    };
    let driver = Driver::load().map_err(|cause| {
        let message = format!(
            "device_memory=\"auto\" takes a share of a GPU's memory, and CUDA cannot be used: \
             {cause}. Give a size, such as device_memory=\"4GiB\", or say device=\"cpu\" for a \
             device tier in main memory; `unspool doctor` tells more."
        );
        Error::new(ErrorKind::NoDevice, message).caused_by(cause)
    })?;
    let context = Context::new(&driver, ordinal)?;
    let (free, total) = context.memory()?;
    let sharing = Ranks::on_a_gpu(driver.devices().len());
    let picked = share_of_device(&DeviceMemoryFound { ordinal, free, total, sharing })?;
    Ok(Picked { _context: Some(context), ..picked })
}

/// The size of the host tier of a spool with these settings, whose device tier has its size
/// already; what they say about the host tier itself does not matter.
///
/// # Errors
/// `NoDevice` and `Device` as when the spool is opened, `Io` when nothing says how much is free.
pub fn host(settings: &Settings) -> Result<Picked, Error> {
    let gpu = devices::choose(&Settings { host: Some(LEAST), ..settings.clone() })?;
    let Some(gpu) = gpu else {
        return share_of_host(&read_host());
    };
    let context = gpu.context();
    let lockable = lockable(context);
    let picked = share_of_host(&HostMemoryFound { lockable, ..read_host() })?;
    Ok(Picked { _context: Some(context.clone()), ..picked })
}

fn read_host() -> HostMemoryFound {
    let left = memory_left();
    // Without a limit, these are the number of all addresses.
    let known = |bytes: u64| Some(bytes).filter(|&bytes| bytes < u64::MAX);
    HostMemoryFound {
        free: known(left.bytes),
        limit: left.limit,
        most: known(left.most),
        ranks: Ranks::here(),
        lockable: None,
    }
}

/// What this process may still lock; `None` when there is no limit, or pinned memory does not
/// count. A device on which nothing can be pinned shows that itself, when the arena is prepared.
fn lockable(context: &Context) -> Option<u64> {
    let limit = HostLimits::read().locked_soft?;
    let counts = pins_are_locked(context).ok().flatten()?;
    let locked = System::here().own_status("VmLck").unwrap_or(0);
    counts.then(|| limit.saturating_sub(locked))
}

/// The size of a device tier.
///
/// # Errors
/// `Io` when less than [`LEAST`] would be picked.
pub fn share_of_device(figures: &DeviceMemoryFound) -> Result<Picked, Error> {
    let DeviceMemoryFound { ordinal, free, total, sharing } = *figures;
    let left = free.saturating_sub(DEVICE_SPARED);
    let bytes = if sharing > 1 {
        let each = part(total.saturating_sub(DEVICE_SPARED), DEVICE_PERCENT, sharing);
        each.min(part(left, 100, 1))
    } else {
        part(left, DEVICE_PERCENT, 1)
    };
    let found = format!("{} of {} are free on device {ordinal}", Bytes(free), Bytes(total));
    if bytes < LEAST {
        let remedy = "Free memory that this or another process holds (nvidia-smi lists them), \
                      give a size, or leave the device tier out.";
        return Err(too_little("device_memory", &found, remedy));
    }
    let whose = match sharing {
        0 | 1 => "what is free".to_owned(),
        count => format!("all, for one of {count} processes that share it,"),
    };
    let sentence = format!(
        "device_memory=\"auto\" took {}: {DEVICE_PERCENT} % of {whose} after {} for others; \
         {found}.",
        Bytes(bytes),
        Bytes(DEVICE_SPARED)
    );
    Ok(picked(bytes, sentence))
}

/// The size of a device tier in main memory.
///
/// # Errors
/// `Io` when nothing says how much is free.
pub fn stand_in(figures: &HostMemoryFound) -> Result<Picked, Error> {
    of_main_memory("device_memory", STAND_IN_PERCENT, figures)
}

/// The size of a host tier.
///
/// # Errors
/// `Io` when nothing says how much is free.
pub fn share_of_host(figures: &HostMemoryFound) -> Result<Picked, Error> {
    of_main_memory("host_memory", HOST_PERCENT, figures)
}

fn of_main_memory(tier: &str, percent: u64, figures: &HostMemoryFound) -> Result<Picked, Error> {
    let whole = figures.ranks.map_or(figures.free, |_| figures.most);
    let (Some(free), Some(whole)) = (figures.free, whole) else {
        let remedy = format!("Give a size, or leave the {tier} tier out.");
        return Err(too_little(tier, "How much memory is free cannot be read here", &remedy));
    };
    let share = part(whole, percent, figures.ranks.map_or(1, |ranks| ranks.count));
    let lockable = figures.lockable.map(|bytes| part(bytes.saturating_sub(LOCKED_SPARED), 100, 1));
    let bytes = lockable.map_or(share, |lockable| share.min(lockable)).max(LEAST);
    let why = match (lockable, figures.ranks) {
        (Some(lockable), _) if lockable < share => {
            "what may still be locked (ulimit -l)".to_owned()
        }
        (_, Some(Ranks { count, by })) => format!(
            "{percent} % of {}, for one of {count} processes of this node ({by})",
            Bytes(whole)
        ),
        _ => format!("{percent} % of what is free"),
    };
    let (size, found) = (Bytes(bytes), found(free, figures));
    Ok(picked(bytes, format!("{tier}=\"auto\" takes up to {size}: {why}; {found}.")))
}

fn found(free: u64, figures: &HostMemoryFound) -> String {
    let mut found = format!("{} are free by {}", Bytes(free), figures.limit);
    if let Some(lockable) = figures.lockable {
        found += &format!(", and {} may still be locked (RLIMIT_MEMLOCK)", Bytes(lockable));
    }
    found
}

/// One of `parts` equal parts of so many percent, in whole pages.
fn part(bytes: u64, percent: u64, parts: u64) -> u64 {
    debug_assert!(percent <= 100 && parts > 0);
    let part = u128::from(bytes) * u128::from(percent) / 100 / u128::from(parts);
    let part = u64::try_from(part).unwrap_or(bytes);
    part - part % PAGE
}

/// The disk tier of a spool that is given no tier: in `TMPDIR`, or else in `/var/tmp`, if one of
/// them is a disk of this machine that can be written. With the sentence that says so.
#[must_use]
pub fn disk() -> Option<(DiskSettings, String)> {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let places = named.into_iter().chain([PathBuf::from("/var/tmp")]);
    places.into_iter().find_map(|path| {
        let free = disk::free_on_a_disk(&path)?;
        let capacity = free / 100 * DISK_PERCENT;
        let sentence = format!(
            "no tier was given: up to {:#} of {}, {DISK_PERCENT} % of what is free there.",
            Bytes(capacity),
            path.display()
        );
        let usual = DiskSettings::new(path);
        (capacity >= LEAST)
            .then_some((DiskSettings { capacity: Some(capacity), ..usual }, sentence))
    })
}

fn picked(bytes: u64, sentence: String) -> Picked {
    debug_assert!(bytes >= LEAST && bytes.is_multiple_of(PAGE));
    Picked { bytes, sentence, _context: None }
}

fn too_little(tier: &str, found: &str, remedy: &str) -> Error {
    let message = format!(
        "{tier}=\"auto\" finds nothing sensible to take: {found}, and a tier has at least {}. \
         {remedy}",
        Bytes(LEAST)
    );
    Error::new(ErrorKind::Io, message)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
#[path = "auto_tests.rs"]
mod tests;
