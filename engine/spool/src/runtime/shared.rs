//! The shared: the lock, what it guards, and everything that commands are carried out with.
//!
//! Invariants:
//! - Only [`Shared::feed`] steps the core, with the lock held, so decisions are in one order.
//! - No I/O happens and no code of the application runs while the lock is held, except that a
//!   record of decisions is written when the settings ask for one.
//! - Workers report through [`Inbox`]; it does not keep the shared alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unspool_core::{Event, Learner, Place, TierId, TierKind};
use unspool_cuda::kernels::take_waited;
use unspool_tiers::{AnyTier, Arena, Disk, Process, Tier};
use unspool_transfer::sync::{Condvar, Mutex, MutexGuard, lock};
use unspool_transfer::{Clock, Engine, Options, Pool, SystemClock, TransferError};

use crate::coding::Decodings;
use crate::error::{Error, ErrorKind};
use crate::gpu::Gpu;
use crate::runtime::completion::Completions;
use crate::runtime::counters::Call;
use crate::runtime::devices;
use crate::runtime::driver::Driver;
use crate::runtime::inbox::Inbox;
use crate::runtime::order::OrderCheck;
use crate::runtime::rates;
use crate::runtime::reasons;
use crate::runtime::stack::{self, Stack};
use crate::runtime::state::{Phase, State};
use crate::runtime::timeline::{MOST_SPANS, Timeline};
use crate::settings::Settings;
use crate::time::nanos;

/// The most bytes of idle staging buffers that are kept for the next direct read of a store.
const STAGING: u64 = 256 << 20;

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) tiers: Vec<AnyTier>,
    /// What each of them is.
    pub(crate) kinds: Vec<TierKind>,
    /// The disk among them, for closing it.
    pub(crate) disk: Option<Arc<Disk>>,
    /// The device under the arenas, if they are on one.
    pub(crate) gpu: Option<Gpu>,
    /// The check of stream order, where one is wanted.
    pub(crate) order: Option<Arc<OrderCheck>>,
    /// Whether the device was found lost, which is told once.
    device_is_lost: AtomicBool,
    /// Devices of arrays, when the spool is on none.
    others: Mutex<Vec<Gpu>>,
    /// Those that can make frames survive a crash of the machine.
    pub(crate) durable_tiers: Vec<TierId>,
    pub(crate) buffers: Arc<Pool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) engine: Engine,
    /// The spans so far, when the settings ask for them.
    pub(crate) timeline: Option<Mutex<Timeline>>,
    /// The lane of the application's calls on the timeline.
    pub(crate) application: Arc<str>,
    /// Saves that a GPU still encodes.
    pub(crate) completions: Arc<Completions>,
    /// Restores that a GPU still decodes.
    pub(crate) decoding: Decodings,
    state: Mutex<State>,
    /// A close has ended, well or not.
    pub(crate) closing_ended: Condvar,
    /// Every sync that runs holds one.
    pub(crate) syncs: Arc<()>,
    /// The process that opened the spool.
    process: Process,
}

/// What a shared is made of besides its settings.
pub(crate) struct SharedParts {
    pub(crate) stack: Stack,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) process: u32,
}

impl Shared {
    pub(crate) fn open(settings: Settings) -> Result<Arc<Shared>, Error> {
        stack::check(&settings)?;
        let stack = stack::build(&settings)?;
        let clock = Arc::new(SystemClock::default());
        Shared::start(settings, SharedParts { stack, clock, process: std::process::id() })
    }

    /// A shared made of these parts.
    pub(crate) fn start(settings: Settings, parts: SharedParts) -> Result<Arc<Shared>, Error> {
        let SharedParts { stack: Stack { tiers, disk, gpu, order }, clock, process } = parts;
        let mut config = stack::config(&settings, &tiers, gpu.is_some());
        rates::recall(&settings, gpu.as_ref(), &mut config);
        let links = config.links.len();
        let driver = Driver::new(config, settings.record.as_deref())?;
        // With one tier there is nothing to read ahead.
        let learner = (settings.learn && links > 0).then(Learner::default);
        let buffers = Pool::new(STAGING);
        let inbox = Arc::new(Inbox::default());
        let options = Options {
            // While one copy is waited for, the next one is on the link.
            arena_workers: if gpu.is_some() { 2 } else { 1 },
            ..options(&settings, links, &clock, &buffers)
        };
        let engine = Engine::start(tiers.clone(), options, inbox.clone())
            .map_err(|cause| Error::new(ErrorKind::Io, cause.to_string()).caused_by(cause))?;
        let shared = Arc::new(Shared {
            timeline: settings.trace.then(|| Mutex::new(Timeline::new(MOST_SPANS))),
            application: "application".into(),
            settings,
            durable_tiers: durable_tiers(&tiers),
            kinds: tiers.iter().map(|tier| tier.tier().describe().kind).collect(),
            tiers,
            disk,
            gpu,
            order,
            device_is_lost: AtomicBool::new(false),
            others: Mutex::new(Vec::new()),
            buffers,
            clock,
            engine,
            completions: Arc::default(),
            decoding: Decodings::default(),
            state: Mutex::new(State::new(driver, links, learner)),
            closing_ended: Condvar::new(),
            syncs: Arc::default(),
            process: Process::of(process),
        });
        inbox.belongs_to(&shared);
        shared.take_by_need(&mut shared.state());
        Ok(shared)
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

    /// Whether a sync of a store runs, which may take as long as the medium likes.
    pub(crate) fn is_syncing(&self) -> bool {
        Arc::strong_count(&self.syncs) > 1
    }

    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if !self.is_forked() {
            return Ok(());
        }
        let message = format!(
            "This spool belongs to process {}, which forked this one. Its workers do not exist \
             here: open a spool of your own in this process (with multiprocessing, use the start \
             method `spawn` or `forkserver`).",
            self.process.id()
        );
        Err(Error::new(ErrorKind::Forked, message))
    }

