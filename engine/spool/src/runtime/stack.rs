//! From settings to tiers and to the settings of the core.

use std::sync::Arc;

use unspool_core::{Config, LinkConfig, MAX_TIERS, Nanos, TierConfig, TierKind};
use unspool_cuda::{DeviceArenaOptions, PinnedOptions};
use unspool_tiers::{AnyTier, Arena, Disk, DiskMode, DiskOptions, TierError};

use crate::error::{Error, ErrorKind};
use crate::gpu::{Gpu, On};
use crate::runtime::devices;
use crate::runtime::order::OrderCheck;
use crate::settings::{DiskSettings, Settings};
use crate::time::nanos;

/// Checkpoints start at multiples of this when there is a disk, so that they can be read and
/// written without the page cache; else what a GPU reads at once, or a cache line, is enough.
const DISK_ALIGNMENT: u64 = 4096;
const DEVICE_ALIGNMENT: u64 = 256;
const MEMORY_ALIGNMENT: u64 = 64;

/// What a link is taken for until its first transfers were measured, in bytes per second.
const MEMORY_RATE: f64 = 5e9;
const DEVICE_RATE: f64 = 25e9;
const STORE_RATE: f64 = 1e9;
const LATENCY: Nanos = Nanos(50_000);

/// The tiers of a spool, fastest first.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) tiers: Vec<AnyTier>,
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) gpu: Option<Gpu>,
    /// The check of stream order, where one is wanted.
    pub(crate) order: Option<Arc<OrderCheck>>,
}

/// Refuses settings that make no sense, before anything is made.
pub(crate) fn check(settings: &Settings) -> Result<(), Error> {
    if settings.device.is_none() && settings.host.is_none() && settings.disk.is_none() {
        return Err(invalid(
            "A spool needs a place to keep its checkpoints, and none was given. Set at least one \
             of `device_memory`, `host_memory` and `disk`.",
        ));
    }
    let least = alignment(settings);
    for (name, bytes) in [("device_memory", settings.device), ("host_memory", settings.host)] {
        if bytes.is_some_and(|bytes| bytes < least) {
            return Err(too_small(name, bytes.unwrap_or(0), least));
        }
    }
    let capacity = settings.disk.as_ref().and_then(|disk| disk.capacity);
    if capacity.is_some_and(|bytes| bytes < 2 * DISK_ALIGNMENT) {
        return Err(too_small("disk capacity", capacity.unwrap_or(0), 2 * DISK_ALIGNMENT));
    }
    check_permissions(settings)?;
    settings.codec.check()?;
    if settings.disk.as_ref().is_some_and(|disk| disk.durable) {
        settings.codec.check_durable()?;
    }
    check_workers(settings)
}

fn check_permissions(settings: &Settings) -> Result<(), Error> {
    let permissions = settings.disk.as_ref().map_or(0o600, |disk| disk.permissions);
    if permissions & !0o777 == 0 && permissions & 0o600 == 0o600 {
        return Ok(());
    }
    let message = format!(
        "`permissions` is {permissions:#o}: give those of a file (at most 0o777) that its owner \
         can read and write, such as 0o640."
    );
    Err(invalid(message))
}

/// Refuses what would change a history that was opened for reading.
pub(crate) fn check_writable(settings: &Settings, version: i64, doing: &str) -> Result<(), Error> {
    match &settings.disk {
        Some(DiskSettings { mode: DiskMode::ReadOnly, path, .. }) => {
            let message = format!(
                "Version {version} cannot be {doing}: the history in {} was opened for reading. \
                 Open it for writing, or another one.",
                path.display()
            );
            Err(Error::new(ErrorKind::ReadOnly, message))
        }
        _ => Ok(()),
    }
}

fn check_workers(settings: &Settings) -> Result<(), Error> {
    if settings.in_flight == 0 {
        return Err(invalid("`in_flight` is 0, so nothing could ever move. Give at least 1."));
    }
    if !(1..=64).contains(&settings.store_workers) {
        let message = format!("`store_workers` is {}: give 1 to 64.", settings.store_workers);
        return Err(invalid(message));
    }
    Ok(())
}

