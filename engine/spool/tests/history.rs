//! Histories that are larger than their tiers come back, whatever the stack and the order.

mod common;

use common::{Bench, Change, bench, bytes_spec, content, once, region, restore, save, wait};
use unspool::{Dtype, ErrorKind, PolicyKind, RegionSpec, Settings, Spool, TierKind};

const KIB: usize = 1024;
/// Every checkpoint of most tests.
const LEN: usize = 24 * KIB + 5;
/// Ten times the larger arena.
const COUNT: i64 = 80;
const DEVICE: u64 = 4 * 28 * 1024;
const HOST: u64 = 8 * 28 * 1024;

/// Every stack that can hold the history.
fn stacks(change: Change) -> Vec<(&'static str, Bench)> {
    let all = COUNT as u64 * 28 * 1024;
    vec![
        ("device", bench(Some(all), None, false, change)),
        ("host", bench(None, Some(all), false, change)),
        ("device, host", bench(Some(DEVICE), Some(all), false, change)),
        ("disk", bench(None, None, true, change)),
        ("device, disk", bench(Some(DEVICE), None, true, change)),
        ("host, disk", bench(None, Some(HOST), true, change)),
        ("device, host, disk", bench(Some(DEVICE), Some(HOST), true, change)),
    ]
}

fn save_all(spool: &Spool) {
    (0..COUNT).for_each(|version| save(spool, version, LEN).expect("room"));
}

fn restore_in(spool: &Spool, order: &[i64]) {
    order.iter().for_each(|version| restore(spool, *version, LEN).expect("saved"));
}

/// A fixed shuffle.
fn shuffled() -> Vec<i64> {
    let mut order: Vec<i64> = (0..COUNT).collect();
    order.sort_by_key(|version| (version * 37 + 11) % 83);
    order
}

#[test]
fn a_history_comes_back_in_reverse() {
    for (stack, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save_all(&spool);
        let order: Vec<i64> = (0..COUNT).rev().collect();
        spool.expect(order.iter().copied()).unwrap();
        restore_in(&spool, &order);
        let stats = spool.stats().unwrap();
        assert_eq!(stats.application.restores, COUNT as u64, "{stack}");
        assert_eq!(stats.application.hinted_restores, COUNT as u64, "{stack}");
        spool.close().unwrap();
    }
}

#[test]
fn a_history_comes_back_forward_and_shuffled_and_without_hints() {
    for (_, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save_all(&spool);
        let forward: Vec<i64> = (0..COUNT).collect();
        spool.expect(forward.iter().copied()).unwrap();
        restore_in(&spool, &forward);
        spool.expect(shuffled()).unwrap();
        restore_in(&spool, &shuffled());
        restore_in(&spool, &forward);
    }
}

#[test]
fn a_checkpoint_can_be_restored_again_and_again() {
    for (_, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save_all(&spool);
        let order: Vec<i64> = (0..COUNT).rev().flat_map(|v| [v, v, 0]).collect();
        spool.expect(order.iter().copied()).unwrap();
        restore_in(&spool, &order);
    }
}

#[test]
fn hints_may_come_before_the_saves() {
    for (_, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        let order: Vec<i64> = (0..COUNT).rev().collect();
        spool.hold_prefetch().unwrap();
        spool.expect(order.iter().copied()).unwrap();
        save_all(&spool);
        spool.start_prefetch().unwrap();
        restore_in(&spool, &order);
    }
}

#[test]
fn an_order_that_is_not_kept_costs_time_and_nothing_else() {
    for (_, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save_all(&spool);
        spool.expect((0..COUNT).rev()).unwrap();
        restore_in(&spool, &shuffled());
        spool.forget_hints().unwrap();
        assert_eq!(spool.stats().unwrap().application.hints, 0);
        restore_in(&spool, &shuffled());
    }
}

#[test]
fn every_policy_gives_the_same_bytes() {
    let policies: [Change; 4] = [
        |s| s.policy = PolicyKind::Score,
        |s| s.policy = PolicyKind::Lru,
        |s| s.policy = PolicyKind::Fifo,
        |s| s.policy = PolicyKind::Belady,
    ];
    for policy in policies {
        let Bench { spool, dir: _dir } = bench(Some(DEVICE), Some(HOST), true, policy);
        save_all(&spool);
        spool.expect((0..COUNT).rev()).unwrap();
        restore_in(&spool, &(0..COUNT).rev().collect::<Vec<_>>());
    }
}

#[test]
fn of_what_is_restored_once_nothing_is_left() {
    for (stack, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save_all(&spool);
        let order: Vec<i64> = (0..COUNT).rev().collect();
        spool.expect_uses(once(order.iter().copied())).unwrap();
        restore_in(&spool, &order);
        assert!(spool.versions().unwrap().is_empty(), "{stack}");
        let error = spool.restore(3, &wait()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Discarded);
        save(&spool, 3, LEN).unwrap();
        restore(&spool, 3, LEN).unwrap();
    }
}

