//! A small executor around the core: transfers end when the test says so, and the id of a
//! checkpoint stands for its bytes.

#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap, VecDeque};

use unspool_core::{
    CheckpointId, Command, Config, Core, Event, Failure, LinkConfig, Nanos, Place, PolicyKind,
    RequestId, Size, TierConfig, TierId, TierKind, TransferId, TransferKind, Version,
};

/// A stack of arenas and a disk with room for `rooms` checkpoints of `unit` bytes each.
pub fn config(unit: u64, device: u64, host: u64, disk: u64) -> Config {
    let tier = |kind, capacity| TierConfig { kind, capacity, alignment: 1 };
    let link = LinkConfig {
        flush_rate: 1e9,
        prefetch_rate: 1e9,
        latency: Nanos(0),
        max_in_flight_bytes: u64::MAX,
        max_in_flight: 2,
    };
    let disk_bytes = disk * (unit + 1);
    let tiers = [
        tier(TierKind::Device, device * unit),
        tier(TierKind::Host, host * unit),
        tier(TierKind::Disk, disk_bytes),
    ];
    let tiers: Vec<_> = tiers.into_iter().filter(|t| t.capacity > 0).collect();
    Config {
        links: vec![link; tiers.len() - 1],
        tiers,
        discard_after_restore: false,
        durable: false,
        policy: PolicyKind::Score,
        max_retries: 2,
        retry_delay: Nanos(1000),
    }
}

/// Device, disk and remote with so many bytes.
pub fn with_two_stores(capacities: [u64; 3]) -> Config {
    let kinds = [TierKind::Device, TierKind::Disk, TierKind::Remote];
    let tier = |(kind, capacity)| TierConfig { kind, capacity, alignment: 1 };
    let settings = config(8, 1, 1, 1);
    Config { tiers: kinds.into_iter().zip(capacities).map(tier).collect(), ..settings }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moving {
    pub id: TransferId,
    pub checkpoint: CheckpointId,
    pub version: Version,
    pub bytes: u64,
    pub kind: TransferKind,
    pub from: Place,
    pub to: Place,
    pub cancelled: bool,
}

/// What became of the transfers of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ended {
    pub transfers: u64,
    pub bytes: u64,
    pub cancelled: u64,
    pub failed: u64,
}

/// The core, its transfers in flight and what the tiers hold.
pub struct Bench {
    pub core: Core,
    pub now: Nanos,
    pub moving: VecDeque<Moving>,
    pub ended: BTreeMap<(u8, TransferKind), Ended>,
    pub deleting: VecDeque<(CheckpointId, TierId)>,
    pub answers: HashMap<RequestId, Command>,
    /// Arenas whose device is lost.
    pub lost: Vec<TierId>,
    pub bytes: BTreeMap<(CheckpointId, TierId), u64>,
    /// Where the copies that are complete end.
    pub ends: BTreeMap<(CheckpointId, TierId), u64>,
    pub log: Vec<Command>,
    next: u64,
}

impl Bench {
    pub fn new(config: Config) -> Bench {
        Bench {
            core: Core::new(config).expect("a valid configuration"),
            now: Nanos(0),
            moving: VecDeque::new(),
            ended: BTreeMap::new(),
            deleting: VecDeque::new(),
            answers: HashMap::new(),
            lost: Vec::new(),
            bytes: BTreeMap::new(),
            ends: BTreeMap::new(),
            log: Vec::new(),
            next: 0,
        }
    }

    pub fn request(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    pub fn step(&mut self, event: Event) {
        self.now = self.now.plus(Nanos(1));
        let mut out = Vec::new();
        self.core.step(event, self.now, &mut out);
        for command in out {
            self.log.push(command);
            self.take(command);
        }
        self.core.assert_invariants();
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Grant { request, .. }
            | Command::Serve { request, .. }
            | Command::FlushDone { request }
            | Command::Refuse { request, .. } => {
                assert!(self.answers.insert(request, command).is_none(), "one answer a call");
            }
            Command::Transfer { transfer: id, checkpoint, version, bytes, kind, from, to } => {
                let cancelled = false;
                let moving = Moving { id, checkpoint, version, bytes, kind, from, to, cancelled };
                self.moving.push_back(moving);
            }
            Command::Cancel { transfer } => {
                let found = self.moving.iter_mut().find(|m| m.id == transfer);
                found.expect("only what moves is cancelled").cancelled = true;
            }
            Command::Delete { checkpoint, tier } => self.deleting.push_back((checkpoint, tier)),
            Command::Evict { checkpoint, place } => {
                assert!(self.bytes.remove(&(checkpoint, place.tier)).is_some(), "evicted once");
                self.ends.remove(&(checkpoint, place.tier));
            }
        }
    }

    /// Ends the oldest transfer. False when nothing moves.
    pub fn finish_one(&mut self) -> bool {
        let Some(m) = self.moving.pop_front() else { return false };
        if self.is_gone(&m) {
            self.moving.push_front(m);
            return self.fail_one(if self.is_lost(&m) {
                Failure::Permanent
            } else {
                Failure::NoSpace
            });
        }
        let ended = self.ended_like(&m);
        if m.cancelled {
            ended.cancelled += 1;
            self.step(Event::TransferCancelled { transfer: m.id });
            return true;
        }
        (ended.transfers, ended.bytes) = (ended.transfers + 1, ended.bytes + m.bytes);
        let bytes = self.bytes[&(m.checkpoint, m.from.tier)];
        self.bytes.insert((m.checkpoint, m.to.tier), bytes);
        self.ends.insert((m.checkpoint, m.to.tier), m.to.offset + m.bytes);
        self.step(Event::TransferDone { transfer: m.id, took: Nanos(10) });
        true
    }

