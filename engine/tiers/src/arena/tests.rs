//! Every misuse of an arena is refused, and what is not misuse works from many threads.

use super::*;
use unspool_core::Failure;

const A: CheckpointId = CheckpointId(1);
const B: CheckpointId = CheckpointId(2);

fn arena(capacity: u64) -> Arena {
    Arena::new(TierKind::Host, capacity).unwrap()
}

fn bytes(guard: &ReadGuard) -> &[u8] {
    guard.bytes().expect("main memory")
}

fn fill(arena: &Arena, id: CheckpointId, offset: u64, len: u64, byte: u8) {
    let mut guard = arena.create(id, offset, len).unwrap();
    guard.bytes().expect("main memory").fill(byte);
    guard.commit();
}

#[test]
fn what_was_written_and_committed_is_read_by_many() {
    let arena = arena(8192);
    fill(&arena, A, 4096, 100, 7);
    let (one, two) = (arena.read(A).unwrap(), arena.read(A).unwrap());
    assert_eq!(*bytes(&one), [7; 100]);
    assert_eq!(bytes(&one), bytes(&two));
    assert_eq!(arena.used(), 100);
}

#[test]
fn the_first_byte_is_at_a_page() {
    let arena = arena(1 << 22);
    let mut guard = arena.create(A, 0, 1).unwrap();
    assert_eq!(guard.bytes().unwrap().as_ptr().align_offset(4096), 0);
}

#[test]
fn a_guard_that_is_dropped_without_commit_forgets_the_entry() {
    let arena = arena(4096);
    drop(arena.create(A, 0, 10).unwrap());
    assert_eq!(arena.read(A).unwrap_err().kind(), Failure::Missing);
    assert_eq!(arena.used(), 0);
    fill(&arena, A, 0, 10, 1);
}

#[test]
fn reading_before_commit_is_an_error() {
    let arena = arena(4096);
    let guard = arena.create(A, 0, 10).unwrap();
    let error = arena.read(A).unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent);
    assert!(error.to_string().contains("still being written"), "{error}");
    guard.commit();
    assert!(arena.read(A).is_ok());
}

#[test]
fn an_id_has_one_entry() {
    let arena = arena(4096);
    fill(&arena, A, 0, 10, 1);
    let error = arena.create(A, 100, 10).unwrap_err();
    assert!(error.to_string().contains("already has an entry"), "{error}");
}

#[test]
fn ranges_that_overlap_are_refused_and_neighbours_are_not() {
    let arena = arena(100);
    fill(&arena, A, 40, 20, 1);
    for (offset, len) in [(40, 20), (39, 2), (59, 1), (45, 5), (0, 100), (40, 1)] {
        let error = arena.create(B, offset, len).unwrap_err();
        assert!(error.to_string().contains("overlap frame 1"), "{offset} {len}: {error}");
    }
    fill(&arena, B, 0, 40, 2);
    fill(&arena, CheckpointId(3), 60, 40, 3);
    assert_eq!(*bytes(&arena.read(A).unwrap()), [1; 20]);
}

#[test]
fn an_entry_whose_size_is_known_at_the_end_leaves_the_rest_to_others() {
    let arena = arena(100);
    let mut guard = arena.create(A, 20, 60).unwrap();
    guard.bytes().unwrap()[10..15].fill(7);
    guard.commit_at(30, 5).unwrap();
    assert_eq!(*bytes(&arena.read(A).unwrap()), [7; 5]);
    assert_eq!(arena.used(), 5);
    fill(&arena, B, 0, 30, 1);
    fill(&arena, CheckpointId(3), 35, 65, 2);
    assert_eq!(*bytes(&arena.read(A).unwrap()), [7; 5]);
}

#[test]
fn a_chain_of_entries_closes_up_as_their_sizes_become_known() {
    let arena = arena(120);
    let ids = [A, B, CheckpointId(3)];
    let guards = [0, 40, 80].into_iter().zip(ids).map(|(at, id)| arena.create(id, at, 40).unwrap());
    for (i, guard) in guards.collect::<Vec<_>>().into_iter().enumerate() {
        guard.commit_at(i as u64 * 3, 3).unwrap();
    }
    assert_eq!(arena.used(), 9);
    fill(&arena, CheckpointId(4), 9, 111, 1);
    assert!(ids.into_iter().all(|id| bytes(&arena.read(id).unwrap()).len() == 3));
}

