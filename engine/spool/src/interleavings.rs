//! The spool in many interleavings of its threads. A wake-up that is lost shows as a deadlock,
//! because under shuttle no wait times out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;
use unspool_core::{CheckpointId, Failure, TierKind};
use unspool_tiers::{AnyTier, Arena, Description, Stored, Tier, TierError};
use unspool_transfer::ManualClock;

use crate::runtime::shared::{Shared, SharedParts};
use crate::runtime::stack::Stack;
use crate::{Dtype, Error, ErrorKind, On, RegionSpec, Settings, Spool, Wait};

const LEN: u64 = 64;
const SCHEDULES: usize = 1000;

/// A store in memory. Its lock is held only between two points where shuttle may switch.
#[derive(Debug, Default)]
struct Store(Mutex<BTreeMap<CheckpointId, Vec<u8>>>);

fn missing(operation: &'static str) -> TierError {
    TierError::new(Failure::Missing, operation, "a store in memory", "there is no such frame")
}

impl Tier for Store {
    fn describe(&self) -> Description {
        Description {
            kind: TierKind::Disk,
            location: "memory".to_owned(),
            capacity: u64::MAX,
            used: 0,
            alignment: 1,
            durable: false,
            notes: Vec::new(),
        }
    }

    fn put(&self, id: CheckpointId, _offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        self.0.lock().unwrap().insert(id, parts.concat());
        Ok(())
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let frames = self.0.lock().unwrap();
        let mut rest = &frames.get(&id).ok_or_else(|| missing("get"))?[skip as usize..];
        for part in parts {
            let (head, tail) = rest.split_at(part.len());
            part.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        self.0.lock().unwrap().remove(&id).map(drop).ok_or_else(|| missing("delete"))
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        Ok(Vec::new())
    }

    fn sync(&self) -> Result<(), TierError> {
        Ok(())
    }
}

/// A spool with room for `checkpoints` in memory and a store below.
fn spool(checkpoints: u64) -> Arc<Spool> {
    let device = Some(checkpoints * LEN);
    let arena = Arena::new(TierKind::Device, checkpoints * LEN).unwrap();
    let tiers = vec![AnyTier::Arena(arena), AnyTier::Store(Arc::new(Store::default()))];
    let settings = Settings { device, on: On::Cpu, store_workers: 1, ..Settings::default() };
    let stack = Stack { tiers, disk: None, gpu: None, order: None };
    let clock = Arc::new(ManualClock::default());
    let parts = SharedParts { stack, clock, process: std::process::id() };
    Arc::new(Spool::on(Shared::start(settings, parts).unwrap()).unwrap())
}

fn save(spool: &Spool, version: i64) -> Result<(), Error> {
    let spec = RegionSpec { name: String::new(), dtype: Dtype::UInt8, shape: vec![LEN] };
    let mut ticket = spool.save(version, vec![spec], &Wait::default())?;
    ticket.host_region(0).unwrap().fill(version as u8);
    ticket.commit()
}

fn restore(spool: &Spool, version: i64) -> Result<(), Error> {
    let ticket = spool.restore(version, &Wait::default())?;
    assert_eq!(ticket.host_region(0).unwrap(), [version as u8; LEN as usize]);
    ticket.finish()
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

#[test]
fn savers_that_wait_for_flushes_are_woken() {
    check(|| {
        let spool = spool(1);
        let other = Arc::clone(&spool);
        let saver = thread::spawn(move || (10..13).for_each(|v| save(&other, v).unwrap()));
        (0..3).for_each(|version| save(&spool, version).unwrap());
        saver.join().unwrap();
        assert_eq!(spool.versions().unwrap(), [0, 1, 2, 10, 11, 12]);
        [0, 10, 2, 12].iter().for_each(|version| restore(&spool, *version).unwrap());
        spool.close().unwrap();
    });
}

#[test]
fn restores_that_wait_for_prefetches_are_woken() {
    check(|| {
        let spool = spool(2);
        (0..4).for_each(|version| save(&spool, version).unwrap());
        spool.expect([0, 1, 2, 3]).unwrap();
        let other = Arc::clone(&spool);
        let reader = thread::spawn(move || [1, 3].map(|v| restore(&other, v).unwrap()));
        [0, 2].iter().for_each(|version| restore(&spool, *version).unwrap());
        reader.join().unwrap();
        spool.close().unwrap();
    });
}

#[test]
fn a_close_ends_every_wait() {
    check(|| {
        let spool = spool(1);
        let other = Arc::clone(&spool);
        let saver = thread::spawn(move || {
            for version in 0.. {
                if let Err(error) = save(&other, version).and_then(|()| restore(&other, version)) {
                    return error.kind();
                }
                // Only so many, or some schedule would never let the other thread run.
                if version == 5 {
                    return ErrorKind::Closed;
                }
            }
            unreachable!("the loop ends by itself")
        });
        spool.flush(&Wait::default()).unwrap();
        spool.close().unwrap();
        assert_eq!(saver.join().unwrap(), ErrorKind::Closed);
    });
}

#[test]
fn a_discard_may_race_with_flush_prefetch_and_restore() {
    check(|| {
        let spool = spool(1);
        (0..3).for_each(|version| save(&spool, version).unwrap());
        spool.expect([1, 0, 2]).unwrap();
        let other = Arc::clone(&spool);
        let discarder = thread::spawn(move || [1, 2].map(|v| other.discard(v).unwrap()));
        match restore(&spool, 1) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Discarded),
        }
        restore(&spool, 0).unwrap();
        discarder.join().unwrap();
        assert_eq!(spool.versions().unwrap(), [0]);
        let state = spool.shared().state();
        state.driver.core().assert_invariants();
        assert_eq!((state.waiting(), state.frames.len()), (0, 1));
        drop(state);
        spool.close().unwrap();
    });
}

#[test]
fn a_ticket_that_is_dropped_wakes_those_who_wait_for_its_room() {
    check(|| {
        let spool = spool(1);
        let wait = Wait::at_most(Duration::from_secs(1));
        let spec = RegionSpec { name: String::new(), dtype: Dtype::UInt8, shape: vec![LEN] };
        let ticket = spool.save(0, vec![spec], &wait).unwrap();
        let other = Arc::clone(&spool);
        let saver = thread::spawn(move || save(&other, 1).unwrap());
        drop(ticket);
        saver.join().unwrap();
        restore(&spool, 1).unwrap();
        spool.close().unwrap();
    });
}
