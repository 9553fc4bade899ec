//! Syncs of a store, each in a thread of its own: a medium may take as long as it likes, and who
//! waits for it may stop waiting.

use std::sync::Arc;
use std::time::Duration;

use unspool_core::{Nanos, TierId};
use unspool_tiers::{AnyTier, TierError};
use unspool_transfer::sync::{Condvar, Mutex, lock, thread, wait_timeout};

use crate::error::{Error, ErrorKind};
use crate::runtime::memory::has_room_for_thread;
use crate::runtime::reasons;
use crate::runtime::shared::Shared;
use crate::runtime::waiting::POLL;
use crate::wait::Wait;

/// How long a sync may be waited for.
pub(crate) struct Limit<'a> {
    pub(crate) wait: &'a Wait<'a>,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Nanos,
}

/// Makes durable what was put into `tier` before: gives what the tier says.
///
/// # Errors
/// `Timeout` and `Interrupted`; the sync goes on by itself then.
pub(crate) fn sync(
    shared: &Shared,
    tier: TierId,
    limit: &Limit<'_>,
) -> Result<Result<(), TierError>, Error> {
    match Sync::begin(shared, tier) {
        Some(sync) => sync.wait(shared, limit),
        // The system gives no thread.
        None => Ok(shared.tier(tier).sync()),
    }
}

/// A sync that runs.
struct Sync {
    thread: thread::JoinHandle<Result<(), TierError>>,
    ended: Ended,
}

impl Sync {
    /// `None` when the system gives no thread.
    fn begin(shared: &Shared, tier: TierId) -> Option<Sync> {
        if !has_room_for_thread() {
            return None;
        }
        let ended = Ended::default();
        let (theirs, running) = (ended.clone(), Arc::clone(&shared.syncs));
        let store = shared.tiers[usize::from(tier.0)].clone();
        let thread = thread::Builder::new().name("unspool-sync".to_owned());
        let thread = thread.spawn(move || run(theirs, running, store)).ok()?;
        Some(Sync { thread, ended })
    }

    /// Waits for the end of the thread, which goes on by itself when the wait is over before.
    fn wait(self, shared: &Shared, limit: &Limit<'_>) -> Result<Result<(), TierError>, Error> {
        let what = "the medium to make the history durable";
        let (ended, changed) = &*self.ended.0;
        loop {
            let guard = lock(ended);
            if *guard {
                break;
            }
            let left = limit.deadline.since(shared.clock.now());
            if left == Nanos(0) {
                drop(guard);
                return Err(reasons::timed_out(&shared.state(), what, limit.timeout));
            }
            drop(wait_timeout(changed, guard, shared.clock.nap(left).min(POLL)));
            if (limit.wait.interrupted)() {
                return Err(reasons::interrupted(what));
            }
        }
        self.thread.join().map_err(|_| {
            let message = "A sync of the medium panicked. This is a fault in Unspool; report it.";
            Error::new(ErrorKind::Io, message)
        })
    }
}

/// What the thread does. That it has ended is said last, also when it panics.
fn run(ended: Ended, running: Arc<()>, store: AnyTier) -> Result<(), TierError> {
    let synced = store.tier().sync();
    drop((store, running, ended));
    synced
}

/// Whether the thread has let go of the store.
#[derive(Clone, Default)]
struct Ended(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Ended {
    fn drop(&mut self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }
}
