//! Score's experiment (HPDC'23, section 5) in virtual time: no stalls where none are necessary, and
//! policies in the expected order elsewhere.

use unspool_core::{Nanos, PolicyKind, TierKind};
use unspool_sim::scenario::{self, Figures, Hints, Order, Scenario};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const ORDERS: [Order; 3] = [Order::Reverse, Order::Sequential, Order::Irregular];

/// The two histories of the paper: 48 GiB in 384 checkpoints, equal or as a compressed shot.
fn histories() -> [Vec<u64>; 2] {
    [scenario::uniform(384, 128 * MIB), scenario::rtm(1, 384, 128 * MIB)]
}

fn milliseconds(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

/// The paper's experiment with `ms` milliseconds of computation between two calls.
fn score(bytes: &[u64], order: Order, hints: Hints, policy: PolicyKind, ms: u64) -> Figures {
    let scenario = Scenario::score(bytes.to_vec(), order, hints, policy);
    scenario::run(&scenario.every(milliseconds(ms), milliseconds(ms)))
}

#[test]
fn with_all_hints_and_enough_computation_no_order_stalls() {
    for bytes in histories() {
        for order in ORDERS {
            let figures = score(&bytes, order, Hints::All, PolicyKind::Score, 40);
            assert!(figures.stall_share() < 0.002, "{order:?}: {figures}");
            assert!(figures.hits[0] >= 383, "{order:?}: {figures}");
        }
    }
}

#[test]
fn the_lead_is_what_the_device_holds_less_one() {
    let [uniform, _] = histories();
    for order in ORDERS {
        let figures = score(&uniform, order, Hints::All, PolicyKind::Score, 40);
        let (_, median, _) = figures.lead();
        assert_eq!((median, figures.leads.iter().max()), (31, Some(&31)), "{order:?}: {figures}");
    }
}

#[test]
fn a_sweep_that_is_faster_than_the_link_uses_the_link_up() {
    let bytes = scenario::uniform(200, 128 * MIB);
    let tiers = [(TierKind::Device, 4 * GIB), (TierKind::Host, 64 * GIB)];
    for order in [Order::Reverse, Order::Irregular] {
        let scenario = Scenario::on(&tiers, &[(25e9, 25e9, 10_000)], bytes.clone())
            .with(order, Hints::All, PolicyKind::Score)
            .every(milliseconds(10), milliseconds(1));
        let figures = scenario::run(&scenario);
        let least = (200 - 32) as f64 * 128.0 * MIB as f64 / 25e9;
        let share = least / (figures.backward.0 as f64 / 1e9);
        assert!(share > 0.95, "{order:?}: {share:.3} of the link, {figures}");
    }
}

#[test]
fn score_keeps_the_application_less_than_lru_and_fifo_and_hardly_more_than_belady() {
    use PolicyKind::{Belady, Fifo, Lru, Score};
    for bytes in histories() {
        for order in ORDERS {
            let run = |policy| score(&bytes, order, Hints::All, policy, 10);
            let [ours, lru, fifo, best] = [Score, Lru, Fifo, Belady].map(run);
            let blocked = |figures: &Figures| figures.blocked().0 as f64;
            let others = blocked(&lru).min(blocked(&fifo));
            assert!(blocked(&ours) <= others * 1.02, "{order:?}: {ours}\n{lru}\n{fifo}");
            assert!(blocked(&ours) <= blocked(&best) * 1.5, "{order:?}: {ours}\n{best}");
        }
    }
}

#[test]
fn every_further_hint_helps() {
    for bytes in histories() {
        for order in ORDERS {
            let run = |hints| score(&bytes, order, hints, PolicyKind::Score, 10);
            let [none, next, all] = [Hints::None, Hints::Next, Hints::All].map(run);
            assert!(all.blocked() < next.blocked(), "{order:?}: {all}\n{next}");
            assert!(next.blocked() < none.blocked(), "{order:?}: {next}\n{none}");
        }
    }
}

#[test]
fn an_order_that_is_learned_is_as_good_as_all_hints_from_the_second_iteration() {
    for bytes in histories() {
        for order in ORDERS {
            let run = |hints, iterations| {
                let scenario = Scenario::score(bytes.clone(), order, hints, PolicyKind::Score);
                let every = scenario.every(milliseconds(40), milliseconds(40));
                scenario::run(&Scenario { iterations, ..every })
            };
            let (first, learned) = (run(Hints::None, 1), run(Hints::Learned, 2));
            let second = learned.blocked().since(first.blocked());
            assert!(first.hits[0] < 100, "{order:?}: {first}");
            assert!(learned.hits[0] >= first.hits[0] + 375, "{order:?}: {first}\n{learned}");
            assert!(second.0 < first.blocked().0 / 20, "{order:?}: {first}\n{learned}");
        }
    }
}

#[test]
fn a_history_that_fits_into_the_device_is_never_fetched() {
    let scenario = Scenario::score(
        scenario::uniform(32, 128 * MIB),
        Order::Irregular,
        Hints::All,
        PolicyKind::Score,
    );
    let figures = scenario::run(&scenario);
    assert_eq!(figures.hits[0], 32, "{figures}");
    assert_eq!(figures.traffic.iter().map(|link| link.prefetched).sum::<u64>(), 0);
    assert_eq!(figures.saves.stall.plus(figures.restores.stall), Nanos(0));
}

#[test]
fn a_history_that_is_read_once_and_fits_is_not_flushed() {
    let mut scenario = Scenario::score(
        scenario::uniform(64, 128 * MIB),
        Order::Reverse,
        Hints::All,
        PolicyKind::Score,
    );
    scenario.config.discard_after_restore = true;
    let figures = scenario::run(&scenario);
    let total = 64 * 128 * MIB;
    assert!(figures.traffic[0].flushed < total * 3 / 4, "{:?}", figures.traffic);
    assert_eq!(figures.traffic[1].flushed, 0, "{:?}", figures.traffic);
    assert!(figures.stall_share() < 0.002, "{figures}");
}

#[test]
fn waiting_for_the_flush_costs_time_and_causes_no_stall_later() {
    let [_, rtm] = histories();
    let mut scenario = Scenario::score(rtm, Order::Reverse, Hints::All, PolicyKind::Score)
        .every(milliseconds(10), milliseconds(40));
    let eager = scenario::run(&scenario);
    scenario.wait_for_flush = true;
    let patient = scenario::run(&scenario);
    assert_eq!(eager.restores.bytes, patient.restores.bytes);
    assert!(patient.total > eager.total, "{patient}\n{eager}");
    assert!(patient.stall_share() < 0.02 && eager.stall_share() < 0.02, "{patient}\n{eager}");
}
