//! Many concurrent threads, each with its own frames, or all with one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use unspool_core::CheckpointId;

use super::{Fixture, done};
use crate::pattern::Pattern;

const THREADS: u64 = 4;
const ROUNDS: u64 = 25;

/// A frame of `thread` in `round`: its id, its offset in an arena, its length. Lengths are odd, so
/// that staging memory is used.
fn frame(thread: u64, round: u64) -> (CheckpointId, u64, usize) {
    let id = CheckpointId(thread * 1000 + round);
    (id, (thread * ROUNDS + round) << 20, (round * 37_777 % 300_000 + 1) as usize)
}

fn assert_frame(fixture: &Fixture, thread: u64, round: u64) {
    let (id, _, len) = frame(thread, round);
    fixture.assert_holds(id.0, len);
}

fn put_frame(fixture: &Fixture, thread: u64, round: u64) {
    let (id, offset, len) = frame(thread, round);
    let bytes = Pattern(id.0).bytes(0, len);
    done(fixture.tier().put(id, offset, &[&bytes[..len / 3], &bytes[len / 3..]]));
}

/// Stores and removes frames; the thread keeps three at a time.
fn work(fixture: &Fixture, thread: u64) {
    for round in 0..ROUNDS {
        put_frame(fixture, thread, round);
        if round >= 2 {
            assert_frame(fixture, thread, round - 2);
            done(fixture.tier().delete(frame(thread, round - 2).0));
        }
    }
}

/// Checks the frames that `work` has left.
fn assert_last_frames(fixture: &Fixture) {
    for thread in 0..THREADS {
        (ROUNDS - 2..ROUNDS).for_each(|round| assert_frame(fixture, thread, round));
    }
    assert_eq!(fixture.list().len() as u64, 2 * THREADS);
}

pub(super) fn threads_put_get_and_delete_at_once(fixture: &Fixture) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(fixture, thread));
        }
    });
    assert_last_frames(fixture);
}

pub(super) fn one_frame_is_read_by_many_at_once(fixture: &Fixture) {
    let len = 700_001;
    done(fixture.put_pattern(1, len));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..8 {
                    let skip = (thread * 8 + round) * 4099;
                    let expected = Pattern(1).bytes(skip, len - skip as usize);
                    fixture.assert_bytes(1, skip, &expected);
                }
            });
        }
    });
}

pub(super) fn a_list_holds_whole_frames_only(fixture: &Fixture) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..2).map(|thread| scope.spawn(move || work(fixture, thread))).collect();
        let watcher = scope.spawn(|| {
            let mut lists = 0;
            while !ended.load(Ordering::Relaxed) || lists == 0 {
                assert_listed_lengths(&fixture.list());
                lists += 1;
            }
        });
        let failed = workers.into_iter().filter_map(|worker| worker.join().err()).count();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "a worker panicked");
        assert!(watcher.join().is_ok());
    });
}

fn assert_listed_lengths(list: &[(u64, u64)]) {
    for &(id, bytes) in list {
        assert_eq!(bytes, frame(id / 1000, id % 1000).2 as u64, "frame {id}");
    }
    assert!(list.is_sorted());
}

pub(super) fn syncs_run_beside_everything_else(fixture: &Fixture) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(fixture, thread));
        }
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| done(fixture.tier().sync())));
        }
    });
    assert_last_frames(fixture);
}
