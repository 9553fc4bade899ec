//! The check of a run from its text form, and its verdict.

use alloc::collections::BTreeSet;
use core::fmt;

use super::text::{HEADER, LineError, fail, parse_op};
use super::{Agent, Checker, Counted, Op, Violation};

/// What the first line should have been.
const FIRST: &str = "\"unspool-order 1\"";

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A line is not one of the text form.
    Line(LineError),
    /// The run is not in order.
    Order(Violation),
}

/// The first thing that is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// The number of the line, from 1.
    pub line: u64,
    /// What is wrong.
    pub trouble: Trouble,
}

/// The verdict on a text whose run is in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The counters of the check.
    pub counted: Counted,
    /// The agents of all operations.
    pub agents: BTreeSet<Agent>,
}

/// Checks a text line by line, for texts that are too long to be in memory at once.
#[derive(Debug, Clone, Default)]
pub struct TextCheck {
    checker: Checker,
    agents: BTreeSet<Agent>,
    lines: u64,
}

impl TextCheck {
    /// A check that has read no line.
    #[must_use]
    pub fn new() -> TextCheck {
        TextCheck::default()
    }

    /// Reads the next line, without its end.
    ///
    /// # Errors
    /// When the line is not what the form asks for, or the run is not in order there. The check
    /// can go on with the next line.
    pub fn line(&mut self, text: &str) -> Result<(), TextError> {
        self.lines += 1;
        self.judge(text).map_err(|trouble| TextError { line: self.lines, trouble })
    }

    fn judge(&mut self, text: &str) -> Result<(), Trouble> {
        if self.lines == 1 {
            return if text == HEADER { Ok(()) } else { fail(FIRST, text).map_err(Trouble::Line) };
        }
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let op = parse_op(text).map_err(Trouble::Line)?;
        self.agents.extend(agent_of(&op));
        self.checker.see_named(&op).map_err(Trouble::Order)
    }

    /// The verdict, once all lines were read.
    ///
    /// # Errors
    /// There was no line at all.
    pub fn finish(self) -> Result<Verdict, TextError> {
        if self.lines == 0 {
            let nothing = fail(FIRST, "");
            return nothing.map_err(|e| TextError { line: 1, trouble: Trouble::Line(e) });
        }
        Ok(Verdict { counted: self.checker.counted(), agents: self.agents })
    }
}

fn agent_of<What>(op: &Op<What>) -> Option<Agent> {
    match op {
        Op::Record { on: agent, .. } | Op::Wait { by: agent, .. } => Some(*agent),
        Op::Access { by, .. } => Some(*by),
        Op::WaitAll => Some(Agent::Host),
        Op::Forget { .. } | Op::Arena { .. } => None,
    }
}

/// Checks a whole text.
///
/// # Errors
/// The first line that cannot be read, or at which the run is not in order.
pub fn check_text(text: &str) -> Result<Verdict, TextError> {
    let mut check = TextCheck::new();
    text.lines().try_for_each(|line| check.line(line))?;
    check.finish()
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.trouble {
            Trouble::Line(error) => error.fmt(f),
            Trouble::Order(violation) => violation.fmt(f),
        }
    }
}

impl core::error::Error for TextError {}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { ops, records, waits, accesses, bytes, foreign } = self.counted;
        let streams = self.agents.iter().filter(|agent| **agent != Agent::Host).count();
        writeln!(f, "operations: {ops}, by the host and streams: {streams}")?;
        writeln!(f, "  recordings: {records}, waits: {waits}")?;
        writeln!(f, "  accesses checked: {accesses}, their bytes in total: {bytes}")?;
        write!(f, "  accesses outside all arenas, not checked: {foreign}")
    }
}
