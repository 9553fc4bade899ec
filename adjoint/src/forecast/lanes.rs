//! The links in virtual time: a queue for each direction, and the deletions of the stores.
//!
//! A lane that shares something with those of other processes is told which part of its own speed
//! it has ([`Lanes::share`]); alone it has all of it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::forecast::{ForecastJob, LinkSpeed, Rate};
use unspool_core::Event;
use unspool_core::TransferKind;
use unspool_core::{CheckpointId, Nanos, TierId, TransferId};

/// A transfer on its lane.
#[derive(Clone, Copy, Debug)]
struct Moving {
    transfer: TransferId,
    bytes: u64,
    /// When the core asked for it.
    given: Nanos,
    /// When the link began with it.
    began: Nanos,
    /// Its own time on the link.
    wire: Nanos,
    /// The time before its first byte.
    latency: Nanos,
    /// The slower tier of the last link that it takes.
    last: usize,
}

/// What one lane moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Its link and its direction.
    pub lane: (usize, usize),
    /// The links that it takes end before this one.
    pub last: usize,
    /// Bytes a second, where nobody shares anything.
    pub rate: f64,
}

/// One direction of a link: one transfer after the other, the first of the queue is under way.
#[derive(Debug)]
struct ForecastLane {
    rate: Rate,
    /// A second worker prepares the next transfer while one is on the link.
    overlaps: bool,
    /// When the last transfer ended, and when the one before it did, since when the second worker
    /// is free.
    ended: Nanos,
    freed: Nanos,
    /// Whether a transfer under way can be stopped.
    can_stop: bool,
    /// By how much the lane slows the application while it is busy.
    contention: f64,
    queue: VecDeque<Moving>,
    ends: Nanos,
    /// Until when the application uses the lane by itself.
    crossed: Nanos,
    /// The part of its speed that it has, 1 for all.
    share: f64,
    moved: u64,
}

impl ForecastLane {
    fn begin(&mut self, now: Nanos) {
        let share = self.share;
        let Some(first) = self.queue.front_mut() else { return };
        let since = if self.overlaps { first.given.max(self.freed) } else { now };
        let left = first.latency.since(now.since(since));
        first.began = now;
        let from = now.max(self.crossed);
        self.ends = from.plus(stretched(left.plus(first.wire), 1.0 / share));
    }

    /// Goes on with another share of its speed.
    fn share(&mut self, share: f64, now: Nanos) {
        debug_assert!(share > 0.0 && share <= 1.0, "a part of its speed");
        if share == self.share {
            return;
        }
        let factor = self.share / share;
        let later =
            |end: Nanos| if end > now { now.plus(stretched(end.since(now), factor)) } else { end };
        if !self.queue.is_empty() {
            self.ends = later(self.ends);
        }
        self.crossed = later(self.crossed);
        self.share = share;
    }

    /// What it moves at `now`, and the last link that this takes; the application goes first.
    fn flow(&self, (link, way): (usize, usize), now: Nanos) -> Option<Flow> {
        let own = self.rate.bytes_per_second;
        let lane = (link, way);
        if self.crossed > now {
            return Some(Flow { lane, last: link + 1, rate: own });
        }
        let first = self.queue.front().filter(|first| first.wire > Nanos(0))?;
        let rate = (first.bytes as f64 / first.wire.0 as f64 * 1e9).min(own);
        Some(Flow { lane, last: first.last, rate })
    }

    fn push(&mut self, moving: Moving, now: Nanos) {
        self.queue.push_back(moving);
        if self.queue.len() == 1 {
            self.begin(now);
        }
    }

    fn end_first(&mut self, now: Nanos) -> Option<Event> {
        let done = self.queue.pop_front()?;
        self.moved += done.bytes;
        (self.freed, self.ended) = (self.ended, now);
        self.begin(now);
        Some(Event::TransferDone { transfer: done.transfer, took: now.since(done.began) })
    }

    /// Takes a transfer out, unless it is under way and cannot be stopped.
    fn cancel(&mut self, transfer: TransferId, now: Nanos) -> bool {
        let Some(index) = self.queue.iter().position(|m| m.transfer == transfer) else {
            return false;
        };
        if index == 0 && !self.can_stop {
            return false;
        }
        self.queue.remove(index);
        if index == 0 {
            self.begin(now);
        }
        true
    }
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Towards the slower tier and back, for each link.
    lanes: Vec<[ForecastLane; 2]>,
    /// Deletions under way, in the order of their end.
    deletions: VecDeque<(Nanos, Event)>,
}

/// Where the next transfer or deletion ends.
#[derive(Clone, Copy, Debug)]
enum NextEvent {
    Lane(usize, usize),
    Deletion,
}

impl Lanes {
    pub fn new(job: &ForecastJob) -> Lanes {
        let pair = |(index, link): (usize, &LinkSpeed)| {
            let arenas = job.tiers.get(index + 1).is_some_and(|tier| tier.kind.is_arena());
            [link.flush, link.prefetch].map(|rate| ForecastLane {
                rate,
                overlaps: job.on_gpu || !arenas,
                ended: Nanos(0),
                freed: Nanos(0),
                can_stop: arenas,
                contention: link.contention,
                queue: VecDeque::new(),
                ends: Nanos::NEVER,
                crossed: Nanos(0),
                share: 1.0,
                moved: 0,
            })
        };
        let lanes = job.links.iter().enumerate().map(pair).collect();
        Lanes { lanes, deletions: VecDeque::new() }
    }

