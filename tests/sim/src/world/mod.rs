//! The whole system in virtual time: the real core, a fake machine, a scripted application, and the
//! checkers of every step.

pub mod agenda;
mod bytes;
mod commands;
mod copies;
mod crash;
mod deletes;
mod encodes;
mod feed;
mod figures;
mod finish;
mod judge;
pub mod machine;
mod order;
mod replies;
mod shrinking;
mod threads;
mod transfers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use unspool_core::{CheckpointId, Core, Learner, Nanos, RequestId, TransferId, Version};

use crate::check::durable::Promises;
use crate::check::ledger::Ledger;
use crate::check::order::OrderCheck;
use crate::check::requests::Requests;
use crate::check::retries::Retries;
use crate::check::{Rule, Violation, ensure};
use crate::device::streams::OpId;
use crate::history::History;
use crate::plan::Plan;
use crate::plan::script::Life;
use crate::random::{Random, Topic};
use crate::world::agenda::{Action, Agenda, ThreadId};
use crate::world::encodes::Pending;
use crate::world::figures::Counters;
use crate::world::judge::HintMirror;
use crate::world::machine::Hardware;
use crate::world::replies::Reply;
use crate::world::threads::{Thread, Ticket};
use crate::world::transfers::Job;

pub use figures::{CallFigures, Reach, RunFigures};

/// The result of a step of the simulation.
pub(crate) type Checked = Result<(), Violation>;

/// Maximum number of events in one life; beyond it, activity is taken to never end.
const MOST_EVENTS: u64 = 200_000;

/// One run.
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Nanos,
    pub(crate) agenda: Agenda,
    pub(crate) core: Core,
    pub(crate) learner: Option<Learner>,
    pub(crate) hardware: Hardware,
    pub(crate) ledger: Ledger,
    pub(crate) requests: Requests,
    pub(crate) promises: Promises,
    pub(crate) retries: Retries,
    pub(crate) order: OrderCheck,
    pub(crate) hints: HintMirror,
    pub(crate) threads: Vec<Thread>,
    pub(crate) jobs: BTreeMap<TransferId, Job>,
    pub(crate) ops: BTreeMap<OpId, Work>,
    /// Unreported asynchronous saves, in the order of their calls.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) replies: BTreeMap<RequestId, (ThreadId, Option<Reply>)>,
    /// The version and the bytes of every checkpoint of all lives.
    pub(crate) ever: BTreeMap<CheckpointId, (Version, u64)>,
    /// Rules whose checkers are switched off, to test that others notice too.
    pub(crate) blind: BTreeSet<Rule>,
    pub(crate) history: History,
    pub(crate) counters: Counters,
    pub(crate) life: usize,
    /// Events that the core has taken in this life.
    pub(crate) events: u64,
    /// Events that the core has received in earlier lives.
    pub(crate) earlier_events: u64,
    pub(crate) draws: u64,
    next_request: u64,
    /// The last event was a temporary failure, which must be followed by a retry.
    pub(crate) must_retry: bool,
    /// Faults have stopped.
    pub(crate) calm: bool,
    /// Whether any operation has failed in this life.
    pub(crate) failures: bool,
    /// The planted bug has struck.
    pub(crate) canary_struck: bool,
    /// Number of events by which all activity must have ended, once the application and the faults
    /// have.
    pub(crate) rest_limit: Option<u64>,
    pub(crate) prefetch_held: bool,
    pub(crate) next_tick: Nanos,
}

/// The work of an operation of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Transfer(TransferId),
    Delete { checkpoint: CheckpointId, tier: unspool_core::TierId },
    Copy(ThreadId, Ticket),
}

impl World {
    /// A machine that has just been started.
    ///
    /// # Panics
    /// When the settings of the plan are invalid.
    #[must_use]
    pub fn new(plan: Plan) -> World {
        let config = plan.config.clone();
        let faults_stop = plan.faults.until;
        let mut world = World {
            now: Nanos(0),
            agenda: Agenda::default(),
            core: Core::new(config.clone()).expect("plans have valid settings"),
            learner: plan.learns.then(Learner::default),
            hardware: Hardware::new(&plan),
            ledger: Ledger::new(&config),
            requests: Requests::default(),
            promises: Promises::default(),
            retries: Retries::new(&config),
            order: OrderCheck::default(),
            hints: HintMirror::default(),
            threads: Vec::new(),
            jobs: BTreeMap::new(),
            ops: BTreeMap::new(),
            pending: VecDeque::new(),
            replies: BTreeMap::new(),
            ever: BTreeMap::new(),
            blind: BTreeSet::new(),
            history: History::new(&config),
            counters: Counters::default(),
            life: 0,
            events: 0,
            earlier_events: 0,
            draws: 0,
            next_request: 0,
            must_retry: false,
            calm: false,
            failures: false,
            canary_struck: false,
            rest_limit: None,
            prefetch_held: false,
            next_tick: Nanos::NEVER,
            plan,
        };
        if faults_stop != Nanos::NEVER {
            world.agenda.plan(faults_stop, Action::FaultsStop);
        }
        world.begin_life();
        world
    }

