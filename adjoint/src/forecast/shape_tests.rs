//! Forecasts of whole schedules: what holds for all of them, and the sampled ones.

use std::vec::Vec;

use proptest::prelude::*;

use super::tests::job;
use super::{Forecast, ForecastError, ForecastJob, forecast, forecast_from_sample};
use crate::{
    AnySchedule, Counts, Limits, OnlineRevolve, Revolve, Schedule, StoreAll, Uniform, ZCut, check,
};
use unspool_core::ConfigError;

fn known(steps: u64, number: u64) -> Vec<(&'static str, AnySchedule)> {
    let number = number.min(steps);
    [
        ("store all", StoreAll::new(steps).ok().map(AnySchedule::from)),
        ("revolve", Revolve::new(steps, number).ok().map(AnySchedule::from)),
        ("uniform", Uniform::new(steps, number).ok().map(AnySchedule::from)),
        ("zcut", ZCut::with_length(steps, number).ok().map(AnySchedule::from)),
    ]
    .into_iter()
    .filter_map(|(name, schedule)| Some((name, schedule?)))
    .collect()
}

/// Steps and plain copies of what the schedule does.
fn floor(found: &Forecast, job: &ForecastJob) -> f64 {
    let steps = found.counts.advances as f64 * job.step_seconds
        + found.counts.reverses as f64 * job.reverse_seconds;
    let bytes = (found.counts.saves + found.counts.restores) * job.reverse_bytes;
    steps + bytes as f64 / job.save.bytes_per_second
}

#[test]
fn revolve_within_the_device_never_stalls() {
    let job = job(6, 0, 0);
    let found = forecast(Revolve::new(100, 6).expect("steps"), &job).expect("it fits");
    assert!((found.seconds - floor(&found, &job)).abs() < 1e-6, "{found:?}");
    assert_eq!(found.tiers[0].peak, 6 * job.state_bytes);
    assert_eq!(found.counts.peak, 6);
}

#[test]
fn hints_that_see_the_discard_keep_bytes_where_they_are() {
    let flushed = |lookahead| {
        let job = ForecastJob { lookahead, ..job(24, 100, 0) };
        let found = forecast(Revolve::new(300, 16).expect("steps"), &job).expect("it fits");
        found.links[0].flush / job.state_bytes
    };
    let (saves, far, near) = (147, flushed(1000), flushed(2));
    assert!(far < saves / 10 && near > saves / 2, "{far} and {near} of {saves}");
}

#[test]
fn the_end_is_reported_to_an_online_schedule() {
    let online = || OnlineRevolve::new(5).expect("slots");
    let job = ForecastJob { steps: Some(77), ..job(8, 0, 0) };
    let found = forecast(online(), &job).expect("it fits");
    assert_eq!((found.counts.steps, found.counts.reverses), (77, 77));
    // States that are saved before the end is known are saved whole.
    let kept = |reverse_bytes| {
        let job = ForecastJob { reverse_bytes, steps: Some(5), ..job.clone() };
        forecast(online(), &job).expect("it fits").tiers[0].peak
    };
    assert_eq!(kept(1), kept(job.state_bytes));
    let unknown = ForecastJob { steps: None, ..job };
    assert_eq!(forecast(online(), &unknown), Err(ForecastError::UnknownSteps));
}

fn counts(whole: impl Schedule) -> Counts {
    check(whole, Limits::none()).expect("it breaks no rule")
}

#[track_caller]
fn assert_sample_is_close(whole: AnySchedule, sample: AnySchedule, job: &ForecastJob, within: f64) {
    let full = forecast(whole.clone(), job).expect("it fits");
    let from_sample = forecast_from_sample(&counts(whole), sample, job).expect("it fits");
    let ratio = from_sample.seconds / full.seconds;
    assert!((ratio - 1.0).abs() < within, "{ratio}: {from_sample:?} instead of {full:?}");
    assert_eq!(from_sample.counts, full.counts);
}

#[test]
fn a_tenth_of_store_all_predicts_the_whole() {
    let store_all = |steps| AnySchedule::from(StoreAll::new(steps).expect("steps"));
    for (host, disk) in [(4000, 0), (1000, 4000)] {
        let job = ForecastJob { step_seconds: 3e-4, reverse_seconds: 5e-4, ..job(100, host, disk) };
        assert_sample_is_close(store_all(4000), store_all(400), &job, 0.03);
    }
}

