//! The allocation table against small cases by hand, and against random sequences.

use super::*;
use proptest::prelude::*;

fn resident(row: u32) -> Resident {
    Resident { row: Row(row), ready_at: Nanos(0), next_use: 0, last_use: 0, arrived: 0 }
}

#[test]
fn releasing_a_copy_between_gaps_leaves_one_gap() {
    let mut fragments = Fragments::new(100, Growth::Free);
    for row in 0..4 {
        let last = fragments.as_slice().len() - 1;
        fragments.place(last..last + 1, 25, false, resident(row));
    }
    for offset in [0, 50, 25] {
        fragments.release(offset);
        fragments.assert_invariants();
    }
    assert_eq!(fragments.as_slice()[0].bytes, 75);
    assert_eq!(fragments.free(), 75);
}

/// An arena full of copies of 8 bytes, used in the order of `uses`.
fn full(uses: &[u64]) -> Fragments {
    let mut fragments = Fragments::new(uses.len() as u64 * 8, Growth::Free);
    for (row, last_use) in (0..).zip(uses) {
        let gap = fragments.gap_around(u64::from(row) * 8).unwrap();
        fragments.place(gap..gap + 1, 8, false, Resident { last_use: *last_use, ..resident(row) });
    }
    fragments
}

#[test]
fn a_copy_goes_to_the_end_of_a_gap_that_was_used_longer_ago() {
    for (uses, expected) in [([1, 2, 3, 4], [0, 8, 16]), ([4, 3, 2, 1], [24, 16, 8])] {
        let mut fragments = full(&uses);
        (0..4).for_each(|copy| _ = fragments.release(copy * 8));
        for offset in expected {
            let gap = fragments.smallest_gap(8).unwrap();
            assert_eq!(fragments.place(gap..gap + 1, 8, false, resident(9)), offset, "{uses:?}");
            fragments.assert_invariants();
        }
    }
}

#[test]
fn a_copy_goes_where_one_of_its_size_was_longest_ago_also_inside_a_gap() {
    // The order of a ring: the second copy was used first, then down and around.
    let mut fragments = full(&[2, 1, 4, 3]);
    [8, 0, 24, 16].into_iter().for_each(|offset| _ = fragments.release(offset));
    for offset in [8, 0, 24, 16] {
        let gap = fragments.smallest_gap(8).unwrap();
        assert_eq!(fragments.place(gap..gap + 1, 8, false, resident(9)), offset);
        fragments.assert_invariants();
    }
}

#[test]
fn of_gaps_of_one_size_the_one_that_was_used_longest_ago_is_taken() {
    let mut fragments = full(&[5, 1, 3, 2, 4]);
    [0, 16, 32].into_iter().for_each(|offset| _ = fragments.release(offset));
    for offset in [16, 32, 0] {
        let gap = fragments.smallest_gap(8).unwrap();
        assert_eq!(fragments.place(gap..gap + 1, 8, false, resident(9)), offset);
    }
}

#[test]
fn the_smallest_gap_that_fits_is_found() {
    let mut fragments = Fragments::new(100, Growth::Free);
    for bytes in [9, 1, 6, 1, 83] {
        let last = fragments.as_slice().len() - 1;
        fragments.place(last..last + 1, bytes, false, resident(0));
    }
    [0, 10].into_iter().for_each(|offset| {
        fragments.release(offset);
    });
    assert_eq!([5, 7, 10].map(|bytes| fragments.smallest_gap(bytes)), [Some(2), Some(0), None]);
}

/// A copy whose bytes are arriving.
fn arriving(row: u32) -> Resident {
    Resident { ready_at: Nanos::NEVER, ..resident(row) }
}

/// The fragments as (offset, bytes, whether a copy is there).
fn shape(fragments: &Fragments) -> Vec<(u64, u64, bool)> {
    let parts = |f: &Fragment| (f.offset, f.bytes, f.resident.is_some());
    fragments.as_slice().iter().map(parts).collect()
}

#[test]
fn what_a_copy_does_not_keep_is_one_gap_with_the_gap_after_it() {
    let mut fragments = Fragments::new(100, Growth::Free);
    fragments.place(0..1, 40, true, arriving(0));
    fragments.keep(0, 8..16, false);
    fragments.assert_invariants();
    assert_eq!(shape(&fragments), [(0, 8, false), (8, 8, true), (16, 84, false)]);
    assert_eq!(fragments.free(), 92);
}

#[test]
fn what_a_copy_leaves_at_its_end_goes_to_the_next_one() {
    let mut fragments = Fragments::new(100, Growth::Free);
    fragments.place(0..1, 40, true, arriving(0));
    fragments.place(1..2, 40, true, arriving(1));
    fragments.keep(0, 0..8, true);
    assert_eq!(shape(&fragments), [(0, 8, true), (8, 72, true), (80, 20, false)]);
    assert_eq!(fragments.free(), 20, "the next one has it");
    fragments.keep(8, 8..20, false);
    fragments.assert_invariants();
    assert_eq!(shape(&fragments), [(0, 8, true), (8, 12, true), (20, 80, false)]);
}

#[test]
fn a_copy_that_keeps_nothing_leaves_all_its_room() {
    for to_next in [false, true] {
        let mut fragments = Fragments::new(100, Growth::Free);
        fragments.place(0..1, 40, true, arriving(0));
        fragments.place(1..2, 60, true, arriving(1));
        fragments.keep(0, 0..0, to_next);
        fragments.assert_invariants();
        let left =
            if to_next { vec![(0, 100, true)] } else { vec![(0, 40, false), (40, 60, true)] };
        assert_eq!(shape(&fragments), left);
    }
}

