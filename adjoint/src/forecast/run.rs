//! One application of a forecast with its core and its links. It says when something happens next,
//! and somebody else lets time pass: so several share what is between them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::forecast::lanes::{Flow, Lanes};
use crate::forecast::plan::{ForecastPlan, Operation};
use crate::forecast::{Forecast, ForecastError, ForecastJob, LinkBytes, TierPeak};
use unspool_core::Core;
use unspool_core::TierConfig;
use unspool_core::{Command, Refusal, TransferKind};
use unspool_core::{Event, Kept, Size};
use unspool_core::{Nanos, Place, RequestId, TierId, TierKind, Version};

/// The answer of the core to the call that waits.
#[derive(Clone, Copy, Debug)]
enum CoreAnswer {
    /// The place where the bytes go, or where they are.
    At(Place),
    /// Everything is in the slowest tier.
    Flushed,
    No(Refusal),
}

/// Where the application's time goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub compute: Nanos,
    pub save_copies: Nanos,
    pub restore_copies: Nanos,
    pub save_stall: Nanos,
    pub restore_stall: Nanos,
    /// Waits for other processes.
    pub meetings: Nanos,
    /// Waits for flushes.
    pub flush: Nanos,
}

/// A save or a restore.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Down is a save, up a restore.
    way: TransferKind,
    request: RequestId,
    step: u64,
    bytes: u64,
    /// The tier whose slot the copy takes in the schedule.
    tier: Option<TierKind>,
}

/// What the application does.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Begins with its next operation.
    Next,
    /// Takes steps, of which so many nanoseconds are left.
    Computes { left: f64 },
    /// Waits for the answer of the core.
    Asks(Call),
    /// Uses the link to this place by itself; `latency` comes after the bytes.
    Crosses { call: Call, place: Place, latency: Nanos },
    /// Copies into or out of the fastest tier.
    Copies { call: Call, place: Place, left: f64 },
    /// Waits until everything is in the slowest tier.
    Flushes,
    /// Waits for the other processes.
    Meets,
    /// Has done everything; transfers may still be under way.
    Ended,
}

pub(super) struct ForecastRun<'a> {
    job: &'a ForecastJob,
    plan: &'a ForecastPlan,
    core: Core,
    lanes: Lanes,
    now: Nanos,
    /// When it ended.
    ended: Nanos,
    doing: Doing,
    /// When it began to do so.
    began: Nanos,
    /// The place of the next operation in the plan.
    place: usize,
    spent: Spent,
    /// Events that commands have caused, in order.
    pending: VecDeque<Event>,
    commands: Vec<Command>,
    answer: Option<CoreAnswer>,
    requests: u64,
    /// The bytes of every copy.
    sizes: BTreeMap<u64, u64>,
    /// Bytes at the beginning of each tier that were written to already.
    touched: Vec<u64>,
    /// Restores that were announced so far.
    expected: usize,
    /// Restores that were begun so far.
    restored: usize,
}

