//! The history of a run, for readers and for replay.

use std::fmt::Write;

use unspool_core::{Command, Config, Event, Nanos, trace};

#[derive(Clone, PartialEq, Debug)]
enum Entry {
    Step(Event, Vec<Command>),
    Note(String),
    Restart,
}

/// All events and commands, and optionally notes about the machine.
#[derive(Clone, Debug)]
pub struct History {
    config: Config,
    entries: Vec<(Nanos, Entry)>,
    notes: bool,
    /// The input of the order checker in the last life, if it was recorded.
    pub order: Option<String>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new(config: &Config) -> History {
        History { config: config.clone(), entries: Vec::new(), notes: false, order: None }
    }

    /// Also records notes from now on.
    pub fn keep_notes(&mut self) {
        self.notes = true;
    }

    /// Records a step of the core.
    pub fn step(&mut self, now: Nanos, event: Event, commands: Vec<Command>) {
        self.entries.push((now, Entry::Step(event, commands)));
    }

    /// Records a note.
    pub fn note(&mut self, now: Nanos, what: impl FnOnce() -> String) {
        if self.notes {
            self.entries.push((now, Entry::Note(what())));
        }
    }

    /// Records a restart of the machine with a new core of the same settings.
    pub fn restart(&mut self, now: Nanos) {
        self.entries.push((now, Entry::Restart));
    }

    /// The last `lines` lines, or all of them.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let text = self.text();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// All entries in the form of a trace; the notes are comments.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (now, entry) in &self.entries {
            let written = match entry {
                Entry::Step(event, commands) => trace::write_step(&mut text, *now, event, commands),
                Entry::Note(note) => writeln!(text, "# {} {note}", now.0),
                Entry::Restart => writeln!(text, "# {} the machine crashes and restarts", now.0),
            };
            written.expect("a string takes everything");
        }
        text
    }

    /// The last life as a complete trace, which `unspool_core::trace::replay` takes.
    #[must_use]
    pub fn trace(&self) -> String {
        let mut text = String::new();
        trace::write_header(&mut text, &self.config).expect("a string takes everything");
        let restart = self.entries.iter().rposition(|(_, entry)| *entry == Entry::Restart);
        let first = restart.map_or(0, |at| at + 1);
        let last_life = History { entries: self.entries[first..].to_vec(), ..self.clone() };
        text.push_str(&last_life.text());
        trace::write_end(&mut text).expect("a string takes everything");
        text
    }
}
