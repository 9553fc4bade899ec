//! Policies against small cases by hand, and against a search of every window.

use alloc::vec::Vec;
use core::ops::Range;

use proptest::prelude::*;

use super::fragments::{Fragment, Fragments, Growth, Resident};
use super::window::around;
use super::{Choice, Need, policy};
use crate::config::PolicyKind;
use crate::lifecycle::table::Row;
use crate::types::Nanos;

fn copy(bytes: u64, ready_at: Nanos, next_use: u64) -> (u64, Option<Resident>) {
    (bytes, Some(Resident { row: Row(0), ready_at, next_use, last_use: 0, arrived: 0 }))
}

fn gap(bytes: u64) -> (u64, Option<Resident>) {
    (bytes, None)
}

fn arena(parts: &[(u64, Option<Resident>)]) -> Vec<Fragment> {
    let mut offset = 0;
    let mut list = Vec::new();
    for (i, (bytes, resident)) in parts.iter().enumerate() {
        let resident = resident.map(|r| Resident {
            last_use: i as u64 * 7 % 5,
            arrived: i as u64 * 3 % 7,
            ..r
        });
        list.push(Fragment { offset, bytes: *bytes, resident });
        offset += bytes;
    }
    list
}

fn choose(kind: PolicyKind, parts: &[(u64, Option<Resident>)], bytes: u64) -> Choice {
    let need = Need { bytes, now: Nanos(0), later_than: None };
    pass(kind, &arena(parts), &need)
}

/// The choice of a policy among all fragments.
fn pass(kind: PolicyKind, fragments: &[Fragment], need: &Need) -> Choice {
    let all = 0..fragments.len();
    policy(kind).choose(fragments, &[all], need)
}

const NOW: Nanos = Nanos(0);
const STAYS: Nanos = Nanos::NEVER;

#[test]
fn a_small_copy_between_gaps_is_given_up_before_a_large_one_that_is_used_later() {
    let parts = [copy(8, NOW, 90), gap(4), copy(1, NOW, 10), gap(4), copy(8, NOW, 90)];
    assert_eq!(choose(PolicyKind::Score, &parts, 8), Choice::Take(1..4));
}

#[test]
fn of_copies_that_nobody_wants_the_one_that_was_used_longest_ago_goes() {
    // `arena` gives them the last uses 0, 2, 4, 1, 3; the first one stays.
    let parts = [copy(8, STAYS, u64::MAX), copy(8, NOW, u64::MAX), copy(8, NOW, u64::MAX)];
    let more = [copy(8, NOW, u64::MAX), copy(8, NOW, u64::MAX)];
    let parts = [&parts[..], &more[..]].concat();
    for kind in [PolicyKind::Score, PolicyKind::Belady] {
        assert_eq!(choose(kind, &parts, 8), Choice::Take(3..4), "by a pass, {kind:?}");
    }
    let mut table = Fragments::new(parts.len() as u64 * 8, Growth::Free);
    for fragment in arena(&parts) {
        let gap = table.gap_around(fragment.offset).unwrap();
        table.place(gap..gap + 1, 8, false, fragment.resident.unwrap());
    }
    assert_eq!(table.last_used_ready(), Some((u64::MAX, 3)), "by the index");
    table.touch(24, 9);
    assert_eq!(table.last_used_ready(), Some((u64::MAX, 1)), "after a use");
    table.assert_invariants();
}

#[test]
fn no_wait_is_better_than_a_far_next_use() {
    let parts = [copy(8, Nanos(50), 1000), copy(8, NOW, 1)];
    assert_eq!(choose(PolicyKind::Score, &parts, 8), Choice::Take(1..2));
}

#[test]
fn the_shortest_wait_wins_when_every_window_must_wait() {
    let parts = [copy(8, Nanos(70), 5), copy(8, Nanos(50), 1), copy(8, STAYS, 9)];
    assert_eq!(choose(PolicyKind::Score, &parts, 8), Choice::Wait(1..2, Nanos(50)));
}

#[test]
fn of_copies_that_are_overdue_or_far_beyond_any_wait_the_one_that_is_used_last_is_awaited() {
    let chosen = |parts: &[(u64, Option<Resident>)], now: u64| {
        let need = Need { bytes: 8, now: Nanos(now), later_than: None };
        let mut table = table(parts);
        table.pass_time(need.now);
        table.assert_invariants();
        let by_index = super::choose(policy(PolicyKind::Score), &table, &need);
        assert_eq!(pass(PolicyKind::Score, &arena(parts), &need), by_index);
        by_index
    };
    let overdue = [copy(8, Nanos(3), 5), copy(8, Nanos(9), 7), copy(8, Nanos(60), 9)];
    assert_eq!(chosen(&overdue, 0), Choice::Wait(0..1, Nanos(3)));
    assert_eq!(chosen(&overdue, 20), Choice::Wait(1..2, Nanos(21)));
    let far = [copy(8, Nanos(1 << 60), 5), copy(8, Nanos(1 << 61), 7)];
    assert_eq!(chosen(&far, 0), Choice::Wait(1..2, Nanos(1 << 50)));
    let as_far = [copy(8, Nanos(1 << 50), 5), copy(8, Nanos(1 << 61), 7)];
    assert_eq!(chosen(&as_far, 0), Choice::Wait(1..2, Nanos(1 << 50)));
}