    /// The device of an arena is lost: what moves into or out of it fails.
    pub fn lose(&mut self, tier: TierId) {
        let tiers = &self.core.config().tiers;
        if tiers.get(usize::from(tier.0)).is_some_and(|tier| tier.kind.is_arena()) {
            self.lost.push(tier);
        }
        self.step(Event::TierFailed { tier });
    }

    fn is_lost(&self, m: &Moving) -> bool {
        self.lost.contains(&m.from.tier) || self.lost.contains(&m.to.tier)
    }

    /// Whether the bytes that a transfer fills are gone, or one of its ends is.
    fn is_gone(&self, m: &Moving) -> bool {
        if self.is_lost(m) {
            return true;
        }
        let arena = self.core.config().tiers[usize::from(m.to.tier.0)].kind.is_arena();
        arena && m.to.offset + m.bytes > self.core.capacity(m.to.tier)
    }

    /// Shrinks the arena `tier` to `capacity` bytes, or to the end of its last complete copy.
    pub fn shrink(&mut self, tier: TierId, capacity: u64) {
        let ends = self.ends.iter().filter(|((_, t), _)| *t == tier).map(|(_, end)| *end);
        let capacity = capacity.max(ends.max().unwrap_or(0));
        self.step(Event::Shrunk { tier, capacity });
    }

    /// Grows the arena `tier` to `capacity` bytes.
    pub fn grow(&mut self, tier: TierId, capacity: u64) {
        self.step(Event::Grown { tier, capacity });
    }

    /// Ends the oldest transfer with all its bytes, even if it was cancelled. False when nothing
    /// moves.
    pub fn finish_one_late(&mut self) -> bool {
        let Some(mut m) = self.moving.front().copied() else { return false };
        if self.is_gone(&m) {
            return self.finish_one();
        }
        let cancelled = std::mem::take(&mut m.cancelled);
        self.moving[0] = m;
        self.ended_like(&m).cancelled += u64::from(cancelled);
        self.finish_one()
    }

    pub fn fail_one(&mut self, failure: Failure) -> bool {
        let Some(m) = self.moving.pop_front() else { return false };
        self.ended_like(&m).failed += 1;
        self.step(Event::TransferFailed { transfer: m.id, failure });
        true
    }

    fn ended_like(&mut self, m: &Moving) -> &mut Ended {
        self.ended.entry((m.from.tier.0.min(m.to.tier.0), m.kind)).or_default()
    }

    pub fn delete_one(&mut self) -> bool {
        let Some((checkpoint, tier)) = self.deleting.pop_front() else { return false };
        self.bytes.remove(&(checkpoint, tier));
        self.step(Event::Deleted { checkpoint, tier });
        true
    }

    /// Ends all transfers.
    pub fn finish_all(&mut self) {
        for _ in 0..10_000 {
            if !(self.delete_one() || self.finish_one()) {
                return;
            }
        }
        panic!("transfers follow transfers for ever");
    }

    /// Ends transfers until `request` is answered.
    pub fn answer(&mut self, request: RequestId) -> Command {
        for _ in 0..10_000 {
            if let Some(answer) = self.answers.remove(&request) {
                return answer;
            }
            if !(self.delete_one() || self.finish_one()) {
                let deadline = self.core.next_deadline().expect("a call waits for nothing");
                self.now = self.now.max(deadline);
                self.step(Event::Tick);
            }
        }
        panic!("{request:?} is never answered");
    }

    pub fn save(&mut self, version: i64, bytes: u64) -> Command {
        let request = self.request();
        self.step(Event::Save { request, version: Version(version), bytes, size: Size::Exact });
        let answer = self.answer(request);
        if let Command::Grant { checkpoint, place, .. } = answer {
            self.bytes.insert((checkpoint, place.tier), checkpoint.0);
            self.ends.insert((checkpoint, place.tier), place.offset + bytes);
            self.step(Event::Saved { request, kept: None });
        }
        answer
    }

    /// Saves every version and asserts that each is granted.
    pub fn save_all(&mut self, versions: impl IntoIterator<Item = i64>, bytes: u64) {
        for v in versions {
            let answer = self.save(v, bytes);
            assert!(matches!(answer, Command::Grant { .. }), "version {v}: {answer:?}");
        }
    }

    /// Restores and checks the bytes. Returns the tier that served, or the refusal.
    pub fn restore(&mut self, version: i64) -> Result<TierId, Command> {
        let request = self.request();
        self.step(Event::Restore { request, version: Version(version) });
        match self.answer(request) {
            Command::Serve { checkpoint, place, .. } => {
                let found = self.bytes[&(checkpoint, place.tier)];
                assert_eq!(found, checkpoint.0, "the bytes of another checkpoint were served");
                self.step(Event::Restored { request });
                Ok(place.tier)
            }
            other => Err(other),
        }
    }

    pub fn expect(&mut self, versions: impl IntoIterator<Item = i64>) {
        for v in versions {
            self.step(Event::Expect { version: Version(v) });
        }
    }

    /// A hint after whose restore the core discards the version.
    pub fn expect_once(&mut self, v: i64) {
        self.step(Event::ExpectOnce { version: Version(v) });
    }

    /// A hint after whose restore the application discards the version.
    pub fn expect_last(&mut self, v: i64) {
        self.step(Event::ExpectLast { version: Version(v) });
    }

    pub fn transfers_to(&self, tier: u8) -> usize {
        let to = |c: &&Command| matches!(c, Command::Transfer { to, .. } if to.tier.0 == tier);
        self.log.iter().filter(to).count()
    }
}
