//! Processes that share links, beside forecasts of one process and what can be worked out by hand.

use std::vec;
use std::vec::Vec;

use super::plan::ForecastPlan;
use super::tests::{job, store_all};
use super::together::run_together;
use super::{
    Forecast, ForecastJob, LinkUser, SharedLink, Together, TogetherJob, Workload, forecast_together,
};
use crate::{Revolve, Schedule, StoreAll};
use unspool_core::TransferKind::{Flush, Prefetch};

const MB: u64 = 1_000_000;

/// A job whose restored checkpoints are discarded, with all hints.
fn shot_job(device: u64, host: u64, disk: u64) -> ForecastJob {
    let job = job(device, host, disk);
    ForecastJob { discard_after_restore: true, lookahead: usize::MAX, on_gpu: true, ..job }
}

fn shot(count: u64) -> Workload {
    let sizes = (0..count).map(|_| MB).collect();
    Workload::Shot { sizes, order: (0..count).rev().collect() }
}

/// Something that the given direction of a link of all processes goes through.
fn shared(
    rate: f64,
    processes: usize,
    link: usize,
    ways: &[unspool_core::TransferKind],
) -> SharedLink {
    let users = (0..processes)
        .flat_map(|process| ways.iter().map(move |way| LinkUser { process, link, way: *way }))
        .collect();
    SharedLink { bytes_per_second: rate, users }
}

fn together(job: &ForecastJob, workloads: Vec<Workload>, shared: Vec<SharedLink>) -> Together {
    let asked = TogetherJob { job: job.clone(), workloads, shared, is_coupled: false };
    forecast_together(&asked).expect("it fits")
}

fn alone(schedule: impl Schedule, job: &ForecastJob, shared: &[SharedLink]) -> Forecast {
    let plans = [ForecastPlan::of(schedule, job).expect("a schedule")];
    run_together(job, &plans, shared).expect("it fits").0[0].result()
}

#[test]
fn one_process_takes_what_its_forecast_says_whatever_has_room_enough() {
    for (device, host, disk) in [(4, 100, 0), (4, 16, 100), (2, 0, 100)] {
        for on_gpu in [false, true] {
            let job = ForecastJob { on_gpu, ..job(device, host, disk) };
            let wide: Vec<SharedLink> =
                (0..job.links.len()).map(|link| shared(2e9, 1, link, &[Flush, Prefetch])).collect();
            let all = StoreAll::new(60).expect("steps");
            assert_eq!(alone(all, &job, &wide), store_all(60, &job));
            let few = || Revolve::new(60, 9).expect("steps");
            assert_eq!(alone(few(), &job, &wide), super::forecast(few(), &job).expect("it fits"));
        }
    }
}

#[test]
fn a_shot_in_reverse_takes_what_storing_everything_takes() {
    let job = shot_job(4, 16, 100);
    let found = together(&job, vec![shot(60)], vec![]).processes[0].forecast.clone();
    // The schedule saves one state less than it has steps, and ends with the last reverse step.
    let schedule = store_all(61, &job);
    assert_eq!(found.links, schedule.links);
    let ratio = found.seconds / schedule.seconds;
    assert!((ratio - 1.0).abs() < 0.02, "{} against {}", found.seconds, schedule.seconds);
}

#[test]
fn two_on_one_link_take_twice_as_long_when_the_link_limits_and_not_when_it_does_not() {
    // No steps in between: the links carry all the time.
    let job = ForecastJob { step_seconds: 0.0, reverse_seconds: 0.0, ..shot_job(4, 400, 0) };
    let one = together(&job, vec![shot(100)], vec![]);
    let both = |rate| {
        let link = [shared(rate, 2, 0, &[Flush]), shared(rate, 2, 0, &[Prefetch])];
        together(&job, vec![shot(100); 2], link.to_vec())
    };
    let seconds = |found: &Together| found.processes[0].forecast.seconds;
    assert_eq!(seconds(&both(2e9)), seconds(&one));
    let ratio = seconds(&both(1e9)) / seconds(&one);
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
}

