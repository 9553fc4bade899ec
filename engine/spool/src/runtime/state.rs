//! Everything that the one lock guards.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use unspool_core::{
    CheckpointId, Command, Event, Learner, Nanos, Place, Refusal, RequestId, TransferId, Version,
};
use unspool_transfer::Frame;
use unspool_transfer::sync::{Condvar, thread};

use crate::coding::{Launched, Predecessor, RecentSizes, Sealed, codings};
use crate::runtime::counters::{Counters, Route};
use crate::runtime::deferred::Unsaved;
use crate::runtime::driver::Driver;
use crate::runtime::frame_index::FrameIndex;
use crate::runtime::room::Shortage;

/// What the core answered to a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Room for a save.
    Granted(CheckpointId, Place),
    /// The bytes of a restore. What is known of them comes with it, because the checkpoint may be
    /// discarded before the caller wakes up.
    Served(CheckpointId, Place, Arc<Frame>),
    /// A flush is done.
    Flushed,
    /// It cannot be done.
    Refused(Refusal),
}

/// Room that the core has granted to one save: whose it is, and where.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// With the largest streams, until the checkpoint is encoded.
    pub(crate) frame: Arc<Frame>,
    pub(crate) request: RequestId,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) place: Place,
    /// Its bytes: the most that the checkpoint can have, or fewer where room is scarce.
    pub(crate) room: u64,
    pub(crate) began: Nanos,
    /// Its end on the device, once its encoder is enqueued.
    pub(crate) launched: Launched,
}

impl Grant {
    pub(crate) fn version(&self) -> i64 {
        self.frame.head().version
    }

    /// This save as the predecessor of one in `place`; `None` unless its room, in whole units of
    /// `alignment` bytes, ends there.
    pub(crate) fn before(&self, place: Place, alignment: u64) -> Option<Predecessor> {
        let room = self.room.next_multiple_of(alignment);
        let is_before = self.place.tier == place.tier && self.place.offset + room == place.offset;
        let (end, request) = (Arc::clone(&self.launched), self.request);
        is_before.then_some(Predecessor { end, request, alignment })
    }
}

/// How far the life of the spool has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Calls are taken. `close` -> `Closing`.
    Open,
    /// New calls are refused; what is in the background goes on. Written -> `Closed`; what cannot
    /// be written is kept -> `Open`.
    Closing {
        /// The thread that closes the spool.
        by: thread::ThreadId,
    },
    /// Nothing is decided any more: reports of the last workers are dropped.
    Closed,
}

pub(crate) struct State {
    pub(crate) driver: Driver,
    /// Announces restores from what earlier iterations restored, where the settings ask for it.
    pub(crate) learner: Option<Learner>,
    pub(crate) frames: FrameIndex,
    pub(crate) counters: Counters,
    /// What encoded checkpoints have come to, where room is scarce.
    pub(crate) recent: RecentSizes,
    pub(crate) phase: Phase,
    /// The core is at work. It is still set afterwards only when the core panicked: then nothing
    /// that it says can be relied on.
    pub(crate) stepping: bool,
    /// Transfers that are under way: whose, and which way.
    pub(crate) moving: HashMap<TransferId, (CheckpointId, Route)>,
    /// Frames in a store that were refused when it was opened; they are never deleted.
    pub(crate) refused_frames: Vec<CheckpointId>,
    /// What went wrong without stopping anything.
    pub(crate) notes: Vec<String>,
    /// The host tier is no larger than so many checkpoints of the largest size so far.
    pub(crate) host_checkpoints: Option<u32>,
    /// The bytes of the largest checkpoint that was to be saved so far.
    pub(crate) largest: u64,
    /// The arenas that the machine has too little memory for at the moment.
    pub(crate) short: Vec<Shortage>,
    /// A shortage is among the notes: later ones are like it.
    pub(crate) was_short: bool,
    /// What was not saved after its call had returned: the next call tells it.
    pub(crate) deferred: Vec<Unsaved>,
    /// The alarm that the engine was given last.
    pub(crate) alarm: Option<Nanos>,
    /// Events that follow from commands, in order.
    pub(crate) pending: VecDeque<Event>,
    /// An empty vector with room, for the commands of the next step.
    pub(crate) commands: Vec<Command>,
    next_request: u64,
    slots: Vec<WaitingCall>,
}

