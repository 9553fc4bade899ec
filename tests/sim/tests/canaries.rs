//! Planted bugs are found. A simulator that does not find them finds no others either.

use unspool_sim::canary::Canary;
use unspool_sim::check::Rule;
use unspool_sim::{Failure, Plan, World, run_plan, run_world, shrink};

/// Maximum number of seeds until a planted bug is found.
const SEEDS: u64 = 1000;

fn spoiled(seed: u64, canary: Canary) -> Plan {
    Plan { canary: Some(canary), ..Plan::of_seed(seed) }
}

/// The first failure of this rule that only this bug causes, with some checkers switched off.
fn first_failure(canary: Canary, rule: Rule, blind: &[Rule]) -> Box<Failure> {
    first_failure_like(canary, rule, blind, |_| true)
}

/// As [`first_failure`], with a text that `fits`.
fn first_failure_like(
    canary: Canary,
    rule: Rule,
    blind: &[Rule],
    fits: impl Fn(&str) -> bool,
) -> Box<Failure> {
    let found = (0..SEEDS).find_map(|seed| {
        let mut world = World::new(spoiled(seed, canary));
        world.look_away(blind);
        let failure = run_world(world).1.err()?;
        let meant = failure.violation.rule == rule && fits(&failure.violation.what);
        let alone = meant && run_plan(Plan::of_seed(seed)).is_ok();
        alone.then_some(failure)
    });
    found.unwrap_or_else(|| panic!("{canary:?} is not seen as {rule:?} in {SEEDS} seeds"))
}

#[test]
fn every_planted_bug_is_found_as_what_it_is() {
    let expected = [
        (Canary::EarlyFree, Rule::Overlap),
        (Canary::Overlap, Rule::Overlap),
        (Canary::LostWrite, Rule::Bytes),
        (Canary::StaleData, Rule::InUse),
        (Canary::LostReport, Rule::Rest),
        (Canary::DoubleReport, Rule::Transfer),
        (Canary::LostGrant, Rule::Rest),
        (Canary::FalseLoss, Rule::Refusal),
        (Canary::SkippedSync, Rule::Durable),
        (Canary::TrustedFrames, Rule::Durable),
        (Canary::ForgottenFence, Rule::Order),
        (Canary::UnawaitedSave, Rule::Order),
        (Canary::NoPendingRanges, Rule::Order),
        (Canary::EarlyReport, Rule::Order),
        (Canary::ShiftedReport, Rule::Bytes),
    ];
    assert_eq!(expected.map(|(canary, _)| canary), Canary::ALL);
    for (canary, rule) in expected {
        assert_eq!(first_failure(canary, rule, &[]).violation.rule, rule);
    }
}

#[test]
fn a_missing_wait_is_reported_by_the_two_accesses_that_it_leaves_unordered() {
    let cases = [
        (Canary::UnawaitedSave, "\"transfer ", "\"the save of "),
        (Canary::NoPendingRanges, "\"the save of ", "\"the restore of "),
        (Canary::EarlyReport, "\"the restore of ", "\"transfer "),
    ];
    for (canary, later, earlier) in cases {
        let fits = |text: &str| {
            let parts = text.split_once(" is not ordered after ");
            parts.is_some_and(|(one, other)| one.starts_with(later) && other.starts_with(earlier))
        };
        let failure = first_failure_like(canary, Rule::Order, &[], fits);
        assert!(failure.violation.what.contains("record an event on stream"), "{failure}");
    }
}

#[test]
fn what_one_checker_misses_the_next_one_sees() {
    let cases: [(Canary, Rule, &[Rule]); 9] = [
        (Canary::EarlyFree, Rule::Order, &[Rule::Overlap]),
        (Canary::Overlap, Rule::Order, &[Rule::Overlap]),
        (Canary::EarlyFree, Rule::Bytes, &[Rule::Overlap, Rule::Order]),
        (Canary::Overlap, Rule::Bytes, &[Rule::Overlap, Rule::Order]),
        (Canary::StaleData, Rule::Bytes, &[Rule::InUse]),
        (Canary::ForgottenFence, Rule::Bytes, &[Rule::Order]),
        (Canary::UnawaitedSave, Rule::Bytes, &[Rule::Order]),
        (Canary::NoPendingRanges, Rule::Bytes, &[Rule::Order]),
        (Canary::EarlyReport, Rule::Bytes, &[Rule::Order]),
    ];
    for (canary, rule, blind) in cases {
        let failure = first_failure(canary, rule, blind);
        assert!(!blind.contains(&failure.violation.rule), "{failure}");
    }
}

#[test]
fn a_failure_shrinks_to_a_small_run_that_fails_in_the_same_way() {
    let failure = first_failure(Canary::LostWrite, Rule::Bytes, &[]);
    let smaller = shrink::shrink(&failure);
    assert_eq!(smaller.violation.rule, failure.violation.rule);
    assert!(smaller.plan.steps() <= 30, "{}", smaller.plan);
    let again = run_plan(smaller.plan.clone()).expect_err("it fails every time");
    assert_eq!(again.violation, smaller.violation);
}

#[test]
fn a_failure_says_how_to_see_it_again() {
    let failure = first_failure(Canary::Overlap, Rule::Overlap, &[]);
    let text = failure.to_string();
    let command = format!("cargo run -p unspool-sim -- --seed {} --verbose", failure.plan.seed);
    assert!(text.ends_with(&command), "{text}");
    assert!(text.contains("Overlap") && text.contains("> grant"), "{text}");
}
