//! Forecasts of schedules that are too long to be run: from a shorter one of the same shape.
//!
//! The sample has the states, the steps and the links of the whole schedule. It also has its small
//! tiers, those that hold less than a quarter of the sample's copies: what is saved last and
//! restored first passes through them as in the whole schedule (the inside of a cut). Larger tiers
//! are scaled by the ratio of the slots: they stay as they are where both schedules keep equally
//! many copies (Revolve), and are a tenth where the sample keeps a tenth (storing everything). The
//! times are then in proportion:
//!
//! - the steps are counted in the whole schedule, and slowed as in the sample,
//! - copies and stalls of saves grow with the saves, those of restores with the restores,
//! - so do the bytes of the links; the peak of a tier grows with the slots.
//!
//! For storing everything that is exact up to the turn and to the states that never leave the
//! arenas, so a sample should be as long as can be. Where the
//! number of slots stays, more steps lie between two restores of the whole schedule than of the
//! sample, so that stalls are estimated too high rather than too low.

use crate::forecast::run::size_in;
use crate::forecast::{Forecast, ForecastError, ForecastJob, LinkBytes, TierPeak, forecast};
use crate::{Counts, Schedule};
use unspool_core::TierConfig;

/// A tier is small when it holds less than the sample's copies divided by this.
const SMALL: u64 = 4;

/// Predicts what `whole` costs from a forecast of `sample`, a shorter schedule of the same shape.
///
/// Of the whole only what the interpreter of schedules counts is needed
/// ([`check`](crate::check())).
///
/// # Errors
/// Those of [`forecast`]; [`ForecastError::DoesNotFit`] also when the whole has no room;
/// [`ForecastError::Sample`] when the two do not have the same shape.
pub fn forecast_from_sample(
    whole: &Counts,
    sample: impl Schedule,
    job: &ForecastJob,
) -> Result<Forecast, ForecastError> {
    job.check()?;
    check_room(whole, job)?;
    let slots = sample.slots();
    let share = slots as f64 / whole.peak.max(1) as f64;
    if slots == 0 || share > 1.0 {
        return Err(ForecastError::Sample);
    }
    let found = forecast(sample, &part_of(job, slots, share))?;
    if found.counts.steps > whole.steps || found.counts.restores == 0 {
        return Err(ForecastError::Sample);
    }
    Ok(scaled(&found, whole, job))
}

/// Refuses a whole schedule that does not fit. By rounding, its sample may fit all the same.
fn check_room(counts: &Counts, job: &ForecastJob) -> Result<(), ForecastError> {
    let Some(slowest) = job.tiers.last() else { return Ok(()) };
    let room = job.tiers.iter().fold(0_u64, |sum, tier| sum.saturating_add(tier.capacity));
    let needed = counts.peak.saturating_mul(size_in(slowest, job.stored(job.reverse_bytes)));
    if needed <= room {
        return Ok(());
    }
    let (tier, capacity) = (slowest.kind, slowest.capacity);
    Err(ForecastError::DoesNotFit { tier, capacity, needed })
}

/// The same job with `share` of each tier that is large for so many slots, but at least two states.
fn part_of(job: &ForecastJob, slots: u64, share: f64) -> ForecastJob {
    debug_assert!(share > 0.0 && share <= 1.0, "a part of the whole");
    let mut part = job.clone();
    for tier in part.tiers.iter_mut().filter(|tier| tier.capacity < u64::MAX) {
        let whole = size_in(tier, job.state_bytes).max(1);
        let state = size_in(tier, job.stored(job.state_bytes)).max(1);
        if slots > (tier.capacity / state).saturating_mul(SMALL) {
            continue;
        }
        // A save needs the room of a whole state until it is done.
        let least = whole.saturating_mul(2).min(tier.capacity);
        let capacity = (tier.capacity as f64 * share) as u64;
        tier.capacity = capacity.max(least) & !(tier.alignment - 1);
    }
    part
}

fn scaled(found: &Forecast, counts: &Counts, job: &ForecastJob) -> Forecast {
    debug_assert_eq!(found.tiers.len(), job.tiers.len());
    let of = |whole: u64, sample: u64| whole as f64 / sample.max(1) as f64;
    let saves = of(counts.saves, found.counts.saves);
    let restores = of(counts.restores, found.counts.restores);
    let slots = of(counts.peak, found.counts.peak);
    let calls = of(
        counts.saves.saturating_add(counts.restores),
        found.counts.saves.saturating_add(found.counts.restores),
    );
    let steps = |counts: &Counts| {
        counts.advances as f64 * job.step_seconds + counts.reverses as f64 * job.reverse_seconds
    };
    let plain = steps(&found.counts);
    let slowed = if plain > 0.0 { found.compute_seconds / plain } else { 1.0 };
    let compute_seconds = steps(counts) * slowed;
    let copy_seconds = found.copy_seconds * calls;
    let save_stall_seconds = found.save_stall_seconds * saves;
    let restore_stall_seconds = found.restore_stall_seconds * restores;
    let times = |bytes: u64, factor: f64| (bytes as f64 * factor) as u64;
    let tier = |(tier, config): (&TierPeak, &TierConfig)| TierPeak {
        peak: times(tier.peak, slots).min(config.capacity),
        restores: times(tier.restores, restores),
        ..*tier
    };
    let link = |link: &LinkBytes| LinkBytes {
        flush: times(link.flush, saves),
        prefetch: times(link.prefetch, restores),
    };
    Forecast {
        seconds: compute_seconds + copy_seconds + save_stall_seconds + restore_stall_seconds,
        compute_seconds,
        copy_seconds,
        save_stall_seconds,
        restore_stall_seconds,
        counts: *counts,
        tiers: found.tiers.iter().zip(&job.tiers).map(tier).collect(),
        links: found.links.iter().map(link).collect(),
        lead: found.lead,
    }
}
