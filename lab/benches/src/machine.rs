//! A machine in virtual time that executes the core's commands: links are queues with a rate, and a
//! copy takes as long as its bytes need. It has neither faults nor bytes, because only the core is
//! measured; the simulator in `tests/sim` has both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Instant;

use unspool_core::{
    Command, Config, Core, Event, Nanos, Place, Refusal, RequestId, Size, TierId, TransferId,
    TransferKind, Version,
};

use crate::chain::Chain;
use crate::traces::{Action, Trace};

/// Bytes per second at which an application copies into and out of the fastest tier.
const COPY_RATE: f64 = 1.1e12;

/// Result of a run.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// Virtual time from the first action to the last.
    pub total: Nanos,
    /// Virtual time that the application waited in saves, besides the copies.
    pub save_stall: Nanos,
    /// Virtual time that the application waited in restores, besides the copies.
    pub restore_stall: Nanos,
    /// Bytes moved to slower tiers.
    pub flushed: u64,
    /// Bytes moved to faster tiers.
    pub prefetched: u64,
    /// Restores served by each tier.
    pub served: [u64; 4],
    /// Real time of every call of `Core::step`, in nanoseconds.
    pub steps: Vec<u32>,
}

/// One direction of the link below a tier.
type Lane = (usize, TransferKind);

/// Work of a lane that is queued or running.
struct Job {
    /// `None` for a copy of the application itself.
    transfer: Option<TransferId>,
    bytes: u64,
    kind: TransferKind,
    took: Nanos,
}

/// The machine and the application on it.
pub struct Machine {
    core: Core,
    config: Config,
    now: Nanos,
    /// Waiting and running transfers by (link, direction); the front one runs.
    lanes: BTreeMap<Lane, VecDeque<Job>>,
    /// Times of future events: each entry is an index into `events`, which also orders equal times.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// The events, and the lane whose front transfer ends with each.
    events: Vec<(Event, Option<Lane>)>,
    answers: HashMap<RequestId, Result<Place, Refusal>>,
    commands: Vec<Command>,
    next_request: u64,
    chain: Chain,
    /// The link whose directions take turns, as those of a disk do; the others are independent.
    shared: Option<usize>,
    /// The application's own copy over that link has ended.
    has_copied: bool,
    outcome: Outcome,
}

impl Machine {
    /// A machine with an empty core, or an error for settings that the core rejects.
    pub fn new(config: Config) -> Result<Machine, String> {
        Ok(Machine {
            core: Core::new(config.clone()).map_err(|error| format!("{error:?}"))?,
            config,
            now: Nanos(0),
            lanes: BTreeMap::new(),
            due: BinaryHeap::new(),
            events: Vec::new(),
            answers: HashMap::new(),
            commands: Vec::new(),
            next_request: 0,
            chain: Chain::default(),
            shared: None,
            has_copied: false,
            outcome: Outcome::default(),
        })
    }

    /// The same machine, whose slowest link carries one thing at a time, in either direction.
    pub fn with_one_disk(mut self) -> Machine {
        self.shared = self.config.links.len().checked_sub(1);
        self
    }

    /// Executes `trace`; a step of computation takes `step`.
    pub fn play(mut self, trace: &Trace, step: Nanos) -> Result<Outcome, String> {
        for action in &trace.actions {
            match *action {
                Action::Compute(steps) => self.pass(Nanos(step.0 * steps)),
                Action::Save(version) if !trace.stored.is_empty() => {
                    self.compress(version, (trace.sizes[version as usize], trace.kept(version)))?;
                }
                Action::Save(version) => self.save(version, trace.sizes[version as usize])?,
                Action::Restore(version) => self.restore(version, trace.kept(version))?,
                Action::Discard(version) => self.feed(Event::Discard { version: Version(version) }),
                Action::Rewrite(from, to) => {
                    self.rewrite((from, to), trace.sizes[to as usize], step)?;
                }
                Action::ExpectAll => self.expect_all(trace),
                Action::Expect(version) => self.feed(Event::Expect { version: Version(version) }),
                Action::ExpectLast(version) => {
                    self.feed(Event::ExpectLast { version: Version(version) });
                }
                Action::HoldPrefetch => self.feed(Event::HoldPrefetch),
                Action::StartPrefetch => self.feed(Event::StartPrefetch),
            }
        }
        self.outcome.total = self.now;
        Ok(self.outcome)
    }

    fn expect_all(&mut self, trace: &Trace) {
        for version in trace.restores() {
            self.feed(Event::Expect { version: Version(version) });
        }
    }

