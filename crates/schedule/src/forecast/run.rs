//! The event loop of a forecast: the application, the links, and the core between them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::forecast::lanes::Lanes;
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
    No(Refusal),
}

/// Where the application's time goes.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    compute: Nanos,
    copies: Nanos,
    save_stall: Nanos,
    restore_stall: Nanos,
}

pub(super) struct ForecastRun<'a> {
    job: &'a ForecastJob,
    plan: &'a ForecastPlan,
    core: Core,
    lanes: Lanes,
    now: Nanos,
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

    /// Runs the whole plan.
    pub fn finish(mut self) -> Result<Forecast, ForecastError> {
        for (place, operation) in self.plan.operations.iter().enumerate() {
            if place == self.plan.known_from {
                self.expect();
            }
            self.carry_out(*operation)?;
        }
        Ok(self.result())
    }

    fn carry_out(&mut self, operation: Operation) -> Result<(), ForecastError> {
        match operation {
            Operation::Advance { steps } => self.compute(steps as f64 * self.job.step_seconds),
            Operation::Reverse => self.compute(self.job.reverse_seconds),
            Operation::Save { step, for_reverse, tier } => {
                self.save(step, self.job.bytes(for_reverse))?;
                self.prefer(step, tier);
            }
            Operation::Restore { step, .. } => self.restore(step)?,
            Operation::Discard { step } => {
                self.sizes.remove(&step);
                self.feed(Event::Discard { version: version(step) });
            }
        }
        Ok(())
    }

    fn compute(&mut self, seconds: f64) {
        let start = self.now;
        self.work(seconds * 1e9);
        self.spent.compute = self.spent.compute.plus(self.now.since(start));
    }

    fn copy(&mut self, nanos: f64) {
        let start = self.now;
        self.work(nanos);
        self.spent.copies = self.spent.copies.plus(self.now.since(start));
    }

    fn save(&mut self, step: u64, bytes: u64) -> Result<(), ForecastError> {
        let (start, request) = (self.now, self.request());
        self.sizes.insert(step, bytes);
        let encodes = self.job.compression.is_some();
        let size = if encodes { Size::AtMost } else { Size::Exact };
        let place = self.ask(Event::Save { request, version: version(step), bytes, size }, step)?;
        let stored = self.job.stored(bytes);
        self.cross(TransferKind::Flush, place.tier, stored);
        self.spent.save_stall = self.spent.save_stall.plus(self.now.since(start));
        let extra = self.touch(place, stored);
        self.copy(self.job.copies()[0].nanos(bytes) + extra.0 as f64);
        let kept = encodes.then_some(Kept { offset: place.offset, bytes: stored });
        self.feed(Event::Saved { request, kept });
        Ok(())
    }

    fn restore(&mut self, step: u64) -> Result<(), ForecastError> {
        self.restored += 1;
        self.expect();
        let (start, request) = (self.now, self.request());
        let bytes = self.sizes.get(&step).copied().unwrap_or(self.job.state_bytes);
        let place = self.ask(Event::Restore { request, version: version(step) }, step)?;
        self.cross(TransferKind::Prefetch, place.tier, self.job.stored(bytes));
        self.spent.restore_stall = self.spent.restore_stall.plus(self.now.since(start));
        self.copy(self.job.copies()[1].nanos(bytes));
        self.feed(Event::Restored { request });
        Ok(())
    }

    /// Asks for the copy to rest in the tier that the schedule names, if there is such a tier.
    fn prefer(&mut self, step: u64, tier: Option<TierKind>) {
        let slower = self.job.tiers.iter().zip(0..).skip(1).find(|(t, _)| Some(t.kind) == tier);
        if let Some((_, index)) = slower {
            self.feed(Event::Prefer { version: version(step), tier: TierId(index) });
        }
    }

    /// Lets the application use the link to a tier that it does not share memory with.
    fn cross(&mut self, kind: TransferKind, tier: TierId, bytes: u64) {
        if tier > TierId(0) && self.is_across_a_link(tier) {
            let took = self.lanes.use_directly(kind, tier, bytes);
            self.pass(self.now.plus(took));
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

    /// Asks the core and waits for its answer.
    fn ask(&mut self, event: Event, step: u64) -> Result<Place, ForecastError> {
        debug_assert!(self.answer.is_none(), "the application asks one thing at a time");
        self.feed(event);
        loop {
            match self.answer.take() {
                Some(CoreAnswer::At(place)) => return Ok(place),
                Some(CoreAnswer::No(refusal)) => return Err(self.refused(refusal, step)),
                None => {}
            }
            let Some(end) = self.lanes.next_end() else {
                return Err(ForecastError::Stuck { step });
            };
            self.pass(end);
        }
    }

    /// Lets the application work for so many nanoseconds, or longer where links slow it.
    fn work(&mut self, nanos: f64) {
        debug_assert!(nanos.is_finite() && nanos >= 0.0, "time goes on");
        let mut left = nanos;
        loop {
            let pace = self.lanes.pace();
            let until = self.now.plus(Nanos((left * pace + 0.5) as u64));
            match self.lanes.next_end() {
                Some(end) if end <= until => {
                    left = (left - end.since(self.now).0 as f64 / pace).max(0.0);
                    self.pass(end);
                }
                _ => {
                    self.now = until;
                    return;
                }
            }
        }
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
            Command::Evict { .. } | Command::FlushDone { .. } => {}
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

    fn result(&self) -> Forecast {
        debug_assert!(self.core.versions().is_empty(), "at the end nothing is kept");
        let stats = self.core.stats();
        let Spent { compute, copies, save_stall, restore_stall } = self.spent;
        let link = |[flush, prefetch]: [u64; 2]| LinkBytes { flush, prefetch };
        Forecast {
            seconds: seconds(self.now),
            compute_seconds: seconds(compute),
            copy_seconds: seconds(copies),
            save_stall_seconds: seconds(save_stall),
            restore_stall_seconds: seconds(restore_stall),
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

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 * 1e-9
}
