//! The restore order that `Spool.expect` takes: iterables of Python, from which a window ahead is
//! announced to the spool.
//!
//! An iterator may never end, and a range may be longer than memory: what is not announced yet
//! stays in it, and more is taken as restores go on. The iterator is code of the application, which
//! may call the spool: it runs without the lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyRange};
use unspool::{Spool, Then, Use, mark_final_uses};

use crate::errors::{Class, error};
use crate::version::version;
use crate::waiting::detached;

/// The most entries that the spool knows ahead of the restores.
const WINDOW: usize = 1 << 14;

/// The room in the window from which on more entries are taken.
const PIECE: usize = WINDOW / 8;

/// How many restores there are between two looks at the window: few enough that it does not run
/// empty where restores skip most of what was announced.
const EVERY: usize = 256;

/// The most entries where all have to be known at once.
const MOST: usize = 1 << 24;

/// How many entries are taken between two looks for Ctrl-C at most, and at first.
const AT_ONCE: usize = 1024;
const FEW: usize = 16;

/// What was given to `expect` and is not announced yet.
#[derive(Debug, Default)]
pub(crate) struct RestoreOrder {
    later: Mutex<Later>,
    restores: AtomicUsize,
}

#[derive(Debug, Default)]
struct Later {
    sources: VecDeque<Source>,
    /// A thread takes entries from the first source, which is not in the queue meanwhile.
    feeding: bool,
    /// How often the order was forgotten.
    forgotten: u64,
    /// Entries that were announced since the spool was asked how many are to come, and those.
    ahead: usize,
}

/// One call of `expect`.
#[derive(Debug)]
enum Source {
    Listed(std::vec::IntoIter<Use>),
    Drawn { versions: Py<PyIterator>, last: Option<Py<PyIterator>> },
}

impl RestoreOrder {
    fn later(&self) -> MutexGuard<'_, Later> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the end of the order; `once` and `last` are as the docstring of `expect` says.
    pub(crate) fn announce(
        &self,
        spool: &Spool,
        versions: &Bound<'_, PyAny>,
        once: bool,
        last: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = versions.py();
        let source = Source::of(versions, once, last)?;
        if matches!(source, Source::Drawn { .. }) {
            // A spool that is closed takes nothing from an iterator.
            detached(py, None, || spool.expect_uses([]))?;
        }
        self.later().sources.push_back(source);
        self.feed(py, spool)
    }

    /// Forgets what is not announced yet.
    pub(crate) fn forget(&self) {
        let mut later = self.later();
        later.forgotten += 1;
        // What they hold may be the last reference to code of the application.
        let sources = std::mem::take(&mut later.sources);
        drop(later);
        drop(sources);
    }

    /// Announces more, now and then: a restore is about to be made.
    pub(crate) fn restoring(&self, py: Python<'_>, spool: &Spool) -> PyResult<()> {
        match self.restores.fetch_add(1, Ordering::Relaxed) % EVERY {
            0 => self.feed(py, spool),
            _ => Ok(()),
        }
    }

    /// Announces as much as fits into the window.
    fn feed(&self, py: Python<'_>, spool: &Spool) -> PyResult<()> {
        while let Some((mut source, forgotten)) = self.begin() {
            let taken = self.feed_from(py, spool, &mut source);
            let mut later = self.later();
            later.feeding = false;
            let full = matches!(taken, Ok(Fed::Full));
            if full && later.forgotten == forgotten {
                later.sources.push_front(source);
            }
            drop(later);
            taken?;
            if full {
                break;
            }
        }
        Ok(())
    }

    fn begin(&self) -> Option<(Source, u64)> {
        let mut later = self.later();
        if later.feeding {
            return None;
        }
        let source = later.sources.pop_front()?;
        later.feeding = true;
        Some((source, later.forgotten))
    }

    fn feed_from(&self, py: Python<'_>, spool: &Spool, source: &mut Source) -> PyResult<Fed> {
        let room = self.room(py, spool)?;
        if room == 0 {
            return Ok(Fed::Full);
        }
        let uses = source.take(py, room)?;
        let taken = uses.len();
        detached(py, None, || spool.expect_uses(uses))?;
        self.later().ahead += taken;
        Ok(if taken < room { Fed::Ended } else { Fed::Full })
    }

    /// How many entries may be announced now; none where a piece does not fit.
    fn room(&self, py: Python<'_>, spool: &Spool) -> PyResult<usize> {
        let ahead = self.later().ahead;
        if WINDOW.saturating_sub(ahead) >= PIECE {
            return Ok(WINDOW - ahead);
        }
        let ahead = detached(py, None, || Ok(spool.stats()?.application.hints))? as usize;
        self.later().ahead = ahead;
        Ok(Some(WINDOW.saturating_sub(ahead)).filter(|room| *room >= PIECE).unwrap_or(0))
    }