    fn save(&mut self, version: i64, bytes: u64) -> Result<(), String> {
        let (request, place) = self.ask_for_room(version, bytes)?;
        self.saved(request, place, bytes);
        Ok(())
    }

    fn ask_for_room(&mut self, version: i64, bytes: u64) -> Result<(RequestId, Place), String> {
        let begin = self.now;
        let request = self.request();
        self.feed(Event::Save { request, version: Version(version), bytes, size: Size::Exact });
        let place = self.answer(request)?;
        self.outcome.save_stall = self.outcome.save_stall.plus(self.now.since(begin));
        Ok((request, place))
    }

    fn saved(&mut self, request: RequestId, place: Place, bytes: u64) {
        let begin = self.now;
        self.copy(place, bytes, TransferKind::Flush);
        self.feed(Event::Saved { request, kept: None });
        let stall = self.now.since(begin).since(bare_copy(bytes));
        self.outcome.save_stall = self.outcome.save_stall.plus(stall);
    }

    fn rewrite(&mut self, versions: (i64, i64), bytes: u64, step: Nanos) -> Result<(), String> {
        let (request, place) = self.ask_for_room(versions.1, bytes)?;
        self.restore(versions.0, bytes)?;
        self.pass(step);
        self.saved(request, place, bytes);
        Ok(())
    }

    /// A save whose size becomes known a few saves later.
    fn compress(&mut self, version: i64, (bytes, stored): (u64, u64)) -> Result<(), String> {
        let begin = self.now;
        let request = self.request();
        self.feed(Event::Save { request, version: Version(version), bytes, size: Size::AtMost });
        let place = self.answer(request)?;
        self.outcome.save_stall = self.outcome.save_stall.plus(self.now.since(begin));
        let unit = self.config.tiers[usize::from(place.tier.0)].alignment;
        self.chain.add(request, place, (bytes, stored), unit);
        self.feed(Event::SaveInFlight { request });
        if self.chain.is_long() {
            self.report_one();
        }
        Ok(())
    }

    /// Reports the first pending save.
    fn report_one(&mut self) -> bool {
        let unit = self.config.tiers[0].alignment;
        let reported = self.chain.report_first(unit);
        reported.map(|event| self.feed(event)).is_some()
    }

