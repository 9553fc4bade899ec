//! The engine: lanes, their threads, submission and shutdown.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unspool_codec::Outer;
use unspool_core::{
    CheckpointId, Failure, Nanos, Place, TierId, TierKind, TransferId, TransferKind,
};
use unspool_tiers::AnyTier;

use crate::arenas::Links;
use crate::clock::{Clock, SystemClock};
use crate::error::TransferError;
use crate::execute::{Mover, Outcome};
use crate::job::{Job, Submitted, Task, TaskWork};
use crate::lane::Lane;
use crate::sink::Sink;
use crate::staging::Pool;
use crate::sync::{Condvar, Mutex, lock, thread, wait_timeout};
use crate::timer::Timer;
use crate::worker::{Crew, work};

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The maximum number of transfers that the core has in flight on one link in one direction.
    pub in_flight: u32,
    /// Threads for each direction of a link to a store. With two, the checksum of one checkpoint
    /// is computed while another is written.
    pub store_workers: usize,
    /// Threads for each direction of a link between arenas.
    pub arena_workers: usize,
    /// Whether the checksum of what is read from a store is compared.
    pub verify: bool,
    /// The outer codec, which packs payloads on their way into a store.
    pub outer: Option<Outer>,
    /// Whether spans are reported.
    pub trace: bool,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where staging buffers come from.
    pub buffers: Arc<Pool>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            in_flight: 8,
            store_workers: 2,
            arena_workers: 1,
            verify: true,
            outer: None,
            trace: false,
            clock: Arc::new(SystemClock::default()),
            buffers: Pool::new(256 << 20),
        }
    }
}

/// What happens to work that is not done at a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Waits until it is done.
    Drain,
    /// Reports it as cancelled, unless it has begun and cannot be stopped.
    Cancel,
}

/// How long a thread that was started may take to begin while nothing else is waited for.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// The background threads of a spool.
pub struct Engine {
    /// `links[i]` lies between tier `i` and tier `i + 1`: lanes of its flushes and of its
    /// prefetches.
    links: Vec<[Arc<Lane>; 2]>,
    /// The lanes for deletions of each store, by tier.
    deletions: Vec<Option<Arc<Lane>>>,
    timer: Arc<Timer>,
    crew: Arc<Crew>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    begun: Arc<Begun>,
}

/// The number of threads that run.
#[derive(Default)]
struct Begun {
    threads: Mutex<usize>,
    changed: Condvar,
}