impl<'a> ForecastRun<'a> {
    pub fn new(
        job: &'a ForecastJob,
        plan: &'a ForecastPlan,
    ) -> Result<ForecastRun<'a>, ForecastError> {
        let core = Core::new(job.config()).map_err(ForecastError::Config)?;
        Ok(ForecastRun {
            job,
            plan,
            core,
            lanes: Lanes::new(job),
            now: Nanos(0),
            ended: Nanos(0),
            doing: Doing::Next,
            began: Nanos(0),
            place: 0,
            spent: Spent::default(),
            pending: VecDeque::new(),
            commands: Vec::new(),
            answer: None,
            requests: 0,
            sizes: BTreeMap::new(),
            touched: job.tiers.iter().map(|_| 0).collect(),
            expected: 0,
            restored: 0,
        })
    }

    /// When something happens here next; `None`: never, unless another process does something.
    pub fn next_time(&self) -> Option<Nanos> {
        let own = match self.doing {
            Doing::Next => Some(self.now),
            Doing::Computes { left } | Doing::Copies { left, .. } => Some(self.until(left)),
            Doing::Crosses { latency, .. } => {
                let crossed = self.lanes.crossed();
                Some(if self.now < crossed { crossed } else { crossed.plus(latency) })
            }
            Doing::Asks(_) | Doing::Flushes | Doing::Meets | Doing::Ended => None,
        };
        own.into_iter().chain(self.lanes.next_end()).min()
    }

    /// Lets time pass until `to`, which [`next_time`](Self::next_time) has given, and does what can
    /// be done then.
    pub fn advance(&mut self, to: Nanos) -> Result<(), ForecastError> {
        debug_assert!(self.next_time() == Some(to), "nothing is passed by");
        if self.lanes.next_end().is_some_and(|end| end <= to) {
            self.wear(to);
            self.pass(to);
        } else {
            self.now = to;
            self.complete()?;
        }
        self.go_on()
    }

    pub fn meets(&self) -> bool {
        matches!(self.doing, Doing::Meets)
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.doing, Doing::Ended)
    }

    /// Ends the wait for the other processes.
    pub fn met(&mut self, now: Nanos) -> Result<(), ForecastError> {
        debug_assert!(self.meets(), "it waits for the others");
        self.now = now;
        self.spent.meetings = self.spent.meetings.plus(now.since(self.began));
        self.doing = Doing::Next;
        self.go_on()
    }

    /// What moves over the links now.
    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        self.lanes.flows(self.now)
    }

    /// Gives a lane that moves bytes a share of its own speed from `now` on.
    pub fn share(&mut self, (link, way): (usize, usize), share: f64, now: Nanos) {
        self.lanes.share((link, way), share, now);
    }

    /// Why it waits although nothing happens any more.
    pub fn stuck(&self) -> ForecastError {
        let step = match self.doing {
            Doing::Asks(call) => call.step,
            _ => 0,
        };
        ForecastError::Stuck { step }
    }

    /// Whether every checkpoint has been discarded.
    pub fn keeps_nothing(&self) -> bool {
        self.core.versions().is_empty()
    }

    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// The end of so many nanoseconds of work, as far as links slow it now.
    fn until(&self, left: f64) -> Nanos {
        debug_assert!(left.is_finite() && left >= 0.0, "time goes on");
        self.now.plus(Nanos((left * self.lanes.pace() + 0.5) as u64))
    }

    /// The work that is done by `to` is not left any more.
    fn wear(&mut self, to: Nanos) {
        let done = to.since(self.now).0 as f64 / self.lanes.pace();
        if let Doing::Computes { left } | Doing::Copies { left, .. } = &mut self.doing {
            *left = (*left - done).max(0.0);
        }
    }

    /// What took until now is over.
    fn complete(&mut self) -> Result<(), ForecastError> {
        let took = self.now.since(self.began);
        match self.doing {
            Doing::Computes { .. } => self.spent.compute = self.spent.compute.plus(took),
            Doing::Crosses { call, place, latency } => {
                if self.now >= self.lanes.crossed().plus(latency) {
                    self.begin_copy(call, place);
                }
                return Ok(());
            }
            Doing::Copies { call, place, .. } => self.copied(call, place, took),
            _ => return Ok(()),
        }
        self.doing = Doing::Next;
        Ok(())
    }

    /// Goes on until time has to pass.
    fn go_on(&mut self) -> Result<(), ForecastError> {
        loop {
            match self.doing {
                Doing::Next => self.begin_next(),
                Doing::Asks(call) => match self.answer.take() {
                    Some(CoreAnswer::At(place)) => self.answered(call, place),
                    Some(CoreAnswer::No(refusal)) => return Err(self.refused(refusal, call.step)),
                    Some(CoreAnswer::Flushed) | None => return Ok(()),
                },
                Doing::Flushes => match self.answer.take() {
                    Some(CoreAnswer::Flushed) => {
                        let took = self.now.since(self.began);
                        self.spent.flush = self.spent.flush.plus(took);
                        self.doing = Doing::Next;
                    }
                    Some(CoreAnswer::No(refusal)) => return Err(self.refused(refusal, 0)),
                    Some(CoreAnswer::At(_)) | None => return Ok(()),
                },
                _ => return Ok(()),
            }
        }
    }

    fn begin_next(&mut self) {
        if self.place == self.plan.known_from {
            self.expect();
        }
        let Some(operation) = self.plan.operations.get(self.place) else {
            self.ended = self.now;
            self.doing = Doing::Ended;
            return;
        };
        self.place += 1;
        self.began = self.now;
        match *operation {
            Operation::Advance { steps } => {
                let left = steps as f64 * self.job.step_seconds * 1e9;
                self.doing = Doing::Computes { left };
            }
            Operation::Reverse => {
                self.doing = Doing::Computes { left: self.job.reverse_seconds * 1e9 };
            }
            Operation::Save { step, for_reverse, tier } => {
                self.save(step, self.plan.bytes(step, self.job.bytes(for_reverse)), tier);
            }
            Operation::Restore { step, .. } => self.restore(step),
            Operation::Discard { step } => {
                self.sizes.remove(&step);
                self.feed(Event::Discard { version: version(step) });
            }
            Operation::Prefetch { starts } => {
                self.feed(if starts { Event::StartPrefetch } else { Event::HoldPrefetch });
            }
            Operation::Meet => self.doing = Doing::Meets,
            Operation::Flush => {
                self.doing = Doing::Flushes;
                let request = self.request();
                self.feed(Event::Flush { request });
            }
        }
    }

    fn save(&mut self, step: u64, bytes: u64, tier: Option<TierKind>) {
        let request = self.request();
        self.sizes.insert(step, bytes);
        let encodes = self.job.compression.is_some();
        let size = if encodes { Size::AtMost } else { Size::Exact };
        let way = TransferKind::Flush;
        self.doing = Doing::Asks(Call { way, request, step, bytes, tier });
        self.feed(Event::Save { request, version: version(step), bytes, size });
    }

    fn restore(&mut self, step: u64) {
        self.restored += 1;
        self.expect();
        let request = self.request();
        let bytes = self.sizes.get(&step).copied().unwrap_or(self.job.state_bytes);
        let way = TransferKind::Prefetch;
        self.doing = Doing::Asks(Call { way, request, step, bytes, tier: None });
        self.feed(Event::Restore { request, version: version(step) });
    }

    /// Has the bytes' place, which may lie across a link.
    fn answered(&mut self, call: Call, place: Place) {
        let stored = self.job.stored(call.bytes);
        if place.tier > TierId(0) && self.is_across_a_link(place.tier) {
            let latency = self.lanes.use_directly(call.way, place.tier, stored, self.now);
            self.doing = Doing::Crosses { call, place, latency };
        } else {
            self.begin_copy(call, place);
        }
    }

    fn begin_copy(&mut self, call: Call, place: Place) {
        let stalled = self.now.since(self.began);
        let (stall, rate, extra) = match call.way {
            TransferKind::Flush => {
                let extra = self.touch(place, self.job.stored(call.bytes));
                (&mut self.spent.save_stall, self.job.copies()[0], extra)
            }
            TransferKind::Prefetch => {
                (&mut self.spent.restore_stall, self.job.copies()[1], Nanos(0))
            }
        };
        *stall = stall.plus(stalled);
        self.began = self.now;
        let left = rate.nanos(call.bytes) + extra.0 as f64;
        self.doing = Doing::Copies { call, place, left };
    }

    fn copied(&mut self, call: Call, place: Place, took: Nanos) {
        let request = call.request;
        match call.way {
            TransferKind::Flush => {
                self.spent.save_copies = self.spent.save_copies.plus(took);
                let bytes = self.job.stored(call.bytes);
                let encodes = self.job.compression.is_some();
                let kept = encodes.then_some(Kept { offset: place.offset, bytes });
                self.feed(Event::Saved { request, kept });
                self.prefer(call.step, call.tier);
            }
            TransferKind::Prefetch => {
                self.spent.restore_copies = self.spent.restore_copies.plus(took);
                self.feed(Event::Restored { request });
            }
        }
    }

    /// Asks for the copy to rest in the tier that the schedule names, if there is such a tier.
    fn prefer(&mut self, step: u64, tier: Option<TierKind>) {
        let slower = self.job.tiers.iter().zip(0..).skip(1).find(|(t, _)| Some(t.kind) == tier);
        if let Some((_, index)) = slower {
            self.feed(Event::Prefer { version: version(step), tier: TierId(index) });
        }
    }

    /// The additional time of a write of `bytes` at `place`, part of which may be the first one.
    fn touch(&mut self, place: Place, bytes: u64) -> Nanos {
        let index = usize::from(place.tier.0);
        let end = place.offset.saturating_add(bytes);
        let is_arena = self.job.tiers[index].kind.is_arena();
        let fresh = end.saturating_sub(self.touched[index].max(place.offset));
        if !is_arena || fresh == 0 {
            return Nanos(0);
        }
        self.touched[index] = end;
        Nanos((fresh as f64 * self.job.first_touch * 1e9) as u64)
    }

    /// Whether the application's copy from this tier takes the link above it: a store, or the
    /// memory of a host whose application computes on a GPU.
    fn is_across_a_link(&self, tier: TierId) -> bool {
        self.job.on_gpu || !self.job.tiers[usize::from(tier.0)].kind.is_arena()
    }

    /// Announces the restores that lie within the lookahead.
    fn expect(&mut self) {
        let until = self.restored.saturating_add(self.job.lookahead);
        while self.expected < until.min(self.plan.restores.len()) {
            let place = self.plan.restores[self.expected];
            self.expected += 1;
            let Operation::Restore { step, last } = self.plan.operations[place] else { continue };
            let version = version(step);
            self.feed(if last { Event::ExpectLast { version } } else { Event::Expect { version } });
        }
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Lets time pass until `until`, and reports what ends by then.
    fn pass(&mut self, until: Nanos) {
        while self.lanes.next_end().is_some_and(|end| end <= until) {
            let Some((end, event)) = self.lanes.take_next() else { break };
            self.now = self.now.max(end);
            self.feed(event);
        }
        self.now = self.now.max(until);
    }

    fn feed(&mut self, event: Event) {
        self.pending.push_back(event);
        while let Some(event) = self.pending.pop_front() {
            let mut commands = core::mem::take(&mut self.commands);
            self.core.step(event, self.now, &mut commands);
            for command in commands.drain(..) {
                self.obey(command);
            }
            self.commands = commands;
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Grant { place, .. } | Command::Serve { place, .. } => {
                self.answer = Some(CoreAnswer::At(place));
            }
            Command::Refuse { refusal, .. } => self.answer = Some(CoreAnswer::No(refusal)),
            Command::Transfer { transfer, bytes, kind, from, to, .. } => {
                let extra = self.touch(to, bytes);
                let way = (from.tier, to.tier);
                self.lanes.submit((transfer, kind), way, (bytes, extra), self.now);
            }
            Command::Cancel { transfer } => {
                self.pending.extend(self.lanes.cancel(transfer, self.now));
            }
            Command::Delete { checkpoint, tier } => {
                self.lanes.delete(checkpoint, tier, self.now);
            }
            Command::FlushDone { .. } => self.answer = Some(CoreAnswer::Flushed),
            Command::Evict { .. } => {}
        }
    }

    fn refused(&self, refusal: Refusal, step: u64) -> ForecastError {
        let Some(slowest) = self.job.tiers.last() else { return ForecastError::Stuck { step } };
        match refusal {
            Refusal::Full { .. } | Refusal::TooLarge { .. } => ForecastError::DoesNotFit {
                tier: slowest.kind,
                capacity: slowest.capacity,
                needed: self.plan.peak_bytes(self.job, |bytes| size_in(slowest, bytes)),
            },
            _ => ForecastError::Stuck { step },
        }
    }

    pub fn result(&self) -> Forecast {
        let stats = self.core.stats();
        let Spent { compute, save_copies, restore_copies, .. } = self.spent;
        let link = |[flush, prefetch]: [u64; 2]| LinkBytes { flush, prefetch };
        Forecast {
            seconds: seconds(self.ended),
            compute_seconds: seconds(compute),
            copy_seconds: seconds(save_copies.plus(restore_copies)),
            save_stall_seconds: seconds(self.spent.save_stall),
            restore_stall_seconds: seconds(self.spent.restore_stall),
            counts: self.plan.counts,
            tiers: stats
                .tiers
                .iter()
                .map(|t| TierPeak { kind: t.kind, peak: t.peak, restores: t.hits })
                .collect(),
            links: self.lanes.moved().map(link).collect(),
            lead: stats.lead_summary(),
        }
    }
}

/// The bytes that a copy of `bytes` takes in a tier: aligned, and with a head in a store.
pub(super) fn size_in(tier: &TierConfig, bytes: u64) -> u64 {
    let whole = bytes.checked_next_multiple_of(tier.alignment).unwrap_or(u64::MAX);
    if tier.kind.is_arena() { whole } else { whole.saturating_add(tier.alignment) }
}

/// The version of a step. Schedules that are run are far shorter than 2^63 steps.
fn version(step: u64) -> Version {
    Version(i64::try_from(step).unwrap_or(i64::MAX))
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 * 1e-9
}
