//! What a spool has done so far, by name: a list that may grow.

use std::ffi::{c_char, c_double, c_int};

use unspool::{Figure, Stats, TierKind, TierStats};

use crate::spool::UnspoolSpool;
use crate::status::{Failure, call};
use crate::text::{give, handle, text};

/// Writes one figure of what the spool has done to `value`.
///
/// | name | |
/// | --- | --- |
/// | `saves`, `restores`, `discards` | calls that succeeded |
/// | `saved_bytes`, `restored_bytes` | their bytes, as they are stored |
/// | `checkpoints` | those that are there |
/// | `unflushed`, `unflushed_bytes` | those that a flush waits for |
/// | `save_stall_seconds`, `restore_stall_seconds` | for how long calls have waited |
/// | `kernels_seconds` | what of both was for kernels of a GPU to be loaded |
/// | `hinted_restores`, `hints` | restores that `unspool_expect` announced; those to come |
/// | `dropped_spans` | spans that did not fit into the trace |
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
        let known = figures(&spool.spool.stats()?);
        let found = known.iter().find(|(known, _)| known == name);
        let (_, found) = found.ok_or_else(|| unknown(name, &known))?;
        // SAFETY: as above.
        unsafe { give(value, *found, "value") }
    })
}

fn figures(stats: &Stats) -> Vec<(String, f64)> {
    let calls = stats.application.figures().map(|(name, figure)| match figure {
        Figure::Count(count) => (name.to_owned(), count as f64),
        Figure::Seconds(time) => (name.to_owned(), time.as_secs_f64()),
    });
    let tiers = [TierKind::Device, TierKind::Host, TierKind::Disk].into_iter().flat_map(|kind| {
        let tier = stats.tiers.iter().find(|tier| tier.kind == kind);
        let of = |name: &str, figure: fn(&TierStats) -> u64| {
            (format!("{}_{name}", kind.name()), tier.map_or(0, figure) as f64)
        };
        [of("capacity", |tier| tier.capacity), of("used", |tier| tier.used)]
    });
    calls.chain(tiers).collect()
}

fn unknown(name: &str, known: &[(String, f64)]) -> Failure {
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    Failure::invalid(format!("There is no figure {name:?}. Known figures: {}.", names.join(", ")))
}
