//! The hub: the lock, what it guards, and everything that commands are carried out with.
//!
//! Invariants:
//! - Only [`Hub::feed`] steps the core, with the lock held, so decisions are in one order.
//! - No I/O happens and no code of the application runs while the lock is held.
//! - Workers report through [`Inbox`]; it does not keep the hub alive.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use unspool_core::{
    CheckpointId, Command, Event, Failure, Nanos, Place, RequestId, TierId, TransferId,
};
use unspool_tiers::{Arena, Disk, Tier};
use unspool_transfer::sync::{Mutex, MutexGuard, lock};
use unspool_transfer::{
    Answer as Taken, Clock, Engine, Frame, Job, Options, Pool, Sink, Span, SystemClock,
    TransferError,
};

use crate::brain::Brain;
use crate::error::{Error, ErrorKind};
use crate::reasons;
use crate::settings::Settings;
use crate::stack::{self, Stack};
use crate::state::{Answer, Phase, State};
use crate::tally::{Call, Route};
use crate::timeline::Timeline;

pub(crate) struct Hub {
    pub(crate) settings: Settings,
    pub(crate) tiers: Vec<Arc<dyn Tier>>,
    /// The disk among them, for closing it.
    pub(crate) disk: Option<Arc<Disk>>,
    /// Those that can make frames survive a crash of the machine.
    pub(crate) durable_tiers: Vec<TierId>,
    pub(crate) buffers: Arc<Pool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) engine: Engine,
    /// The spans so far, when the settings ask for them.
    pub(crate) timeline: Option<Mutex<Timeline>>,
    /// The lane of the application's calls on the timeline.
    application: Arc<str>,
    state: Mutex<State>,
    /// The process that opened the spool.
    process: u32,
}

/// What a hub is made of besides its settings.
pub(crate) struct Parts {
    pub(crate) stack: Stack,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) process: u32,
}

impl Hub {
    pub(crate) fn open(settings: Settings) -> Result<Arc<Hub>, Error> {
        stack::check(&settings)?;
        let stack = stack::build(&settings)?;
        let clock = Arc::new(SystemClock::default());
        Hub::start(settings, Parts { stack, clock, process: std::process::id() })
    }

    /// A hub made of these parts.
    pub(crate) fn start(settings: Settings, parts: Parts) -> Result<Arc<Hub>, Error> {
        let Parts { stack: Stack { tiers, disk }, clock, process } = parts;
        let config = stack::config(&settings, &tiers);
        let links = config.links.len();
        let brain = Brain::new(config, settings.record.as_deref())?;
        let buffers = Pool::new(settings.staging_bytes);
        let inbox = Arc::new(Inbox::default());
        let options = options(&settings, links, &clock, &buffers);
        let engine = Engine::start(tiers.clone(), options, inbox.clone())
            .map_err(|cause| Error::new(ErrorKind::Io, cause.to_string()).caused_by(cause))?;
        let hub = Arc::new(Hub {
            timeline: settings.trace.then(|| Mutex::new(Timeline::new(settings.trace_spans))),
            application: "application".into(),
            settings,
            durable_tiers: durable_tiers(&tiers),
            tiers,
            disk,
            buffers,
            clock,
            engine,
            state: Mutex::new(State::new(brain, links)),
            process,
        });
        let first = inbox.hub.set(Arc::downgrade(&hub));
        debug_assert!(first.is_ok(), "an inbox has one hub");
        Ok(hub)
    }

