//! Small checkpoints of a GPU, saved together: an adaptor in front of a spool.
//!
//! [`Batched::save`] copies the arrays into a ring of device memory and returns. What waits there
//! is handed to the spool by one call of [`Spool::save_many`], so that several checkpoints share
//! one launch of their encoder ("accumulated compression", Maurya et al., HiPC 2023, Section IV).
//!
//! - A batch is handed over when it has its number or bytes, when the ring is full, when a call
//!   asks for it, and after a bounded time, by a thread of the adaptor.
//! - The spool hears of a checkpoint only then. Until then it holds no room in any tier, and calls
//!   about other versions have nothing to wait for.
//! - A checkpoint for which there is no room stays in the batch, and the next call tries it again.
//!   One that the spool refuses for good is dropped, and the next call reports that, once.

mod hand_over;
mod ring;
mod values;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_codec::Head;
use unspool_transfer::sync::{lock, thread};

use crate::error::{Error, ErrorKind};
use crate::runtime::memory::has_room_for_thread;
use crate::save::Checkpoint;
use crate::spool::Spool;
use crate::wait::Wait;
use values::Store;
use waiting::{BatchedCheckpoint, Waiting};

/// How many checkpoints are saved together, and for how long the first of them waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accumulate {
    /// The most checkpoints of one launch. Default: 32.
    pub checkpoints: u32,
    /// The most bytes of their values: larger checkpoints are encoded alone. Up to twice as much
    /// memory of the GPU is taken for them, beside the tiers and what an encoder works in, which
    /// for nvCOMP is about the size of a batch. Default: 64 MiB.
    pub bytes: u64,
    /// The longest that a checkpoint waits for others. Default: 20 ms.
    pub held_at_most: Duration,
}

impl Default for Accumulate {
    fn default() -> Self {
        let held_at_most = Duration::from_millis(20);
        Accumulate { checkpoints: 32, bytes: 64 << 20, held_at_most }
    }
}

/// A spool whose small checkpoints of a GPU are saved together. See the module.
///
/// Whoever calls the [spool](Batched::spool) about a version that may wait here
/// [hands it over](Batched::hand_over_for) first; before the spool is closed, all that waits is
/// [handed over](Batched::hand_over). Dropping the adaptor does so too, gives its memory back, and
/// closes the spool if nobody else has it.
pub struct Batched {
    shared: Arc<SharedBatch>,
}

/// What the adaptor shares with its thread.
struct SharedBatch {
    spool: Arc<Spool>,
    most: Accumulate,
    store: Store,
    waiting: Waiting,
}

impl Batched {
    /// An adaptor in front of `spool`. It keeps nothing back where the fastest tier is not in the
    /// memory of a GPU, and where the settings ask for every checkpoint to be checked at once.
    #[must_use]
    pub fn new(spool: Arc<Spool>, most: Accumulate) -> Batched {
        let (store, waiting) = (Store::new(&spool, most), Waiting::default());
        Batched { shared: Arc::new(SharedBatch { spool, most, store, waiting }) }
    }

    /// The spool itself. It knows nothing of what waits.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        &self.shared.spool
    }

    /// Saves a checkpoint that the [spool](Self::spool) has made, with others where its arrays are
    /// those of the spool's GPU and one launch can encode them together; else as
    /// [`Spool::save_many`] does, after what waits. The arrays may be changed by what is enqueued
    /// on their streams later.
    ///
    /// # Errors
    /// Those of `save_many`, for this checkpoint or for those that waited; this one was not saved
    /// then and does not wait.
    pub fn save(&self, checkpoint: Checkpoint<'_>, wait: &Wait<'_>) -> Result<(), Error> {
        let shared = &self.shared;
        shared.report()?;
        let version = checkpoint.version();
        if !shared.may_keep(&checkpoint)? {
            return self.save_now(checkpoint, wait);
        }
        let mut pieces = shared.store.keep(&checkpoint)?;
        if pieces.is_none() {
            // What the encoder has read can be used again.
            shared.hand_over(wait)?;
            pieces = shared.store.keep(&checkpoint)?;
        }
        let Some(pieces) = pieces.filter(|_| self.has_thread()) else {
            return self.save_now(checkpoint, wait);
        };
        let prepared = Arc::clone(checkpoint.prepared());
        let bytes = checkpoint.head().regions.iter().map(|region| region.bytes).sum();
        let kept = BatchedCheckpoint { prepared, pieces, bytes, since: Instant::now() };
        if !shared.waiting.push(kept, &shared.most) {
            return Ok(());
        }
        let Err(error) = shared.hand_over(wait) else { return Ok(()) };
        if shared.waiting.remove(version) || error.unsaved().iter().any(|(v, _)| *v == version) {
            return Err(error);
        }
        // This one is saved: the next call reports those that are not.
        shared.waiting.fail(error);
        Ok(())
    }

    /// Saves a checkpoint at once, after what waits.
    fn save_now(&self, checkpoint: Checkpoint<'_>, wait: &Wait<'_>) -> Result<(), Error> {
        if checkpoint.prepared().plan().is_some() || self.shared.waiting.has(checkpoint.version()) {
            self.shared.hand_over(wait)?;
        }
        self.spool().save_many(&mut vec![checkpoint], wait)
    }

    /// Starts the thread that ends the wait of a batch, if there is none.
    fn has_thread(&self) -> bool {
        let mut thread = lock(&self.shared.waiting.thread);
        if thread.is_none() && has_room_for_thread() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("unspool-batch".to_owned());
            *thread = builder.spawn(move || shared.run()).ok();
        }
        thread.is_some()
    }

    /// Hands over all that waits.
    ///
    /// # Errors
    /// Those of [`Spool::save_many`]; `Timeout` and `Interrupted` also while another call does so.
    pub fn hand_over(&self, wait: &Wait<'_>) -> Result<(), Error> {
        self.shared.report()?;
        self.shared.hand_over(wait)
    }

    /// Hands over all that waits, if `version` is among it.
    ///
    /// # Errors
    /// Those of [`hand_over`](Self::hand_over).
    pub fn hand_over_for(&self, version: i64, wait: &Wait<'_>) -> Result<(), Error> {
        if self.shared.waiting.has(version) { self.hand_over(wait) } else { Ok(()) }
    }

    /// The versions that wait.
    #[must_use]
    pub fn waits(&self) -> Vec<i64> {
        self.shared.waiting.versions()
    }

    /// As [`Spool::regions`]; for a checkpoint that waits, where they lie at most.
    ///
    /// # Errors
    /// Those of that.
    pub fn regions(&self, version: i64) -> Result<Arc<Head>, Error> {
        match self.shared.waiting.head(version) {
            Some(head) => Ok(head),
            None => self.spool().regions(version),
        }
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        let (shared, waiting) = (self.spool().shared(), &self.shared.waiting);
        if shared.is_forked() {
            return;
        }
        waiting.end();
        if !self.spool().is_closed() {
            // Nobody is there to hear of an error; `close` returns it.
            let _ = self.shared.hand_over(&Wait::at_most(shared.drop_timeout()));
        }
    }
}

impl fmt::Debug for Batched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("Batched").field("spool", &shared.spool).finish_non_exhaustive()
    }
}

/// The error of a call that waits in vain for another one to hand a batch over.
fn busy(kind: ErrorKind) -> Error {
    let message = "Checkpoints that wait for a common launch are being saved by another call, \
                   which waits for room. Free room in the spool, or raise `timeout`.";
    Error::new(kind, message)
}