    /// Shows Python's collector the iterators, which may refer to the spool.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds the lock is in a call of the spool, which keeps it alive.
        let Ok(later) = self.later.try_lock() else { return Ok(()) };
        for source in &later.sources {
            if let Source::Drawn { versions, last } = source {
                visit.call(versions)?;
                visit.call(last)?;
            }
        }
        Ok(())
    }
}

/// What a look at the window came to.
enum Fed {
    /// The source has no more.
    Ended,
    /// The window is full, and the source may have more.
    Full,
}

impl Source {
    fn of(
        versions: &Bound<'_, PyAny>,
        once: bool,
        last: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Source> {
        let py = versions.py();
        if once && last.is_some() {
            let text = "expect(once=True, last=...): once says already what becomes of every \
                        version; leave one of them out.";
            return Err(error(py, Class::Option, text));
        }
        let always = last.map(|last| last.extract::<bool>().ok());
        let each = last.filter(|_| always == Some(None)).map(|last| iterator("last", last));
        let drawn = iterator("versions", versions)?;
        let mut source =
            Source::Drawn { versions: drawn.unbind(), last: each.transpose()?.map(Bound::unbind) };
        let ends = match (once, always) {
            (true, _) => Some(Then::Goes),
            (false, Some(Some(true))) => Some(Then::Ends),
            _ => None,
        };
        // A list may change after the call.
        let listed = versions.hasattr("__len__")? && !versions.is_instance_of::<PyRange>();
        if ends.is_none() && !listed {
            return Ok(source);
        }
        let mut uses = source.take(py, if ends.is_some() { MOST + 1 } else { usize::MAX })?;
        if let Some(then) = ends {
            if uses.len() > MOST {
                return Err(error(py, Class::Option, too_many(then)));
            }
            mark_final_uses(&mut uses, then);
        }
        Ok(Source::Listed(uses.into_iter()))
    }

    /// The next `most` entries, fewer only at the end.
    fn take(&mut self, py: Python<'_>, most: usize) -> PyResult<Vec<Use>> {
        match self {
            Source::Listed(uses) => Ok(uses.by_ref().take(most).collect()),
            Source::Drawn { versions, last } => {
                let mut versions = versions.bind(py).clone();
                let mut last = last.as_ref().map(|last| last.bind(py).clone());
                draw(&mut versions, last.as_mut(), most)
            }
        }
    }
}

fn iterator<'py>(name: &str, items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    items.try_iter().map_err(|_| {
        let found = items.get_type();
        let needed = if name == "last" { "True, False or an iterable" } else { "an iterable" };
        let text = format!("expect({name}=...): {found} is not {needed}.");
        error(items.py(), Class::Option, text)
    })
}

fn draw(
    versions: &mut Bound<'_, PyIterator>,
    mut last: Option<&mut Bound<'_, PyIterator>>,
    most: usize,
) -> PyResult<Vec<Use>> {
    let py = versions.py();
    let mut uses: Vec<Use> = Vec::new();
    while uses.len() < most {
        if uses.len() == uses.capacity() {
            py.check_signals()?;
            // Few mostly; of many, as much as there is again.
            let more = uses.len().clamp(FEW, AT_ONCE);
            uses.try_reserve_exact(more).map_err(|_| {
                let text = "expect(...): there is no memory for so many restores: announce them \
                            in pieces, as they come.";
                error(py, Class::Capacity, text)
            })?;
        }
        let Some(item) = versions.next() else {
            return match last.and_then(|last| last.next()) {
                None => Ok(uses),
                Some(_) => Err(mismatch(py, "more than")),
            };
        };
        let version = version(&item?)?;
        let ends = match &mut last {
            None => false,
            Some(last) => truth(py, last.next())?,
        };
        uses.push(Use { version, then: if ends { Then::Ends } else { Then::Stays } });
    }
    Ok(uses)
}

fn truth(py: Python<'_>, found: Option<PyResult<Bound<'_, PyAny>>>) -> PyResult<bool> {
    let Some(found) = found else { return Err(mismatch(py, "fewer than")) };
    let found = found?;
    found.extract().map_err(|_| {
        let text = format!("expect(last=...): {found} is not True or False.");
        error(py, Class::Option, text)
    })
}

fn mismatch(py: Python<'_>, how: &str) -> PyErr {
    let text = format!(
        "expect(last=...): there are {how} one truth value for each version: give one for each, \
         or True for all."
    );
    error(py, Class::Option, text)
}

fn too_many(then: Then) -> String {
    let why = if then == Then::Goes { "with once=True" } else { "with last=True" };
    format!(
        "expect(...): more than {MOST} restores, or an order without an end, and {why} all of them \
         have to be known at once. Announce them in pieces, as they come."
    )
}
