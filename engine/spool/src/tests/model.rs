//! Random operations on a spool and on a map that never forgets: the same bytes come back.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use unspool_core::{Failure, PolicyKind};
use unspool_testkit::{Fault, Operation, first_difference};

use super::common::{bytes_spec, content, wait};
use super::{Plan, Rig, assert_consistent};
use crate::{Codecs, DiskSettings, Error, ErrorKind, Outer, Settings, Spec, Spool, Then, Use};

const SIZES: [usize; 8] = [0, 1, 100, 4096, 4097, 9000, 20_000, 70_000];
const VERSIONS: i64 = 20;

#[derive(Clone, Debug)]
enum Op {
    Save(i64, usize),
    /// A save that is given up, and a restore that is.
    Abort(i64, usize),
    GiveUp(i64),
    Restore(i64),
    Discard(i64),
    /// What is restored next, and what becomes of it then.
    Expect(Vec<i64>, Then),
    /// The order of an adjoint: everything, newest first.
    ExpectAll,
    ForgetHints,
    HoldPrefetch,
    StartPrefetch,
    Flush,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let version = 0..VERSIONS;
    let len = prop::sample::select(&SIZES[..]);
    let then = prop::sample::select(vec![Then::Stays, Then::Goes]);
    prop_oneof![
        12 => (version.clone(), len.clone()).prop_map(|(v, n)| Op::Save(v, n)),
        1 => (version.clone(), len).prop_map(|(v, n)| Op::Abort(v, n)),
        8 => version.clone().prop_map(Op::Restore),
        1 => version.clone().prop_map(Op::GiveUp),
        3 => version.clone().prop_map(Op::Discard),
        2 => (prop::collection::vec(version, 0..8), then)
            .prop_map(|(order, then)| Op::Expect(order, then)),
        1 => Just(Op::ExpectAll),
        1 => prop::sample::select(vec![
            Op::ForgetHints, Op::HoldPrefetch, Op::StartPrefetch, Op::Flush, Op::Reopen,
        ]),
    ]
}

/// Arenas of a few checkpoints; the disk may be limited, and durable.
fn settings() -> impl Strategy<Value = Settings> {
    let arena = || prop::option::weighted(0.8, (1..40u64).prop_map(|pages| pages * 4096));
    let policies = [PolicyKind::Score, PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Belady];
    let capacity = prop::option::weighted(0.3, (10..80u64).prop_map(|pages| pages * 4096));
    let policy = prop::sample::select(policies.to_vec());
    let codecs = [Spec::Raw, Spec::Lossless, Spec::Auto];
    let packed = prop::option::weighted(0.3, Just(Outer::Zstd(1)));
    let codecs = (prop::sample::select(codecs.to_vec()), packed);
    let rest = (any::<bool>(), 1..4u32, 1..3usize, codecs);
    (arena(), arena(), capacity, policy, rest).prop_map(|(device, host, capacity, policy, rest)| {
        let (durable, in_flight, workers, (codec, compress)) = rest;
        let disk = DiskSettings { capacity, durable, compress, ..DiskSettings::new("replaced") };
        Settings {
            device,
            host,
            disk: Some(disk),
            policy,
            codec: Codecs { default: codec, ..Codecs::default() },
            check_codec: true,
            in_flight,
            store_workers: workers,
            retry_delay: std::time::Duration::from_micros(100),
            timeout: super::common::PATIENCE,
            ..Settings::default()
        }
    })
}

/// Something that goes wrong at the nth call of an operation of the disk.
fn fault() -> impl Strategy<Value = (Operation, u64, Fault)> {
    let operation = prop::sample::select(vec![Operation::Put, Operation::Get, Operation::Delete]);
    operation.prop_flat_map(|operation| {
        let failures = match operation {
            Operation::Put => vec![Failure::Io, Failure::NoSpace, Failure::Permanent],
            _ => vec![Failure::Io, Failure::Permanent],
        };
        let failure = prop::sample::select(failures);
        let fault = failure.prop_flat_map(|failure| {
            prop_oneof![
                Just(Fault::Fail(failure)),
                Just(Fault::Short(failure)),
                (0..9000u64).prop_map(|at| Fault::FlipBit { at }),
            ]
        });
        (Just(operation), 1..40u64, fault)
    })
}

/// The spool under test next to the map.
struct World {
    rig: Rig,
    settings: Settings,
    /// Every saved version with its length.
    saved: BTreeMap<i64, usize>,
    /// The versions that were to go after a restore.
    passing: BTreeSet<i64>,
    faulty: bool,
}

impl World {
    fn new(settings: Settings, faults: &[(Operation, u64, Fault)]) -> World {
        let plan = Plan { settings: settings.clone(), ..Plan::default() };
        let rig = plan.build();
        for &(operation, nth, fault) in faults {
            rig.faults.on_nth(operation, nth, fault);
        }
        let faulty = !faults.is_empty();
        World { rig, settings, saved: BTreeMap::new(), passing: BTreeSet::new(), faulty }
    }

