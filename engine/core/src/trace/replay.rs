//! Feeding a recorded run to a fresh core.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ConfigError;
use crate::Core;
use crate::command::Command;
use crate::event::Event;
use crate::trace::read::{Line, ParseError, Reader};
use crate::trace::record;
use crate::types::Nanos;

/// What a replay that found no difference has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayReport {
    /// Events that were fed to the core.
    pub events: usize,
    /// Commands that were compared.
    pub commands: usize,
    /// Whether the trace was finished by its writer; if not, the commands of its last step were
    /// compared as far as they were recorded.
    pub complete: bool,
    /// The time of the last event.
    pub last: Nanos,
}

/// The first place where the core decided otherwise than the trace says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The line of the trace: that of the recorded command, or, when the core gave more commands
    /// than were recorded, that of the event.
    pub line: usize,
    /// The time of the event.
    pub now: Nanos,
    /// The event whose step differs.
    pub event: Event,
    /// How many commands of this step agreed before.
    pub agreed: usize,
    /// What was recorded; `None` when the step had no further command then.
    pub recorded: Option<Command>,
    /// What came out now; `None` when the step has no further command now.
    pub replayed: Option<Command>,
}

/// Why a replay stopped.
#[derive(Clone, PartialEq, Debug)]
pub enum ReplayError {
    /// The text is not a trace.
    Parse(ParseError),
    /// The trace has settings that no core can have.
    Config(ConfigError),
    /// The core decides otherwise than it did when the trace was recorded.
    Differs(Box<Difference>),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Parse(error) => error.fmt(f),
            ReplayError::Config(error) => write!(f, "the settings in the trace: {error}"),
            ReplayError::Differs(difference) => difference.fmt(f),
        }
    }
}

impl core::error::Error for ReplayError {}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {} of the trace: at {} ns, in the step \"{}\", after {} commands that agree, \
             the trace has {}, the core now gives {}",
            self.line,
            self.now.0,
            text_of(|out| record::write_event(out, &self.event)),
            self.agreed,
            describe(self.recorded.as_ref()),
            describe(self.replayed.as_ref()),
        )
    }
}

fn describe(command: Option<&Command>) -> String {
    command.map_or_else(
        || String::from("no further command"),
        |command| alloc::format!("\"{}\"", text_of(|out| record::write_command(out, command))),
    )
}

fn text_of(write: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) -> String {
    let mut text = String::new();
    match write(&mut text) {
        Ok(()) => text,
        Err(fmt::Error) => String::from("?"),
    }
}

/// Feeds the events of a trace to a fresh core and compares its commands with the recorded ones.
///
/// # Errors
/// When `text` is not a trace, when its settings are not valid, and at the first command that
/// differs.
pub fn replay(text: &str) -> Result<ReplayReport, ReplayError> {
    let (config, reader) = Reader::open(text).map_err(ReplayError::Parse)?;
    let mut replay = Replay::new(Core::new(config).map_err(ReplayError::Config)?);
    for line in reader {
        let (number, line) = line.map_err(ReplayError::Parse)?;
        replay.line(number, line).map_err(ReplayError::Differs)?;
    }
    Ok(replay.report)
}

/// A core, and what its last step gave that was not compared yet.
struct Replay {
    core: Core,
    report: ReplayReport,
    step: Option<(usize, Event)>,
    agreed: usize,
    pending: VecDeque<Command>,
    out: Vec<Command>,
}

impl Replay {
    fn new(core: Core) -> Replay {
        let report = ReplayReport { events: 0, commands: 0, complete: false, last: Nanos(0) };
        Replay { core, report, step: None, agreed: 0, pending: VecDeque::new(), out: Vec::new() }
    }

    fn line(&mut self, number: usize, line: Line) -> Result<(), Box<Difference>> {
        match line {
            Line::Event { now, event } => {
                self.finish_step()?;
                self.begin_step(number, now, event);
            }
            Line::Command(command) => self.compare(number, command)?,
            Line::End => {
                self.finish_step()?;
                self.report.complete = true;
            }
        }
        Ok(())
    }

    fn begin_step(&mut self, number: usize, now: Nanos, event: Event) {
        self.core.step(event, now, &mut self.out);
        self.pending.extend(self.out.drain(..));
        self.step = Some((number, event));
        self.agreed = 0;
        self.report.events += 1;
        self.report.last = now;
    }

    fn compare(&mut self, number: usize, recorded: Command) -> Result<(), Box<Difference>> {
        let replayed = self.pending.pop_front();
        if replayed != Some(recorded) {
            return Err(self.difference(number, Some(recorded), replayed));
        }
        self.agreed += 1;
        self.report.commands += 1;
        Ok(())
    }

    /// Every command of the step must have been recorded.
    fn finish_step(&mut self) -> Result<(), Box<Difference>> {
        match (self.pending.pop_front(), self.step) {
            (Some(extra), Some((number, _))) => Err(self.difference(number, None, Some(extra))),
            _ => Ok(()),
        }
    }

    fn difference(
        &self,
        line: usize,
        recorded: Option<Command>,
        replayed: Option<Command>,
    ) -> Box<Difference> {
        let event = self.step.map_or(Event::Tick, |(_, event)| event);
        let (now, agreed) = (self.report.last, self.agreed);
        Box::new(Difference { line, now, event, agreed, recorded, replayed })
    }
}
