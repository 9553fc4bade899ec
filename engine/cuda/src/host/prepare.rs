//! The threads that prepare an arena: several that touch its pages in order, and one that
//! registers each chunk once its pages are touched, at a pace that leaves room for copies.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::chunks::Chunks;
use crate::context::Context;
use crate::driver::result;
use crate::error::{CudaError, DeviceError, DeviceErrorKind};
use crate::host::mapping::Mapping;
use crate::host::progress::Progress;
use crate::limits::{self, Growth, HostLimits, Pages};
use crate::pace::{Moment, Pace};
use crate::turn::{Turn, Turns};

/// Bytes that a thread touches at a time: one huge page, so that all threads work on the first
/// chunks, which the first copies wait for.
pub(super) const PIECE: u64 = 2 << 20;

/// How long a process waits for the turn of another before it registers without: a process that was
/// stopped while it holds the lock must not block the others.
const TURN_LIMIT: Duration = Duration::from_secs(2);
const TURN_POLL: Duration = Duration::from_micros(200);

/// Longest sleep of a thread that waits for a change; changes wake it.
const DOZE: Duration = Duration::from_millis(100);
/// The same while nothing is to be prepared, which may be for hours.
const SLEEP: Duration = Duration::from_secs(10);
/// How often a thread asks again for memory that the machine does not have.
const SHORT: Duration = Duration::from_secs(1);

/// Bytes that are prepared before any are used.
pub(super) const FIRST: u64 = 1 << 30;

/// Pins host memory: the driver, or a stand-in in tests.
pub(super) trait Registrar: Send + Sync + 'static {
    /// # Safety
    /// The range is mapped and stays so until it is unregistered.
    unsafe fn register(&self, place: *mut u8, len: u64) -> Result<(), CudaError>;

    /// # Safety
    /// The range was registered from `place` on; no unfinished copy uses it.
    unsafe fn unregister(&self, place: *mut u8) -> Result<(), CudaError>;
}

impl Registrar for Context {
    unsafe fn register(&self, place: *mut u8, len: u64) -> Result<(), CudaError> {
        let _scope = self.enter()?;
        // SAFETY: the caller's duty.
        unsafe { result::register(place, len as usize) }
    }

    unsafe fn unregister(&self, place: *mut u8) -> Result<(), CudaError> {
        let _scope = self.enter()?;
        // SAFETY: the caller's duty.
        unsafe { result::unregister(place) }
    }
}

/// The state of an arena that is being prepared; of CUDA it knows only the registrar. It is dropped
/// when no unfinished copy uses the memory: what was registered is unregistered then.
pub(super) struct Prepared {
    pub(super) mapping: Mapping,
    pub(super) chunks: Chunks,
    /// The bytes from the start of the mapping that the arena has.
    capacity: u64,
    /// The bytes from the start that will be used at all, as far as is known.
    wanted: AtomicU64,
    pub(super) progress: Arc<Progress>,
    registrar: Box<dyn Registrar>,
    pub(super) turns: Turns,
    pace: Pace,
    /// How far copies need it.
    pub(super) growth: Growth,
    next_piece: AtomicU64,
}

impl Prepared {
    /// Memory of which nothing is prepared yet.
    pub(super) fn new(mapping: Mapping, chunks: Chunks, registrar: Box<dyn Registrar>) -> Prepared {
        debug_assert_eq!(mapping.len(), chunks.capacity());
        Prepared {
            mapping,
            chunks,
            capacity: 0,
            wanted: AtomicU64::new(u64::MAX),
            progress: Arc::new(Progress::new()),
            registrar,
            turns: Turns::none(),
            pace: Pace::default(),
            growth: Growth::default(),
            next_piece: AtomicU64::new(0),
        }
    }

    /// Makes it the memory of an arena of `capacity` bytes. What is prepared stays so.
    pub(super) fn begin(&mut self, capacity: u64, turns: Turns, pace: Pace) {
        debug_assert!(capacity <= self.mapping.len());
        self.progress = Arc::new(self.progress.again(PIECE, capacity));
        // A last piece that is touched in part counts as not touched.
        self.next_piece = AtomicU64::new(self.progress.touched() / PIECE);
        self.growth = Growth::default();
        self.wanted = AtomicU64::new(u64::MAX);
        (self.capacity, self.turns, self.pace) = (capacity, turns, pace);
    }

