//! The check against a naive one: a graph of what is before what, closed transitively, and every
//! pair of accesses compared.

use std::collections::BTreeMap;
use std::prelude::v1::*;

use proptest::prelude::*;

use super::*;

/// For every operation the set of operations before it, as bits.
struct Graph {
    before: Vec<Vec<bool>>,
    last_of: BTreeMap<Agent, usize>,
    events: BTreeMap<u64, usize>,
}

impl Graph {
    /// Adds an operation of `by`: after its own last one, after that of the host, and after the
    /// recording of `event`.
    fn add(&mut self, by: Agent, event: Option<usize>) {
        let direct = [self.last_of.get(&by).copied(), self.last_of.get(&HOST).copied(), event];
        self.add_after(by, direct.into_iter().flatten().collect());
    }

    /// Adds an operation of the host after the last ones of all agents.
    fn add_after_all(&mut self) {
        self.add_after(HOST, self.last_of.values().copied().collect());
    }

    fn add_after(&mut self, by: Agent, direct: Vec<usize>) {
        let number = self.before.len();
        let mut before = vec![false; number];
        for earlier in direct {
            before[earlier] = true;
            for (slot, known) in before.iter_mut().zip(&self.before[earlier]) {
                *slot |= *known;
            }
        }
        self.before.push(before);
        self.last_of.insert(by, number);
    }
}

/// For every operation the earlier ones that it is wrongly not ordered after; its own number when
/// it waits for nothing.
fn naive(ops: &[Op]) -> Vec<Vec<u64>> {
    let mut graph = Graph { before: Vec::new(), last_of: BTreeMap::new(), events: BTreeMap::new() };
    let mut found = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        let mut wrong = Vec::new();
        match *op {
            Op::Record { event, on } => {
                graph.add(on, None);
                graph.events.insert(event, number);
            }
            Op::Wait { by, event } => {
                let recorded = graph.events.get(&event).copied();
                wrong.extend(recorded.is_none().then_some(number as u64));
                graph.add(by, recorded);
            }
            Op::WaitAll => graph.add_after_all(),
            Op::Forget { event } => {
                graph.events.remove(&event);
                graph.before.push(vec![false; number]);
            }
            Op::Arena { .. } => graph.before.push(vec![false; number]),
            Op::Access { by, .. } => {
                graph.add(by, None);
                let earlier = (0..number).filter(|earlier| !graph.before[number][*earlier]);
                let racing = earlier.filter(|earlier| meet(&ops[*earlier], op));
                wrong.extend(racing.map(|earlier| earlier as u64));
            }
        }
        found.push(wrong);
    }
    found
}

fn meet(one: &Op, other: &Op) -> bool {
    let (
        Op::Access { space: s1, first: f1, end: e1, write: w1, .. },
        Op::Access { space: s2, first: f2, end: e2, write: w2, .. },
    ) = (one, other)
    else {
        return false;
    };
    s1 == s2 && f1.max(f2) < e1.min(e2) && (*w1 || *w2)
}

/// Compares both checks of a run.
fn compare(ops: &[Op], mut checker: Checker) -> Result<(), TestCaseError> {
    let expected = naive(ops);
    let mut sound_so_far = true;
    for (op, wrong) in ops.iter().zip(&expected) {
        match checker.see(op).map_err(|violation| violation.fault) {
            Ok(()) => prop_assert!(!sound_so_far || wrong.is_empty(), "{op:?} misses {wrong:?}"),
            Err(Fault::Unordered(race)) => {
                prop_assert!(wrong.contains(&race.earlier.op), "{race} is none of {wrong:?}");
                check_bytes(ops, &race)?;
            }
            Err(_) => prop_assert!(!wrong.is_empty(), "{op:?} is right"),
        }
        sound_so_far &= wrong.is_empty();
        checker.assert_invariants();
    }
    Ok(())
}