    pub(crate) fn tier(&self, tier: TierId) -> &dyn Tier {
        self.tiers[usize::from(tier.0)].tier()
    }

    pub(crate) fn kind(&self, tier: TierId) -> TierKind {
        self.kinds[usize::from(tier.0)]
    }

    pub(crate) fn arena(&self, place: Place) -> Option<&Arena> {
        self.tiers[usize::from(place.tier.0)].arena()
    }

    /// The arena of the fastest tier, the only one that arrays are given to.
    pub(crate) fn fastest_arena(&self) -> Option<&Arena> {
        self.tiers.first().and_then(AnyTier::arena)
    }

    /// Lets go of arrays that were given to the device tier and whose copies are gone. May run code
    /// of the application: no lock may be held.
    pub(crate) fn let_go(&self) {
        if let Some(arena) = self.fastest_arena() {
            arena.let_go();
        }
    }

    /// The GPU `ordinal`, for an array on it.
    pub(crate) fn gpu_of(&self, ordinal: u32) -> Result<Gpu, Error> {
        if let Some(gpu) = &self.gpu {
            return gpu.require(ordinal).map(|()| gpu.clone());
        }
        let mut others = lock(&self.others);
        if let Some(gpu) = others.iter().find(|gpu| gpu.ordinal() == ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = devices::open(ordinal, &self.settings)?;
        others.push(gpu.clone());
        Ok(gpu)
    }

    /// A GPU for arrays of the host: that of the spool, or else one that it had arrays of.
    pub(crate) fn some_gpu(&self) -> Option<Gpu> {
        self.gpu.clone().or_else(|| lock(&self.others).first().cloned())
    }

    /// Counts what this thread has waited for kernels since it last came here.
    pub(crate) fn count_kernels(&self, call: Call, version: i64) {
        let waited = take_waited();
        if waited > Duration::ZERO {
            self.state().counters.stalled_for_kernels(call, version, nanos(waited));
        }
    }

    /// The error of a store that failed in the caller's own thread. A store that was closed under
    /// the call is not a fault of the medium.
    pub(crate) fn direct_failed(&self, doing: &str, version: i64, cause: TransferError) -> Error {
        let closed = check_open(&self.state()).err();
        closed.unwrap_or_else(|| reasons::direct_failed(doing, version, cause))
    }

    /// Looks whether the device under the arenas is lost, when something on it has failed, or when
    /// its bytes are about to be used. True when that was not known: what is not in its memory
    /// alone is served from elsewhere from now on.
    pub(crate) fn finds_device_lost(&self) -> bool {
        let Some(gpu) = &self.gpu else { return false };
        if self.device_is_lost.load(Ordering::Acquire) {
            return false;
        }
        let Some(cause) = gpu.stream().lost() else { return false };
        let mut state = self.state();
        if !self.device_is_lost.swap(true, Ordering::AcqRel) {
            state.notes.push(format!(
                "CUDA device {} is lost to this process: {cause} What lies in its memory alone \
                 cannot be read; what is in main memory or on disk is still there for the host.",
                gpu.ordinal()
            ));
            for (tier, kind) in (0..).map(TierId).zip(&self.kinds) {
                if *kind == TierKind::Device {
                    self.feed(&mut state, Event::TierFailed { tier });
                }
            }
        }
        true
    }

    /// Adds a note, if it is not there.
    pub(crate) fn note_once(&self, note: &str) {
        self.note_first(note, note.to_owned());
    }

    /// Adds a note, if none is there that begins with `prefix`.
    pub(crate) fn note_first(&self, prefix: &str, note: String) {
        let mut state = self.state();
        if !state.notes.iter().any(|known| known.starts_with(prefix)) {
            state.notes.push(note);
        }
    }

    /// The longest that close waits for the workers when it is nobody's explicit call.
    pub(crate) fn drop_timeout(&self) -> Duration {
        self.settings.timeout.min(Duration::from_secs(30))
    }
}

fn durable_tiers(tiers: &[AnyTier]) -> Vec<TierId> {
    let durable = |(_, tier): &(u8, &AnyTier)| tier.tier().describe().durable;
    (0..).zip(tiers).filter(durable).map(|(index, _)| TierId(index)).collect()
}

/// Refuses calls on a spool that is closed or broken.
pub(crate) fn check_open(state: &State) -> Result<(), Error> {
    check_intact(state)?;
    let message = match state.phase {
        Phase::Open => return Ok(()),
        Phase::Closing { .. } => {
            "The spool is being closed by another call. Move this call before `close()`."
        }
        Phase::Closed => "The spool is closed. Open a new one, or move this call before `close()`.",
    };
    Err(Error::new(ErrorKind::Closed, message))
}

/// Refuses calls on a spool that is broken.
pub(crate) fn check_intact(state: &State) -> Result<(), Error> {
    if !state.stepping {
        return Ok(());
    }
    let message = "The spool stopped because of a fault in Unspool itself: its core panicked \
                   earlier. Report it with the text of that panic, and open a new spool.";
    Err(Error::new(ErrorKind::Closed, message))
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
        outer: settings.disk.as_ref().and_then(|disk| disk.compress),
        trace: settings.trace,
        clock: Arc::clone(clock),
        buffers: Arc::clone(buffers),
        ..Options::default()
    }
}
