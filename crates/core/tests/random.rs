//! Random sequences of operations against a model that never evicts: a map from versions to ids.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::{Bench, config};
use unspool_core::{Command, Config, Event, Failure, PolicyKind, Refusal, TierId, Version};

#[derive(Clone, Debug)]
enum Op {
    Save(i64, u64),
    Restore(i64),
    Expect(Vec<i64>),
    ExpectLast(i64),
    Prefer(i64, u8),
    Discard(i64),
    Forget,
    Hold(bool),
    Flush,
    Finish(u8),
    Fail(Failure),
    Wait,
}

fn any_failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        4 => Just(Failure::Io),
        2 => Just(Failure::NoSpace),
        1 => Just(Failure::Permanent),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let version = 0i64..24;
    prop_oneof![
        8 => (version.clone(), 0u64..14).prop_map(|(v, b)| Op::Save(v, b)),
        8 => version.clone().prop_map(Op::Restore),
        3 => prop::collection::vec(version.clone(), 0..12).prop_map(Op::Expect),
        1 => version.clone().prop_map(Op::ExpectLast),
        1 => (version.clone(), 0u8..4).prop_map(|(v, t)| Op::Prefer(v, t)),
        2 => version.prop_map(Op::Discard),
        1 => Just(Op::Forget),
        1 => any::<bool>().prop_map(Op::Hold),
        1 => Just(Op::Flush),
        8 => (0u8..5).prop_map(Op::Finish),
        1 => any_failure().prop_map(Op::Fail),
        2 => Just(Op::Wait),
    ]
}

const POLICIES: [PolicyKind; 4] =
    [PolicyKind::Score, PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Belady];

fn any_config() -> impl Strategy<Value = Config> {
    (0u64..6, 0u64..9, 0u64..40, any::<bool>(), prop::sample::select(&POLICIES[..]))
        .prop_filter("a tier", |(device, host, disk, ..)| device + host + disk > 0)
        .prop_map(|(device, host, disk, discard, policy)| Config {
            discard_after_restore: discard,
            policy,
            ..config(7, device, host, disk)
        })
}

struct Model {
    bench: Bench,
    saved: BTreeMap<i64, u64>,
}

impl Model {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Save(version, bytes) => self.save(version, bytes),
            Op::Restore(version) => self.restore(version),
            Op::Expect(versions) => self.bench.expect(versions),
            Op::ExpectLast(version) => self.bench.expect_last(version),
            Op::Prefer(version, tier) => {
                let (version, tier) = (Version(version), TierId(tier));
                self.bench.step(Event::Prefer { version, tier });
            }
            Op::Discard(version) => {
                self.saved.remove(&version);
                self.bench.step(Event::Discard { version: Version(version) });
            }
            Op::Forget => self.bench.step(Event::ForgetHints),
            Op::Hold(true) => self.bench.step(Event::HoldPrefetch),
            Op::Hold(false) => self.bench.step(Event::StartPrefetch),
            Op::Flush => self.flush(),
            Op::Finish(n) => {
                let _ = (0..n).all(|_| self.bench.finish_one());
            }
            Op::Fail(failure) => {
                self.bench.fail_one(failure);
            }
            Op::Wait => self.bench.finish_all(),
        }
    }

    fn save(&mut self, version: i64, bytes: u64) {
        let answer = self.bench.save(version, bytes);
        match answer {
            Command::Grant { .. } => {
                let previous = self.saved.insert(version, bytes);
                assert_eq!(previous, None, "a version was saved twice");
            }
            Command::Refuse { refusal: Refusal::Duplicate, .. } => {
                assert!(self.saved.contains_key(&version), "{version} is not there");
            }
            Command::Refuse { refusal: Refusal::TooLarge { largest }, .. } => {
                assert!(bytes + 1 > largest, "{bytes} bytes fit into {largest}");
            }
            Command::Refuse { refusal: Refusal::Full { .. }, .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn restore(&mut self, version: i64) {
        let answer = self.bench.restore(version);
        if !self.saved.contains_key(&version) {
            let refusal = match answer {
                Err(Command::Refuse { refusal, .. }) => refusal,
                other => panic!("{other:?}"),
            };
            assert!(matches!(refusal, Refusal::Unknown | Refusal::Discarded));
            return;
        }
        assert!(answer.is_ok(), "{version}: {answer:?}");
        if !self.bench.core.contains(Version(version)) {
            assert!(self.bench.core.config().discard_after_restore);
            assert_eq!(self.bench.core.prefetch_distance(Version(version)), None);
            self.saved.remove(&version);
        }
    }

    fn flush(&mut self) {
        let request = self.bench.request();
        self.bench.step(Event::Flush { request });
        let done = self.bench.answer(request) == Command::FlushDone { request };
        if done {
            let core = &self.bench.core;
            assert!(core.versions().into_iter().all(|v| core.is_flushed(v)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn nothing_is_lost_whatever_the_order_of_operations(
        config in any_config(),
        ops in prop::collection::vec(any_op(), 1..120),
    ) {
        let mut model = Model { bench: Bench::new(config), saved: BTreeMap::new() };
        for op in ops {
            model.apply(op);
            let versions = model.bench.core.versions();
            prop_assert!(versions.iter().map(|v| v.0).eq(model.saved.keys().copied()));
        }
        model.bench.finish_all();
        prop_assert_eq!(model.bench.core.waiting(), 0);
        for version in model.saved.keys().copied().collect::<Vec<_>>() {
            prop_assert!(model.bench.restore(version).is_ok(), "version {}", version);
        }
    }
}