    /// The state, for a call of the application.
    ///
    /// # Errors
    /// `Forked`, and `Closed` when the spool takes no calls any more.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, State>, Error> {
        self.check_process()?;
        let state = lock(&self.state);
        check_open(&state)?;
        Ok(state)
    }

    /// The state, whatever its phase. The caller has checked the process.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if !self.is_forked() {
            return Ok(());
        }
        let message = format!(
            "This spool belongs to process {}, which forked this one. Its workers do not exist \
             here: open a spool of your own in this process (with multiprocessing, use the start \
             method `spawn` or `forkserver`).",
            self.process
        );
        Err(Error::new(ErrorKind::Forked, message))
    }

    /// Steps the core with `event`, and then with what follows from its commands at once.
    pub(crate) fn feed(&self, state: &mut State, event: Event) {
        if state.phase == Phase::Closed || state.stepping {
            return;
        }
        state.stepping = true;
        state.pending.push_back(event);
        let mut commands = std::mem::take(&mut state.commands);
        while let Some(event) = state.pending.pop_front() {
            state.brain.step(event, self.clock.now(), &mut commands);
            for command in commands.drain(..) {
                self.execute(state, command);
            }
        }
        state.commands = commands;
        self.set_alarm(state);
        state.stepping = false;
    }

    fn set_alarm(&self, state: &mut State) {
        let deadline = state.brain.core().next_deadline();
        if deadline != state.alarm {
            state.alarm = deadline;
            self.engine.wake_at(deadline);
        }
    }

    fn execute(&self, state: &mut State, command: Command) {
        match command {
            Command::Grant { request, checkpoint, place } => {
                state.answer(request, Answer::Granted(checkpoint, place));
            }
            Command::Serve { request, checkpoint, place } => {
                self.serve(state, request, checkpoint, place);
            }
            Command::FlushDone { request } => state.answer(request, Answer::Flushed),
            Command::Refuse { request, refusal } => {
                state.answer(request, Answer::Refused(refusal));
            }
            Command::Transfer { .. } => self.move_copy(state, command),
            Command::Cancel { transfer } => {
                if self.engine.cancel(transfer) == Taken::NeverRuns {
                    report_cancelled(state, transfer);
                }
            }
            Command::Delete { checkpoint, tier } => self.delete(state, checkpoint, tier),
            Command::Evict { checkpoint, place } => self.evict(state, checkpoint, place),
        }
    }

    fn serve(&self, state: &mut State, request: RequestId, id: CheckpointId, place: Place) {
        let frame = state.catalogue.frame(id).cloned();
        debug_assert!(frame.is_some(), "a saved checkpoint is in the catalogue");
        if let Some(frame) = frame {
            state.answer(request, Answer::Served(id, place, frame));
        }
    }

    fn move_copy(&self, state: &mut State, command: Command) {
        let Command::Transfer { transfer, checkpoint, version, bytes, kind, from, to } = command
        else {
            return;
        };
        let Some(frame) = state.catalogue.frame(checkpoint).cloned() else {
            debug_assert!(false, "a checkpoint that moves is in the catalogue");
            let failure = Failure::Permanent;
            return state.pending.push_back(Event::TransferFailed { transfer, failure });
        };
        let route = Route { kind, from: from.tier, to: to.tier };
        state.moving.insert(transfer, (checkpoint, route));
        let job = Job { transfer, checkpoint, version, bytes, kind, from, to, frame };
        if self.engine.submit(job) == Taken::NeverRuns {
            report_cancelled(state, transfer);
        }
    }

    fn delete(&self, state: &mut State, checkpoint: CheckpointId, tier: TierId) {
        let kept = state.refused_frames.contains(&checkpoint);
        if kept || self.engine.delete(checkpoint, tier) == Taken::NeverRuns {
            state.pending.push_back(Event::Deleted { checkpoint, tier });
        }
    }

    fn evict(&self, state: &mut State, checkpoint: CheckpointId, place: Place) {
        let forgotten = self.arena(place).map(|arena| arena.forget(checkpoint));
        if let Some(Err(cause)) = forgotten {
            // The room stays taken, so a later use of it is an error and not corruption.
            debug_assert!(false, "{cause}");
            state.notes.push(format!("A copy could not be evicted: {cause}"));
        }
    }

    pub(crate) fn tier(&self, tier: TierId) -> &dyn Tier {
        &*self.tiers[usize::from(tier.0)]
    }

    pub(crate) fn arena(&self, place: Place) -> Option<&Arena> {
        self.tier(place.tier).memory()
    }

    /// When a call began; only looked at for the timeline.
    pub(crate) fn time_of_call(&self) -> Nanos {
        if self.timeline.is_some() { self.clock.now() } else { Nanos(0) }
    }

    /// Puts a call of the application on the timeline, if there is one.
    pub(crate) fn span_of_call(
        &self,
        call: Call,
        frame: &Frame,
        began: Nanos,
        outcome: &'static str,
    ) {
        let Some(timeline) = &self.timeline else { return };
        let head = frame.head();
        lock(timeline).push(Span {
            lane: Arc::clone(&self.application),
            worker: thread_number(),
            label: call.name(),
            outcome,
            version: Some(head.version),
            bytes: head.payload_bytes,
            queued: began,
            start: began,
            end: self.clock.now(),
        });
    }

    /// Takes in what a worker reports.
    fn report(&self, event: Event, error: Option<TransferError>) {
        let mut state = self.state();
        match event {
            Event::TransferDone { transfer, took } => {
                if let Some((_, route)) = state.moving.remove(&transfer) {
                    state.tally.moved(route, took);
                }
            }
            Event::TransferFailed { transfer, failure } => {
                if let Some((id, route)) = state.moving.remove(&transfer) {
                    note_failure(&mut state, id, route, failure, error);
                }
            }
            Event::TransferCancelled { transfer } => {
                state.moving.remove(&transfer);
            }
            Event::Deleted { .. } => state.notes.extend(error.map(|error| error.to_string())),
            // The alarm is off once it went off.
            Event::Tick => state.alarm = None,
            _ => {}
        }
        self.feed(&mut state, event);
    }

    /// The error of a store that failed in the caller's own thread. A store that was closed under
    /// the call is no fault of the medium.
    pub(crate) fn direct_failed(&self, doing: &str, version: i64, cause: TransferError) -> Error {
        let closed = check_open(&self.state()).err();
        closed.unwrap_or_else(|| reasons::direct_failed(doing, version, cause))
    }

    /// The longest that close waits for the workers when it is nobody's explicit call.
    pub(crate) fn drop_timeout(&self) -> Duration {
        self.settings.timeout.min(Duration::from_secs(30))
    }
}