    /// Whether some of it is prepared, and nothing has failed.
    pub(super) fn is_whole(&self) -> bool {
        self.progress.registered() > 0 && self.progress.state().failure.is_none()
    }

    /// The bytes below `end` are used: as many again are prepared, so that a use which goes on
    /// finds them ready, and no more, so that memory which nobody uses is not taken.
    pub(super) fn used_up_to(&self, end: u64) {
        let ahead = end.saturating_mul(2).min(self.wanted.load(Ordering::Relaxed));
        let end = end.max(ahead).min(self.capacity);
        if end > self.progress.goal() {
            self.aim_for(end);
        }
    }

    /// No bytes from `end` on will be used, as far as is known: none are prepared ahead of use.
    pub(super) fn want(&self, end: u64) {
        self.wanted.store(end, Ordering::Relaxed);
    }

    /// Prepares the bytes below `end`, and the rest of the chunk of the last one.
    pub(super) fn aim_for(&self, end: u64) {
        self.progress.aim_for(self.end_of_chunk(end.min(self.capacity)));
    }

    /// The end of the chunk that holds the byte before `end`.
    fn end_of_chunk(&self, end: u64) -> u64 {
        end.checked_sub(1).map_or(0, |last| self.chunks.range(self.chunks.index_of(last)).end)
    }

    /// Starts one thread that does everything else: starting more is slow while others touch pages
    /// of the same process, and the caller should not wait for that.
    pub(super) fn start(self: &Arc<Prepared>, touchers: usize) -> Result<Thread, DeviceError> {
        let prepared = Arc::clone(self);
        self.aim_for(FIRST);
        let builder = Builder::new().name("unspool-pin".to_owned());
        builder
            .spawn(move || prepared.run(touchers))
            .map(Thread)
            .map_err(|error| DeviceError::system("starting a thread was refused", &error))
    }

    /// Touches pages on threads of its own and registers them on this one. Where no thread can be
    /// started, this one touches the pages of each chunk first.
    fn run(&self, touchers: usize) {
        let end = self.end_of_chunk(self.capacity);
        std::thread::scope(|scope| {
            let start = |_| {
                let builder = Builder::new().name("unspool-touch".to_owned());
                builder.spawn_scoped(scope, || self.touch_pieces(end)).is_ok()
            };
            let touched_by_others =
                (0..touchers.max(1)).map(start).fold(false, |any, started| any | started);
            self.register_chunks(end, touched_by_others);
        });
    }

    /// Touches pieces that begin before `end`, as they are needed.
    fn touch_pieces(&self, end: u64) {
        let capacity = self.mapping.len();
        while !self.progress.stopped() {
            let next = |index: u64| (index.saturating_mul(PIECE) < end).then_some(index + 1);
            let taken = self.next_piece.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            let Ok(index) = taken else { return };
            let begin = index.saturating_mul(PIECE);
            if !self.progress.wait_for_goal(begin, SLEEP) {
                return;
            }
            let len = PIECE.min(capacity - begin);
            if !self.wait_for_memory(begin, len) {
                return;
            }
            if let Err(error) = self.mapping.touch(begin, len) {
                let message = format!("host RAM: no pages for the arena ({})", self.sizes());
                let cause = DeviceError::system(&message, &error);
                return self
                    .progress
                    .fail(cause.with_advice("Set the option `host_memory` to less."));
            }
            self.progress.piece_touched(index, PIECE, capacity);
        }
    }

    /// Waits until the machine has memory for a piece that no copy has taken yet. Returns false
    /// when the arena is being released.
    fn wait_for_memory(&self, begin: u64, len: u64) -> bool {
        let is_taken = || begin + len <= self.growth.reached();
        let is_given = || limits::ask(len).is_ok_and(|given| given == len);
        while !is_taken() && !is_given() {
            if self.progress.stopped() {
                return false;
            }
            drop(self.progress.wait(self.progress.state(), SHORT));
        }
        !self.progress.stopped()
    }

