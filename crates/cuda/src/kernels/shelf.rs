//! Modules that were made, by key: each is made once, in the background or by whoever needs it
//! first, and others who need it meanwhile wait for that.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{DeviceError, DeviceErrorKind};
use crate::kernels::module::Module;

/// The longest wait for somebody else who is making a module: many times what a compiler takes.
const LIMIT: Duration = Duration::from_secs(300);

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For how long this thread has waited for kernels that were compiled or loaded, since it last
/// asked.
#[must_use]
pub fn take_waited() -> Duration {
    WAITED.take()
}

/// Counts what `body` takes as a wait for kernels.
pub fn waited_for<T>(body: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = body();
    WAITED.set(WAITED.get() + began.elapsed());
    done
}

/// The same where `body` has found something.
pub fn waited_for_some<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    let before = WAITED.get();
    let found = waited_for(body);
    if found.is_none() {
        WAITED.set(before);
    }
    found
}

/// See the module.
#[derive(Debug)]
pub struct Shelf<K> {
    kept: Mutex<Vec<(K, Kept)>>,
    changed: Condvar,
}

#[derive(Debug)]
enum Kept {
    /// Somebody will make it. Begun -> `Making`.
    Asked,
    /// Somebody is making it. -> `There`, `Failed`.
    Making,
    There(Arc<Module>),
    /// It could not be made. Told -> it is forgotten, and tried again when it is needed again.
    Failed(DeviceError),
}

impl<K> Default for Shelf<K> {
    fn default() -> Shelf<K> {
        Shelf { kept: Mutex::default(), changed: Condvar::new() }
    }
}

impl<K: Clone + PartialEq> Shelf<K> {
    /// The module of `key`, if it was made.
    pub fn find(&self, key: &K) -> Option<Arc<Module>> {
        self.kept().iter().find(|(other, _)| other == key).and_then(|(_, kept)| match kept {
            Kept::There(module) => Some(Arc::clone(module)),
            _ => None,
        })
    }

    /// The module of `key`, which `make` makes unless somebody else is about it.
    ///
    /// # Errors
    /// Those of `make`, by whomever it was called.
    pub fn get(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<Module, DeviceError>,
    ) -> Result<Arc<Module>, DeviceError> {
        if let Some(module) = self.find(key) {
            return Ok(module);
        }
        waited_for(|| if self.begin(key)? { self.end(key, make()) } else { self.taken(key) })
    }

    /// Makes the module of `key` ahead, unless somebody else has begun with it.
    pub fn fill(&self, key: &K, make: impl FnOnce() -> Result<Module, DeviceError>) {
        let is_free = matches!(self.state(&mut self.kept(), key), None | Some(Kept::Asked));
        if is_free && matches!(self.begin(key), Ok(true)) {
            // The error is kept for whoever needs it.
            let _ = self.keep(key, make());
        }
    }

    /// Whether nobody was about the module of `key`: from now on somebody is.
    pub fn claim(&self, key: &K) -> bool {
        let mut kept = self.kept();
        let is_new = self.state(&mut kept, key).is_none();
        if is_new {
            kept.push((key.clone(), Kept::Asked));
        }
        is_new
    }

    /// Keeps a module that was made.
    pub fn put(&self, key: &K, module: Module) -> Arc<Module> {
        let module = Arc::new(module);
        self.set(key, Kept::There(Arc::clone(&module)));
        module
    }

    /// Whether the caller is to make it; waits while somebody else does. An error is told once.
    fn begin(&self, key: &K) -> Result<bool, DeviceError> {
        let (began, mut kept) = (Instant::now(), self.kept());
        loop {
            match self.state(&mut kept, key) {
                Some(Kept::There(_)) => return Ok(false),
                Some(Kept::Making) if began.elapsed() < LIMIT => {
                    let woken = self.changed.wait_timeout(kept, Duration::from_millis(100));
                    kept = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(Kept::Making) => return Err(endless()),
                Some(Kept::Failed(error)) => {
                    let error = error.clone();
                    kept.retain(|(other, _)| other != key);
                    return Err(error);
                }
                Some(state) => {
                    *state = Kept::Making;
                    return Ok(true);
                }
                None => {
                    kept.push((key.clone(), Kept::Making));
                    return Ok(true);
                }
            }
        }
    }

    /// Ends what `begin` began, and tells an error.
    fn end(&self, key: &K, made: Result<Module, DeviceError>) -> Result<Arc<Module>, DeviceError> {
        let made = self.keep(key, made);
        if made.is_err() {
            self.kept().retain(|(other, _)| other != key);
        }
        made
    }

    fn keep(&self, key: &K, made: Result<Module, DeviceError>) -> Result<Arc<Module>, DeviceError> {
        match made {
            Ok(module) => Ok(self.put(key, module)),
            Err(error) => {
                self.set(key, Kept::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// What somebody else has made.
    fn taken(&self, key: &K) -> Result<Arc<Module>, DeviceError> {
        self.find(key).ok_or_else(endless)
    }

    fn set(&self, key: &K, state: Kept) {
        let mut kept = self.kept();
        match self.state(&mut kept, key) {
            Some(place) => *place = state,
            None => kept.push((key.clone(), state)),
        }
        drop(kept);
        self.changed.notify_all();
    }

    fn state<'a>(&self, kept: &'a mut [(K, Kept)], key: &K) -> Option<&'a mut Kept> {
        kept.iter_mut().find(|(other, _)| other == key).map(|(_, kept)| kept)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(K, Kept)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn endless() -> DeviceError {
    let message = format!("kernels were not compiled after {} s", LIMIT.as_secs());
    DeviceError::new(DeviceErrorKind::TimedOut, message)
        .with_advice("Look at what the machine is busy with, and call it again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Result<Module, DeviceError> {
        Err(DeviceError::new(DeviceErrorKind::Kernel, "the text is wrong"))
    }

    #[test]
    fn what_failed_ahead_is_told_to_the_first_who_needs_it_and_then_tried_again() {
        let shelf = Shelf::default();
        assert!(shelf.claim(&1) && !shelf.claim(&1));
        shelf.fill(&1, failed);
        shelf.fill(&1, || unreachable!("it has failed, and nobody was told"));
        assert!(shelf.find(&1).is_none() && !shelf.claim(&1));
        let error = shelf.get(&1, || unreachable!("the error is there")).unwrap_err();
        assert!(error.to_string().contains("the text is wrong"), "{error}");
        let other = || Err(DeviceError::new(DeviceErrorKind::Missing, "no compiler"));
        let error = shelf.get(&1, other).unwrap_err();
        assert!(error.to_string().contains("no compiler"), "{error}");
    }

    #[test]
    fn who_needs_what_another_thread_is_making_waits_and_that_wait_is_counted() {
        let shelf = Shelf::default();
        let (begun, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shelf.fill(&'k', || {
                    begun.wait();
                    go_on.wait();
                    failed()
                });
                assert_eq!(take_waited(), Duration::ZERO, "nobody waits for what is made ahead");
            });
            begun.wait();
            let waits = scope.spawn(|| {
                let error = shelf.get(&'k', || unreachable!("somebody else makes it"));
                (error.is_err(), take_waited())
            });
            go_on.wait();
            let (is_told, waited) = waits.join().unwrap();
            assert!(is_told && waited > Duration::ZERO);
        });
        assert_eq!(take_waited(), Duration::ZERO);
    }
}
