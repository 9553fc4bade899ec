//! Forecasts that can be worked out by hand.

use std::format;
use std::vec;
use std::vec::Vec;

use super::{Compression, Forecast, ForecastError, ForecastJob, LinkSpeed, Rate, forecast};
use crate::{Action, Schedule, StoreAll};
use unspool_core::TierConfig;
use unspool_core::{Nanos, TierKind};

const MB: u64 = 1_000_000;

/// 1 MB a state; 1 ms a step either way; copies take 0.1 ms, links 1 ms a state.
pub(super) fn job(device: u64, host: u64, disk: u64) -> ForecastJob {
    let rate = |bytes_per_second, latency| Rate { bytes_per_second, latency: Nanos(latency) };
    let tier = |kind, states| TierConfig { kind, capacity: states * MB, alignment: 1 };
    let tiers = [
        tier(TierKind::Device, device),
        tier(TierKind::Host, host),
        TierConfig { capacity: disk * (MB + 1), ..tier(TierKind::Disk, 0) },
    ];
    let tiers: Vec<TierConfig> = tiers.into_iter().filter(|t| t.capacity > 0).collect();
    let link = LinkSpeed {
        flush: rate(1e9, 0),
        prefetch: rate(1e9, 0),
        max_in_flight_bytes: 256 << 20,
        max_in_flight: 8,
        contention: 0.0,
    };
    ForecastJob {
        links: vec![link; tiers.len() - 1],
        tiers,
        discard_after_restore: false,
        state_bytes: MB,
        reverse_bytes: MB,
        step_seconds: 1e-3,
        reverse_seconds: 1e-3,
        save: rate(1e10, 0),
        restore: rate(1e10, 0),
        lookahead: 16,
        on_gpu: false,
        first_touch: 0.0,
        compression: None,
        steps: None,
    }
}

/// The job with all links `factor` times as fast.
fn with_links(mut job: ForecastJob, factor: f64) -> ForecastJob {
    for link in &mut job.links {
        link.flush.bytes_per_second *= factor;
        link.prefetch.bytes_per_second *= factor;
    }
    job
}

/// The job with links that slow the application.
fn slowed(mut job: ForecastJob, contention: f64) -> ForecastJob {
    job.links.iter_mut().for_each(|link| link.contention = contention);
    job
}

pub(super) fn store_all(steps: u64, job: &ForecastJob) -> Forecast {
    let schedule = StoreAll::new(steps).expect("there are steps");
    forecast(schedule, job).expect("the states fit")
}

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6 * expected.max(1e-3), "{found} is not {expected}");
}

#[test]
fn without_any_link_the_time_is_that_of_steps_and_copies() {
    let found = store_all(10, &job(9, 0, 0));
    // 9 steps forward, 10 back; 9 saves, 9 restores.
    assert_close(found.compute_seconds, 19e-3);
    assert_close(found.copy_seconds, 18e-4);
    assert_close(found.seconds, 20.8e-3);
    assert_eq!((found.save_stall_seconds, found.restore_stall_seconds), (0.0, 0.0));
    assert_eq!((found.tiers[0].peak, found.tiers[0].restores), (9 * MB, 9));
    assert_eq!((found.counts.advances, found.counts.peak), (9, 9));
}

#[test]
fn links_faster_than_the_steps_cause_no_stall() {
    let found = store_all(200, &with_links(job(6, 400, 0), 4.0));
    assert_close(found.seconds, 399e-3 + 398e-4);
    assert!(
        found.lead.median >= 4,
        "with room for six the lead is at least four: {:?}",
        found.lead
    );
}

#[test]
fn a_slow_link_takes_its_bytes_over_its_rate() {
    // 199 states go down at 4 ms each while the steps would take 1.1 ms, and come back at 4 ms.
    let found = store_all(200, &with_links(job(6, 400, 0), 0.25));
    let bytes = (found.links[0].flush + found.links[0].prefetch) as f64;
    let bound = bytes / 0.25e9;
    // At the turn both directions are busy at once, for a transfer or two.
    assert!((found.seconds / bound - 1.0).abs() < 0.01, "{} is not {bound}", found.seconds);
    assert!(found.save_stall_seconds > 0.5 && found.restore_stall_seconds > 0.5);
}

/// The job with a codec of these rates to and from the fastest tier.
fn compressed(job: ForecastJob, ratio: f64, encode: f64, decode: f64) -> ForecastJob {
    let rate = |bytes_per_second| Rate { bytes_per_second, latency: Nanos(0) };
    let (encode, decode) = (rate(encode), rate(decode));
    ForecastJob { compression: Some(Compression { ratio, encode, decode }), ..job }
}

