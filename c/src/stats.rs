//! What a spool has done so far, by name: a list that may grow.

use std::ffi::{c_char, c_double, c_int};

use unspool::{Stats, TierKind};

use crate::spool::UnspoolSpool;
use crate::status::{Failure, call};
use crate::text::{give, handle, text};

const NAMES: &str = "saves, saved_bytes, restores, restored_bytes, checkpoints, discards, \
                     unflushed, unflushed_bytes, save_stall_seconds, restore_stall_seconds, \
                     device_capacity, host_capacity, disk_capacity, device_used, host_used, \
                     disk_used";

/// Writes one figure of what the spool has done to `value`.
///
/// | name | |
/// | --- | --- |
/// | `saves`, `restores`, `discards` | calls that succeeded |
/// | `saved_bytes`, `restored_bytes` | their bytes, as they are stored |
/// | `checkpoints` | those that are there |
/// | `unflushed`, `unflushed_bytes` | those that a flush waits for |
/// | `save_stall_seconds`, `restore_stall_seconds` | for how long calls have waited |
/// | `device_capacity`, `host_capacity`, `disk_capacity` | bytes of a tier; 0 without it |
/// | `device_used`, `host_used`, `disk_used` | bytes in use there |
///
/// Returns `UNSPOOL_INVALID` for another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_stat(
    spool: *const UnspoolSpool,
    name: *const c_char,
    value: *mut c_double,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (spool, name) = unsafe { (handle(spool, "spool")?, text(name, "name")?) };
        let found = figure(&spool.spool.stats()?, name).ok_or_else(|| {
            Failure::invalid(format!("There is no figure {name:?}; there are {NAMES}."))
        })?;
        // SAFETY: as above.
        unsafe { give(value, found, "value") }
    })
}

fn figure(stats: &Stats, name: &str) -> Option<f64> {
    let application = &stats.application;
    let tier = |kind, figure: fn(&unspool::TierStats) -> u64| {
        stats.tiers.iter().find(|tier| tier.kind == kind).map_or(0, figure)
    };
    let count = match name {
        "saves" => application.saves,
        "saved_bytes" => application.saved_bytes,
        "restores" => application.restores,
        "restored_bytes" => application.restored_bytes,
        "checkpoints" => application.checkpoints,
        "discards" => application.discards,
        "unflushed" => application.unflushed,
        "unflushed_bytes" => application.unflushed_bytes,
        "save_stall_seconds" => return Some(application.save_stall.as_secs_f64()),
        "restore_stall_seconds" => return Some(application.restore_stall.as_secs_f64()),
        "device_capacity" => tier(TierKind::Device, |tier| tier.capacity),
        "host_capacity" => tier(TierKind::Host, |tier| tier.capacity),
        "disk_capacity" => tier(TierKind::Disk, |tier| tier.capacity),
        "device_used" => tier(TierKind::Device, |tier| tier.used),
        "host_used" => tier(TierKind::Host, |tier| tier.used),
        "disk_used" => tier(TierKind::Disk, |tier| tier.used),
        _ => return None,
    };
    Some(count as f64)
}