#[test]
fn a_window_never_reaches_across_a_copy_that_must_stay() {
    let parts = [copy(4, NOW, 9), copy(4, STAYS, 9), copy(4, NOW, 9)];
    assert_eq!(choose(PolicyKind::Score, &parts, 8), Choice::Nothing);
}

#[test]
fn a_prefetch_never_pushes_out_what_is_needed_sooner() {
    let parts = [copy(4, NOW, 3), copy(4, NOW, 7)];
    for (later_than, expected) in [(5, Choice::Take(1..2)), (7, Choice::Nothing)] {
        let need = Need { bytes: 4, now: NOW, later_than: Some(later_than) };
        assert_eq!(pass(PolicyKind::Score, &arena(&parts), &need), expected);
        let by_index = super::choose(policy(PolicyKind::Score), &table(&parts), &need);
        assert_eq!(by_index, expected);
    }
}

#[test]
fn a_copy_past_its_estimate_still_costs_a_wait() {
    let parts = arena(&[copy(4, Nanos(10), 3), copy(4, NOW, 3)]);
    let need = Need { bytes: 4, now: Nanos(500), later_than: None };
    assert_eq!(pass(PolicyKind::Score, &parts, &need), Choice::Take(1..2));
}

/// Every window that cannot be shortened, judged one by one.
fn search(kind: PolicyKind, list: &[Fragment], bytes: u64) -> Option<(u64, u64)> {
    let minimal = |w: &Range<usize>| {
        let size = |r: Range<usize>| list[r].iter().map(|f| f.bytes).sum::<u64>();
        size(w.clone()) >= bytes
            && size(w.start + 1..w.end) < bytes
            && size(w.start..w.end - 1) < bytes
    };
    let windows = (0..list.len()).flat_map(|i| (i + 1..=list.len()).map(move |j| i..j));
    windows
        .filter(|w| list[w.clone()].iter().all(|f| f.resident.is_none_or(|r| r.ready_at != STAYS)))
        .filter(minimal)
        .map(|w| judge(kind, &list[w]))
        .min()
}

/// (wait, how bad it is to give this window up): smaller is better.
fn judge(kind: PolicyKind, window: &[Fragment]) -> (u64, u64) {
    let copies = || window.iter().filter_map(|f| f.resident);
    let wait = copies().map(|r| r.ready_at.0).sum();
    let distance = |f: &Fragment| f.resident.map_or(1 << 41, |r| r.next_use.min(1 << 40));
    let sum: u64 = window.iter().map(|f| distance(f) * f.bytes).sum();
    let bytes: u64 = window.iter().map(|f| f.bytes).sum();
    let loss = match kind {
        PolicyKind::Score => u64::MAX - (sum as f64 / bytes as f64).to_bits(),
        PolicyKind::Lru => copies().map(|r| r.last_use).max().unwrap_or(0),
        PolicyKind::Fifo => copies().map(|r| r.arrived).max().unwrap_or(0),
        PolicyKind::Belady => u64::MAX - copies().map(|r| r.next_use).min().unwrap_or(u64::MAX),
    };
    (wait, loss)
}