#[test]
fn a_tenth_of_a_revolve_predicts_the_whole() {
    let revolve = |steps| AnySchedule::from(Revolve::new(steps, 30).expect("steps"));
    for device in [4, 12, 40] {
        let job = ForecastJob { step_seconds: 3e-4, ..job(device, 100, 0) };
        assert_sample_is_close(revolve(6000), revolve(600), &job, 0.05);
    }
}

#[test]
fn a_fifth_of_the_cuts_predicts_the_whole() {
    let cuts = |steps| AnySchedule::from(ZCut::with_length(steps, 12).expect("steps"));
    for (device, host) in [(4, 30), (14, 1)] {
        let job = ForecastJob { step_seconds: 5e-4, ..job(device, host, 2000) };
        assert_sample_is_close(cuts(12_000), cuts(2400), &job, 0.05);
    }
}

#[test]
fn a_sample_must_be_shorter() {
    let schedule = |steps| StoreAll::new(steps).expect("steps");
    let found = forecast_from_sample(&counts(schedule(10)), schedule(20), &job(40, 0, 0));
    assert_eq!(found, Err(ForecastError::Sample));
}

#[test]
fn a_sample_does_not_hide_that_the_whole_has_no_room() {
    let schedule = |steps| StoreAll::new(steps).expect("steps");
    let found = forecast_from_sample(&counts(schedule(1000)), schedule(10), &job(40, 40, 0));
    assert!(matches!(found, Err(ForecastError::DoesNotFit { .. })), "{found:?}");
}

#[test]
fn a_sample_is_refused_what_no_spool_can_have() {
    let whole = counts(StoreAll::new(100).expect("steps"));
    let sample = || StoreAll::new(10).expect("steps");
    let mut unaligned = job(40, 200, 0);
    unaligned.tiers[1].alignment = 0;
    let found = forecast_from_sample(&whole, sample(), &unaligned);
    assert_eq!(found, Err(ForecastError::Config(ConfigError::Alignment(1))));
    let mut endless = ForecastJob { state_bytes: 0, reverse_bytes: 0, ..job(40, 200, 0) };
    endless.tiers[1].capacity = u64::MAX - 1;
    let found = forecast_from_sample(&whole, sample(), &endless);
    assert_eq!(found.map(|found| found.counts), Ok(whole), "nothing overflows");
}

proptest! {
    #[test]
    fn no_forecast_is_shorter_than_steps_and_copies(
        steps in 2..120_u64,
        number in 1..40_u64,
        (device, host) in (2..12_u64, 4..40_u64),
        step in 1e-5..3e-3_f64,
        lookahead in 0..80_usize,
    ) {
        let job = ForecastJob { step_seconds: step, lookahead, ..job(device, host, 200) };
        for (name, schedule) in known(steps, number) {
            let found = forecast(schedule, &job).expect("there is a disk");
            let least = floor(&found, &job);
            prop_assert!(found.seconds > least - 1e-6, "{name}: {} < {least}", found.seconds);
            let links = found.links.iter().map(|l| l.flush.max(l.prefetch)).max().unwrap_or(0);
            let bound = links as f64 / 1e9;
            prop_assert!(found.seconds > bound - 1e-6, "{name}: {} < {bound}", found.seconds);
        }
    }

    #[test]
    fn more_memory_is_hardly_ever_slower(
        steps in 2..120_u64,
        number in 1..40_u64,
        (device, host) in (2..12_u64, 4..40_u64),
        (more_device, more_host) in (0..12_u64, 0..40_u64),
        step in 1e-5..3e-3_f64,
    ) {
        let small = ForecastJob { step_seconds: step, ..job(device, host, 200) };
        let larger = job(device + more_device, host + more_host, 200);
        let large = ForecastJob { step_seconds: step, ..larger };
        for (name, schedule) in known(steps, number) {
            let again = schedule.clone();
            let slow = forecast(schedule, &small).expect("there is a disk").seconds;
            let fast = forecast(again, &large).expect("there is a disk").seconds;
            let less = slow * 1.05 + 5e-3;
            prop_assert!(fast <= less, "{name}: {fast} with more, {slow} with less");
        }
    }
}