proptest! {
    #[test]
    fn copies_that_kept_a_part_of_their_room_follow_each_other_without_holes(
        asked in prop::collection::vec((1u64..40, 0u64..=100, any::<bool>()), 1..20),
        late in 0usize..12,
    ) {
        let mut fragments = Fragments::new(100_000, Growth::Free);
        let (mut end, mut kept) = (0, 0);
        let mut pending = std::collections::VecDeque::new();
        let mut keep = |fragments: &mut Fragments, (bytes, to_next): (u64, bool)| {
            let at = end;
            fragments.keep(at, at..at + bytes, to_next);
            end += bytes;
            kept += bytes;
        };
        for (row, &(bytes, percent, now)) in asked.iter().enumerate() {
            let gap = fragments.as_slice().len() - 1;
            fragments.place(gap..gap + 1, bytes, true, arriving(row as u32));
            pending.push_back(bytes * percent / 100);
            if now && pending.len() > late {
                let bytes = pending.pop_front().unwrap();
                keep(&mut fragments, (bytes, !pending.is_empty()));
                fragments.assert_invariants();
            }
        }
        while let Some(bytes) = pending.pop_front() {
            keep(&mut fragments, (bytes, !pending.is_empty()));
            fragments.assert_invariants();
        }
        let copies: u64 = shape(&fragments).iter().filter(|f| f.2).map(|f| f.1).sum();
        prop_assert_eq!(copies, kept);
        let gaps: Vec<_> = shape(&fragments).into_iter().filter(|f| !f.2).collect();
        prop_assert_eq!(gaps, [(kept, 100_000 - kept, false)], "one gap, after them all");
    }
}

#[test]
fn an_arena_that_grows_by_need_grows_last_and_from_its_start() {
    let mut fragments = Fragments::new(1000, Growth::ByNeed { reached: 0 });
    let place = |fragments: &mut Fragments, bytes| {
        let gap = fragments.smallest_gap(bytes).unwrap();
        let offset = fragments.place(gap..gap + 1, bytes, false, resident(1));
        fragments.assert_invariants();
        offset
    };
    assert_eq!([0; 3].map(|_: u64| place(&mut fragments, 10)), [0, 10, 20]);
    // Bytes that were just used come before those that no copy ever had.
    for last_use in 1..200 {
        for offset in [20, 10] {
            fragments.touch(offset, last_use);
            fragments.release(offset);
        }
        assert_eq!([0; 2].map(|_: u64| place(&mut fragments, 10)), [10, 20]);
    }
    fragments.release(20);
    assert_eq!(place(&mut fragments, 15), 20, "it grows by five bytes");
    fragments.release(20);
    assert_eq!([0; 2].map(|_: u64| place(&mut fragments, 10)), [20, 30]);
    assert_eq!(place(&mut fragments, 960), 40);
    assert_eq!(fragments.free(), 0);
}

#[test]
fn of_gaps_of_one_size_that_was_used_longest_ago_is_taken_and_one_that_no_copy_had_comes_last() {
    let mut fragments = Fragments::new(24, Growth::ByNeed { reached: 0 });
    let place = |fragments: &mut Fragments| {
        let gap = fragments.smallest_gap(8).unwrap();
        fragments.place(gap..gap + 1, 8, false, resident(1))
    };
    let release = |fragments: &mut Fragments, offset, last_use| {
        fragments.touch(offset, last_use);
        fragments.release(offset);
    };
    assert_eq!([place(&mut fragments), place(&mut fragments)], [0, 8]);
    release(&mut fragments, 0, 9);
    assert_eq!([place(&mut fragments), place(&mut fragments)], [0, 16]);
    release(&mut fragments, 0, 9);
    release(&mut fragments, 16, 3);
    assert_eq!(place(&mut fragments), 16);
}

#[test]
fn a_window_is_cleared_with_the_gaps_beside_it() {
    let mut fragments = full(&[1, 2, 3, 4, 5]);
    [0, 16, 32].into_iter().for_each(|offset| _ = fragments.release(offset));
    assert_eq!(
        [1..2, 3..4, 0..5].map(|window| fragments.begin_clearing(window)),
        [0..3, 2..5, 0..5]
    );
}

#[test]
fn an_arena_without_bytes_has_no_fragments() {
    let fragments = Fragments::new(0, Growth::Free);
    assert!(fragments.as_slice().is_empty());
    fragments.assert_invariants();
}

proptest! {
    #[test]
    fn every_sequence_of_places_and_releases_keeps_the_table_whole(
        ops in prop::collection::vec((0u64..40, any::<prop::sample::Index>()), 1..200)
    ) {
        let mut fragments = Fragments::new(256, Growth::Free);
        for (bytes, pick) in ops {
            let fits = |f: &Fragment| f.resident.is_none() && f.bytes >= bytes;
            let gap = fragments.as_slice().iter().position(fits);
            match gap {
                Some(i) if bytes > 0 => { fragments.place(i..i + 1, bytes, false, resident(1)); }
                _ => {
                    let copies: Vec<u64> = fragments.as_slice().iter()
                        .filter(|f| f.resident.is_some()).map(|f| f.offset).collect();
                    if !copies.is_empty() {
                        fragments.release(copies[pick.index(copies.len())]);
                    }
                }
            }
            fragments.assert_invariants();
        }
    }
}