#[test]
fn compressed_states_cost_their_encoding_and_a_part_of_the_links() {
    let plain = with_links(job(6, 400, 0), 0.25);
    let found = store_all(200, &compressed(plain.clone(), 10.0, 1e10, 5e9));
    // 199 states of 1 MB at 10 GB/s, and back at 5 GB/s.
    assert_close(found.copy_seconds, 199.0 * (1e-4 + 2e-4));
    assert_eq!((found.save_stall_seconds, found.restore_stall_seconds), (0.0, 0.0));
    let [moved, all] = [&found, &store_all(200, &plain)].map(|f| f.links[0].flush);
    assert!(moved <= all / 10, "{moved} bytes are flushed, {all} without compression");
    // The room of six states holds all that are expected, which are sixteen.
    assert!(found.lead.median >= 15, "{:?}", found.lead);
}

#[test]
fn what_fits_only_when_it_is_compressed_fits_then() {
    let small = job(12, 0, 0);
    let schedule = || StoreAll::new(100).expect("there are steps");
    assert!(matches!(forecast(schedule(), &small), Err(ForecastError::DoesNotFit { .. })));
    let found = forecast(schedule(), &compressed(small, 10.0, 1e10, 1e10)).expect("it fits");
    assert!(found.tiers[0].peak >= 99 * MB / 10 && found.tiers[0].peak <= 12 * MB);
}

#[test]
fn a_codec_that_makes_states_larger_or_takes_no_time_is_refused() {
    for (ratio, encode) in [(0.5, 1e10), (f64::NAN, 1e10), (2.0, 0.0), (2.0, f64::INFINITY)] {
        let job = compressed(job(6, 0, 0), ratio, encode, 1e10);
        let found = forecast(StoreAll::new(5).expect("there are steps"), &job);
        assert!(matches!(found, Err(ForecastError::Job(_))), "{ratio} {encode}: {found:?}");
    }
}

#[test]
fn two_workers_hide_latencies_and_one_does_not() {
    // A state is a millisecond on the link, after three that it takes to begin.
    let seconds = |on_gpu| {
        let mut job =
            ForecastJob { on_gpu, step_seconds: 0.0, reverse_seconds: 0.0, ..job(2, 400, 0) };
        job.links[0].flush.latency = Nanos(3_000_000);
        store_all(200, &job).save_stall_seconds
    };
    // About 200 flushes: four milliseconds each, and two at a time.
    assert!((seconds(false) / 0.8 - 1.0).abs() < 0.05, "{}", seconds(false));
    assert!((seconds(true) / 0.4 - 1.0).abs() < 0.05, "{}", seconds(true));
}

#[test]
fn the_parts_add_up_to_the_whole() {
    for factor in [0.2, 1.0, 5.0] {
        let found = store_all(100, &with_links(job(4, 12, 200), factor));
        let stalls = found.save_stall_seconds + found.restore_stall_seconds;
        assert_close(found.seconds, found.compute_seconds + found.copy_seconds + stalls);
    }
}

#[test]
fn the_same_question_has_the_same_answer() {
    let job = slowed(with_links(job(4, 12, 200), 0.7), 0.3);
    assert_eq!(store_all(150, &job), store_all(150, &job));
}

#[test]
fn what_only_a_reverse_step_reads_moves_in_part() {
    let job = ForecastJob { reverse_bytes: MB / 4, ..job(40, 0, 0) };
    let found = store_all(10, &job);
    assert_close(found.copy_seconds, 18e-4 / 4.0);
    assert_eq!(found.tiers[0].peak, 9 * MB / 4);
}

#[test]
fn a_busy_link_slows_the_application() {
    let quiet = store_all(100, &with_links(job(10, 400, 0), 2.0));
    let shared = slowed(with_links(job(10, 400, 0), 2.0), 0.5);
    let slowed = store_all(100, &shared);
    // Every state is half a millisecond on its way down, and most of them on their way back.
    let moved = (slowed.links[0].flush + slowed.links[0].prefetch) as f64 / 2e9;
    assert!(slowed.seconds > quiet.seconds);
    assert!((slowed.seconds - quiet.seconds - moved * 0.5).abs() < 0.5 * moved * 0.5);
}

#[test]
fn each_link_slows_the_application_in_its_own_way() {
    let slower = |first, second| {
        let mut job = with_links(job(10, 20, 400), 3.0);
        (job.links[0].contention, job.links[1].contention) = (first, second);
        store_all(100, &job).compute_seconds
    };
    let (neither, both) = (slower(0.0, 0.0), slower(0.2, 0.1));
    assert!(neither < slower(0.0, 0.1) && slower(0.0, 0.1) < slower(0.2, 0.0));
    assert!(slower(0.2, 0.0) < both && both < neither * 1.6);
}

