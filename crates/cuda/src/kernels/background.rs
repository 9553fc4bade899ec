//! Work that is done ahead by a few threads, which live only while there is some.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// So many kernels are compiled at once: with more of them the application would feel it.
const THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// See the module. Clones name the same one.
#[derive(Clone, Default)]
pub struct Background(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Nothing is taken any more.
    is_over: bool,
}

impl Background {
    /// Does `job` behind the others.
    pub fn push(&self, job: impl FnOnce() + Send + 'static) {
        self.add(|jobs| jobs.push_back(Box::new(job)));
    }

    /// Does `job` before the others.
    pub fn push_first(&self, job: impl FnOnce() + Send + 'static) {
        self.add(|jobs| jobs.push_front(Box::new(job)));
    }

    fn add(&self, add: impl FnOnce(&mut VecDeque<Job>)) {
        let mut queue = self.0.queue();
        if queue.is_over {
            return;
        }
        add(&mut queue.jobs);
        if queue.threads < THREADS {
            let shared = Arc::clone(&self.0);
            let builder = thread::Builder::new().name("unspool-kernels".to_owned());
            // Without a thread whoever needs a kernel makes it.
            queue.threads += usize::from(builder.spawn(move || shared.work()).is_ok());
        }
    }

    /// Jobs that are not done.
    #[must_use]
    pub fn pending(&self) -> usize {
        let queue = self.0.queue();
        queue.jobs.len() + queue.threads
    }

    /// Forgets what has not begun, and waits at most `limit` for the rest. Whether it is done.
    pub fn end(&self, limit: Duration) -> bool {
        let (began, mut queue) = (Instant::now(), self.0.queue());
        queue.is_over = true;
        let left = std::mem::take(&mut queue.jobs);
        while queue.threads > 0 && began.elapsed() < limit {
            let nap = limit.saturating_sub(began.elapsed()).min(Duration::from_millis(100));
            let woken = self.0.changed.wait_timeout(queue, nap);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_done = queue.threads == 0;
        drop(queue);
        // What jobs hold is given back without the lock.
        drop(left);
        is_done
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("pending", &self.pending()).finish()
    }
}

impl Shared {
    fn work(&self) {
        /// The thread has ended, also by a panic of a job.
        struct Ended<'a>(&'a Shared);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.queue().threads -= 1;
                self.0.changed.notify_all();
            }
        }
        let ended = Ended(self);
        loop {
            let mut queue = self.queue();
            let Some(job) = queue.jobs.pop_front() else {
                // Under the lock in which nothing was found: a job that comes gets a thread.
                queue.threads -= 1;
                drop(queue);
                std::mem::forget(ended);
                return self.changed.notify_all();
            };
            drop(queue);
            job();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn all_jobs_are_done_and_no_thread_is_left() {
        let background = Background::default();
        let (told, heard) = mpsc::channel();
        for number in 0..20 {
            let told = told.clone();
            background.push(move || told.send(number).unwrap());
        }
        let mut done: Vec<i32> = (0..20).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        done.sort_unstable();
        assert_eq!(done, (0..20).collect::<Vec<_>>());
        assert!(background.end(LONG));
        assert_eq!(background.pending(), 0);
        background.push(|| unreachable!("it is over"));
        assert_eq!(background.pending(), 0);
    }

    #[test]
    fn the_end_is_bounded_and_forgets_what_has_not_begun() {
        let background = Background::default();
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let (begun, begins) = mpsc::channel();
        for _ in 0..THREADS {
            let (wait, begun) = (Arc::clone(&wait), begun.clone());
            background.push(move || {
                begun.send(()).unwrap();
                let _ = wait.lock().unwrap().recv_timeout(LONG);
            });
        }
        (0..THREADS).for_each(|_| begins.recv_timeout(LONG).unwrap());
        background.push(|| unreachable!("it never begins"));
        assert!(!background.end(Duration::from_millis(5)));
        (0..THREADS).for_each(|_| go_on.send(()).unwrap());
        assert!(background.end(LONG));
    }
}
