//! Schedules as text, in the format of GPUZIP's recorded actions: lines `step ACTION`.
//!
//! GPUZIP's program asks for an action, carries it out for the step that comes with it, and asks
//! for the next (Maltempi et al.). A line is read so:
//!
//! | line | is read as |
//! | --- | --- |
//! | `t FORWARD` | the working state is state `t`; advance it over step `t` |
//! | `t SAVE` | the working state is state `t`; keep a copy of it |
//! | `t SAVE_INTERMEDIARY` | the same: zCut's word for a state inside a cut |
//! | `t RESTORE` | the working state is now state `t`, from its copy |
//! | `t FIRSTURN` | reverse step `t`, the last one: the reverse sweep begins |
//! | `t BACKWARD` | reverse step `t`; the first one may also be written like this |
//! | `t TERMINATE` | the end; the number is ignored |
//!
//! `FORWARD` lines that follow one another are one [`Action::Forward`]. The format has no word for
//! giving up a copy: that is done after its last `RESTORE` before the next `SAVE` of the same step,
//! or at once if there is none. Empty lines, and what follows a `#`, are comments.

mod parse;

use alloc::string::String;
use core::fmt::{self, Write};

use super::{Action, Listed, Rule, Schedule};

/// A schedule from a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    listed: Listed,
}

impl Trace {
    /// Reads a text and checks the schedule.
    ///
    /// # Errors
    /// The first line that cannot be read, or that breaks a rule of schedules.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        parse::parse(text).map(|listed| Trace { listed })
    }

    /// The text of a schedule: a line for every action, and one for every step of a `Forward`.
    ///
    /// Tiers and discards are left out, as the format has no words for them. [`Trace::parse`] gives
    /// back a schedule that discards each copy at its last restore and has no tiers.
    pub fn write(actions: impl IntoIterator<Item = Action>) -> String {
        let mut text = String::new();
        let mut turned = false;
        for action in actions {
            // Writing to a string cannot fail.
            let _ = write_lines(&mut text, action, turned);
            turned |= matches!(action, Action::Reverse { .. });
        }
        text
    }

    /// The checked actions.
    #[must_use]
    pub fn listed(&self) -> &Listed {
        &self.listed
    }
}

fn write_lines(text: &mut String, action: Action, turned: bool) -> fmt::Result {
    match action {
        Action::Forward { from, to } => {
            (from..to).try_for_each(|step| writeln!(text, "{step} FORWARD"))
        }
        Action::Save { step, .. } => writeln!(text, "{step} SAVE"),
        Action::Restore { step, .. } => writeln!(text, "{step} RESTORE"),
        Action::Reverse { step } if turned => writeln!(text, "{step} BACKWARD"),
        Action::Reverse { step } => writeln!(text, "{step} FIRSTURN"),
        Action::Discard { .. } => Ok(()),
        Action::End => writeln!(text, "0 TERMINATE"),
    }
}

impl Iterator for Trace {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        self.listed.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.listed.size_hint()
    }
}

impl Schedule for Trace {
    fn steps(&self) -> Option<u64> {
        self.listed.steps()
    }

    fn slots(&self) -> u64 {
        self.listed.slots()
    }
}

/// What is wrong with a text, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// The line, counted from 1; the last one where something is missing, 0 if there is none.
    pub line: usize,
    /// What is wrong with it.
    pub why: TraceFault,
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceFault {
    /// It is not two words.
    NotTwoWords,
    /// The first word is not a step.
    NotAStep(String),
    /// The second word is not an action.
    NoSuchAction(String),
    /// `FIRSTURN` names a step that is not the first one to be reversed.
    LateTurn,
    /// The action breaks a rule of schedules.
    Breaks(Rule),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl fmt::Display for TraceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceFault::NotTwoWords => f.write_str("a line must be a step and an action"),
            TraceFault::NotAStep(word) => {
                write!(f, "{word:?} is not a step: it must be an integer from 0 to 2^64 - 2")
            }
            TraceFault::NoSuchAction(word) => write!(
                f,
                "{word:?} is not an action: it must be FORWARD, SAVE, SAVE_INTERMEDIARY, RESTORE, \
                 FIRSTURN, BACKWARD or TERMINATE"
            ),
            TraceFault::LateTurn => f.write_str(
                "FIRSTURN begins the reverse sweep: later steps are reversed by BACKWARD",
            ),
            TraceFault::Breaks(rule) => rule.fmt(f),
        }
    }
}

impl core::error::Error for TraceError {}

#[cfg(test)]
mod tests;