#[test]
fn sizes_may_vary_from_nothing_to_larger_than_every_arena() {
    let sizes = [0, 1, 63, 64, 4096, 4097, 50_000, 100_000, 150_000, 300_000, 1_000_000];
    let stacks = [
        bench(Some(DEVICE), Some(HOST), true, |_| {}),
        bench(Some(HOST), Some(DEVICE), true, |_| {}),
        bench(None, Some(HOST), true, |_| {}),
    ];
    for Bench { spool, dir: _dir } in stacks {
        let history: Vec<(i64, usize)> =
            (0..66).map(|v| (v, sizes[v as usize * 7 % sizes.len()])).collect();
        history.iter().for_each(|&(version, len)| save(&spool, version, len).unwrap());
        spool.expect(history.iter().rev().map(|&(version, _)| version)).unwrap();
        history.iter().rev().for_each(|&(version, len)| restore(&spool, version, len).unwrap());
    }
}

#[test]
fn a_checkpoint_that_fits_nowhere_is_refused_with_the_sizes() {
    let Bench { spool, .. } = bench(Some(4096), Some(8192), false, |_| {});
    let error = spool.save(7, bytes_spec(8193), &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    for part in ["Version 7 has 8.00 KiB (8193 bytes)", "holds 8 KiB (8192 bytes)", "`disk`"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    save(&spool, 7, 8192).unwrap();
}

#[test]
fn a_full_stack_refuses_at_once_and_goes_on_after_a_discard() {
    let Bench { spool, .. } = bench(Some(4 * 4096), None, false, |_| {});
    (0..4).for_each(|version| save(&spool, version, 4096).unwrap());
    let error = spool.save(4, bytes_spec(4096), &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    for part in ["the device tier uses 16 KiB", "`device_memory`", "add a `disk`", "version 4"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    assert!(error.is_retryable());
    spool.discard(2).unwrap();
    save(&spool, 4, 4096).unwrap();
    [0, 1, 3, 4].iter().for_each(|&version| restore(&spool, version, 4096).unwrap());
}

#[test]
fn a_full_disk_refuses_and_goes_on_after_a_discard() {
    let change: Change = |s| {
        if let Some(disk) = &mut s.disk {
            disk.capacity = Some(10 * 8192);
        }
    };
    let Bench { spool, dir: _dir } = bench(Some(2 * 4096), None, true, change);
    let saved: Vec<i64> = (0..40).take_while(|&v| save(&spool, v, 4096).is_ok()).collect();
    assert!(saved.len() >= 10, "{saved:?}");
    let error = spool.save(100, bytes_spec(4096), &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    saved.iter().for_each(|&version| restore(&spool, version, 4096).unwrap());
    spool.discard(saved[0]).unwrap();
    spool.discard(saved[1]).unwrap();
    save(&spool, 100, 4096).unwrap();
    saved[2..].iter().for_each(|&version| restore(&spool, version, 4096).unwrap());
    restore(&spool, 100, 4096).unwrap();
}

#[test]
fn regions_keep_their_names_shapes_and_bytes() {
    let Bench { spool, dir: _dir } = bench(Some(DEVICE), None, true, |_| {});
    let spec = |name: &str, dtype, shape: &[u64]| RegionSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    };
    let specs = vec![
        spec("velocity", Dtype::Float32, &[3, 17, 5]),
        spec("mask", Dtype::Bool, &[7]),
        spec("step", Dtype::Int64, &[]),
        spec("nothing", Dtype::Complex128, &[4, 0]),
    ];
    for version in 0..COUNT * 4 {
        let mut ticket = spool.save(version, specs.clone(), &wait()).unwrap();
        for index in 0..specs.len() {
            let fill = |region: &mut [u8]| {
                region.copy_from_slice(&content(version + index as i64, region.len()));
            };
            ticket.fill(index, fill).unwrap();
        }
        ticket.commit().unwrap();
    }
    for version in (0..COUNT * 4).rev() {
        let head = spool.regions(version).unwrap();
        let names: Vec<&str> = head.regions.iter().map(|region| &*region.name).collect();
        assert_eq!(names, ["velocity", "mask", "step", "nothing"]);
        assert_eq!(head.regions[0].shape, [3, 17, 5]);
        let ticket = spool.restore(version, &wait()).unwrap();
        assert_eq!(**ticket.head(), *head);
        for (index, len) in [1020, 7, 8, 0].into_iter().enumerate() {
            assert_eq!(region(&ticket, index), content(version + index as i64, len));
        }
        ticket.finish().unwrap();
    }
}

#[test]
fn what_a_call_on_a_missing_version_says_tells_why_it_is_missing() {
    let Bench { spool, .. } = bench(Some(DEVICE), None, false, |_| {});
    save(&spool, 1, 10).unwrap();
    spool.discard(1).unwrap();
    let ticket = spool.save(2, bytes_spec(10), &wait()).unwrap();
    for (version, kind) in
        [(0, ErrorKind::Unknown), (1, ErrorKind::Discarded), (2, ErrorKind::NotYetSaved)]
    {
        assert_eq!(spool.restore(version, &wait()).unwrap_err().kind(), kind);
        assert_eq!(spool.regions(version).unwrap_err().kind(), kind);
        assert_eq!(spool.discard(version).unwrap_err().kind(), kind);
        assert_eq!(spool.durable(version).unwrap_err().kind(), kind);
        assert!(!spool.contains(version).unwrap());
    }
    let again = spool.save(2, bytes_spec(10), &wait()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotYetSaved);
    ticket.commit().unwrap();
    assert_eq!(save(&spool, 2, 10).unwrap_err().kind(), ErrorKind::Duplicate);
    assert_eq!(spool.versions().unwrap(), [2]);
}

#[test]
fn a_save_that_is_given_up_leaves_nothing() {
    for (stack, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        for round in 0..COUNT {
            let mut ticket = spool.save(0, bytes_spec(LEN), &wait()).unwrap();
            ticket.fill(0, |bytes| bytes.fill(round as u8)).unwrap();
            drop(ticket);
            assert!(!spool.contains(0).unwrap(), "{stack}");
        }
        save(&spool, 0, LEN).unwrap();
        restore(&spool, 0, LEN).unwrap();
        assert_eq!(spool.stats().unwrap().application.saves, 1);
    }
}

#[test]
fn a_restore_that_is_given_up_does_not_count() {
    for (stack, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save(&spool, 0, LEN).unwrap();
        spool.expect_uses(once(0..1)).unwrap();
        for _ in 0..3 {
            drop(spool.restore(0, &wait()).unwrap());
            assert!(spool.contains(0).unwrap(), "{stack}");
        }
        restore(&spool, 0, LEN).unwrap();
        assert!(!spool.contains(0).unwrap(), "{stack}");
    }
}

#[test]
fn a_restore_under_way_outlives_the_discard_of_its_checkpoint() {
    for (_, Bench { spool, dir: _dir }) in stacks(|_| {}) {
        save(&spool, 0, LEN).unwrap();
        let ticket = spool.restore(0, &wait()).unwrap();
        spool.discard(0).unwrap();
        (1..COUNT).for_each(|version| drop(save(&spool, version, LEN)));
        assert_eq!(region(&ticket, 0), content(0, LEN));
        ticket.finish().unwrap();
        assert!(!spool.contains(0).unwrap());
    }
}

#[test]
fn restores_are_counted_where_they_were_served() {
    let Bench { spool, dir: _dir } = bench(Some(DEVICE), None, true, |_| {});
    save_all(&spool);
    restore_in(&spool, &(0..COUNT).rev().collect::<Vec<_>>());
    let stats = spool.stats().unwrap();
    assert_eq!(stats.tiers.len(), 2);
    assert_eq!((stats.tiers[0].kind, stats.tiers[1].kind), (TierKind::Device, TierKind::Disk));
    let served: u64 = stats.tiers.iter().map(|tier| tier.restores).sum();
    assert_eq!(served, COUNT as u64);
    assert!(stats.tiers[0].restores >= 4, "the newest were still in the arena: {stats:?}");
    assert!(stats.tiers[1].restores > 0, "nothing was expected, so the disk was read directly");
    assert!(stats.application.restore_stall > std::time::Duration::ZERO);
    let longest = stats.application.longest_stall.expect("there were stalls");
    assert!(!longest.awaited.is_empty());
    assert_eq!(stats.links[0].flush.bytes, stats.links[0].flush.transfers * LEN as u64);
    assert!(stats.tiers[0].peak <= DEVICE && stats.tiers[0].peak >= 3 * LEN as u64);
}

#[test]
fn settings_that_make_no_sense_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let bad = [
        (Settings::default(), "at least one"),
        (Settings { device: Some(0), ..Settings::default() }, "`device_memory` is 0 bytes"),
        (Settings { host: Some(63), ..Settings::default() }, "`host_memory` is 63 bytes"),
        (Settings { host: Some(1 << 20), in_flight: 0, ..Settings::default() }, "`in_flight`"),
        (
            Settings { host: Some(1 << 20), store_workers: 0, ..Settings::default() },
            "`store_workers`",
        ),
    ];
    for (settings, part) in bad {
        let error = Spool::open(settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    let record = Some(dir.path().join("missing").join("record"));
    let settings = Settings { host: Some(1 << 20), record, ..Settings::default() };
    assert_eq!(Spool::open(settings).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_tier_that_cannot_be_made_is_an_error_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let disk = Some(unspool::DiskSettings::new(&file));
    let error = Spool::open(Settings { disk, ..Settings::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let too_much = Settings { device: Some(1 << 60), ..Settings::default() };
    let error = Spool::open(too_much).unwrap_err();
    assert!(error.to_string().contains("device"), "{error}");
}
