//! The state machine: an event and the time go in, commands come out.
//!
//! Each step has two halves. The event changes the table (one small function an event); then
//! [`Core::pump`] starts everything that has become possible: restores first, then saves, then
//! flushes from the slowest link up (so that room travels towards the application), then
//! prefetches from the slowest tier up (so that bytes travel towards it). Only when nothing of this
//! is possible and nothing moves are calls that still wait given what is left, or refused.

mod copies;
mod discards;
mod flushes;
mod invariants;
mod pauses;
mod prefetches;
mod queries;
mod restores;
mod retries;
mod rewriting;
mod room;
mod saves;
mod setup;
mod shrinking;
mod sizes;
mod thrift;
mod transfers;
mod turns;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::command::{Command, Refusal};
use crate::config::Config;
use crate::event::Event;
use crate::hints::{Hints, Removed, Then};
use crate::lifecycle::table::{CheckpointTable, Row};
use crate::policy::Policy;
use crate::stats::CoreStats;
use crate::types::{CheckpointId, Nanos, RequestId, TierId, TransferId};

pub use setup::ConfigError;

use prefetches::Prefetching;
use retries::Retry;
use rewriting::Rewriting;
use room::TierState;
use transfers::{LinkLane, Transfer};

/// The most rounds of [`Core::pump`] in one step, far more than any step needs.
const MAX_ROUNDS: usize = 10_000;

/// The pure core of a spool. See the crate's documentation.
pub struct Core {
    config: Config,
    policy: &'static (dyn Policy + Send + Sync),
    now: Nanos,
    table: CheckpointTable,
    hints: Hints,
    /// One entry a tier, fastest first.
    tiers: Vec<TierState>,
    /// `flush_lanes[t]` carries what leaves tier `t` for a slower one.
    flush_lanes: Vec<LinkLane>,
    /// `prefetch_lanes[t]` carries what comes to tier `t` from a slower one.
    prefetch_lanes: Vec<LinkLane>,
    transfers: BTreeMap<TransferId, Transfer>,
    next_transfer: u64,
    /// Calls that were granted or served and have not reported back.
    open: BTreeMap<RequestId, Open>,
    /// Calls in `open` that are saves in flight: over for the application, and not yet reported.
    saves_in_flight: u64,
    waiting_saves: VecDeque<WaitingSave>,
    waiting_restores: VecDeque<WaitingRestore>,
    waiting_flushes: Vec<WaitingFlush>,
    /// Flush calls have asked for all checkpoints before this id.
    flush_before: CheckpointId,
    /// Saved checkpoints that are not in the slowest tier that can hold them.
    unflushed: BTreeMap<CheckpointId, Row>,
    retries: Vec<Retry>,
    /// Prefetches may start.
    prefetching: Prefetching,
    /// Claims were given up for a save: no new ones before the next restore.
    reclaimed: bool,
    /// The last call of the application was a save: leave room for more of them.
    writing: bool,
    rewriting: Rewriting,
    /// Every hint before this position has its bytes ready in the fastest tier.
    ready_until: u64,
    touches: u64,
    arrivals: u64,
    stats: CoreStats,
    removed: Vec<Removed>,
}

/// A call that was granted or served and has not reported back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Open {
    /// A save is writing to the room that it was granted from `offset` on.
    Granted { row: Row, tier: TierId, offset: u64 },
    /// A restore is reading the copy in `tier`, since that time.
    Served { row: Row, tier: TierId, since: Nanos },
}

/// What may be done to make room for a save.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effort {
    /// Room that is there, or that transfers and deletions in flight will make.
    Usual,
    /// Also a slower tier, the room of unread prefetches, and another try of failed transfers;
    /// after that the save is refused. Used when nothing moves.
    Last,
}

