//! From text to checked actions: lines, then when copies are given up, then the interpreter.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{TraceError, TraceFault};
use crate::{Action, Listed};

/// Actions with the line that each comes from.
#[derive(Default)]
struct Lines {
    actions: Vec<Action>,
    lines: Vec<usize>,
}

impl Lines {
    fn push(&mut self, line: usize, action: Action) {
        self.actions.push(action);
        self.lines.push(line);
    }

    /// Adds the action, or lengthens the last `Forward`.
    fn append(&mut self, line: usize, action: Action) {
        match (self.actions.last_mut(), action) {
            (Some(Action::Forward { to: last, .. }), Action::Forward { from, to })
                if *last == from =>
            {
                *last = to;
            }
            _ => self.push(line, action),
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Listed, TraceError> {
    let Lines { actions, lines } = with_discards(&read(text)?);
    Listed::new(actions).map_err(|fault| {
        let place = usize::try_from(fault.place).unwrap_or(usize::MAX);
        let line = lines.get(place).copied().unwrap_or(text.lines().count());
        TraceError { line, why: TraceFault::Breaks(fault.rule) }
    })
}

fn read(text: &str) -> Result<Lines, TraceError> {
    let mut lines = Lines::default();
    let mut turned = false;
    for (index, content) in text.lines().enumerate() {
        let line = index + 1;
        let fail = |why| TraceError { line, why };
        let content = content.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace();
        let (step, name) = match (words.next(), words.next(), words.next()) {
            (None, ..) => continue,
            (Some(step), Some(name), None) => (step, name),
            _ => return Err(fail(TraceFault::NotTwoWords)),
        };
        if name == "FIRSTURN" && turned {
            return Err(fail(TraceFault::LateTurn));
        }
        let action = action_of(step, name).map_err(fail)?;
        turned |= matches!(action, Action::Reverse { .. });
        lines.append(line, action);
    }
    Ok(lines)
}

fn action_of(word: &str, name: &str) -> Result<Action, TraceFault> {
    if name == "TERMINATE" {
        return Ok(Action::End);
    }
    // The step after it has to be a number too.
    let step = word.parse().ok().filter(|step| *step < u64::MAX);
    let step = step.ok_or_else(|| TraceFault::NotAStep(word.to_owned()))?;
    let tier = None;
    match name {
        "FORWARD" => Ok(Action::Forward { from: step, to: step + 1 }),
        "SAVE" | "SAVE_INTERMEDIARY" => Ok(Action::Save { step, tier }),
        "RESTORE" => Ok(Action::Restore { step, tier }),
        "FIRSTURN" | "BACKWARD" => Ok(Action::Reverse { step }),
        _ => Err(TraceFault::NoSuchAction(name.to_owned())),
    }
}

/// Gives up each copy after its last use. The lines are read from the end: a copy is not needed
/// when no later line restores its step before it is saved again.
fn with_discards(read: &Lines) -> Lines {
    let mut needed = BTreeSet::new();
    let mut last_use: Vec<bool> = read
        .actions
        .iter()
        .rev()
        .map(|action| match action {
            Action::Restore { step, .. } => needed.insert(*step),
            Action::Save { step, .. } => !needed.remove(step),
            _ => false,
        })
        .collect();
    debug_assert_eq!(last_use.len(), read.lines.len());
    last_use.reverse();
    let mut lines = Lines::default();
    for ((action, line), last) in read.actions.iter().zip(&read.lines).zip(last_use) {
        lines.push(*line, *action);
        match *action {
            Action::Restore { step, tier } | Action::Save { step, tier } if last => {
                lines.push(*line, Action::Discard { step, tier });
            }
            _ => {}
        }
    }
    lines
}
