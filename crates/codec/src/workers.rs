//! Threads that share the work of one call.
//!
//! They are the codecs' own and not rayon's global ones: a forked child, in which no thread of its
//! parent exists, makes new ones instead of waiting for ever, and work that nobody waits for does
//! not stand in the way of work that somebody does.

use std::sync::{Arc, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Who waits for the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// The application: all cores.
    Urgent,
    /// A background worker: half of them.
    Background,
}

struct Made {
    process: u32,
    pool: Arc<ThreadPool>,
}

static URGENT: Mutex<Option<Made>> = Mutex::new(None);
static BACKGROUND: Mutex<Option<Made>> = Mutex::new(None);

/// The threads for this work; `None` where the system gives no threads or has one core: the
/// caller then works alone.
pub(crate) fn pool(work: Work) -> Option<Arc<ThreadPool>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (place, name, threads) = match work {
        Work::Urgent => (&URGENT, "unspool-codec", cores),
        Work::Background => (&BACKGROUND, "unspool-pack", cores.div_ceil(2)),
    };
    if threads < 2 {
        return None;
    }
    let mut made = place.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(made) = made.as_ref().filter(|made| made.process == process) {
        return Some(Arc::clone(&made.pool));
    }
    let named = move |index| format!("{name}-{index}");
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().ok()?;
    let pool = Arc::new(pool);
    // What a parent process made has no threads here, and must not be waited for.
    std::mem::forget(made.replace(Made { process, pool: Arc::clone(&pool) }));
    Some(pool)
}

/// Runs `run` where `parts` parts of it can be shared, and says whether they can: in the pool that
/// the caller is in, else in that for this work.
pub(crate) fn share<R: Send>(work: Work, parts: usize, run: impl FnOnce(bool) -> R + Send) -> R {
    if parts > 1 && rayon::current_thread_index().is_some() {
        return run(true);
    }
    match pool(work).filter(|_| parts > 1) {
        Some(pool) => pool.install(|| run(true)),
        None => run(false),
    }
}

#[cfg(test)]
mod tests {
    use super::{Work, pool};

    #[test]
    fn threads_are_made_once_and_named() {
        for work in [Work::Urgent, Work::Background] {
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