    /// Takes up a transfer. `extra` is the time that it takes in addition to that of the link.
    pub fn submit(
        &mut self,
        (transfer, kind): (TransferId, TransferKind),
        (from, to): (TierId, TierId),
        (bytes, extra): (u64, Nanos),
        now: Nanos,
    ) {
        let direction = direction(kind);
        debug_assert!((from < to) == (kind == TransferKind::Flush), "flushes go down, others up");
        let (first, last) = (usize::from(from.0.min(to.0)), usize::from(from.0.max(to.0)));
        let way = self.lanes[first..last].iter().map(|pair| &pair[direction]);
        let wire = way.clone().map(|lane| lane.rate.wire(bytes)).max().unwrap_or_default();
        let latency = way.fold(Nanos(0), |sum, lane| sum.plus(lane.rate.latency));
        let wire = wire.plus(extra);
        let moving = Moving { transfer, bytes, given: now, began: now, wire, latency, last };
        self.lanes[first][direction].push(moving, now);
    }

    /// Cancels a transfer; gives its report when that comes at once.
    pub fn cancel(&mut self, transfer: TransferId, now: Nanos) -> Option<Event> {
        let mut lanes = self.lanes.iter_mut().flatten();
        let found = lanes.any(|lane| lane.cancel(transfer, now));
        found.then_some(Event::TransferCancelled { transfer })
    }

    /// Takes up the deletion of a frame in a store.
    pub fn delete(&mut self, checkpoint: CheckpointId, tier: TierId, now: Nanos) {
        let link = usize::from(tier.0).checked_sub(1).and_then(|i| self.lanes.get(i));
        let latency = link.map_or(Nanos(0), |pair| pair[0].rate.latency);
        let last = self.deletions.back().map_or(now, |(end, _)| now.max(*end));
        let event = Event::Deleted { checkpoint, tier };
        self.deletions.push_back((last.plus(latency), event));
    }

    /// Lets the application itself use the link above `tier`, until [`crossed`](Self::crossed), and
    /// gives the latency that comes after it. A transfer under way waits for that long.
    pub fn use_directly(
        &mut self,
        kind: TransferKind,
        tier: TierId,
        bytes: u64,
        now: Nanos,
    ) -> Nanos {
        let above = usize::from(tier.0).checked_sub(1).and_then(|i| self.lanes.get_mut(i));
        let Some(pair) = above else { return Nanos(0) };
        debug_assert!(tier > TierId(0), "the fastest tier has no link above it");
        let lane = &mut pair[direction(kind)];
        let own = stretched(lane.rate.wire(bytes), 1.0 / lane.share);
        if !lane.queue.is_empty() {
            lane.ends = lane.ends.plus(own);
        }
        lane.crossed = now.plus(own);
        lane.rate.latency
    }

    /// Until when the application uses a link by itself. It does one thing at a time.
    pub fn crossed(&self) -> Nanos {
        self.lanes.iter().flatten().map(|lane| lane.crossed).max().unwrap_or_default()
    }

    /// What moves at `now`.
    pub fn flows(&self, now: Nanos) -> impl Iterator<Item = Flow> {
        self.lanes.iter().enumerate().flat_map(move |(link, pair)| {
            pair.iter().enumerate().filter_map(move |(way, lane)| lane.flow((link, way), now))
        })
    }

    /// Gives a lane a share of its speed from `now` on.
    pub fn share(&mut self, (link, way): (usize, usize), share: f64, now: Nanos) {
        self.lanes[link][way].share(share, now);
    }

    /// How many times as long the application takes while the lanes are as busy as now.
    pub fn pace(&self) -> f64 {
        let busy = self.lanes.iter().flatten().filter(|lane| !lane.queue.is_empty());
        1.0 + busy.map(|lane| lane.contention).sum::<f64>()
    }

    /// When the next report comes.
    pub fn next_end(&self) -> Option<Nanos> {
        self.next().map(|(end, _)| end)
    }

    /// The next report, at its time.
    pub fn take_next(&mut self) -> Option<(Nanos, Event)> {
        let (end, source) = self.next()?;
        match source {
            NextEvent::Deletion => self.deletions.pop_front(),
            NextEvent::Lane(link, direction) => {
                let event = self.lanes[link][direction].end_first(end)?;
                Some((end, event))
            }
        }
    }

    fn next(&self) -> Option<(Nanos, NextEvent)> {
        let lanes = self.lanes.iter().enumerate().flat_map(|(link, pair)| {
            let busy = pair.iter().enumerate().filter(|(_, lane)| !lane.queue.is_empty());
            busy.map(move |(way, lane)| (lane.ends, NextEvent::Lane(link, way)))
        });
        let deletion = self.deletions.front().map(|(end, _)| (*end, NextEvent::Deletion));
        // The first of equals: the order of the lanes.
        lanes.chain(deletion).min_by_key(|(end, _)| *end)
    }

    /// The bytes that every link has moved: towards the slower tier, and back.
    pub fn moved(&self) -> impl Iterator<Item = [u64; 2]> {
        self.lanes.iter().map(|[flush, prefetch]| [flush.moved, prefetch.moved])
    }
}

/// A time that takes `factor` times as long; the very same where that is 1.
fn stretched(time: Nanos, factor: f64) -> Nanos {
    if factor == 1.0 { time } else { Nanos((time.0 as f64 * factor + 0.5) as u64) }
}

fn direction(kind: TransferKind) -> usize {
    match kind {
        TransferKind::Flush => 0,
        TransferKind::Prefetch => 1,
    }
}
