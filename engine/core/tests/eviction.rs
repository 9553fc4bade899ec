//! Which copy an arena gives up, against a plain list.

mod support;

use proptest::prelude::*;
use support::{Bench, config, with_two_stores};
use unspool_core::{Command, Config, Event, PolicyKind, Version};

/// The copies in an arena with room for so many, the one that goes next first.
struct List {
    rooms: usize,
    copies: Vec<i64>,
    /// A copy that is used goes last.
    by_use: bool,
}

impl List {
    fn save(&mut self, version: i64) {
        if self.copies.len() == self.rooms {
            self.copies.remove(0);
        }
        self.copies.push(version);
    }

    fn restore(&mut self, version: i64) {
        if let Some(at) = self.copies.iter().position(|v| *v == version).filter(|_| self.by_use) {
            self.copies.remove(at);
            self.copies.push(version);
        }
    }
}

proptest! {
    #[test]
    fn without_hints_the_copy_goes_that_came_or_was_used_longest_ago(
        policy in prop::sample::select(
            &[PolicyKind::Score, PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Belady][..]
        ),
        rooms in 1_usize..6,
        steps in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 1..60),
    ) {
        let mut bench = Bench::new(Config { policy, ..config(8, rooms as u64, 0, 100) });
        let mut list =
            List { rooms, copies: Vec::new(), by_use: policy != PolicyKind::Fifo };
        let mut saved = 0;
        for step in steps {
            if let Some(index) = step.filter(|_| saved > 0) {
                let version = index.index(saved) as i64;
                prop_assert!(bench.restore(version).is_ok());
                list.restore(version);
            } else {
                bench.save_all([saved as i64], 8);
                list.save(saved as i64);
                saved += 1;
            }
            bench.finish_all();
            let mut expected = list.copies.clone();
            expected.sort_unstable();
            let on_device = |v: &i64| bench.core.copies(Version(*v))[0].is_some();
            prop_assert!((0..saved as i64).filter(on_device).eq(expected), "{policy:?}");
        }
    }
}

#[test]
fn the_room_of_a_copy_is_used_again_before_host_memory_grows() {
    let places = |settings: Config| {
        let mut bench = Bench::new(settings);
        [0, 1].map(|version| {
            let answer = bench.save(version, 8);
            bench.step(Event::Discard { version: Version(version) });
            let Command::Grant { place, .. } = answer else { panic!("{answer:?}") };
            place.offset
        })
    };
    assert_eq!(places(config(8, 0, 3, 0)), [0, 0]);
    assert_ne!(places(config(8, 3, 0, 0)), [0, 0], "all of a device is there");
}

#[test]
fn a_save_takes_the_room_of_what_is_in_a_slower_store_too_when_all_tiers_are_full() {
    let mut bench = Bench::new(with_two_stores([8, 34, 17]));
    bench.save_all([0], 16);
    bench.finish_all();
    bench.save_all([1, 2], 16);
    let on_disk = |v: i64| bench.core.copies(Version(v))[1].is_some();
    assert_eq!([0, 1, 2].map(on_disk), [false, true, true]);
    assert!((0..3).all(|v| bench.restore(v).is_ok()));
}

#[test]
fn a_save_waits_for_a_deletion_that_makes_room_rather_than_go_to_a_slower_store() {
    let mut bench = Bench::new(with_two_stores([8, 20, 100]));
    bench.save_all([0], 16);
    bench.finish_all();
    bench.step(Event::Discard { version: Version(0) });
    assert!(!bench.deleting.is_empty());
    bench.save_all([1], 16);
    assert!(bench.core.copies(Version(1))[1].is_some(), "it is on the disk");
}
