//! Speed of planning schedules: time until the first action, and until the last.
//!
//! The baseline is a walk over the same number of actions in a list in memory: a schedule that is
//! as fast need not be stored as a list.

use std::hint::black_box;
use std::time::{Duration, Instant};

use unspool_core::TierKind;
use unspool_schedule::{
    Action, AnySchedule, Counts, Level, Limits, Listed, MultiLevel, OnlineRevolve, Restores,
    Revolve, Schedule, StoreAll, Uniform, ZCut, check, revolve,
};

use crate::table;

const MILLION: u64 = 1_000_000;
const ROUNDS: usize = 5;

/// Prints the tables.
pub fn run() {
    let mut rows = Vec::new();
    for slots in [10, 30, 100, 300, 1000, 10_000] {
        let name = format!("Revolve, {slots} slots");
        rows.extend(row(&name, || Revolve::new(MILLION, slots).ok().map(AnySchedule::from)));
    }
    rows.extend(row("StoreAll", || StoreAll::new(MILLION).ok().map(AnySchedule::from)));
    rows.extend(row("Uniform, 1000 slots", || {
        Uniform::new(MILLION, 1000).ok().map(AnySchedule::from)
    }));
    rows.extend(row("ZCut, length 36", || {
        ZCut::with_length(MILLION, 36).ok().map(AnySchedule::from)
    }));
    rows.extend(row("a list (drawn from Revolve, checked)", list));
    let columns = [
        "schedule",
        "actions",
        "first action us",
        "all actions ms",
        "million a second",
        "dry run ms",
        "checked ms",
        "recomputed steps",
    ];
    table::print("Schedules of 1,000,000 steps", &columns, &rows);
    online();
    levels();
    closed_forms();
}

fn list() -> Option<AnySchedule> {
    let actions: Vec<Action> = Revolve::new(MILLION, 100).ok()?.collect();
    Listed::new(actions).ok().map(AnySchedule::from)
}

fn row(name: &str, make: impl Fn() -> Option<AnySchedule>) -> Option<Vec<String>> {
    let schedule = make()?;
    let actions = schedule.clone().count();
    let first = best(|| make().and_then(|mut schedule| schedule.next()));
    let all = best(|| drawn(schedule.clone()));
    let dry = best(|| Restores::new(schedule.clone()).count());
    let begin = Instant::now();
    let counts = check(schedule.clone(), Limits::of(&schedule));
    let checked = begin.elapsed();
    Some(vec![
        name.to_owned(),
        actions.to_string(),
        format!("{:.1}", first.as_secs_f64() * 1e6),
        format!("{:.1}", all.as_secs_f64() * 1e3),
        format!("{:.0}", actions as f64 / all.as_secs_f64() / 1e6),
        format!("{:.1}", dry.as_secs_f64() * 1e3),
        format!("{:.1}", checked.as_secs_f64() * 1e3),
        counts.as_ref().map_or_else(ToString::to_string, |c: &Counts| c.recomputed().to_string()),
    ])
}

/// Computes every action and uses all of it, so that the compiler removes nothing.
fn drawn(schedule: impl Schedule) -> u64 {
    schedule.map(used).fold(0, u64::wrapping_add)
}

fn used(action: Action) -> u64 {
    let (kind, step) = match action {
        Action::Forward { from, to } => (1, from ^ to),
        Action::Save { step, .. } => (2, step),
        Action::Restore { step, .. } => (3, step),
        Action::Reverse { step } => (4, step),
        Action::Discard { step, .. } => (5, step),
        Action::End => (6, 0),
    };
    step.wrapping_mul(8).wrapping_add(kind)
}

/// The fastest round, in which the machine was disturbed least.
fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        black_box(work());
        begin.elapsed()
    });
    rounds.min().unwrap_or_default()
}

/// A forward pass of unknown length that turns out to have a million steps.
fn online() {
    let mut rows = Vec::new();
    for slots in [10, 100, 1000] {
        let begin = Instant::now();
        let (actions, advances) = online_pass(slots).unwrap_or_default();
        let time = begin.elapsed();
        rows.push(vec![
            format!("OnlineRevolve, {slots} slots"),
            actions.to_string(),
            format!("{:.1}", time.as_secs_f64() * 1e3),
            format!("{:.1}", actions as f64 / time.as_secs_f64() / 1e6),
            format!("{:.3}", advances as f64 / revolve::advances(MILLION, slots) as f64),
        ]);
    }
    let columns =
        ["schedule", "actions", "all actions ms", "million a second", "advances / Revolve's"];
    table::print("1,000,000 steps, their number unknown until the last", &columns, &rows);
}

/// Number of actions and of advances, which are counted as if executed.
fn online_pass(slots: u64) -> Option<(u64, u64)> {
    let mut schedule = OnlineRevolve::new(slots).ok()?;
    let (mut actions, mut advances, mut sum, mut ended) = (0, 0, 0_u64, false);
    while let Some(action) = schedule.next() {
        actions += 1;
        sum = sum.wrapping_add(used(action));
        if let Action::Forward { from, to } = action {
            advances += to.min(MILLION) - from;
            if to >= MILLION && !ended {
                ended = true;
                schedule.finish(MILLION).ok()?;
            }
        }
    }
    black_box(sum);
    Some((actions, advances))
}

/// Three levels: six states on the device, sixty in host memory, any number on disk, with reads and
/// writes that take a hundredth of a step, a fifth, and three steps.
fn levels() {
    let level =
        |tier, slots, seconds| Level { tier, slots, write_seconds: seconds, read_seconds: seconds };
    let levels = [
        level(TierKind::Device, 6, 0.01),
        level(TierKind::Host, 60, 0.2),
        level(TierKind::Disk, u64::MAX, 3.0),
    ];
    let rows = [300, 3000, 30_000, MILLION].into_iter().filter_map(|steps| {
        let begin = Instant::now();
        let schedule = MultiLevel::new(steps, &levels, 1.0).ok()?;
        let planned = begin.elapsed();
        let actions = schedule.clone().count();
        let all = best(|| drawn(schedule.clone()));
        Some(vec![
            steps.to_string(),
            format!("{:.1}", planned.as_secs_f64() * 1e3),
            actions.to_string(),
            format!("{:.1}", all.as_secs_f64() * 1e3),
            format!("{:.0}", actions as f64 / all.as_secs_f64() / 1e6),
            format!("{:.3}", schedule.cost_seconds() / steps as f64),
            if schedule.is_exact() { "yes" } else { "no" }.to_owned(),
        ])
    });
    let rows: Vec<_> = rows.collect();
    let columns = [
        "steps",
        "planned ms",
        "actions",
        "all actions ms",
        "million a second",
        "cost a step, in steps",
        "cheapest possible",
    ];
    table::print("MultiLevel over device, host and disk", &columns, &rows);
}

fn closed_forms() {
    let mut rows = Vec::new();
    for (steps, slots) in [(300, 6), (MILLION, 100), (u64::MAX, 3), (u64::MAX, 1 << 32)] {
        let time = best(|| black_box(revolve::advances(black_box(steps), black_box(slots))));
        rows.push(vec![
            format!("{steps} steps, {slots} slots"),
            revolve::advances(steps, slots).to_string(),
            revolve::saves(steps, slots).to_string(),
            format!("{:.2}", time.as_secs_f64() * 1e6),
        ]);
    }
    let columns = ["Revolve", "advances", "saves", "us to know"];
    table::print("Revolve's counts in closed form (the largest number: or more)", &columns, &rows);
}