#[test]
fn an_entry_that_would_end_up_in_the_bytes_of_another_is_refused_and_forgotten() {
    for (offset, len) in [(39, 2), (30, 20), (0, 100), (79, 2), (41, 39), (95, 6)] {
        let arena = arena(100);
        fill(&arena, A, 20, 20, 1);
        let guard = arena.create(B, 40, 40).unwrap();
        fill(&arena, CheckpointId(3), 80, 10, 3);
        let own = offset >= 40 && offset + len <= 80;
        let error = guard.commit_at(offset, len).err();
        assert_eq!(error.is_none(), own, "{offset} {len}");
        assert_eq!(arena.read(B).is_ok(), error.is_none(), "{offset} {len}");
        assert_eq!(arena.used(), 30 + arena.read(B).map_or(0, |guard| guard.len()));
    }
}

#[test]
fn an_entry_may_turn_out_to_have_no_bytes() {
    let arena = arena(100);
    arena.create(A, 40, 40).unwrap().commit_at(0, 0).unwrap();
    assert_eq!(arena.used(), 0);
    fill(&arena, B, 0, 100, 1);
    assert_eq!(bytes(&arena.read(A).unwrap()), [0; 0]);
}

#[test]
fn a_range_beyond_the_end_is_refused() {
    let arena = arena(100);
    for (offset, len) in [(0, 101), (100, 1), (u64::MAX, 1), (1, u64::MAX), (101, 0)] {
        let error = arena.create(A, offset, len).unwrap_err();
        assert_eq!(error.kind(), Failure::NoSpace, "{offset} {len}");
    }
}

#[test]
fn entries_without_bytes_lie_anywhere_and_stop_nobody() {
    let arena = arena(100);
    fill(&arena, A, 0, 100, 1);
    fill(&arena, B, 50, 0, 0);
    fill(&arena, CheckpointId(3), 100, 0, 0);
    assert!(arena.read(B).unwrap().is_empty());
    arena.forget(A).unwrap();
    fill(&arena, A, 10, 80, 2);
    arena.forget(B).unwrap();
    assert_eq!(arena.used(), 80);
}

#[test]
fn an_entry_cannot_be_forgotten_while_it_is_borrowed() {
    let arena = arena(100);
    let writer = arena.create(A, 0, 10).unwrap();
    assert!(arena.forget(A).is_err());
    writer.commit();
    let (one, two) = (arena.read(A).unwrap(), arena.read(A).unwrap());
    assert!(arena.forget(A).unwrap_err().to_string().contains("read by 2"));
    drop(one);
    assert!(arena.forget(A).is_err());
    drop(two);
    arena.forget(A).unwrap();
    assert_eq!(arena.forget(A).unwrap_err().kind(), Failure::Missing);
}

#[test]
fn threads_write_and_read_neighbouring_ranges_at_once() {
    let arena = arena(4 * 64);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let arena = &arena;
            scope.spawn(move || {
                for round in 0..20 {
                    let id = CheckpointId(thread * 100 + round);
                    fill(arena, id, thread * 64, 64, id.0 as u8);
                    assert_eq!(*bytes(&arena.read(id).unwrap()), [id.0 as u8; 64]);
                    arena.forget(id).unwrap();
                }
            });
        }
    });
    assert_eq!(arena.used(), 0);
}

#[test]
fn room_that_was_forgotten_is_used_again_while_old_guards_are_dropped_elsewhere() {
    let arena = arena(64);
    fill(&arena, A, 0, 64, 1);
    let guard = arena.read(A).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(bytes(&guard)[0], 1);
            drop(guard);
        });
        while arena.forget(A).is_err() {
            std::thread::yield_now();
        }
        fill(&arena, B, 0, 64, 2);
    });
    assert_eq!(*bytes(&arena.read(B).unwrap()), [2; 64]);
}

