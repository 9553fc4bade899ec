//! Random sequences of operations against a model that never evicts: a map from versions to ids.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use support::{Bench, config};
use unspool_core::{
    Command, Config, CoreStats, DirectionStats, Event, Failure, LinkConfig, PolicyKind, Refusal,
    TierId, TransferKind, Version,
};

#[derive(Clone, Debug)]
enum Op {
    Save(i64, u64),
    Restore(i64),
    Expect(Vec<i64>),
    ExpectLast(i64),
    ExpectOnce(i64),
    Prefer(i64, u8),
    Discard(i64),
    Forget,
    Hold(bool),
    Flush,
    Finish(u8),
    FinishLate,
    Fail(Failure),
    Wait,
    Shrink(u8, u64),
    Grow(u8, u64),
    Lose(u8),
}

fn any_failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        4 => Just(Failure::Io),
        2 => Just(Failure::NoSpace),
        1 => Just(Failure::Permanent),
    ]
}

/// An operation of an application, or rarely something that happens to its machine.
fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        90 => usual_op(),
        1 => (0u8..3, 0u64..50).prop_map(|(tier, capacity)| Op::Shrink(tier, capacity)),
        1 => (0u8..3, 0u64..50).prop_map(|(tier, capacity)| Op::Grow(tier, capacity)),
        1 => prop::sample::select(vec![0u8, 0, 1, 2, 9]).prop_map(Op::Lose),
    ]
}

fn usual_op() -> impl Strategy<Value = Op> {
    let version = 0i64..24;
    prop_oneof![
        8 => (version.clone(), 0u64..14).prop_map(|(v, b)| Op::Save(v, b)),
        8 => version.clone().prop_map(Op::Restore),
        3 => prop::collection::vec(version.clone(), 0..12).prop_map(Op::Expect),
        1 => prop::collection::vec(0i64..4, 0..12).prop_map(Op::Expect),
        1 => version.clone().prop_map(Op::ExpectLast),
        1 => version.clone().prop_map(Op::ExpectOnce),
        1 => (version.clone(), 0u8..4).prop_map(|(v, t)| Op::Prefer(v, t)),
        2 => version.prop_map(Op::Discard),
        1 => Just(Op::Forget),
        1 => any::<bool>().prop_map(Op::Hold),
        1 => Just(Op::Flush),
        8 => (0u8..5).prop_map(Op::Finish),
        1 => Just(Op::FinishLate),
        1 => any_failure().prop_map(Op::Fail),
        2 => Just(Op::Wait),
    ]
}

const POLICIES: [PolicyKind; 4] =
    [PolicyKind::Score, PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Belady];

fn any_config() -> impl Strategy<Value = Config> {
    let link = (1_u32..4, prop_oneof![Just(u64::MAX), 0_u64..30]);
    (0u64..6, 0u64..9, 0u64..40, any::<bool>(), prop::sample::select(&POLICIES[..]), link)
        .prop_filter("a tier", |(device, host, disk, ..)| device + host + disk > 0)
        .prop_map(|(device, host, disk, discard, policy, link)| {
            let (max_in_flight, max_in_flight_bytes) = link;
            let mut config = config(7, device, host, disk);
            (config.discard_after_restore, config.policy) = (discard, policy);
            for link in &mut config.links {
                *link = LinkConfig { max_in_flight, max_in_flight_bytes, ..*link };
            }
            config
        })
}

struct Model {
    bench: Bench,
    saved: BTreeMap<i64, u64>,
    /// What was ever announced to be read once.
    once: BTreeSet<i64>,
    figures: CoreStats,
}