    /// Registers chunks that begin before `end`, as they are needed.
    fn register_chunks(&self, end: u64, touched_by_others: bool) {
        let (mut last, done) = (None, self.progress.registered());
        let ranges = (0..self.chunks.count()).map(|index| self.chunks.range(index));
        let ranges = ranges.skip_while(|range| range.end <= done);
        for range in ranges.take_while(|range| range.start < end) {
            if !self.progress.wait_for_goal(range.start, SLEEP) {
                return;
            }
            if !touched_by_others {
                self.touch_pieces(range.end);
            }
            if !self.wait_until_touched(range.end) || !self.wait_for_pace(range.start, last) {
                return;
            }
            let turn = self.wait_for_turn();
            if self.progress.stopped() {
                return;
            }
            let begin = Instant::now();
            let (place, len) = (self.mapping.at(range.start, range.end - range.start), range.end);
            // SAFETY: the mapping outlives the threads, and is unregistered before it is unmapped.
            let registered = unsafe { self.registrar.register(place, len - range.start) };
            let took = begin.elapsed();
            drop(turn);
            if let Err(cause) = registered {
                return self.progress.fail(self.refusal(len - range.start, cause));
            }
            self.progress.chunk_registered(range.end, took, self.capacity);
            last = Some((took, Instant::now()));
        }
    }

    /// Returns false when there is nothing left to wait for.
    fn wait_until_touched(&self, end: u64) -> bool {
        let mut state = self.progress.state();
        while self.progress.touched() < end {
            if self.progress.stopped() || state.failure.is_some() {
                return false;
            }
            state = self.progress.wait(state, DOZE);
        }
        !self.progress.stopped()
    }

    /// Returns false when the arena is being released.
    fn wait_for_pace(&self, begin: u64, last: Option<(Duration, Instant)>) -> bool {
        let mut state = self.progress.state();
        while !self.progress.stopped() {
            let wanted = self.progress.is_wanted(begin);
            let last = last.filter(|_| !wanted).map(|(took, end)| (took, end.elapsed()));
            let (idle, age) = (self.progress.links_idle(), self.progress.born.elapsed());
            let Some(time) = self.pace.wait(Moment { idle, age }, last) else { return true };
            state = self.progress.wait(state, time);
        }
        false
    }

    /// A turn, or none when the limit has passed.
    fn wait_for_turn(&self) -> Option<Turn<'_>> {
        let begin = Instant::now();
        loop {
            let turn = self.turns.try_take();
            let waited = begin.elapsed();
            if turn.is_some() || waited >= TURN_LIMIT || self.progress.stopped() {
                self.progress.state().stats.waited_for_turns += waited;
                return turn;
            }
            drop(self.progress.wait(self.progress.state(), TURN_POLL));
        }
    }

    fn sizes(&self) -> String {
        let asked = Bytes(self.capacity);
        format!("asked {asked}, {}", HostLimits::read())
    }

    fn refusal(&self, len: u64, cause: CudaError) -> DeviceError {
        let done = self.progress.registered();
        let message = format!(
            "host RAM: pinning {} failed with {} pinned ({})",
            Bytes(len),
            Bytes(done),
            self.sizes()
        );
        DeviceError::new(DeviceErrorKind::PinLimit, message).with_cause(cause).with_advice(format!(
            "Set the option `host_memory` to at most {}, or raise the limit (ulimit -l); copies to \
             the rest stay possible at a lower speed.",
            Bytes(done)
        ))
    }
}

impl Pages for Prepared {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn present(&self) -> u64 {
        self.progress.touched().min(self.capacity)
    }

    fn touch(&self, range: Range<u64>) -> io::Result<()> {
        self.mapping.touch(range.start, range.end - range.start)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let done = self.progress.registered();
        let ranges = (0..self.chunks.count()).map(|index| self.chunks.range(index));
        for range in ranges.take_while(|range| range.end <= done) {
            let place = self.mapping.at(range.start, range.end - range.start);
            let begin = Instant::now();
            // SAFETY: registered above, by the watermark; no copy is unfinished.
            let _ = unsafe { self.registrar.unregister(place) };
            // Unregistering holds the same lock as registering, and few wait for it: let others in.
            std::thread::sleep(begin.elapsed() / 2);
        }
    }
}

/// The thread that prepares an arena; it joins the threads that it started.
pub(super) struct Thread(JoinHandle<()>);

impl Thread {
    /// Waits until it has ended; the arena has been stopped or is prepared.
    pub(super) fn join(self) {
        // After a panic in it the watermarks stay where they were, which is all that matters.
        let _ = self.0.join();
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