    fn spool(&self) -> &Spool {
        &self.rig.spool
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Save(version, len) => self.save(version, len),
            Op::Abort(version, len) => {
                if let Ok(mut ticket) = self.spool().save(version, bytes_spec(len), &wait()) {
                    ticket.host_region(0).unwrap().fill(0xEE);
                }
            }
            Op::GiveUp(version) => drop(self.rig.spool.restore(version, &wait())),
            Op::Restore(version) => self.restore(version),
            Op::Discard(version) => self.discard(version),
            Op::Expect(ref order, then) => {
                self.passing.extend(order.iter().filter(|_| then == Then::Goes));
                let uses = order.iter().map(|&version| Use { version, then });
                self.spool().expect_uses(uses).unwrap();
            }
            Op::ExpectAll => self.spool().expect(self.saved.keys().rev().copied()).unwrap(),
            Op::ForgetHints => self.spool().forget_hints().unwrap(),
            Op::HoldPrefetch => self.spool().hold_prefetch().unwrap(),
            Op::StartPrefetch => self.spool().start_prefetch().unwrap(),
            Op::Flush => drop(self.flush()),
            Op::Reopen => self.reopen(),
        }
    }

    fn save(&mut self, version: i64, len: usize) {
        match super::common::save(self.spool(), version, len) {
            Ok(()) => {
                let old = self.saved.insert(version, len);
                assert_eq!(old, None, "version {version} was saved twice");
            }
            Err(error) if error.kind() == ErrorKind::Duplicate => {
                assert!(self.saved.contains_key(&version), "{error}");
            }
            Err(error) => self.assert_no_room(&error),
        }
    }

    /// Only a disk that is limited or fails may refuse a save.
    fn assert_no_room(&self, error: &Error) {
        let limited = self.settings.disk.as_ref().is_some_and(|disk| disk.capacity.is_some());
        let kinds = [ErrorKind::Full, ErrorKind::TooLarge];
        let allowed = (limited && kinds.contains(&error.kind()))
            || (self.faulty && [ErrorKind::Full, ErrorKind::Io].contains(&error.kind()));
        assert!(allowed, "{:?}: {error}", error.kind());
    }

    fn restore(&mut self, version: i64) {
        let ticket = match self.rig.spool.restore(version, &wait()) {
            Ok(ticket) => ticket,
            Err(error) => return self.assert_unreadable(version, &error),
        };
        let len = self.saved.get(&version).copied();
        assert_eq!(
            ticket.host_region(0).unwrap().len(),
            len.expect("only what was saved is restored")
        );
        let expected = content(version, ticket.host_region(0).unwrap().len());
        assert_eq!(
            first_difference(ticket.host_region(0).unwrap(), &expected),
            None,
            "version {version}"
        );
        ticket.finish().unwrap();
        self.after_restore(version);
    }

    /// A restored version is gone only where that was announced.
    fn after_restore(&mut self, version: i64) {
        if !self.spool().contains(version).unwrap() {
            assert!(self.passing.contains(&version), "version {version} went without a reason");
            self.saved.remove(&version);
        }
    }

    fn assert_unreadable(&self, version: i64, error: &Error) {
        let missing = [ErrorKind::Unknown, ErrorKind::Discarded].contains(&error.kind());
        let failed = [ErrorKind::Io, ErrorKind::Corrupt, ErrorKind::Lost].contains(&error.kind());
        let expected =
            if self.saved.contains_key(&version) { self.faulty && failed } else { missing };
        assert!(expected, "{:?}: {error}", error.kind());
    }

    fn discard(&mut self, version: i64) {
        let done = self.spool().discard(version);
        assert_eq!(done.is_ok(), self.saved.remove(&version).is_some(), "{done:?}");
    }

    /// Whether everything could be flushed: a limited disk cannot always take it.
    fn flush(&self) -> bool {
        let flushed = self.spool().flush(&wait());
        flushed.map_err(|error| self.assert_no_room(&error)).is_ok()
    }

    /// Closes the spool and opens it again: a durable one keeps everything.
    fn reopen(&mut self) {
        let durable = self.settings.disk.as_ref().is_some_and(|disk| disk.durable);
        if !durable || self.faulty || !self.flush() {
            return;
        }
        self.spool().close().unwrap();
        let plan = || Plan { settings: self.settings.clone(), ..Plan::default() };
        let old = std::mem::replace(&mut self.rig, plan().build());
        let Rig { spool, dir, .. } = old;
        drop(spool);
        self.rig = plan().build_in(dir);
        self.passing.clear();
    }

    fn check(&self) {
        let versions: Vec<i64> = self.saved.keys().copied().collect();
        assert_eq!(self.spool().versions().unwrap(), versions);
        assert_consistent(self.spool());
    }

    /// In the end everything that is saved comes back.
    fn restore_all(&mut self) {
        let versions: Vec<i64> = self.saved.keys().rev().copied().collect();
        for version in versions {
            self.restore(version);
        }
        self.check();
    }
}

fn run(settings: Settings, ops: &[Op], faults: &[(Operation, u64, Fault)]) {
    let mut world = World::new(settings, faults);
    for op in ops {
        world.apply(op);
        world.check();
    }
    world.restore_all();
    world.rig.faults.heal();
    if world.flush() {
        world.rig.spool.close().unwrap();
    }
}

/// A few hundred cases, or as many as `PROPTEST_CASES` asks for.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(300), max_shrink_iters: 2000, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_operations_agree_with_a_map(
        settings in settings(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        run(settings, &ops, &[]);
    }

    #[test]
    fn random_faults_never_show_wrong_bytes(
        settings in settings(),
        ops in prop::collection::vec(op(), 1..80),
        faults in prop::collection::vec(fault(), 1..6),
    ) {
        run(settings, &ops, &faults);
    }
}