    fn restore(&mut self, version: i64, bytes: u64) -> Result<(), String> {
        let begin = self.now;
        let request = self.request();
        self.feed(Event::Restore { request, version: Version(version) });
        let place = self.answer(request)?;
        self.outcome.served[usize::from(place.tier.0)] += 1;
        self.copy(place, bytes, TransferKind::Prefetch);
        self.feed(Event::Restored { request });
        let stall = self.now.since(begin).since(bare_copy(bytes));
        self.outcome.restore_stall = self.outcome.restore_stall.plus(stall);
        Ok(())
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Advances the time until the core has answered.
    fn answer(&mut self, request: RequestId) -> Result<Place, String> {
        loop {
            if let Some(answer) = self.answers.remove(&request) {
                return answer.map_err(|refusal| format!("refused: {refusal:?}"));
            }
            if self.report_one() {
                continue;
            }
            let next = self.next_time().ok_or("the core waits and nothing is under way")?;
            self.happen(next);
        }
    }

    /// Advances the time by `span`, with everything that happens in it.
    fn pass(&mut self, span: Nanos) {
        let end = self.now.plus(span);
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.happen(next);
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Nanos> {
        let due = self.due.peek().map(|Reverse((time, _))| *time);
        [due, self.core.next_deadline()].into_iter().flatten().min()
    }

    /// Advances the time to `time` and executes the next event.
    fn happen(&mut self, time: Nanos) {
        self.now = self.now.max(time);
        let is_due = self.due.peek().is_some_and(|Reverse((due, _))| *due <= time);
        if !is_due {
            return self.feed(Event::Tick);
        }
        let Some(Reverse((_, index))) = self.due.pop() else { return };
        let (event, lane) = self.events[index];
        if let Some(lane) = lane {
            let ended = self.lanes.entry(lane).or_default().pop_front();
            self.has_copied |= ended.is_some_and(|job| job.transfer.is_none());
            self.begin(lane);
        }
        self.feed(event);
    }

    /// Measures one step of the core, and executes its commands.
    fn feed(&mut self, event: Event) {
        let begin = Instant::now();
        self.core.step(event, self.now, &mut self.commands);
        let nanos = u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX);
        self.outcome.steps.push(nanos);
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            self.obey(command);
        }
        self.commands = commands;
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Grant { request, place, .. } | Command::Serve { request, place, .. } => {
                self.answers.insert(request, Ok(place));
            }
            Command::Refuse { request, refusal } => {
                self.answers.insert(request, Err(refusal));
            }
            Command::Transfer { transfer, bytes, kind, from, to, .. } => {
                let ends = (from.tier.min(to.tier), from.tier.max(to.tier));
                self.transfer(transfer, (bytes, kind), ends);
            }
            Command::Cancel { transfer } => self.cancel(transfer),
            Command::Delete { checkpoint, tier } => {
                self.schedule(self.now, Event::Deleted { checkpoint, tier }, None);
            }
            Command::FlushDone { .. } | Command::Evict { .. } => {}
        }
    }

    fn transfer(
        &mut self,
        transfer: TransferId,
        (bytes, kind): (u64, TransferKind),
        (first, last): (TierId, TierId),
    ) {
        let (first, last) = (usize::from(first.0), usize::from(last.0));
        let took = self.travel(first, last, bytes, kind);
        self.enqueue(first, Job { transfer: Some(transfer), bytes, kind, took });
    }

    fn enqueue(&mut self, link: usize, job: Job) {
        let kind = if self.shared == Some(link) { TransferKind::Flush } else { job.kind };
        let jobs = self.lanes.entry((link, kind)).or_default();
        jobs.push_back(job);
        if jobs.len() == 1 {
            self.begin((link, kind));
        }
    }

    /// Starts the front transfer of a lane.
    fn begin(&mut self, lane: Lane) {
        let Some(job) = self.lanes.get(&lane).and_then(VecDeque::front) else { return };
        let took = job.took;
        let event = match (job.transfer, job.kind) {
            (None, _) => Event::Tick,
            (Some(transfer), kind) => {
                match kind {
                    TransferKind::Flush => self.outcome.flushed += job.bytes,
                    TransferKind::Prefetch => self.outcome.prefetched += job.bytes,
                }
                Event::TransferDone { transfer, took }
            }
        };
        self.schedule(self.now.plus(took), event, Some(lane));
    }

    /// Drops a transfer that has not begun; a running one continues.
    fn cancel(&mut self, transfer: TransferId) {
        for jobs in self.lanes.values_mut() {
            let waiting = jobs.iter().skip(1).position(|job| job.transfer == Some(transfer));
            if waiting.and_then(|at| jobs.remove(at + 1)).is_some() {
                let event = Event::TransferCancelled { transfer };
                return self.schedule(self.now, event, None);
            }
        }
    }

    fn schedule(&mut self, time: Nanos, event: Event, lane: Option<Lane>) {
        self.due.push(Reverse((time, self.events.len())));
        self.events.push((event, lane));
    }

    /// The application's own copy to or from `place`, which has its turn at a link that is shared.
    fn copy(&mut self, place: Place, bytes: u64, kind: TransferKind) {
        let took = self.reach(place, bytes, kind);
        let shared = self.shared.filter(|link| usize::from(place.tier.0) > *link);
        let Some(link) = shared else { return self.pass(took) };
        self.has_copied = false;
        self.enqueue(link, Job { transfer: None, bytes, kind, took });
        while let Some(next) = self.next_time().filter(|_| !self.has_copied) {
            self.happen(next);
        }
    }

    /// Duration of the application's own copy to or from `place`.
    fn reach(&self, place: Place, bytes: u64, kind: TransferKind) -> Nanos {
        let links = self.travel(0, usize::from(place.tier.0), bytes, kind);
        bare_copy(bytes).plus(links)
    }

    /// Duration of a movement of `bytes` from tier `first` to tier `last` or back: the slowest link
    /// determines the rate, every link adds its latency.
    fn travel(&self, first: usize, last: usize, bytes: u64, kind: TransferKind) -> Nanos {
        let links = &self.config.links[first..last];
        let rate = links.iter().map(|link| match kind {
            TransferKind::Flush => link.flush_rate,
            TransferKind::Prefetch => link.prefetch_rate,
        });
        let slowest = rate.fold(f64::INFINITY, f64::min);
        let latency: u64 = links.iter().map(|link| link.latency.0).sum();
        Nanos(latency + (bytes as f64 / slowest * 1e9) as u64)
    }
}

fn bare_copy(bytes: u64) -> Nanos {
    Nanos((bytes as f64 / COPY_RATE * 1e9) as u64)
}