#[test]
fn no_link_carries_more_than_its_capacity_and_what_went_through_is_what_was_moved() {
    let job = ForecastJob { step_seconds: 2e-4, reverse_seconds: 2e-4, ..shot_job(3, 8, 200) };
    let disk = shared(1.5e9, 4, 1, &[Flush, Prefetch]);
    let link = shared(2.5e9, 4, 0, &[Flush]);
    let found = together(&job, (20..24).map(|n| shot(3 * n)).collect(), vec![disk, link]);
    let moved = |link: usize, up: bool| -> f64 {
        let of = |one: &Forecast| one.links[link].flush + u64::from(up) * one.links[link].prefetch;
        found.processes.iter().map(|one| of(&one.forecast) as f64).sum()
    };
    let [disk, link] = found.shared[..] else { panic!("two things are shared") };
    assert!(disk.most <= 1.5e9 * (1.0 + 1e-9) && link.most <= 2.5e9 * (1.0 + 1e-9));
    assert!(disk.most > 1.4e9 && link.most > 2.4e9, "both are full at times: {disk:?} {link:?}");
    assert!((link.bytes / moved(0, false) - 1.0).abs() < 1e-3, "{link:?}");
    // What the application reads from the disk by itself goes through it as well.
    assert!(disk.bytes >= moved(1, true) * (1.0 - 1e-3), "{disk:?}");
}

#[test]
fn more_bandwidth_is_never_slower() {
    let job = shot_job(4, 12, 400);
    let seconds = |rate| {
        let disk = shared(rate, 4, 1, &[Flush, Prefetch]);
        let found = together(&job, vec![shot(80); 4], vec![disk]);
        found.processes.iter().map(|one| one.forecast.seconds).fold(0.0, f64::max)
    };
    let found: Vec<f64> = [0.2e9, 0.4e9, 0.8e9, 1.6e9, 4e9, 9e9].map(seconds).to_vec();
    for pair in found.windows(2) {
        assert!(pair[1] <= pair[0] * 1.005, "{found:?}");
    }
    assert!(found[0] > 3.0 * found[5], "the disk matters: {found:?}");
}

#[test]
fn who_is_coupled_waits_for_the_slowest() {
    let job = shot_job(4, 16, 400);
    let workloads = vec![
        shot(40),
        Workload::Shot {
            sizes: (0..40).map(|k| MB + k * MB / 10).collect(),
            order: (0..40).collect(),
        },
    ];
    let coupled = |is_coupled| {
        let shared = vec![shared(1e9, 2, 1, &[Flush, Prefetch])];
        let asked =
            TogetherJob { job: job.clone(), workloads: workloads.clone(), shared, is_coupled };
        forecast_together(&asked).expect("it fits").processes
    };
    let (free, bound) = (coupled(false), coupled(true));
    assert!(free[0].meeting_seconds == 0.0 && bound[0].meeting_seconds > 1e-3, "{bound:?}");
    assert!(free[0].forecast.seconds < free[1].forecast.seconds * 0.98);
    let steps = |one: &super::ProcessForecast| one.forecast.seconds;
    assert!((steps(&bound[0]) / steps(&bound[1]) - 1.0).abs() < 0.02, "{bound:?}");
    for one in bound {
        let f = &one.forecast;
        let sum = f.compute_seconds + one.save_seconds + one.restore_seconds + one.meeting_seconds;
        assert!((sum - f.seconds).abs() < 1e-6, "{sum} {}", f.seconds);
    }
}

#[test]
fn commits_are_over_when_the_slowest_tier_has_them() {
    // 10 commits of 1 MB through 0.1 GB/s: each takes the disk 10 ms, a step 1 ms.
    let job = ForecastJob { lookahead: 0, on_gpu: true, ..job(0, 3, 400) };
    let commits = Workload::Commits { sizes: vec![MB; 10] };
    let disk = shared(0.1e9, 1, 0, &[Flush]);
    let found = &together(&job, vec![commits], vec![disk]).processes[0];
    assert!((found.forecast.seconds - 0.101).abs() < 0.002, "{found:?}");
    assert!(found.flush_seconds > 0.02 && found.save_seconds > 0.05, "{found:?}");
}
#[test]
fn what_makes_no_sense_is_refused() {
    let job = shot_job(4, 16, 400);
    let refused = |workloads, shared| {
        forecast_together(&TogetherJob { job: job.clone(), workloads, shared, is_coupled: false })
            .is_err()
    };
    assert!(refused(vec![], vec![]));
    assert!(refused(vec![Workload::Shot { sizes: vec![MB; 2], order: vec![0, 0] }], vec![]));
    assert!(refused(vec![shot(2)], vec![shared(0.0, 1, 0, &[Flush])]));
    assert!(refused(vec![shot(2)], vec![shared(1e9, 2, 0, &[Flush])]));
    assert!(refused(vec![shot(2)], vec![shared(1e9, 1, 2, &[Flush])]));
    assert!(!refused(vec![shot(2)], vec![shared(1e9, 1, 1, &[Flush])]));
}
