//! What is kept of arenas, for whom, and for how long, with a stand-in for the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::chunks::Chunks;
use crate::error::CudaError;
use crate::host::mapping::Mapping;
use crate::host::prepare::Registrar;
use crate::pace::Pace;
use crate::turn::Turns;

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

/// A registrar that counts the ranges that are registered.
#[derive(Clone, Default)]
struct Registered(Arc<AtomicU64>);

impl Registrar for Registered {
    unsafe fn register(&self, _: *mut u8, _: u64) -> Result<(), CudaError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn unregister(&self, _: *mut u8) -> Result<(), CudaError> {
        self.0.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The memory of an arena that has ended, in chunks of 2 MiB.
fn used(mib: u64, registered: &Registered) -> Prepared {
    let len = mib * MIB;
    let mapping = Mapping::new(len, true).unwrap();
    let chunks = Chunks::new(len, 2 * MIB, 2 * MIB);
    let mut memory = Prepared::new(mapping, chunks, Box::new(registered.clone()));
    memory.begin(len, Turns::none(), Pace::Unpaced);
    let arena = Arc::new(memory);
    let thread = arena.start(1).unwrap();
    let progress = &arena.progress;
    progress.wait_until("registered", || progress.registered(), len, LONG).unwrap();
    thread.join();
    Arc::into_inner(arena).unwrap()
}

#[test]
fn memory_is_kept_for_an_arena_of_the_same_device_that_it_is_large_enough_for() {
    let registered = Registered::default();
    keep(1001, used(4, &registered));
    keep(1001, used(8, &registered));
    keep(1002, used(16, &registered));
    assert!(take(1003, MIB, |_| true).is_none());
    assert!(take(1001, 9 * MIB, |_| true).is_none());
    assert!(take(1001, 4 * MIB, |_| false).is_none());
    let mib = |found: Option<Prepared>| found.map_or(0, |memory| memory.mapping.len() / MIB);
    assert_eq!(mib(take(1001, 3 * MIB, |_| true)), 8, "the one that is prepared furthest");
    assert_eq!(mib(take(1001, 3 * MIB, |_| true)), 4);
    assert_eq!(registered.0.load(Ordering::Relaxed), 8, "those of the other device");
    assert_eq!(mib(take(1002, 16 * MIB, |_| true)), 16);
}

#[test]
fn memory_of_which_nothing_is_prepared_is_not_kept() {
    let mapping = Mapping::new(8 * MIB, true).unwrap();
    let chunks = Chunks::new(8 * MIB, 2 * MIB, 2 * MIB);
    keep(1004, Prepared::new(mapping, chunks, Box::new(Registered::default())));
    assert!(take(1004, MIB, |_| true).is_none());
}

#[test]
fn what_is_more_than_is_free_besides_goes_the_oldest_first() {
    let registered = Registered::default();
    let kept = |mib: u64| Kept { device: 0, since: Instant::now(), memory: used(mib, &registered) };
    let mut all = vec![kept(8), kept(2), kept(4)];
    assert!(beyond(&mut all, 14 * MIB).is_empty());
    let gone = beyond(&mut all, 13 * MIB);
    assert_eq!(bytes(&gone), 8 * MIB);
    assert_eq!(bytes(&beyond(&mut all, 3 * MIB)), 2 * MIB, "its bytes are free then");
    assert_eq!(bytes(&all), 4 * MIB);
    drop((gone, all));
    assert_eq!(registered.0.load(Ordering::Relaxed), 0);
}

proptest! {
    #[test]
    fn a_mapping_is_at_most_an_eighth_larger(capacity: u64) {
        let len = size_of_mapping(capacity);
        prop_assert!(len >= capacity && len - capacity <= capacity / 8);
    }
}
