//! Several threads at one spool.

mod common;

use std::sync::atomic::{AtomicI64, Ordering};

use common::{PATIENCE, bench, content, region, restore, save, wait};
use unspool::ErrorKind;

const LEN: usize = 10_000;
const DEVICE: u64 = 6 * 12_288;
const HOST: u64 = 12 * 12_288;

#[test]
fn threads_save_restore_and_discard_versions_of_their_own() {
    let bench = bench(Some(DEVICE), Some(HOST), true, |_| {});
    let spool = &bench.spool;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let version = |i: i64| i * 8 + thread;
                for i in 0..60 {
                    save(spool, version(i), LEN + thread as usize).unwrap();
                    if i % 3 == 2 {
                        spool.discard(version(i - 1)).unwrap();
                    }
                }
                spool.expect((0..60).rev().map(version)).unwrap();
                for i in (0..60).rev().filter(|i| i % 3 != 1) {
                    restore(spool, version(i), LEN + thread as usize).unwrap();
                }
            });
        }
    });
    let stats = spool.stats().unwrap();
    assert_eq!((stats.application.saves, stats.application.restores), (480, 320));
    assert_eq!(spool.versions().unwrap().len(), 320);
}

#[test]
fn readers_follow_a_writer() {
    let bench = bench(Some(DEVICE), Some(HOST), true, |_| {});
    let (spool, saved) = (&bench.spool, &AtomicI64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for version in 0..200 {
                save(spool, version, LEN).unwrap();
                saved.store(version + 1, Ordering::Release);
            }
        });
        for thread in 0..3 {
            scope.spawn(move || {
                let mut read = 0;
                while read < 300 {
                    let newest = saved.load(Ordering::Acquire);
                    if newest > 0 {
                        let version = (read * 31 + thread) % newest;
                        restore(spool, version, LEN).unwrap();
                        read += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(spool.stats().unwrap().application.restores, 900);
}

#[test]
fn many_threads_may_restore_the_same_version_at_once() {
    let bench = bench(None, Some(HOST), true, |_| {});
    let spool = &bench.spool;
    (0..40).for_each(|version| save(spool, version, LEN).unwrap());
    spool.expect_uses(common::once(0..40)).unwrap();
    for version in 0..40 {
        let served = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(move || match spool.restore(version, &wait()) {
                        Ok(ticket) => {
                            assert_eq!(region(&ticket, 0), content(version, LEN));
                            ticket.finish().unwrap();
                            1
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Discarded);
                            0
                        }
                    })
                })
                .collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum::<i32>()
        });
        assert!(served >= 1);
        assert!(!spool.contains(version).unwrap());
    }
}

#[test]
fn a_save_waits_for_the_room_that_another_thread_frees() {
    let bench = bench(Some(2 * 4096), None, false, |_| {});
    let spool = &bench.spool;
    save(spool, 0, 4096).unwrap();
    let ticket = spool.save(1, common::bytes_spec(4096), &wait()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| save(spool, 2, 4096));
        while spool.restore(2, &wait()).unwrap_err().kind() != ErrorKind::NotYetSaved {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished(), "an open save may still give its room back");
        drop(ticket);
        waiting.join().unwrap().unwrap();
    });
    restore(spool, 0, 4096).unwrap();
    restore(spool, 2, 4096).unwrap();
    let stall = spool.stats().unwrap().application.longest_stall.unwrap();
    assert_eq!((stall.call, stall.version), ("save", 2));
    assert!(stall.awaited.contains("room for version 2"), "{stall:?}");
    assert!(stall.time < PATIENCE);
}

#[test]
fn closing_during_saves_and_restores_ends_every_call() {
    for round in 0..10 {
        let bench = bench(Some(DEVICE), Some(HOST), true, |_| {});
        let spool = &bench.spool;
        (0..20).for_each(|version| save(spool, version, LEN).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for i in 0.. {
                        let (mine, old) = (1000 * (thread + 1) + i, i % 20);
                        let done = save(spool, mine, LEN).and_then(|()| restore(spool, old, LEN));
                        if let Err(error) = done {
                            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                            return;
                        }
                    }
                });
            }
            scope.spawn(move || {
                while spool.stats().unwrap().application.saves < 30 + round * 5 {
                    std::thread::yield_now();
                }
                spool.close().unwrap();
            });
        });
        assert!(spool.is_closed());
        assert_eq!(save(spool, 5000, LEN).unwrap_err().kind(), ErrorKind::Closed);
        assert!(spool.stats().unwrap().application.saves >= 30);
    }
}
