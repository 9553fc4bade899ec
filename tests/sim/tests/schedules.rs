//! Any valid schedule of an adjoint: no checkpoint is lost, no tier overflows (the simulator's own
//! rules), and as far as there is space, the next restores are ready before they are called.

use unspool_core::{Nanos, TierKind};
use unspool_schedule::{Action, Interpreter, Limits, Revolve, ZCut};
use unspool_sim::plan::Plan;
use unspool_sim::plan::faults::{self, Faults};
use unspool_sim::plan::script::{Life, Script, Step};
use unspool_sim::plan::stack;
use unspool_sim::plan::workload::schedule::{Pace, random_actions, script};
use unspool_sim::random::{Random, Topic};
use unspool_sim::report::run_plan;
use unspool_sim::scenario::Scenario;
use unspool_sim::world::{Reach, RunFigures};

const STATE: u64 = 1 << 20;
/// Long enough for a state to cross a link: 0.04 and 0.26 ms.
const STEP: Nanos = Nanos(1_000_000);
const PACE: Pace = Pace { forward: STEP, reverse: STEP, lookahead: 256 };

/// Space for `device` states, for `host` more, and a disk.
fn plan(device: u64, host: u64, steps: Vec<Step>) -> Plan {
    let tiers = [
        (TierKind::Device, device * STATE),
        (TierKind::Host, host * STATE),
        (TierKind::Disk, u64::MAX),
    ];
    let links = [(25e9, 25e9, 10_000), (4e9, 4e9, 20_000)];
    let Scenario { config, machine, .. } = Scenario::on(&tiers, &links, vec![]);
    let lives = vec![Life { threads: vec![Script { steps }], crash_after: None }];
    Plan {
        seed: 0,
        config,
        machine,
        learns: false,
        faults: Faults::none(),
        lives,
        codec: None,
        content: false,
        canary: None,
    }
}

fn run(device: u64, host: u64, actions: &[Action]) -> RunFigures {
    let steps = script(actions, 0, PACE, || STATE);
    run_plan(plan(device, host, steps)).unwrap_or_else(|failure| panic!("{failure}"))
}

/// At the median restore, how many of `wanted` upcoming versions are not ready.
fn median_shortfall(reaches: &[Reach], wanted: u64) -> u64 {
    let short = |reach: &Reach| wanted.min(reach.ahead).saturating_sub(reach.lead);
    let mut all: Vec<u64> = reaches.iter().map(short).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

fn mean_lead(figures: &RunFigures, room: u64) -> f64 {
    let leads = figures.reaches.iter().map(|reach| reach.lead.min(room));
    leads.sum::<u64>() as f64 / figures.reaches.len() as f64
}

#[test]
fn random_schedules_are_schedules() {
    for seed in 0..300 {
        let mut random = Random::of(seed, Topic::Script, 7);
        let slots = 1 + random.below(9) as usize;
        let steps = 1 + random.below(80);
        let actions = random_actions(&mut random, steps, slots);
        let limits = Limits { steps: Some(steps), slots: slots as u64, ..Limits::none() };
        let mut interpreter = Interpreter::new(limits);
        for action in &actions {
            interpreter.see(action).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        }
        assert_eq!(interpreter.finish().map(|counts| counts.reverses), Ok(steps), "seed {seed}");
    }
}

#[test]
fn random_schedules_lose_nothing_on_random_machines_that_fail() {
    let mut restores = 0;
    for seed in 0..200 {
        let mut random = Random::of(seed, Topic::Script, 8);
        let steps = 1 + random.below(40);
        let slots = 1 + random.below(8) as usize;
        let actions = random_actions(&mut random, steps, slots);
        let mut setting = Random::of(seed, Topic::Stack, 8);
        let config = stack::config(&mut setting);
        let machine = stack::machine(&mut setting, &config);
        let steps = script(&actions, 0, PACE, || 1 + random.below(stack::TYPICAL_BYTES));
        let lives = vec![Life { threads: vec![Script { steps }], crash_after: None }];
        let faults = faults::faults(&mut Random::of(seed, Topic::Faults, 8));
        let plan = Plan { config, machine, faults, codec: None, lives, ..Plan::of_seed(seed) };
        restores += run_plan(plan).unwrap_or_else(|failure| panic!("{failure}")).restores.calls;
    }
    assert!(restores > 3000, "{restores} restores came to pass");
}

#[test]
fn with_room_for_c_states_the_median_lead_is_at_least_c_less_two() {
    let mut beyond = 0;
    for seed in 0..60 {
        let mut random = Random::of(seed, Topic::Script, 9);
        let slots = 4 + random.below(16) as usize;
        let steps = 60 + random.below(60);
        let actions = random_actions(&mut random, steps, slots);
        for room in 2..=10 {
            let figures = run(room, 6, &actions);
            let short = median_shortfall(&figures.reaches, room - 2);
            assert_eq!(short, 0, "seed {seed}, {slots} slots, room for {room}");
            // The measure is not trivially 0: more versions than there is space for cannot be
            // ready.
            beyond += median_shortfall(&figures.reaches, room + 2);
        }
    }
    assert!(beyond > 0, "no schedule keeps more than there is room for");
}

#[test]
fn the_lead_of_revolve_and_zcut_grows_with_the_cache() {
    let revolve: Vec<Action> = Revolve::new(300, 12).unwrap().collect();
    let zcut: Vec<Action> = ZCut::with_length(400, 36).unwrap().collect();
    for actions in [revolve, zcut] {
        let leads: Vec<f64> =
            (2..=8).map(|room| mean_lead(&run(room, 60, &actions), room)).collect();
        assert!(leads.is_sorted(), "{leads:?}");
        let short = |room| median_shortfall(&run(room, 60, &actions).reaches, room - 2);
        assert!((2..=8).all(|room| short(room) == 0), "{leads:?}");
    }
}
