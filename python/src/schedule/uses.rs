//! Which copies a schedule only restores in order to reverse from them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use unspool_schedule::Action;

use super::{AT_ONCE, ScheduleCore, words};
use crate::panics::guarded;

/// Of every state that was kept, whether a `Forward` or a `Save` ever relies on it.
#[pyclass(frozen, module = "unspool._unspool")]
#[derive(Default)]
pub(crate) struct Uses {
    inner: Mutex<Lives>,
}

impl Uses {
    fn inner(&self) -> MutexGuard<'_, Lives> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Uses {
    /// `at_end`: the first `Reverse` is preceded by a forward step, which relies on the state.
    #[new]
    #[pyo3(signature = (at_end=false))]
    fn new(at_end: bool) -> Uses {
        Uses { inner: Mutex::new(Lives { at_end, ..Lives::default() }) }
    }

    /// The states that are kept already: they do not concern this dry run.
    fn keep(&self, steps: Vec<u64>) {
        let mut lives = self.inner();
        for step in steps {
            lives.kept.entry(step).or_insert(Life { number: None, copies: 0 }).copies += 1;
        }
    }

    /// Follows these actions.
    fn see(&self, words: &Bound<'_, PyAny>) -> PyResult<()> {
        let actions = words::actions(words)?;
        let mut lives = self.inner();
        actions.into_iter().for_each(|action| lives.see(action));
        Ok(())
    }

    /// Follows all actions that are left in `core`, which has none afterwards.
    fn draw(&self, py: Python<'_>, core: &ScheduleCore) -> PyResult<()> {
        while guarded(py, || Ok(py.detach(|| self.follow(core))))? {
            py.check_signals()?;
        }
        Ok(())
    }

    /// Whether the state that is kept as the `number`-th, counted from 0, is only restored to be
    /// reversed from.
    fn only_reversed(&self, number: usize) -> bool {
        let lives = self.inner();
        number < lives.begun
            && !lives.relied.get(number / 64).is_some_and(|bits| has(*bits, number))
    }
}

impl Uses {
    fn follow(&self, core: &ScheduleCore) -> bool {
        let (mut lives, mut core) = (self.inner(), core.inner());
        for _ in 0..AT_ONCE {
            let Some(action) = core.next() else { return false };
            lives.see(action);
        }
        true
    }
}

fn has(bits: u64, number: usize) -> bool {
    bits >> (number % 64) & 1 == 1
}

/// One state from its first save to the discard of its last copy.
struct Life {
    /// None for those that began before the dry run.
    number: Option<usize>,
    copies: u32,
}

#[derive(Default)]
struct Lives {
    /// The next `Reverse` relies on all of the state.
    at_end: bool,
    begun: usize,
    kept: HashMap<u64, Life>,
    /// The life that the working state comes from, while it is as it was restored.
    working: Option<usize>,
    /// A bit for each life: something else than a `Reverse` relies on it.
    relied: Vec<u64>,
}

impl Lives {
    fn see(&mut self, action: Action) {
        match action {
            Action::Save { step, .. } => {
                self.rely();
                self.save(step);
            }
            Action::Restore { step, .. } => {
                self.working = self.kept.get(&step).and_then(|life| life.number);
            }
            Action::Discard { step, .. } => self.discard(step),
            Action::Forward { .. } => self.rely(),
            Action::Reverse { .. } if self.at_end => {
                self.at_end = false;
                self.rely();
            }
            Action::Reverse { .. } | Action::End => self.working = None,
        }
    }

    /// All of the working state is needed.
    fn rely(&mut self) {
        let Some(number) = self.working.take() else { return };
        if self.relied.len() <= number / 64 {
            self.relied.resize(number / 64 + 1, 0);
        }
        self.relied[number / 64] |= 1 << (number % 64);
    }

    fn save(&mut self, step: u64) {
        let begun = &mut self.begun;
        let life = self.kept.entry(step).or_insert_with(|| {
            *begun += 1;
            Life { number: Some(*begun - 1), copies: 0 }
        });
        life.copies += 1;
    }

    fn discard(&mut self, step: u64) {
        let Some(life) = self.kept.get_mut(&step) else { return };
        life.copies -= 1;
        if life.copies == 0 {
            self.kept.remove(&step);
        }
    }
}

#[cfg(test)]
mod tests {
    use unspool_schedule::{Revolve, StoreAll, ZCut};

    use super::*;

    fn only_reversed(actions: impl IntoIterator<Item = Action>) -> Vec<bool> {
        let uses = Uses::default();
        actions.into_iter().for_each(|action| uses.inner().see(action));
        let begun = uses.inner().begun;
        (0..begun).map(|number| uses.only_reversed(number)).collect()
    }

    #[test]
    fn all_copies_of_store_all_are_only_reversed() {
        let found = only_reversed(StoreAll::new(200).unwrap());
        assert_eq!(found, vec![true; 199]);
    }

    #[test]
    fn a_single_copy_is_relied_on_by_every_forward() {
        assert_eq!(only_reversed(Revolve::new(5, 1).unwrap()), [false]);
    }

    #[test]
    fn the_starts_of_cuts_are_relied_on_and_what_lies_inside_is_not() {
        let found = only_reversed(ZCut::with_length(9, 3).unwrap());
        assert_eq!(found.iter().filter(|&&only| !only).count(), 2);
        assert!(!found[0] && !found[1] && found[2]);
    }

    #[test]
    fn a_state_that_is_discarded_before_it_is_advanced_from_is_relied_on() {
        let tier = None;
        let actions = [
            Action::Save { step: 0, tier },
            Action::Restore { step: 0, tier },
            Action::Discard { step: 0, tier },
            Action::Forward { from: 0, to: 1 },
        ];
        assert_eq!(only_reversed(actions), [false]);
    }
}
