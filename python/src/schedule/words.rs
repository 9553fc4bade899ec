//! Actions as tuples of plain values: `(kind, first number, second number, tier)`.
//!
//! `unspool.schedules.actions` gives them their names. Kinds are counted in the order in which
//! `Action` declares them; numbers that an action does not have are 0.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use unspool::TierKind;
use unspool_schedule::Action;

use crate::errors::{Class, error};

/// An action on its way to Python.
pub(crate) type ActionWord = (u8, u64, u64, Option<&'static str>);

const TIERS: [TierKind; 4] = [TierKind::Device, TierKind::Host, TierKind::Disk, TierKind::Remote];

/// The action as a tuple.
pub(crate) fn word(action: Action) -> ActionWord {
    match action {
        Action::Forward { from, to } => (0, from, to, None),
        Action::Save { step, tier } => (1, step, 0, tier.map(TierKind::name)),
        Action::Restore { step, tier } => (2, step, 0, tier.map(TierKind::name)),
        Action::Reverse { step } => (3, step, 0, None),
        Action::Discard { step, tier } => (4, step, 0, tier.map(TierKind::name)),
        Action::End => (5, 0, 0, None),
    }
}

/// The most actions of a list: an iterator may never end.
const MOST: usize = 1 << 24;

/// The actions of an iterable of tuples.
///
/// # Errors
/// `ScheduleError`: one of them is not an action, or there are too many. `MemoryError`.
pub(crate) fn actions(words: &Bound<'_, PyAny>) -> PyResult<Vec<Action>> {
    let mut all = Vec::new();
    for word in words.try_iter()? {
        let action = action(&word?)?;
        if all.len() == MOST {
            let why = format!("a list of more than {MOST} actions. Give a schedule instead.");
            return Err(error(words.py(), Class::Schedule, why));
        }
        all.try_reserve(1).map_err(|_| no_memory(all.len()))?;
        all.push(action);
    }
    // What is made of the list, a copy and a set of what it keeps, has no way to fail.
    let mut probe: Vec<[Action; 3]> = Vec::new();
    probe.try_reserve_exact(all.len()).map_err(|_| no_memory(all.len()))?;
    Ok(all)
}

fn no_memory(actions: usize) -> PyErr {
    PyMemoryError::new_err(format!("There is no memory for a list of {actions} actions."))
}

fn action(word: &Bound<'_, PyAny>) -> PyResult<Action> {
    let read = word.extract::<(u8, u64, u64, Option<String>)>().ok();
    read.and_then(|(kind, a, b, tier)| named(kind, a, b, tier.as_deref())).ok_or_else(|| {
        let shown = word.repr().map_or_else(|_| "this".to_owned(), |repr| repr.to_string());
        let why = "steps are integers from 0 to 2**64 - 1, tiers None, \"device\", \"host\", \
                   \"disk\" or \"remote\"";
        error(word.py(), Class::Schedule, format!("{shown} is not an action: {why}."))
    })
}

fn named(kind: u8, a: u64, b: u64, tier: Option<&str>) -> Option<Action> {
    let tier = match tier {
        Some(name) => Some(tier_called(name)?),
        None => None,
    };
    Some(match kind {
        0 => Action::Forward { from: a, to: b },
        1 => Action::Save { step: a, tier },
        2 => Action::Restore { step: a, tier },
        3 => Action::Reverse { step: a },
        4 => Action::Discard { step: a, tier },
        5 => Action::End,
        _ => return None,
    })
}

/// The tier of that name.
pub(crate) fn tier_called(name: &str) -> Option<TierKind> {
    TIERS.into_iter().find(|tier| tier.name() == name)
}

/// The tiers by their numbers.
pub(crate) fn tiers() -> impl Iterator<Item = TierKind> {
    TIERS.into_iter()
}

/// The action as Python writes it.
pub(crate) fn spelled(action: Action) -> String {
    let of = |name: &str, step: u64, tier: Option<TierKind>| match tier {
        Some(tier) => format!("{name}({step}, {:?})", tier.name()),
        None => format!("{name}({step})"),
    };
    match action {
        Action::Forward { from, to } => format!("Forward({from}, {to})"),
        Action::Save { step, tier } => of("Save", step, tier),
        Action::Restore { step, tier } => of("Restore", step, tier),
        Action::Reverse { step } => of("Reverse", step, None),
        Action::Discard { step, tier } => of("Discard", step, tier),
        Action::End => "End()".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_their_actions() {
        let tier = Some(TierKind::Disk);
        for action in [
            Action::Forward { from: 3, to: 9 },
            Action::Save { step: 3, tier: None },
            Action::Restore { step: 4, tier },
            Action::Reverse { step: 5 },
            Action::Discard { step: 6, tier },
            Action::End,
        ] {
            let (kind, a, b, tier) = word(action);
            assert_eq!(named(kind, a, b, tier), Some(action));
        }
        assert_eq!(named(6, 0, 0, None), None);
        assert_eq!(named(1, 0, 0, Some("tape")), None);
        assert_eq!(spelled(Action::Save { step: 3, tier }), "Save(3, \"disk\")");
    }
}