/// A call that waits for its answer.
struct WaitingCall {
    request: RequestId,
    answer: Option<Answer>,
    /// Wakes the thread that waits, if it sleeps.
    sleeper: Option<Arc<Condvar>>,
}

impl State {
    pub(crate) fn new(driver: Driver, links: usize, learner: Option<Learner>) -> State {
        State {
            driver,
            learner,
            frames: FrameIndex::default(),
            counters: Counters::new(links),
            recent: RecentSizes::default(),
            phase: Phase::Open,
            stepping: false,
            moving: HashMap::new(),
            refused_frames: Vec::new(),
            notes: Vec::new(),
            host_checkpoints: None,
            largest: 0,
            short: Vec::new(),
            was_short: false,
            deferred: Vec::new(),
            alarm: None,
            pending: VecDeque::new(),
            commands: Vec::new(),
            next_request: 0,
            slots: Vec::new(),
        }
    }

    /// Has the core hear, before `event`, of restores that are learned.
    pub(crate) fn announce_before(&mut self, event: &Event) {
        let Some(learner) = &mut self.learner else { return };
        let mut hints = Vec::new();
        learner.before(event, self.driver.core().hints(), &mut hints);
        self.pending.extend(hints);
    }

    /// A new call.
    pub(crate) fn open_request(&mut self) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.slots.push(WaitingCall { request, answer: None, sleeper: None });
        request
    }

    /// From now on an answer to `request` notifies `sleeper`.
    pub(crate) fn sleep(&mut self, request: RequestId, sleeper: Arc<Condvar>) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.request == request) {
            slot.sleeper = Some(sleeper);
        }
    }

    /// Takes the answer to `request`, if it is there; the call then waits no more.
    pub(crate) fn take_answer(&mut self, request: RequestId) -> Option<Answer> {
        let index = self.slots.iter().position(|slot| slot.request == request)?;
        let answer = self.slots[index].answer.take()?;
        self.slots.swap_remove(index);
        Some(answer)
    }

    /// Whether `request` was answered.
    pub(crate) fn has_answer(&self, request: RequestId) -> bool {
        self.slots.iter().any(|slot| slot.request == request && slot.answer.is_some())
    }

    /// The call waits no more, whatever the answer is.
    pub(crate) fn forget_request(&mut self, request: RequestId) {
        self.slots.retain(|slot| slot.request != request);
    }

    /// The core has answered `request`.
    pub(crate) fn answer(&mut self, request: RequestId, answer: Answer) {
        let slot = self.slots.iter_mut().find(|slot| slot.request == request);
        debug_assert!(slot.is_some(), "an answer to a call that does not wait");
        if let Some(slot) = slot {
            debug_assert!(slot.answer.is_none(), "a call is answered once");
            slot.answer = Some(answer);
            if let Some(sleeper) = &slot.sleeper {
                sleeper.notify_one();
            }
        }
    }

    /// Wakes every thread that waits, so that it looks at the phase.
    pub(crate) fn wake_all(&self) {
        for sleeper in self.slots.iter().filter_map(|slot| slot.sleeper.as_ref()) {
            sleeper.notify_one();
        }
    }

    /// Every checkpoint, by its version.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = (Version, CheckpointId)> {
        let core = self.driver.core();
        let versions = core.versions().into_iter();
        versions.filter_map(|version| Some((version, core.checkpoint(version)?)))
    }

    /// Calls that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Drops what is known of `id` when the core no longer has it under `version`.
    pub(crate) fn forget_if_gone(&mut self, version: Version, id: CheckpointId) {
        if self.driver.core().checkpoint(version) != Some(id) {
            self.frames.remove(id);
        }
    }

    /// A checkpoint has got its true size.
    pub(crate) fn sealed(&mut self, id: CheckpointId, sealed: Sealed) {
        let Sealed { frame, achieved, time, lesson } = sealed;
        let regions = codings(frame.head(), Some(&achieved));
        self.counters.codecs.saved(&regions, time);
        if let Some(lesson) = lesson {
            self.counters.experience.learn(&lesson);
        }
        self.frames.seal(id, frame, achieved);
    }
}
