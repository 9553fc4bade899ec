//! The forecasts of the core against the simulator, which has its own virtual time, threads and
//! copies. A history that is stored and read in reverse is a schedule that stores everything.

use unspool_core::{Nanos, PolicyKind, TierKind};
use unspool_schedule::StoreAll;
use unspool_schedule::forecast::{Forecast, ForecastJob, LinkSpeed, Rate, forecast};
use unspool_sim::scenario::{self, Figures, Hints, Order, Scenario};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const STATE: u64 = 128 * MIB;
const STATES: usize = 384;

type Machine = (Vec<(TierKind, u64)>, Vec<(f64, f64, u64)>);

/// Score's stack, and one of its links alone.
fn machines() -> [Machine; 3] {
    let (device, host) = ((TierKind::Device, 4 * GIB), (TierKind::Host, 32 * GIB));
    let (fast, slow) = ((25e9, 25e9, 10_000), (4e9, 7e9, 100_000));
    [
        (vec![device, host, (TierKind::Disk, u64::MAX)], vec![fast, slow]),
        (vec![device, (TierKind::Host, 64 * GIB)], vec![fast]),
        (vec![device, (TierKind::Disk, u64::MAX)], vec![slow]),
    ]
}

fn simulated((tiers, links): &Machine, step: Nanos) -> Figures {
    let mut scenario = Scenario::on(tiers, links, scenario::uniform(STATES, STATE))
        .with(Order::Reverse, Hints::All, PolicyKind::Score)
        .every(step, step);
    scenario.config.discard_after_restore = true;
    scenario::run(&scenario)
}

fn predicted((tiers, links): &Machine, step: Nanos) -> Forecast {
    let scenario = Scenario::on(tiers, links, Vec::new());
    let rate = |bytes_per_second, latency| Rate { bytes_per_second, latency: Nanos(latency) };
    let link = |&(flush, prefetch, latency): &(f64, f64, u64)| LinkSpeed {
        flush: rate(flush, latency),
        prefetch: rate(prefetch, latency),
        max_in_flight_bytes: GIB,
        max_in_flight: 8,
        contention: 0.0,
    };
    let job = ForecastJob {
        tiers: scenario.config.tiers,
        links: links.iter().map(link).collect(),
        discard_after_restore: true,
        state_bytes: STATE,
        reverse_bytes: STATE,
        step_seconds: step.0 as f64 * 1e-9,
        reverse_seconds: step.0 as f64 * 1e-9,
        save: rate(1e12, 0),
        restore: rate(1e12, 0),
        lookahead: usize::MAX,
        on_gpu: true,
        first_touch: 0.0,
        compression: None,
        steps: None,
    };
    // One step more than states, because the last state is never saved.
    let schedule = StoreAll::new(STATES as u64 + 1).expect("there are steps");
    forecast(schedule, &job).expect("the last tier has room for all")
}

#[test]
fn forecast_and_simulation_agree_on_the_stalls() {
    for machine in machines() {
        for step in [Nanos(1_000_000), Nanos(5_000_000), Nanos(30_000_000)] {
            let (simulated, predicted) = (simulated(&machine, step), predicted(&machine, step));
            let total = simulated.total.0 as f64 * 1e-9;
            for (waited, expected) in [
                (simulated.saves.stall, predicted.save_stall_seconds),
                (simulated.restores.stall, predicted.restore_stall_seconds),
            ] {
                let difference = (waited.0 as f64 * 1e-9 - expected).abs() / total;
                assert!(difference < 0.01, "{machine:?}, {step:?}: {simulated}, {predicted:?}");
            }
        }
    }
}

#[test]
fn forecast_and_simulation_restore_from_the_same_tiers() {
    for machine in machines() {
        let step = Nanos(30_000_000);
        let (simulated, predicted) = (simulated(&machine, step), predicted(&machine, step));
        for (hits, tier) in simulated.hits.iter().zip(&predicted.tiers) {
            assert!(hits.abs_diff(tier.restores) <= 4, "{machine:?}: {simulated}, {predicted:?}");
        }
    }
}