/// Checks that what a race reports about its two accesses is true.
fn check_bytes(ops: &[Op], race: &Race) -> Result<(), TestCaseError> {
    prop_assert!(race.first < race.end);
    for touch in [&race.earlier, &race.later] {
        let Op::Access { by, space, first, end, write, what } = ops[touch.op as usize] else {
            return Err(TestCaseError::fail("a race is between accesses"));
        };
        prop_assert_eq!((by, write, what), (touch.by, touch.write, touch.what.as_str()));
        prop_assert_eq!(space, race.space);
        prop_assert!(first <= race.first && race.end <= end);
    }
    Ok(())
}

fn agent() -> impl Strategy<Value = Agent> {
    prop_oneof![1 => Just(HOST), 6 => (0..5u64).prop_map(Agent::Stream)]
}

/// An operation before events have numbers: a wait is for one of the last recordings.
#[derive(Debug, Clone)]
enum Draft {
    Record(Agent),
    Wait(Agent, u64),
    Forget(u64),
    WaitAll,
    Access(Agent, bool, u64, u64),
}

fn draft(reach: u64) -> impl Strategy<Value = Draft> {
    prop_oneof![
        4 => agent().prop_map(Draft::Record),
        5 => (agent(), 0..6u64).prop_map(|(by, back)| Draft::Wait(by, back)),
        1 => (6..12u64).prop_map(Draft::Forget),
        1 => prop_oneof![1 => Just(Draft::WaitAll), 7 => Just(Draft::Record(HOST))],
        6 => (agent(), any::<bool>(), 0..reach, 0..6u64)
            .prop_map(|(by, write, first, bytes)| Draft::Access(by, write, first, bytes)),
    ]
}

fn number(drafts: Vec<Draft>) -> Vec<Op> {
    let mut events = 0;
    let numbered = drafts.into_iter().filter_map(|draft| match draft {
        Draft::Record(on) => {
            events += 1;
            Some(record(events, on))
        }
        Draft::Wait(by, back) => (events > back).then(|| wait(by, events - back)),
        Draft::Forget(back) => (events > back).then(|| Op::Forget { event: events - back }),
        Draft::WaitAll => Some(Op::WaitAll),
        Draft::Access(by, write, first, bytes) => {
            Some(access(by, DEVICE, (first, first + bytes), write, "access"))
        }
    });
    numbered.collect()
}

fn run(reach: u64) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(draft(reach), 1..120).prop_map(number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_crowded_run_is_checked_as_by_comparing_all_pairs(ops in run(12), every in 1..20u64) {
        compare(&ops, Checker::new())?;
        compare(&ops, Checker::compacting(every))?;
    }

    #[test]
    fn a_sparse_run_is_checked_as_by_comparing_all_pairs(ops in run(150), every in 1..20u64) {
        compare(&ops, Checker::new())?;
        compare(&ops, Checker::compacting(every))?;
    }
}

/// Inserts waits that put a run in order: the host waits for everything before each race.
fn repaired(ops: &[Op]) -> Vec<Op> {
    let mut sound: Vec<Op> = Vec::new();
    for op in ops {
        sound.push(*op);
        if naive(&sound).last().is_some_and(|wrong| !wrong.is_empty()) {
            sound.pop();
            for stream in 0..5 {
                let event = 1000 + sound.len() as u64;
                sound.extend([record(event, Agent::Stream(stream)), wait(HOST, event)]);
            }
            sound.push(*op);
        }
    }
    sound
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn both_find_nothing_in_a_run_with_all_the_waits_it_needs(ops in run(20), every in 1..20u64) {
        let ops: Vec<Op> = ops.into_iter().filter(|op| !matches!(op, Op::Forget { .. })).collect();
        let sound = repaired(&ops);
        prop_assert!(naive(&sound).iter().all(Vec::is_empty));
        for mut checker in [Checker::new(), Checker::compacting(every)] {
            for op in &sound {
                checker.see(op).map_err(|violation| TestCaseError::fail(violation.to_string()))?;
            }
        }
    }
}
