//! Saves of unknown size on a machine like a GPU: how much of an arena they can use.

use unspool_core::{Nanos, TierKind};
use unspool_sim::plan::codec::Codec;
use unspool_sim::plan::faults::Faults;
use unspool_sim::plan::script::{Life, Script, Step};
use unspool_sim::scenario::Scenario;
use unspool_sim::{Plan, run_plan};

const MIB: u64 = 1 << 20;

/// States of 1 MiB, one each 10 microseconds, of which a tenth is kept, give or take a fifth;
/// reports come 8 saves later. A device of 30 MiB and optionally other tiers; more saves than it
/// holds.
fn plan(seed: u64, tiers: &[(TierKind, u64)]) -> Plan {
    let links = vec![(25e9, 25e9, 10_000); tiers.len() - 1];
    let scenario = Scenario::on(tiers, &links, Vec::new());
    let codec = Codec {
        share: 1.0,
        lowest: 10.0,
        highest: 10.0,
        epoch: 1,
        fails: 0.0,
        asynchronous: 1.0,
        report_delay: Nanos(80_000),
    };
    let save = |version| [Step::Compute(Nanos(10_000)), Step::save(version, MIB)];
    let script = Script { steps: (0..600).flat_map(save).collect() };
    Plan {
        seed,
        config: scenario.config,
        machine: scenario.machine,
        learns: false,
        faults: Faults::none(),
        codec: Some(codec),
        lives: vec![Life { threads: vec![script], crash_after: None }],
        content: false,
        canary: None,
    }
}

#[test]
fn an_arena_is_used_up_to_the_room_of_one_save() {
    for seed in 0..3 {
        let figures = run_plan(plan(seed, &[(TierKind::Device, 30 * MIB)])).unwrap();
        assert!(figures.refused > 100, "there are more than fit: {}", figures.refused);
        let device = figures.core.tiers[0];
        assert!(device.copies > 200, "many times as many: {device:?}");
        assert!(device.used > 29 * MIB, "{device:?}");
    }
}

#[test]
fn an_arena_over_another_tier_stays_two_thirds_full_with_a_quarter_of_it_pending() {
    for seed in 0..3 {
        let tiers = [(TierKind::Device, 30 * MIB), (TierKind::Host, 300 * MIB)];
        let figures = run_plan(plan(seed, &tiers)).unwrap();
        assert_eq!(figures.refused, 0);
        let device = figures.core.tiers[0];
        assert!(device.used > 20 * MIB, "{device:?}");
    }
}