#[derive(Clone, Copy, Debug)]
struct WaitingSave {
    request: RequestId,
    row: Row,
    /// Failed transfers were tried once more for this save.
    retried: bool,
    /// The [`Core::generation`] at which there was no room: not asked again until it changes.
    blocked: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingRestore {
    request: RequestId,
    row: Row,
    id: CheckpointId,
    since: Nanos,
    /// The tier from which a prefetch brings the bytes that it waits for.
    reads: Option<TierId>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingFlush {
    request: RequestId,
    /// Checkpoints before this id are meant.
    before: CheckpointId,
}

impl Core {
    /// Takes in what happened at time `now` and appends what is to be done to `out`.
    ///
    /// Time never runs backwards: an earlier `now` than before counts as the latest one. Events
    /// that name a request or transfer which is not open are ignored.
    pub fn step(&mut self, event: Event, now: Nanos, out: &mut Vec<Command>) {
        self.pass_time(now);
        self.take_due_retries();
        self.apply(event, out);
        self.pump(out);
    }

    fn pass_time(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        for arena in self.tiers.iter_mut().filter_map(|tier| tier.arena.as_mut()) {
            arena.pass_time(self.now);
        }
    }

    fn apply(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Save { request, version, bytes, size } => {
                self.on_save(request, version, (bytes, size), out);
            }
            Event::SaveInFlight { request } => self.on_save_in_flight(request),
            Event::Saved { request, kept } => self.on_saved(request, kept, out),
            Event::SaveAborted { request } => self.on_save_aborted(request, out),
            Event::Restore { request, version } => self.on_restore(request, version, out),
            Event::Restored { request } => self.on_restored(request, out),
            Event::RestoreAborted { request } => self.on_restore_aborted(request, out),
            Event::Withdraw { request } => self.on_withdraw(request),
            Event::Expect { version } => self.on_expect(version, Then::Stays),
            Event::ExpectLast { version } => self.on_expect(version, Then::Ends),
            Event::ExpectOnce { version } => self.on_expect(version, Then::Goes),
            Event::ForgetHints => self.on_forget_hints(),
            Event::StartPrefetch => {
                (self.prefetching, self.reclaimed) = (Prefetching::On, false);
            }
            Event::HoldPrefetch => self.prefetching = Prefetching::Held,
            Event::Prefer { version, tier } => self.on_prefer(version, tier),
            Event::Discard { version } => self.on_discard(version, out),
            Event::Flush { request } => self.on_flush(request),
            Event::TransferDone { transfer, took } => self.on_done(transfer, took, out),
            Event::TransferFailed { transfer, failure } => self.on_failed(transfer, failure, out),
            Event::TransferCancelled { transfer } => self.on_cancelled(transfer, out),
            Event::Deleted { checkpoint, tier } => self.on_deleted(checkpoint, tier),
            Event::Shrunk { tier, capacity } => self.on_shrunk(tier, capacity, out),
            Event::TakenByNeed { tier } => self.on_taken_by_need(tier),
            Event::Grown { tier, capacity } => self.on_grown(tier, capacity, out),
            Event::TierFailed { tier } => self.on_tier_failed(tier, out),
            Event::Recover { checkpoint, version, bytes, tier } => {
                self.on_recover(checkpoint, version, bytes, tier, out);
            }
            Event::Tick => {}
        }
    }

    /// Starts everything that is possible now. Every round that goes on has answered a call,
    /// started a transfer or moved a planner forward, so the rounds come to an end.
    fn pump(&mut self, out: &mut Vec<Command>) {
        for _ in 0..MAX_ROUNDS {
            let progress = [
                self.serve_restores(out),
                self.place_saves(out, Effort::Usual),
                self.start_flushes(out),
                self.start_prefetches(out),
            ];
            self.answer_flushes(out);
            if !progress.contains(&true) && (!self.is_still() || !self.last_resort(out)) {
                return;
            }
        }
        debug_assert!(false, "a step starts a bounded number of things");
    }

    /// Grants what is left to calls that still wait, or refuses them. Called when nothing moves and
    /// nothing can be started.
    fn last_resort(&mut self, out: &mut Vec<Command>) -> bool {
        self.place_saves(out, Effort::Last) || self.give_up_flushes(out)
    }

    fn on_withdraw(&mut self, request: RequestId) {
        if let Some(i) = self.waiting_restores.iter().position(|w| w.request == request) {
            let wait = self.waiting_restores.remove(i).expect("the index was just found");
            self.end_wait(wait);
        }
        self.waiting_flushes.retain(|w| w.request != request);
        if let Some(i) = self.waiting_saves.iter().position(|w| w.request == request) {
            let save = self.waiting_saves.remove(i).expect("the index was just found");
            self.forget_unsaved(save.row);
        }
    }

    fn refuse(request: RequestId, refusal: Refusal, out: &mut Vec<Command>) {
        out.push(Command::Refuse { request, refusal });
    }

    /// Counts the changes in all tiers that may have made room.
    fn generation(&self) -> u64 {
        self.tiers.iter().map(|t| t.generation).sum()
    }

    /// Whether nothing in the background can change the situation any more.
    fn is_still(&self) -> bool {
        self.transfers.is_empty()
            && self.saves_in_flight == 0
            && self.retries.is_empty()
            && self.tiers.iter().all(|t| t.deleting.is_empty())
    }
}
