//! The restore order, from a dry run that is ahead of the schedule.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use unspool_schedule::Action;

use super::{AT_ONCE, ScheduleCore, words};
use crate::panics::guarded;

/// Versions in the order in which they will be restored, and whether each is discarded then.
type Hints = (Vec<i64>, Vec<bool>);

/// Turns the actions of a schedule into what `Spool.expect` takes.
///
/// `first`: the version of state 0; `at_end`: the version of the state that the driver keeps while
/// it takes the last step, which is restored at the first `Reverse`.
#[pyclass(frozen, module = "unspool._unspool")]
pub(crate) struct Ahead {
    inner: Mutex<Order>,
}

impl Ahead {
    fn inner(&self) -> MutexGuard<'_, Order> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Ahead {
    #[new]
    #[pyo3(signature = (first, at_end=None))]
    fn new(first: i64, at_end: Option<i64>) -> Ahead {
        let order = Order { first, at_end, copies: HashMap::new(), restored: None };
        Ahead { inner: Mutex::new(order) }
    }

    /// The states that are kept before the first of the actions that it will see: each one's step
    /// as often as it is kept.
    fn keep(&self, steps: Vec<u64>) {
        let mut order = self.inner();
        for step in steps {
            *order.copies.entry(step).or_default() += 1;
        }
    }

    /// The hints of these actions; that of a last `Restore` may follow with the next call.
    fn see(&self, words: &Bound<'_, PyAny>) -> PyResult<Hints> {
        let actions = words::actions(words)?;
        let mut hints = Hints::default();
        let mut order = self.inner();
        for action in actions {
            order.see(action, &mut hints);
        }
        Ok(hints)
    }

    /// The next `count` hints or a few more, fewer at the end; draws the actions from `core`.
    fn draw(&self, py: Python<'_>, core: &ScheduleCore, count: usize) -> PyResult<Hints> {
        let mut hints = Hints::default();
        let mut follow = || py.detach(|| self.follow(core, count, &mut hints));
        while guarded(py, || Ok(follow()))? {
            py.check_signals()?;
        }
        Ok(hints)
    }
}

impl Ahead {
    /// Draws many actions, but not so many that Ctrl-C would have to wait; whether there is more to
    /// be drawn.
    fn follow(&self, core: &ScheduleCore, count: usize, hints: &mut Hints) -> bool {
        let (mut order, mut core) = (self.inner(), core.inner());
        for _ in 0..AT_ONCE {
            if hints.0.len() >= count {
                return false;
            }
            let Some(action) = core.next() else { return false };
            order.see(action, hints);
        }
        true
    }
}

/// The state of the dry run.
struct Order {
    first: i64,
    at_end: Option<i64>,
    /// How often each state is kept: in several tiers it is one version of the spool.
    copies: HashMap<u64, u32>,
    /// The state that was restored last, until it is known whether that copy is discarded at once.
    restored: Option<u64>,
}

impl Order {
    fn see(&mut self, action: Action, hints: &mut Hints) {
        let gone = self.follow(action);
        if let Some(step) = self.restored.take() {
            // The driver has refused versions that are no 64-bit integers.
            hints.0.push(self.first.wrapping_add_unsigned(step));
            hints.1.push(gone == Some(step));
        }
        match action {
            Action::Restore { step, .. } => self.restored = Some(step),
            Action::Reverse { .. } => {
                if let Some(at_end) = self.at_end.take() {
                    hints.0.push(at_end);
                    hints.1.push(true);
                }
            }
            _ => {}
        }
    }

    /// Counts copies; the state whose last copy this action discards.
    fn follow(&mut self, action: Action) -> Option<u64> {
        match action {
            Action::Save { step, .. } => {
                *self.copies.entry(step).or_default() += 1;
                None
            }
            Action::Discard { step, .. } => {
                let copies = self.copies.get_mut(&step)?;
                *copies -= 1;
                (*copies == 0).then(|| {
                    self.copies.remove(&step);
                    step
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use unspool::TierKind::{Device, Disk};
    use unspool_schedule::Revolve;

    use super::*;

    fn hints(first: i64, at_end: Option<i64>, actions: impl IntoIterator<Item = Action>) -> Hints {
        let mut order = Order { first, at_end, copies: HashMap::new(), restored: None };
        let mut hints = Hints::default();
        actions.into_iter().for_each(|action| order.see(action, &mut hints));
        hints
    }

    #[test]
    fn hints_are_the_restores_with_their_repeats() {
        let schedule = Revolve::new(10, 2).unwrap();
        let restored = schedule.clone().filter_map(|action| match action {
            Action::Restore { step, .. } => Some(100 + step as i64),
            _ => None,
        });
        let found = hints(100, None, schedule.clone());
        assert_eq!(found.0, restored.collect::<Vec<_>>());
        let saves = schedule.filter(|action| matches!(action, Action::Save { .. })).count();
        assert_eq!(found.1.iter().filter(|&&last| last).count(), saves);
    }

    #[test]
    fn the_turn_comes_before_the_restores_that_follow_the_first_reverse() {
        let found = hints(7, Some(99), Revolve::new(3, 1).unwrap());
        assert_eq!((found.0[0], found.1[0]), (99, true));
        assert_eq!(found.0[1..], [7, 7]);
    }

    #[test]
    fn a_state_in_two_tiers_is_given_up_with_its_last_copy() {
        let (fast, slow) = (Some(Device), Some(Disk));
        let found = hints(
            0,
            None,
            [
                Action::Save { step: 0, tier: slow },
                Action::Save { step: 0, tier: fast },
                Action::Restore { step: 0, tier: fast },
                Action::Discard { step: 0, tier: fast },
                Action::Restore { step: 0, tier: slow },
                Action::Discard { step: 0, tier: slow },
            ],
        );
        assert_eq!(found, (vec![0, 0], vec![false, true]));
    }
}