impl Model {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Save(version, bytes) => self.save(version, bytes),
            Op::Restore(version) => self.restore(version),
            Op::Expect(versions) => self.bench.expect(versions),
            Op::ExpectLast(version) => self.bench.expect_last(version),
            Op::ExpectOnce(version) => {
                self.once.insert(version);
                self.bench.expect_once(version);
            }
            Op::Prefer(version, tier) => {
                let (version, tier) = (Version(version), TierId(tier));
                self.bench.step(Event::Prefer { version, tier });
            }
            Op::Discard(version) => {
                self.figures.discards += u64::from(self.saved.remove(&version).is_some());
                self.bench.step(Event::Discard { version: Version(version) });
            }
            Op::Forget => self.bench.step(Event::ForgetHints),
            Op::Hold(true) => self.bench.step(Event::HoldPrefetch),
            Op::Hold(false) => self.bench.step(Event::StartPrefetch),
            Op::Flush => self.flush(),
            Op::Finish(n) => {
                let _ = (0..n).all(|_| self.bench.finish_one());
            }
            Op::FinishLate => {
                self.bench.finish_one_late();
            }
            Op::Fail(failure) => {
                self.bench.fail_one(failure);
            }
            Op::Wait => self.bench.finish_all(),
            Op::Lose(tier) => self.bench.lose(TierId(tier)),
            Op::Shrink(tier, capacity) => self.bench.shrink(TierId(tier), capacity),
            Op::Grow(tier, capacity) => self.bench.grow(TierId(tier), capacity),
        }
    }

    fn save(&mut self, version: i64, bytes: u64) {
        let answer = self.bench.save(version, bytes);
        match answer {
            Command::Grant { .. } => {
                let previous = self.saved.insert(version, bytes);
                assert_eq!(previous, None, "a version was saved twice");
                self.figures.saves += 1;
                self.figures.saved_bytes += bytes;
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
        self.figures.restores += 1;
        self.figures.restored_bytes += self.saved[&version];
        if !self.bench.core.contains(Version(version)) {
            let once = self.once.contains(&version);
            assert!(once || self.bench.core.config().discard_after_restore);
            self.saved.remove(&version);
            self.figures.discards += 1;
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

/// Compares the counters with the commands that were given and the events that followed.
fn compare_figures(Model { bench, figures, .. }: &Model) -> Result<(), TestCaseError> {
    let stats = bench.core.stats();
    let of_calls = |stats: &CoreStats| {
        let CoreStats { saves, saved_bytes, restores, restored_bytes, discards, .. } = *stats;
        [saves, saved_bytes, restores, restored_bytes, discards]
    };
    prop_assert_eq!(of_calls(&stats), of_calls(figures));
    let served = |tier: u8| {
        let from = |c: &&Command| matches!(c, Command::Serve { place, .. } if place.tier.0 == tier);
        bench.log.iter().filter(from).count() as u64
    };
    prop_assert_eq!(stats.hints, bench.core.hints() as u64);
    for ((at, tier), made) in (0..).zip(&stats.tiers).zip(&bench.core.config().tiers) {
        prop_assert_eq!(tier.hits, served(at));
        prop_assert!(tier.used <= tier.capacity);
        prop_assert!(tier.used <= tier.peak && tier.peak <= made.capacity);
    }
    prop_assert_eq!(bench.core.transfers_in_flight(), bench.moving.len());
    for (at, link) in (0..).zip(&stats.links) {
        compare_link(bench, at, TransferKind::Flush, &link.flush)?;
        compare_link(bench, at, TransferKind::Prefetch, &link.prefetch)?;
    }
    Ok(())
}

fn compare_link(
    bench: &Bench,
    at: u8,
    kind: TransferKind,
    counted: &DirectionStats,
) -> Result<(), TestCaseError> {
    let ended = bench.ended.get(&(at, kind)).copied().unwrap_or_default();
    let DirectionStats { transfers, bytes, cancelled, failed, rate, .. } = *counted;
    prop_assert!(rate.is_finite() && rate >= 1.0, "{rate} bytes per second");
    prop_assert_eq!(support::Ended { transfers, bytes, cancelled, failed }, ended);
    let here = |m: &&support::Moving| m.kind == kind && m.from.tier.0.min(m.to.tier.0) == at;
    let moving: Vec<u64> = bench.moving.iter().filter(here).map(|m| m.bytes).collect();
    prop_assert_eq!(counted.in_flight as usize, moving.len());
    let link = &bench.core.config().links[usize::from(at)];
    prop_assert!(moving.len() <= link.max_in_flight as usize);
    prop_assert!(moving.len() <= 1 || moving.iter().sum::<u64>() <= link.max_in_flight_bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn nothing_is_lost_whatever_the_order_of_operations(
        config in any_config(),
        ops in prop::collection::vec(any_op(), 1..120),
    ) {
        let (bench, figures) = (Bench::new(config), CoreStats::default());
        let mut model = Model { bench, saved: BTreeMap::new(), once: BTreeSet::new(), figures };
        for op in ops {
            model.apply(op);
            let versions = model.bench.core.versions();
            prop_assert!(versions.iter().map(|v| v.0).eq(model.saved.keys().copied()));
            compare_figures(&model)?;
        }
        model.bench.finish_all();
        prop_assert_eq!(model.bench.core.waiting(), 0);
        for version in model.saved.keys().copied().collect::<Vec<_>>() {
            prop_assert!(model.bench.restore(version).is_ok(), "version {}", version);
        }
    }
}