impl Engine {
    /// Starts the threads for this stack of tiers, fastest first. They run when this returns: what
    /// the system takes for a thread as it begins would end the process if it were not there, and
    /// the caller's memory may become scarce from here on.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        tiers: Vec<AnyTier>,
        options: Options,
        sink: Arc<dyn Sink>,
    ) -> Result<Engine, TransferError> {
        let kinds: Vec<TierKind> = tiers.iter().map(|tier| tier.tier().describe().kind).collect();
        let Options { verify, outer, trace, clock, buffers, .. } = options.clone();
        let links = Links::default();
        let (kinds_too, clock_too) = (kinds.clone(), Arc::clone(&clock));
        let mover =
            Mover { tiers, kinds: kinds_too, buffers, verify, outer, links, clock: clock_too };
        let engine = Engine {
            links: kinds.windows(2).map(|pair| link(pair[0], pair[1], &options)).collect(),
            deletions: kinds.iter().map(|kind| deletions(*kind)).collect(),
            timer: Arc::new(Timer::default()),
            crew: Arc::new(Crew { mover, clock, sink, trace }),
            threads: Mutex::new(Vec::new()),
            begun: Arc::default(),
        };
        engine.spawn_all(&kinds, &options)?;
        Ok(engine)
    }

    /// Accepts a job. When the answer is [`Submitted::ReportFollows`], the sink receives exactly
    /// one of `TransferDone`, `TransferFailed` and `TransferCancelled` for it.
    pub fn submit(&self, job: Job) -> Submitted {
        let lane = self.lane(job.kind, job.from, job.to);
        lane.push(Task::new(TaskWork::Move(job), self.crew.clock.now()))
    }

    /// Cancels `transfer`. A job that has not begun is dropped, and the answer is then its report;
    /// a running one is stopped if that is cheap.
    pub fn cancel(&self, transfer: TransferId) -> Submitted {
        let mut lanes = self.links.iter().flatten();
        let dropped = lanes.any(|lane| lane.cancel(transfer) == Submitted::NeverRuns);
        if dropped { Submitted::NeverRuns } else { Submitted::ReportFollows }
    }

    /// Removes a frame from a store. When the answer is [`Submitted::ReportFollows`], the sink
    /// receives exactly one `Deleted` for it, with an error when the store failed.
    pub fn delete(&self, checkpoint: CheckpointId, tier: TierId) -> Submitted {
        let lane = self.deletions.get(usize::from(tier.0)).and_then(Option::as_ref);
        let task = Task::new(TaskWork::Delete { checkpoint, tier }, self.crew.clock.now());
        lane.map_or(Submitted::NeverRuns, |lane| lane.push(task))
    }

    /// Sets the alarm: the sink receives a `Tick` at this time. There is one alarm; a later call
    /// replaces it.
    pub fn wake_at(&self, deadline: Option<Nanos>) {
        self.timer.set(deadline);
    }

    /// Ends all threads, waiting at most `timeout` for the remaining work. Every accepted job is
    /// reported; those that still run at the end of `timeout`, when they end.
    ///
    /// # Errors
    /// When work is not done after `timeout`; the text names it.
    pub fn shutdown(&self, how: Shutdown, timeout: Duration) -> Result<(), TransferError> {
        self.timer.close();
        match how {
            Shutdown::Drain => self.lanes().for_each(|lane| lane.close()),
            Shutdown::Cancel => self.drop_queued(),
        }
        let clock = &*self.crew.clock;
        let deadline = clock.now().plus(nanos(timeout));
        if !self.lanes().all(|lane| lane.wait_empty(deadline, clock)) {
            return Err(self.unfinished());
        }
        for thread in lock(&self.threads).drain(..) {
            // A panic of a task is caught in the worker, so an error here means that the thread
            // itself ended.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Reports all queued jobs as cancelled, and asks the workers to stop.
    fn drop_queued(&self) {
        for task in self.lanes().flat_map(|lane| lane.close_and_drop()) {
            self.crew.report(&task.work, Outcome::Cancelled, Nanos(0));
        }
    }

    fn unfinished(&self) -> TransferError {
        let now = self.crew.clock.now();
        let running: Vec<String> = self.lanes().flat_map(|lane| lane.running(now)).collect();
        let message = format!(
            "The workers have not ended. Still running: {}. They end by themselves once the medium \
             answers.",
            if running.is_empty() { "queued work".to_owned() } else { running.join("; ") },
        );
        TransferError::new(Failure::Io, message)
    }

    fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.links.iter().flatten().chain(self.deletions.iter().flatten())
    }

    /// The lane of a movement: that of the link next to its slower end, which limits its speed.
    fn lane(&self, kind: TransferKind, from: Place, to: Place) -> &Lane {
        let slower = usize::from(from.tier.0.max(to.tier.0));
        debug_assert_ne!(from.tier, to.tier, "a movement is between two tiers");
        &self.links[slower - 1][direction(kind)]
    }

    fn spawn_all(&self, kinds: &[TierKind], options: &Options) -> Result<(), TransferError> {
        for (lanes, pair) in self.links.iter().zip(kinds.windows(2)) {
            for lane in lanes {
                self.spawn_workers(lane, workers(pair[0], pair[1], options))?;
            }
        }
        for lane in self.deletions.iter().flatten() {
            self.spawn_workers(lane, 1)?;
        }
        let (timer, crew) = (Arc::clone(&self.timer), Arc::clone(&self.crew));
        self.spawn("unspool-timer".to_owned(), move || timer.run(&*crew.clock, &*crew.sink))?;
        self.begun.wait_for(lock(&self.threads).len());
        Ok(())
    }

    fn spawn_workers(&self, lane: &Arc<Lane>, workers: usize) -> Result<(), TransferError> {
        for worker in 0..workers {
            let name = format!("unspool-{}-{worker}", lane.name);
            let (lane, crew) = (Arc::clone(lane), Arc::clone(&self.crew));
            self.spawn(name, move || work(&lane, worker as u32, &crew))?;
        }
        Ok(())
    }

    fn spawn(
        &self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), TransferError> {
        let begun = Arc::clone(&self.begun);
        let spawned = thread::Builder::new().name(name.clone()).spawn(move || {
            begun.add();
            body();
        });
        let thread = spawned.map_err(|cause| {
            let message = format!(
                "The system gives no thread for {name} ({cause}). Raise the limit of threads of \
                 this process (`ulimit -u`)."
            );
            TransferError::new(Failure::Permanent, message)
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }
}

impl Begun {
    fn add(&self) {
        *lock(&self.threads) += 1;
        self.changed.notify_all();
    }

    /// Waits until so many threads run, or none began for a while: a machine that is that busy
    /// begins them later.
    fn wait_for(&self, threads: usize) {
        let mut begun = lock(&self.threads);
        while *begun < threads {
            let before = *begun;
            begun = wait_timeout(&self.changed, begun, BEGINS_WITHIN);
            if *begun == before {
                return;
            }
        }
    }
}

impl Drop for Engine {
    /// Cancels the remaining work and does not wait: threads end by themselves.
    fn drop(&mut self) {
        self.timer.close();
        self.drop_queued();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("links", &self.links).finish_non_exhaustive()
    }
}

fn direction(kind: TransferKind) -> usize {
    match kind {
        TransferKind::Flush => 0,
        TransferKind::Prefetch => 1,
    }
}

fn workers(fast: TierKind, slow: TierKind, options: &Options) -> usize {
    let arenas = fast.is_arena() && slow.is_arena();
    if arenas { options.arena_workers.max(1) } else { options.store_workers.max(1) }
}

/// The two lanes between two neighbouring tiers.
fn link(fast: TierKind, slow: TierKind, options: &Options) -> [Arc<Lane>; 2] {
    let (workers, limit) = (workers(fast, slow, options), options.in_flight.max(1) as usize);
    let lane = |name: String| Arc::new(Lane::new(name, limit, workers));
    [lane(format!("{fast}-{slow}")), lane(format!("{slow}-{fast}"))]
}

/// The lane for the deletions of a store; it accepts one for each frame at once.
fn deletions(kind: TierKind) -> Option<Arc<Lane>> {
    (!kind.is_arena()).then(|| Arc::new(Lane::new(format!("{kind}-delete"), usize::MAX, 1)))
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