fn durable_tiers(tiers: &[Arc<dyn Tier>]) -> Vec<TierId> {
    let durable = |(_, tier): &(u8, &Arc<dyn Tier>)| tier.describe().durable;
    (0..).zip(tiers).filter(durable).map(|(index, _)| TierId(index)).collect()
}

/// Refuses calls on a spool that is closed or broken.
pub(crate) fn check_open(state: &State) -> Result<(), Error> {
    if state.stepping {
        let message = "The spool stopped because of a fault in Unspool itself: its core panicked \
                       earlier. Report it with the text of that panic, and open a new spool.";
        return Err(Error::new(ErrorKind::Closed, message));
    }
    if state.phase == Phase::Open {
        return Ok(());
    }
    let message = "The spool is closed. Open a new one, or move this call before `close()`.";
    Err(Error::new(ErrorKind::Closed, message))
}

/// A small number for the calling thread: its row on the timeline.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

fn report_cancelled(state: &mut State, transfer: TransferId) {
    state.moving.remove(&transfer);
    state.pending.push_back(Event::TransferCancelled { transfer });
}

fn note_failure(
    state: &mut State,
    id: CheckpointId,
    route: Route,
    failure: Failure,
    error: Option<TransferError>,
) {
    let text = error.map_or_else(|| format!("{failure:?}"), |error| error.to_string());
    if matches!(failure, Failure::Corrupt | Failure::Missing) {
        state.catalogue.set_loss(id, text.clone());
    }
    state.tally.failed(route.link(), text);
}

fn options(
    settings: &Settings,
    links: usize,
    clock: &Arc<dyn Clock>,
    buffers: &Arc<Pool>,
) -> Options {
    // A movement that skips tiers counts on another link than the one whose thread it uses.
    let in_flight = settings.in_flight.saturating_mul(links.max(1) as u32);
    Options {
        in_flight,
        store_workers: settings.store_workers,
        verify: settings.verify,
        trace: settings.trace,
        clock: Arc::clone(clock),
        buffers: Arc::clone(buffers),
        ..Options::default()
    }
}

/// Where workers leave their reports.
#[derive(Default)]
struct Inbox {
    hub: OnceLock<Weak<Hub>>,
}

impl Inbox {
    /// The hub; none while the spool is made and after it is gone.
    fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.get().and_then(Weak::upgrade)
    }
}

impl Sink for Inbox {
    fn event(&self, event: Event, error: Option<TransferError>) {
        if let Some(hub) = self.hub() {
            hub.report(event, error);
        }
    }

    fn span(&self, span: Span) {
        if let Some(timeline) = self.hub().as_ref().and_then(|hub| hub.timeline.as_ref()) {
            lock(timeline).push(span);
        }
    }
}