prop_compose! {
    fn any_part()(
        bytes in 1u64..9,
        kind in 0u8..8,
        next_use in prop_oneof![0u64..30, Just(u64::MAX)],
        wait in 1u64..40,
    ) -> (u64, Option<Resident>) {
        match kind {
            0 | 1 => gap(bytes),
            2 => copy(bytes, STAYS, next_use),
            3 | 4 => copy(bytes, Nanos(wait), next_use),
            _ => copy(bytes, NOW, next_use),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_window_is_as_good_as_the_best_of_an_exhaustive_search(
        parts in prop::collection::vec(any_part(), 1..14),
        bytes in 1u64..30,
    ) {
        let list = arena(&parts);
        for kind in [PolicyKind::Score, PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Belady] {
            let best = search(kind, &list, bytes);
            match choose(kind, &parts, bytes) {
                Choice::Nothing => prop_assert_eq!(best, None),
                Choice::Take(w) => {
                    prop_assert_eq!(Some(judge(kind, &list[w.clone()])), best);
                    prop_assert!(list[w].iter().map(|f| f.bytes).sum::<u64>() >= bytes);
                }
                Choice::Wait(w, until) => {
                    prop_assert_eq!(Some(judge(kind, &list[w])), best);
                    prop_assert_eq!(Some(until.0), best.map(|b| b.0));
                }
            }
        }
    }
}

/// The same parts as an allocation table.
fn table(parts: &[(u64, Option<Resident>)]) -> Fragments {
    let mut table = Fragments::new(parts.iter().map(|p| p.0).sum(), Growth::Free);
    let filler = Resident { row: Row(0), ready_at: STAYS, next_use: 0, last_use: 0, arrived: 0 };
    for (bytes, resident) in parts {
        let last = table.as_slice().len() - 1;
        table.place(last..last + 1, *bytes, false, resident.unwrap_or(filler));
    }
    let list = arena(parts);
    let gaps = list.iter().filter(|f| f.resident.is_none());
    for gap in gaps {
        table.release(gap.offset);
    }
    table.assert_invariants();
    table
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_index_answers_as_the_pass_would(
        parts in prop::collection::vec(any_part(), 1..14),
        bytes in 1u64..12,
        later_than in prop::option::of(0u64..30),
        now in prop_oneof![Just(0), 0u64..50],
    ) {
        let mut table = table(&parts);
        table.pass_time(Nanos(now));
        let list = table.as_slice();
        let need = Need { bytes, now: Nanos(now), later_than };
        let gap = list.iter().any(|f| f.resident.is_none() && f.bytes >= bytes);
        for kind in [PolicyKind::Score, PolicyKind::Belady] {
            let by_index = super::choose(policy(kind), &table, &need);
            match (pass(kind, list, &need), by_index) {
                (_, Choice::Take(w)) if gap => prop_assert!(list[w.start].resident.is_none()),
                (Choice::Take(a), Choice::Take(b)) => {
                    prop_assert_eq!(judge(kind, &list[a]), judge(kind, &list[b]));
                }
                (Choice::Wait(..), Choice::Nothing) => prop_assert!(later_than.is_some()),
                (a, b) => prop_assert_eq!(a, b),
            }
        }
    }
}

#[test]
fn around_a_copy_there_is_as_much_on_either_side_as_is_needed() {
    let need = Need { bytes: 4, now: NOW, later_than: None };
    let small = arena(&[copy(1, NOW, 0); 20]);
    let large = arena(&[copy(3, NOW, 0); 20]);
    let [small_part, large_part] = [small, large].map(|list| around(&list, 10, &need));
    assert_eq!((small_part, large_part), (6..14, 8..12));
}

#[test]
fn parts_that_are_looked_at_first_lie_around_what_goes_first_and_around_the_largest_gaps() {
    // Runs of a copy that may go and a gap, between copies that must stay.
    let run = |i: u64| [copy(1, NOW, 100 - i), gap(1 + i % 3), copy(1, STAYS, 0)];
    let table = table(&(0..100).flat_map(run).collect::<Vec<_>>());
    let need = Need { bytes: 4, now: NOW, later_than: None };
    let parts = super::likely_parts(&table, &need);
    // Only runs with a gap of 3 are large enough; the first ones are used last.
    let run_of = |part: &Range<usize>| {
        assert_eq!(part.len(), 2, "up to the copies that must stay");
        part.start / 3
    };
    let runs: Vec<usize> = parts.iter().map(run_of).collect();
    assert_eq!(runs[..8], [2, 5, 8, 11, 14, 17, 20, 23]);
    assert_eq!(runs[8..], [98, 95, 92, 89, 86, 83, 80, 77], "of equal gaps the last");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn among_many_fragments_a_window_that_can_go_is_found_whenever_there_is_one(
        parts in prop::collection::vec(any_part(), 280..420),
        bytes in 10u64..60,
        later_than in prop::option::of(0u64..30),
    ) {
        let table = table(&parts);
        let list = table.as_slice();
        let need = Need { bytes, now: NOW, later_than };
        for kind in [PolicyKind::Score, PolicyKind::Belady] {
            let taken = matches!(pass(kind, list, &need), Choice::Take(_));
            let found = super::choose(policy(kind), &table, &need);
            prop_assert_eq!(matches!(found, Choice::Take(_)), taken);
            let Choice::Take(window) = found else { continue };
            let size = |w: Range<usize>| list[w].iter().map(|f| f.bytes).sum::<u64>();
            prop_assert!(size(window.clone()) >= bytes, "it is large enough");
            let Range { start, end } = window;
            let shorter = size(start + 1..end).max(size(start..end - 1));
            prop_assert!(end - start == 1 || shorter < bytes, "and no larger than it must be");
            let may_go = |f: &Fragment| f.resident.is_none_or(|r| {
                r.ready_at == NOW && later_than.is_none_or(|limit| r.next_use > limit)
            });
            prop_assert!(list[window].iter().all(may_go));
        }
    }
}