fn too_small(name: &str, bytes: u64, least: u64) -> Error {
    invalid(format!("`{name}` is {bytes} bytes. Give at least {least}, or leave the tier out."))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

fn alignment(settings: &Settings) -> u64 {
    match (&settings.disk, settings.on) {
        (Some(_), _) => DISK_ALIGNMENT,
        (None, On::Cpu) => MEMORY_ALIGNMENT,
        // Known before there is a device, and the same whether there is one or not.
        (None, _) => DEVICE_ALIGNMENT,
    }
}

/// Makes the tiers.
pub(crate) fn build(settings: &Settings) -> Result<Stack, Error> {
    let mut tiers: Vec<AnyTier> = Vec::with_capacity(MAX_TIERS);
    let gpu = devices::choose(settings)?;
    // Before the arenas are made, because they say where they are.
    let order = gpu.as_ref().filter(|_| settings.check_order);
    let order = order.map(|gpu| watch(gpu, settings)).transpose()?;
    for (kind, bytes) in [(TierKind::Device, settings.device), (TierKind::Host, settings.host)] {
        if let Some(bytes) = bytes {
            let arena = arena(kind, bytes, settings.shrink_ok, gpu.as_ref());
            tiers.push(AnyTier::Arena(arena.map_err(unmade)?));
        }
    }
    let disk = settings.disk.as_ref().map(open_disk).transpose()?;
    tiers.extend(disk.iter().map(|disk| AnyTier::Store(disk.clone())));
    Ok(Stack { tiers, disk, gpu, order })
}

fn watch(gpu: &Gpu, settings: &Settings) -> Result<Arc<OrderCheck>, Error> {
    let check = Arc::new(OrderCheck::new(settings.order_trace.as_deref())?);
    gpu.context().watch(check.clone());
    Ok(check)
}

fn arena(
    kind: TierKind,
    bytes: u64,
    shrink_ok: bool,
    gpu: Option<&Gpu>,
) -> Result<Arena, TierError> {
    match (kind, gpu.map(Gpu::device)) {
        (TierKind::Device, Some(device)) => {
            let options = DeviceArenaOptions { shrink_ok, ..DeviceArenaOptions::default() };
            Arena::on_device(device, bytes, &options)
        }
        (_, Some(device)) => Arena::pinned(device, bytes, &PinnedOptions::default()),
        (_, None) => Arena::new(kind, bytes),
    }
}

fn open_disk(settings: &DiskSettings) -> Result<Arc<Disk>, Error> {
    let mut options = DiskOptions::new(&settings.path);
    (options.capacity, options.durable) = (settings.capacity, settings.durable);
    (options.mode, options.permissions) = (settings.mode, settings.permissions);
    Ok(Arc::new(Disk::open(options).map_err(unmade)?))
}

fn unmade(cause: TierError) -> Error {
    Error::new(ErrorKind::Io, format!("A tier cannot be made: {cause}")).caused_by(cause)
}

/// The settings of the core for these tiers.
pub(crate) fn config(settings: &Settings, tiers: &[AnyTier], on_gpu: bool) -> Config {
    let alignment = alignment(settings);
    let tier = |tier: &AnyTier| {
        let description = tier.tier().describe();
        // Memory that a device has lost since is reported as it is later.
        let capacity = tier.arena().map_or(description.capacity, Arena::reserved);
        TierConfig { kind: description.kind, capacity, alignment }
    };
    let tiers: Vec<TierConfig> = tiers.iter().map(tier).collect();
    Config {
        links: tiers.windows(2).map(|pair| link(settings, pair[1].kind, on_gpu)).collect(),
        tiers,
        discard_after_restore: false,
        durable: settings.disk.as_ref().is_some_and(|disk| disk.durable),
        policy: settings.policy,
        max_retries: settings.max_retries,
        retry_delay: nanos(settings.retry_delay),
    }
}

/// The link above a tier of kind `slower`.
fn link(settings: &Settings, slower: TierKind, on_gpu: bool) -> LinkConfig {
    let rate = match slower.is_arena() {
        true if on_gpu => DEVICE_RATE,
        true => MEMORY_RATE,
        false => STORE_RATE,
    };
    LinkConfig {
        flush_rate: rate,
        prefetch_rate: rate,
        latency: LATENCY,
        max_in_flight_bytes: settings.in_flight_bytes,
        max_in_flight: settings.in_flight,
    }
}
