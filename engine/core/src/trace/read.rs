//! Reading a trace: strict, with errors that name the line and what was expected there.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::command::Command;
use crate::config::{Config, LinkConfig, TierConfig};
use crate::event::Event;
use crate::trace::field::{Expected, Field, LineWords};
use crate::trace::{FIRST_LINE, record};
use crate::types::Nanos;

/// A line of a trace after its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// An event and its time.
    Event {
        /// The time that was given to the core with it.
        now: Nanos,
        /// The event.
        event: Event,
    },
    /// What the core answered to the last event.
    Command(Command),
    /// The last line of a complete trace.
    End,
}

/// A line that is not what the grammar asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What should have been there.
    pub expected: String,
    /// The word that was there; empty when the line was too short or missing.
    pub found: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: expected {}, ", self.line, self.expected)?;
        match self.found.as_str() {
            "" => write!(f, "found nothing"),
            found => write!(f, "found {found:?}"),
        }
    }
}

impl core::error::Error for ParseError {}

impl ParseError {
    fn new(line: usize, expected: Expected, found: &str) -> ParseError {
        let expected = match expected.key {
            "" => expected.value.to_string(),
            key => alloc::format!("{key}=<{}>", expected.value),
        };
        ParseError { line, expected, found: found.to_string() }
    }
}

/// Reads a trace line by line; each item is the number of a line and what it says.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    lines: Lines<'a>,
    now: Nanos,
    after_event: bool,
    ended: bool,
}

impl<'a> Reader<'a> {
    /// Reads the header; the reader then gives the lines after it.
    ///
    /// # Errors
    /// When the text does not begin with a complete header of a form that is known.
    pub fn open(text: &'a str) -> Result<(Config, Reader<'a>), ParseError> {
        let mut lines = Lines { text, line: 0 };
        lines.first()?;
        let config = read_config(&mut lines)?;
        Ok((config, Reader { lines, now: Nanos(0), after_event: false, ended: false }))
    }

    fn read_line(&mut self, line: usize, text: &str) -> Result<Line, ParseError> {
        let (parsed, last) = parse_line(text);
        let parsed = parsed.map_err(|expected| ParseError::new(line, expected, last))?;
        self.check_order(&parsed)
            .map_err(|value| ParseError::new(line, Expected { key: "", value }, last))?;
        Ok(parsed)
    }

    fn check_order(&mut self, line: &Line) -> Result<(), &'static str> {
        match line {
            _ if self.ended => return Err("nothing after \"end\""),
            Line::Event { now, .. } if *now < self.now => {
                return Err("a time that is not before that of the event above");
            }
            Line::Command(_) if !self.after_event => return Err("an event before any command"),
            Line::Event { now, .. } => self.now = *now,
            Line::Command(_) => {}
            Line::End => self.ended = true,
        }
        self.after_event = true;
        Ok(())
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<(usize, Line), ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (line, text) = self.lines.next()?;
        Some(self.read_line(line, text).map(|parsed| (line, parsed)))
    }
}

/// The complete lines that are not for people, with their numbers.
#[derive(Clone, Debug)]
struct Lines<'a> {
    text: &'a str,
    line: usize,
}

impl<'a> Lines<'a> {
    fn first(&mut self) -> Result<(), ParseError> {
        match self.next() {
            Some((_, FIRST_LINE)) => Ok(()),
            other => {
                let expected = Expected { key: "", value: "\"unspool-trace 1\"" };
                let (line, found) = other.unwrap_or((1, ""));
                Err(ParseError::new(line, expected, found))
            }
        }
    }

    /// The next line, if it begins with the word `name`: the words after it.
    fn next_if(&mut self, name: &str) -> Option<(usize, LineWords<'a>)> {
        let (line, text) = self.clone().next()?;
        let mut words = LineWords::of(text);
        if words.next() != name {
            return None;
        }
        self.next();
        Some((line, words))
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<(usize, &'a str)> {
        loop {
            let (line, rest) = self.text.split_once('\n')?;
            self.text = rest;
            self.line += 1;
            if !line.is_empty() && !line.starts_with('#') {
                return Some((self.line, line));
            }
        }
    }
}

fn read_config(lines: &mut Lines<'_>) -> Result<Config, ParseError> {
    let mut config = read_settings(lines)?;
    while let Some(tier) = read_header_line(lines, "tier", read_tier)? {
        config.tiers.push(tier);
    }
    while let Some(link) = read_header_line(lines, "link", read_link)? {
        config.links.push(link);
    }
    Ok(config)
}

fn read_settings(lines: &mut Lines<'_>) -> Result<Config, ParseError> {
    let missing = Expected { key: "", value: "a line \"settings\"" };
    read_header_line(lines, "settings", |words| {
        Ok(Config {
            tiers: Vec::new(),
            links: Vec::new(),
            policy: Field::take("policy", words)?,
            discard_after_restore: Field::take("discard_after_restore", words)?,
            max_retries: Field::take("max_retries", words)?,
            retry_delay: Field::take("retry_delay", words)?,
            durable: read_durable(words)?,
        })
    })?
    .ok_or_else(|| ParseError::new(lines.line + 1, missing, ""))
}

fn read_durable(words: &mut LineWords<'_>) -> Result<bool, Expected> {
    match words.optional("durable") {
        None => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Expected { key: "durable", value: "true" }),
    }
}

fn read_tier(words: &mut LineWords<'_>) -> Result<TierConfig, Expected> {
    Ok(TierConfig {
        kind: Field::take("kind", words)?,
        capacity: Field::take("capacity", words)?,
        alignment: Field::take("alignment", words)?,
    })
}

fn read_link(words: &mut LineWords<'_>) -> Result<LinkConfig, Expected> {
    Ok(LinkConfig {
        flush_rate: Field::take("flush_rate", words)?,
        prefetch_rate: Field::take("prefetch_rate", words)?,
        latency: Field::take("latency", words)?,
        max_in_flight_bytes: Field::take("max_in_flight_bytes", words)?,
        max_in_flight: Field::take("max_in_flight", words)?,
    })
}

/// Reads the next line with `read` if it begins with `name`.
fn read_header_line<T>(
    lines: &mut Lines<'_>,
    name: &str,
    read: impl FnOnce(&mut LineWords<'_>) -> Result<T, Expected>,
) -> Result<Option<T>, ParseError> {
    let Some((line, mut words)) = lines.next_if(name) else { return Ok(None) };
    let value = read(&mut words).map_err(|expected| ParseError::new(line, expected, words.last))?;
    words.finish().map_err(|(expected, word)| ParseError::new(line, expected, word))?;
    Ok(Some(value))
}

/// What a line says, or what was expected, and the word that was looked at last.
fn parse_line(text: &str) -> (Result<Line, Expected>, &str) {
    let mut words = LineWords::of(text);
    let parsed = parse_words(&mut words);
    let last = words.last;
    match (parsed, words.finish()) {
        (Ok(_), Err((expected, word))) => (Err(expected), word),
        (parsed, _) => (parsed, last),
    }
}

fn parse_words(words: &mut LineWords<'_>) -> Result<Line, Expected> {
    let start = Expected { key: "", value: "\"@\" and a time, \">\" or \"end\"" };
    match words.next() {
        "end" => Ok(Line::End),
        ">" => {
            let name = words.next();
            record::read_command(name, words).map(Line::Command)
        }
        first => {
            let now = first.strip_prefix('@').and_then(Nanos::parse).ok_or(start)?;
            let name = words.next();
            Ok(Line::Event { now, event: record::read_event(name, words)? })
        }
    }
}