#[test]
fn memory_that_was_never_written_costs_once() {
    let job = ForecastJob { first_touch: 1e-9, ..job(9, 0, 0) };
    assert_close(store_all(10, &job).copy_seconds, 18e-4 + 9e-3);
}

#[test]
fn too_little_room_names_the_tier_and_what_is_needed() {
    let schedule = StoreAll::new(100).expect("there are steps");
    let found = forecast(schedule, &job(4, 10, 20));
    let expected = ForecastError::DoesNotFit {
        tier: TierKind::Disk,
        capacity: 20 * (MB + 1),
        needed: 99 * (MB + 1),
    };
    assert_eq!(found, Err(expected));
    assert!(format!("{}", found.expect_err("too large")).contains("disk"));
}

#[test]
fn a_state_larger_than_every_tier_does_not_fit() {
    let job = ForecastJob { state_bytes: 50 * MB, reverse_bytes: 50 * MB, ..job(4, 10, 0) };
    let found = forecast(StoreAll::new(3).expect("steps"), &job);
    assert!(matches!(found, Err(ForecastError::DoesNotFit { tier: TierKind::Host, .. })));
}

/// A list of actions.
struct List(vec::IntoIter<Action>, Option<u64>);

impl Iterator for List {
    type Item = Action;
    fn next(&mut self) -> Option<Action> {
        self.0.next()
    }
}

impl Schedule for List {
    fn steps(&self) -> Option<u64> {
        self.1
    }
    fn slots(&self) -> u64 {
        u64::MAX
    }
}

fn list(actions: &[Action], steps: u64) -> List {
    let actions = Vec::from(actions);
    List(actions.into_iter(), Some(steps))
}

#[test]
fn a_schedule_that_breaks_a_rule_is_refused() {
    let found = forecast(list(&[Action::Reverse { step: 0 }], 2), &job(4, 0, 0));
    assert!(matches!(found, Err(ForecastError::Schedule(_))), "{found:?}");
}

#[test]
fn a_step_kept_in_two_tiers_is_moved_once() {
    let (fast, slow) = (Some(TierKind::Device), Some(TierKind::Disk));
    let actions = [
        Action::Save { step: 0, tier: slow },
        Action::Save { step: 0, tier: fast },
        Action::Forward { from: 0, to: 1 },
        Action::Reverse { step: 1 },
        Action::Restore { step: 0, tier: fast },
        Action::Discard { step: 0, tier: fast },
        Action::Reverse { step: 0 },
        Action::Discard { step: 0, tier: slow },
        Action::End,
    ];
    let found = forecast(list(&actions, 2), &job(4, 0, 0)).expect("it fits");
    assert_close(found.copy_seconds, 2e-4);
    assert_eq!(found.tiers[0].peak, MB);
}

#[test]
fn a_job_that_makes_no_sense_is_refused() {
    let schedule = || StoreAll::new(3).expect("steps");
    let negative = ForecastJob { step_seconds: -1.0, ..job(4, 0, 0) };
    assert!(matches!(forecast(schedule(), &negative), Err(ForecastError::Job(_))));
    let none = ForecastJob { tiers: vec![], links: vec![], ..job(4, 0, 0) };
    assert!(matches!(forecast(schedule(), &none), Err(ForecastError::Config(_))));
    let unknown = List(vec![Action::End].into_iter(), None);
    assert_eq!(forecast(unknown, &job(4, 0, 0)), Err(ForecastError::UnknownSteps));
}

#[test]
fn a_copy_that_prefers_a_slower_tier_is_brought_there() {
    let kept = |tier| {
        let actions = [
            Action::Save { step: 0, tier },
            Action::Forward { from: 0, to: 9 },
            Action::Reverse { step: 9 },
        ];
        let back = |step| {
            let to_it = (step > 0).then_some(Action::Forward { from: 0, to: step });
            let restore = Action::Restore { step: 0, tier };
            [Some(restore), to_it, Some(Action::Reverse { step })].into_iter().flatten()
        };
        let end = [Action::Discard { step: 0, tier }, Action::End];
        let all = actions.into_iter().chain((0..9).rev().flat_map(back)).chain(end);
        let all: Vec<Action> = all.collect();
        let job = ForecastJob { lookahead: 100, ..job(4, 8, 20) };
        forecast(list(&all, 10), &job).expect("it fits")
    };
    let flushed = |tier| kept(tier).links[0].flush / MB;
    assert_eq!(flushed(None), 0);
    assert_eq!((flushed(Some(TierKind::Host)), flushed(Some(TierKind::Disk))), (1, 1));
    assert_eq!(flushed(Some(TierKind::Remote)), 0, "there is no such tier");
}