#[test]
fn a_get_beyond_the_end_says_how_much_there_is() {
    let arena = arena(100);
    arena.put(A, 0, &[b"abc", b"", b"de"]).unwrap();
    let mut out = [0; 3];
    arena.get(A, 2, &mut [&mut out]).unwrap();
    assert_eq!(&out, b"cde");
    let error = arena.get(A, 3, &mut [&mut out]).unwrap_err();
    assert_eq!(error.kind(), Failure::Corrupt);
    assert!(error.to_string().contains("3 bytes from byte 3 on were asked for, it has 5"));
    assert!(arena.get(A, u64::MAX, &mut [&mut out]).is_err());
}

#[test]
fn an_arena_of_no_bytes_holds_frames_of_no_bytes() {
    let arena = arena(0);
    fill(&arena, A, 0, 0, 0);
    assert!(arena.read(A).unwrap().is_empty());
    assert!(arena.create(B, 0, 1).is_err());
}

#[test]
#[cfg(not(miri))]
fn a_large_arena_is_made_at_once_and_costs_nothing_until_it_is_written() {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let arena = arena(4 << 30);
    fill(&arena, A, 0, 4096, 9);
    // Other tests of this process use a few MiB meanwhile.
    assert!(resident() < before + (256 << 20), "{} then {}", before, resident());
    assert_eq!(*bytes(&arena.read(A).unwrap()), [9; 4096]);
    assert_eq!((arena.capacity(), arena.shortage()), (4 << 30, None));
}

#[test]
#[cfg(not(miri))]
fn memory_that_is_prepared_is_present() {
    let (arena, len) = (arena(64 << 20), 64 << 20);
    let mut guard = arena.create(A, 0, 4096).unwrap();
    let first = guard.bytes().expect("main memory").as_ptr().addr();
    assert!(resident_pages(first, len) < len / 4096, "nothing is written yet");
    arena.prepare().unwrap();
    assert_eq!(resident_pages(first, len), len / 4096);
}

/// The pages of a range of addresses that are present.
#[cfg(not(miri))]
fn resident_pages(first: usize, len: usize) -> usize {
    let mut map = vec![0u8; len / 4096];
    // SAFETY: a vector with a byte for each page of the range, which is mapped.
    let code = unsafe { libc::mincore(first as *mut _, len, map.as_mut_ptr()) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    map.iter().filter(|&&page| page & 1 == 1).count()
}

#[test]
fn a_retired_arena_holds_nothing_and_takes_nothing() {
    let arena = arena(8192);
    fill(&arena, A, 0, 4096, 7);
    let guard = arena.read(A).unwrap();
    let error = arena.retire().unwrap_err();
    assert!(error.to_string().contains("being read by 1"), "{error}");
    assert_eq!(*bytes(&guard), [7; 4096], "nothing has changed");
    drop(guard);
    let room = arena.create(B, 4096, 1).unwrap();
    assert!(arena.retire().is_err());
    drop(room);
    arena.retire().unwrap();
    arena.retire().unwrap();
    assert_eq!(arena.read(A).unwrap_err().kind(), Failure::Missing);
    assert_eq!(arena.create(A, 0, 1).unwrap_err().kind(), Failure::NoSpace);
    assert_eq!((arena.used(), arena.capacity()), (0, 8192));
}

#[test]
#[cfg(not(miri))]
fn a_retired_arena_gives_its_memory_back() {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let arena = arena(512 << 20);
    fill(&arena, A, 0, 512 << 20, 9);
    let before = resident();
    arena.retire().unwrap();
    // Other tests of this process use a few MiB meanwhile.
    assert!(resident() + (256 << 20) < before, "{} then {}", before, resident());
}

#[test]
#[cfg(not(miri))]
fn more_than_this_machine_has_is_refused_with_a_remedy() {
    let error = Arena::new(TierKind::Device, 1 << 60).unwrap_err();
    assert_eq!(error.kind(), Failure::NoSpace);
    assert!(error.advice().contains("option `device_memory`"), "{error}");
}
