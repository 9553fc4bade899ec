//! Many seeds, and the determinism of a run.

use unspool_core::trace;
use unspool_sim::canary::Canary;
use unspool_sim::{Failure, Plan, World, fleet, run_world};

/// Seeds of every test run; the environment variable `UNSPOOL_SIM_SEEDS` sets another number.
const SEEDS: u64 = 2000;

#[test]
fn no_seed_breaks_a_rule() {
    let asked = std::env::var("UNSPOOL_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds = asked.unwrap_or(SEEDS);
    let report = fleet::run(fleet::Seeds::Range(0..seeds));
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{report}\n\n{}", failures.join("\n\n"));
    assert_eq!(report.seeds, seeds);
    assert!(report.events > 50 * seeds, "{report}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..100 {
        let [one, other] = [(); 2].map(|()| {
            let (history, result) = run_world(World::new(Plan::of_seed(seed)));
            (history.text(), result.map_err(|failure| failure.to_string()))
        });
        assert_eq!(one, other, "seed {seed}");
        assert!(!one.0.is_empty());
    }
}

#[test]
fn the_trace_of_every_run_replays() {
    for seed in 0..300 {
        let (history, _) = run_world(World::new(Plan::of_seed(seed)));
        let report = trace::replay(&history.trace()).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.complete, "seed {seed}");
    }
}

#[test]
fn a_trace_with_another_command_does_not_replay() {
    let (history, _) = run_world(World::new(Plan::of_seed(1)));
    let text = history.trace();
    let changed = text.replacen("> grant request=", "> grant request=9", 1);
    assert_ne!(changed, text);
    let error = trace::replay(&changed).expect_err("a grant was changed");
    let trace::ReplayError::Differs(difference) = error else { panic!("{error}") };
    assert!(difference.recorded.is_some() && difference.replayed.is_some());
    let shortened = text.replacen("> grant", "# grant", 1);
    assert!(matches!(trace::replay(&shortened), Err(trace::ReplayError::Differs(_))));
}

/// A run with the recorded input of its order checker.
fn recorded(plan: Plan) -> (String, Result<(), Failure>) {
    let mut world = World::new(plan);
    world.keep_order();
    let (history, result) = run_world(world);
    let text = history.order.expect("it was asked for");
    (text, result.map(|_| ()).map_err(|failure| *failure))
}

#[test]
fn the_order_of_every_run_is_judged_alike_when_it_is_read_again() {
    let mut accesses = 0;
    for seed in 0..300 {
        let (text, result) = recorded(Plan::of_seed(seed));
        let verdict =
            unspool_verify::check_text(&text).unwrap_or_else(|error| panic!("{seed}: {error}"));
        accesses += verdict.counted.accesses;
        assert!(result.is_ok(), "seed {seed}");
    }
    assert!(accesses > 10_000, "{accesses}");
}

#[test]
fn a_missing_wait_is_found_in_the_text_where_the_run_has_found_it() {
    let spoiled = |seed| Plan { canary: Some(Canary::UnawaitedSave), ..Plan::of_seed(seed) };
    let failed = (0..100).map(|seed| recorded(spoiled(seed))).find(|(_, result)| result.is_err());
    let (text, result) = failed.expect("a planted bug is found soon");
    let error = unspool_verify::check_text(&text).unwrap_err();
    assert_eq!(error.line, text.lines().count() as u64);
    let unspool_verify::Trouble::Order(violation) = error.trouble else { panic!("{error}") };
    assert_eq!(violation.to_string(), result.unwrap_err().violation.what);
}
