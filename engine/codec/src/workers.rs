//! Threads that share the work of one call.
//!
//! They are the codecs' own and not rayon's global ones: a forked child, in which no thread of its
//! parent exists, makes new ones instead of waiting for ever, and background work does not delay
//! work that the application waits for.

use std::sync::{Arc, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::free::has_memory;

/// The urgency of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkFor {
    /// The application waits for it: it gets all cores.
    Urgent,
    /// A background worker waits for it: it gets half of the cores.
    Background,
}

/// Bytes that a thread needs when it starts.
const ROOM: usize = 4 << 20;

struct MadeItem {
    process: u32,
    pool: Arc<ThreadPool>,
}

static URGENT: Mutex<Option<MadeItem>> = Mutex::new(None);
static BACKGROUND: Mutex<Option<MadeItem>> = Mutex::new(None);

/// The threads for this work; `None` where the system gives no threads, no memory for them or has
/// one core: the caller then works alone.
pub(crate) fn pool(work: WorkFor) -> Option<Arc<ThreadPool>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (place, name, threads) = match work {
        WorkFor::Urgent => (&URGENT, "unspool-codec", cores),
        WorkFor::Background => (&BACKGROUND, "unspool-pack", cores.div_ceil(2)),
    };
    if threads < 2 {
        return None;
    }
    let mut made = place.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(made) = made.as_ref().filter(|made| made.process == process) {
        return Some(Arc::clone(&made.pool));
    }
    if !has_memory(threads * ROOM) {
        return None;
    }
    let named = move |index| format!("{name}-{index}");
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().ok()?;
    // What the system takes for a thread as it begins would end the process if it were not there:
    // all of them begin now, while there is room.
    pool.broadcast(|_| ());
    let pool = Arc::new(pool);
    // A pool of the parent process has no threads here: it is neither used nor dropped.
    std::mem::forget(made.replace(MadeItem { process, pool: Arc::clone(&pool) }));
    Some(pool)
}

/// Runs `run` where its `parts` can be shared between threads: in the pool that the caller is in,
/// else in that for this work. The argument says whether there is one.
pub(crate) fn share<R: Send>(work: WorkFor, parts: usize, run: impl FnOnce(bool) -> R + Send) -> R {
    if parts > 1 && rayon::current_thread_index().is_some() {
        return run(true);
    }
    match (parts > 1).then(|| pool(work)).flatten() {
        Some(pool) => pool.install(|| run(true)),
        None => run(false),
    }
}

#[cfg(test)]
mod tests {
    use super::{WorkFor, pool};

    #[test]
    fn threads_are_made_once_and_named() {
        for work in [WorkFor::Urgent, WorkFor::Background] {
            let Some(first) = pool(work) else {
                assert!(std::thread::available_parallelism().map_or(1, usize::from) < 3);
                continue;
            };
            let name = first.install(|| std::thread::current().name().map(str::to_owned));
            assert!(name.is_some_and(|name| name.starts_with("unspool-")));
            assert!(std::sync::Arc::ptr_eq(&first, &pool(work).unwrap()));
        }
    }
}
