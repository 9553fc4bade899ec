//! Checkpoints of an earlier run, which a core takes in before anything is saved.

mod support;

use support::{Bench, with_two_stores};
use unspool_core::{CheckpointId, Command, Event, TierId, Version};

/// Reports that a store holds a checkpoint.
fn recover(bench: &mut Bench, id: u64, version: i64, bytes: u64, tier: u8) {
    let (checkpoint, tier) = (CheckpointId(id), TierId(tier));
    bench.bytes.entry((checkpoint, tier)).or_insert(id);
    bench.step(Event::Recover { checkpoint, version: Version(version), bytes, tier });
}

fn copies(bench: &Bench) -> [u64; 3] {
    let stats = bench.core.stats();
    [0, 1, 2].map(|tier: usize| stats.tiers[tier].copies)
}

#[test]
fn what_the_slowest_store_holds_is_flushed_and_the_rest_is_on_its_way() {
    let mut bench = Bench::new(with_two_stores([16, 90, 90]));
    recover(&mut bench, 0, 7, 8, 2);
    assert!(bench.core.is_flushed(Version(7)) && bench.moving.is_empty());
    recover(&mut bench, 4, 8, 5, 1);
    assert!(!bench.core.is_flushed(Version(8)));
    assert_eq!((bench.core.unflushed(), bench.moving.len()), ((1, 5), 1));
    assert_eq!(bench.core.checkpoint(Version(8)), Some(CheckpointId(4)));
    bench.finish_all();
    assert!(bench.core.is_flushed(Version(8)));
    assert_eq!((copies(&bench), bench.core.unflushed()), ([0, 1, 2], (0, 0)));
    assert!(bench.restore(7).is_ok() && bench.restore(8).is_ok());
    let answer = bench.save(9, 8);
    assert!(matches!(answer, Command::Grant { checkpoint: CheckpointId(5), .. }), "{answer:?}");
}

#[test]
fn reports_that_contradict_what_is_known_are_ignored() {
    let mut bench = Bench::new(with_two_stores([16, 90, 90]));
    recover(&mut bench, 2, 7, 8, 2);
    // In an arena, in a tier that is not there, twice in a tier, with other bytes, below an id.
    for (id, version, bytes, tier) in
        [(3, 8, 8, 0), (3, 8, 8, 9), (2, 7, 8, 2), (2, 7, 9, 1), (1, 8, 8, 2), (2, 8, 8, 2)]
    {
        recover(&mut bench, id, version, bytes, tier);
        assert_eq!((bench.core.versions(), copies(&bench)), (vec![Version(7)], [0, 0, 1]));
        assert_eq!(bench.core.stats().tiers[2].used, 9);
    }
}

#[test]
fn a_newer_checkpoint_of_a_version_takes_the_place_of_the_older_one() {
    let mut bench = Bench::new(with_two_stores([16, 90, 90]));
    recover(&mut bench, 2, 7, 8, 2);
    recover(&mut bench, 5, 7, 6, 2);
    assert_eq!(bench.core.checkpoint(Version(7)), Some(CheckpointId(5)));
    assert_eq!(bench.deleting, [(CheckpointId(2), TierId(2))]);
    assert_eq!(bench.restore(7), Ok(TierId(2)));
}
