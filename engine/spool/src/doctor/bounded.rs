//! Work that may hang or panic, watched from outside.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The time between two looks at a thread.
const POLL: Duration = Duration::from_millis(1);

/// What a piece of work has found so far, and what it is doing now.
#[derive(Debug)]
pub(super) struct Report<T> {
    shared: Arc<Mutex<(T, String)>>,
}

impl<T: Clone + Send + 'static> Report<T> {
    fn lock(&self) -> MutexGuard<'_, (T, String)> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what comes next, in words that follow "while".
    pub(super) fn begins(&self, step: impl Into<String>) {
        self.lock().1 = step.into();
    }

    /// Adds something to what was found.
    pub(super) fn note(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock().0);
    }

    /// What was found so far.
    pub(super) fn so_far(&self) -> T {
        self.lock().0.clone()
    }
}

/// Runs `work` on a thread of its own for at most `limit`. Gives what it has found, and why it did
/// not end: a thread that hangs is left to itself.
///
/// A library that hangs while it is loaded holds the lock of the loader. What waits here must not
/// ask for it: a channel would, for the destructor of what it keeps for the thread.
pub(super) fn within<T: Clone + Send + 'static>(
    limit: Duration,
    empty: T,
    work: impl FnOnce(&Report<T>) + Send + 'static,
) -> (T, Option<String>) {
    let shared = Arc::new(Mutex::new((empty, String::from("starting"))));
    let (report, watched) = (Report { shared: Arc::clone(&shared) }, Report { shared });
    let thread = Builder::new().name("unspool-doctor".to_owned()).spawn(move || work(&report));
    let thread = match thread {
        Ok(thread) => thread,
        Err(cause) => return (watched.so_far(), Some(format!("no thread could be had: {cause}"))),
    };
    let until = Instant::now() + limit;
    while !thread.is_finished() && Instant::now() < until {
        std::thread::sleep(POLL);
    }
    let problem = match thread.is_finished() {
        false => Some(late(limit, &watched.lock().1)),
        true => thread.join().err().map(|payload| broken(payload.as_ref(), &watched.lock().1)),
    };
    (watched.so_far(), problem)
}

fn late(limit: Duration, step: &str) -> String {
    format!("no answer within {} s while {step}", limit.as_secs_f64())
}

fn broken(payload: &(dyn Any + Send), step: &str) -> String {
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    format!("a failure inside Unspool while {step}: {}", said.unwrap_or("without a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_gives_what_it_found() {
        let found = within(Duration::from_secs(60), 0, |report| report.note(|found| *found = 7));
        assert_eq!(found, (7, None));
    }

    #[test]
    fn work_that_hangs_is_left_with_what_it_found_and_named() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (found, problem) = within(Duration::from_millis(50), 0, move |report| {
            report.note(|found| *found = 1);
            report.begins("waiting for the moon");
            let _ = held.recv();
        });
        assert_eq!(found, 1);
        assert!(problem.is_some_and(|text| text.contains("0.05 s while waiting for the moon")));
        drop(hold);
    }

    #[test]
    fn a_panic_is_an_answer() {
        let (found, problem) = within(Duration::from_secs(60), 3, |report| {
            report.begins("counting");
            panic!("slot {} is taken", 7);
        });
        assert_eq!(found, 3);
        assert!(problem.is_some_and(|text| text.contains("while counting: slot 7 is taken")));
    }
}