    /// Also records notes about the machine from now on.
    pub fn keep_notes(&mut self) {
        self.history.keep_notes();
    }

    /// Records the input of the order checker from now on.
    pub fn keep_order(&mut self) {
        self.order.keep_text();
    }

    /// Switches the checkers of these rules off.
    pub fn look_away(&mut self, rules: &[Rule]) {
        self.blind.extend(rules);
    }

    /// Runs to the end of the last life, until all activity has ended.
    ///
    /// # Errors
    /// At the first rule that is broken.
    pub fn run(&mut self) -> Checked {
        while let Some((at, action)) = self.agenda.take_next() {
            self.now = self.now.max(at);
            self.perform(action)?;
            self.begin_ready()?;
            if self.is_crash_due() {
                self.crash()?;
            }
            self.check_pace()?;
        }
        self.finish()
    }

    fn perform(&mut self, action: Action) -> Checked {
        match action {
            Action::Wake(thread) => self.wake(thread),
            Action::Answer(thread, request) => self.see_answer(thread, request),
            Action::GiveUp(thread, request) => self.give_up(thread, request),
            Action::OpDone(op) => self.op_done(op),
            Action::Report(event, fence) => self.report(event, fence),
            Action::ReportSaves => self.report_saves(),
            Action::Tick => self.tick(),
            Action::Shrink => self.shrink(),
            Action::Grow => self.grow(),
            Action::LoseDevice => self.lose_device(),
            Action::FaultsStop => {
                self.become_calm();
                Ok(())
            }
        }
    }

    fn check_pace(&mut self) -> Checked {
        if self.threads.iter().all(Thread::is_finished) && !self.is_crash_planned() {
            self.next_stage()?;
        }
        let limit = self.rest_limit.map_or(MOST_EVENTS, |limit| limit.min(MOST_EVENTS));
        ensure(self.events < limit, Rule::Rest, || {
            format!("{} events in this life, where {limit} must do", self.events)
        })
    }

    /// The number of events by which all activity must have ended, from now on.
    pub(crate) fn limit_from_now(&self) -> u64 {
        let copies = (self.ledger.all().count() * self.plan.config.tiers.len()) as u64;
        self.events + 200 + 40 * copies
    }

    fn life(&self) -> &Life {
        &self.plan.lives[self.life]
    }

    pub(crate) fn is_crash_planned(&self) -> bool {
        self.life().crash_after.is_some()
    }

    fn is_crash_due(&self) -> bool {
        let at = self.life().crash_after;
        let over = self.threads.iter().all(Thread::is_finished);
        at.is_some_and(|events| self.events >= events || over)
    }

    fn begin_life(&mut self) {
        if let Some((after, _)) = self.plan.faults.shrinks.filter(|_| !self.calm) {
            self.agenda.plan(self.now.plus(after), Action::Shrink);
        }
        if let Some(after) = self.plan.faults.loses.filter(|_| !self.calm) {
            self.agenda.plan(self.now.plus(after), Action::LoseDevice);
        }
        let scripts = self.life().threads.clone();
        for script in scripts {
            self.start_thread(script);
        }
    }

    pub(crate) fn become_calm(&mut self) {
        self.calm = true;
        self.hardware.repair();
        self.history.note(self.now, || "nothing fails any more".to_owned());
    }

    pub(crate) fn new_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// A random span of at most `most`.
    pub(crate) fn delay(&mut self, most: Nanos) -> Nanos {
        self.draws += 1;
        Nanos(Random::of(self.plan.seed, Topic::Delay, self.draws).below(most.0 + 1))
    }

    /// Whether an event of probability `share` happens now.
    pub(crate) fn happens(&mut self, share: f64) -> bool {
        self.draws += 1;
        Random::of(self.plan.seed, Topic::Delay, self.draws).chance(share)
    }

    /// A violation unless the checker of that rule is switched off.
    pub(crate) fn enforce(&self, checked: Checked) -> Checked {
        checked.or_else(|v| if self.blind.contains(&v.rule) { Ok(()) } else { Err(v) })
    }
}
