//! The text form of a run: one line for each operation, after a line that names the form.
//!
//! ```text
//! unspool-order 1
//! arena device:0 0x7f0000000000..0x7f0040000000
//! write stream:0x55d0 device:0 0x7f0000000000..0x7f0000001000 save of a region
//! record 17 stream:0x55d0
//! wait stream:0x55e0 17
//! read stream:0x55e0 device:0 0x7f0000000000..0x7f0000001000 flush
//! forget 17
//! wait-all
//! ```
//!
//! Words are separated by one space, numbers have one spelling, and the name of an access is the
//! rest of its line, with `\n`, `\r` and `\\` for what a line cannot hold. Empty lines and lines
//! that begin with `#` are for people.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};
use core::str::FromStr;

use super::{Agent, Op, Space};

/// The first line of every text.
pub const HEADER: &str = "unspool-order 1";

/// A line that is not an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// What the form asks for there.
    pub expected: &'static str,
    /// What was there; empty at the end of the line.
    pub found: String,
}

/// Writes the first line of a text.
///
/// # Errors
/// Those of `out`.
pub fn write_header(out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{HEADER}")
}

/// Writes an operation as one line.
///
/// # Errors
/// Those of `out`.
pub fn write_op<What: AsRef<str>>(out: &mut dyn Write, op: &Op<What>) -> fmt::Result {
    match op {
        Op::Record { event, on } => writeln!(out, "record {event} {}", Word(*on)),
        Op::Wait { by, event } => writeln!(out, "wait {} {event}", Word(*by)),
        Op::WaitAll => writeln!(out, "wait-all"),
        Op::Forget { event } => writeln!(out, "forget {event}"),
        Op::Arena { space, first, end } => {
            writeln!(out, "arena {} {first:#x}..{end:#x}", Word(*space))
        }
        Op::Access { by, space, first, end, write, what } => {
            let verb = if *write { "write" } else { "read" };
            let (by, space) = (Word(*by), Word(*space));
            write!(out, "{verb} {by} {space} {first:#x}..{end:#x} ")?;
            what.as_ref().chars().try_for_each(|c| write_char(out, c))?;
            out.write_char('\n')
        }
    }
}

fn write_char(out: &mut dyn Write, c: char) -> fmt::Result {
    match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\\' => out.write_str("\\\\"),
        other => out.write_char(other),
    }
}

/// An agent or a space as one word.
struct Word<T>(T);

impl fmt::Display for Word<Agent> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Agent::Host => f.write_str("host"),
            Agent::Stream(number) => write!(f, "stream:{number:#x}"),
        }
    }
}

impl fmt::Display for Word<Space> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Space::Host => f.write_str("host"),
            Space::Device(ordinal) => write!(f, "device:{ordinal}"),
        }
    }
}

/// Reads one line, without its end.
///
/// # Errors
/// When the line is not exactly what [`write_op`] writes.
pub fn parse_op(line: &str) -> Result<Op<Cow<'_, str>>, LineError> {
    let mut words = Words { rest: Some(line) };
    let op = match words.next() {
        "record" => Op::Record { event: words.number()?, on: words.agent()? },
        "wait" => Op::Wait { by: words.agent()?, event: words.number()? },
        "wait-all" => Op::WaitAll,
        "forget" => Op::Forget { event: words.number()? },
        "arena" => {
            let (space, (first, end)) = (words.space()?, words.bytes()?);
            Op::Arena { space, first, end }
        }
        "read" => return words.access(false),
        "write" => return words.access(true),
        other => return fail("record, wait, wait-all, forget, arena, read or write", other),
    };
    match words.rest {
        None => Ok(op),
        Some(rest) => fail("the end of the line", rest),
    }
}

pub(super) fn fail<T>(expected: &'static str, found: &str) -> Result<T, LineError> {
    Err(LineError { expected, found: found.to_string() })
}

/// The words of a line, from left to right.
struct Words<'a> {
    rest: Option<&'a str>,
}

impl<'a> Words<'a> {
    /// The next word; empty at the end of the line.
    fn next(&mut self) -> &'a str {
        let Some(rest) = self.rest else { return "" };
        match rest.split_once(' ') {
            Some((word, rest)) => {
                self.rest = Some(rest);
                word
            }
            None => {
                self.rest = None;
                rest
            }
        }
    }

    /// The next word as something that `read` finds in it.
    fn read<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, LineError> {
        let word = self.next();
        read(word).map_or_else(|| fail(expected, word), Ok)
    }

    fn number(&mut self) -> Result<u64, LineError> {
        self.read("the number of an event", decimal)
    }

    fn agent(&mut self) -> Result<Agent, LineError> {
        self.read("host or stream:<hexadecimal number>", |word| match word {
            "host" => Some(Agent::Host),
            other => hexadecimal(other.strip_prefix("stream:")?).map(Agent::Stream),
        })
    }

    fn space(&mut self) -> Result<Space, LineError> {
        self.read("host or device:<number>", |word| match word {
            "host" => Some(Space::Host),
            other => decimal(other.strip_prefix("device:")?).map(Space::Device),
        })
    }

    fn bytes(&mut self) -> Result<(u64, u64), LineError> {
        self.read("<first byte>..<end>, both hexadecimal", |word| {
            let (first, end) = word.split_once("..")?;
            Some((hexadecimal(first)?, hexadecimal(end)?))
        })
    }

    fn access(mut self, write: bool) -> Result<Op<Cow<'a, str>>, LineError> {
        let (by, space, (first, end)) = (self.agent()?, self.space()?, self.bytes()?);
        let Some(rest) = self.rest else { return fail("what the access is for", "") };
        let Some(what) = unescape(rest) else {
            return fail("\\n, \\r or \\\\ after a backslash", rest);
        };
        Ok(Op::Access { by, space, first, end, write, what })
    }
}

/// Reads a number in its one spelling: no sign, no leading zero.
fn decimal<N: FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if plain && !padded { text.parse().ok() } else { None }
}

/// Reads a number in its one hexadecimal spelling: `0x` and small letters.
fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let plain = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let padded = digits.len() > 1 && digits.starts_with('0');
    if plain && !padded { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// The text that is written as `text`; `None` when none is.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('\r') {
        return None;
    }
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(Cow::Owned(plain))
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found.as_str() {
            "" => write!(f, "expected {}, found nothing", self.expected),
            found => write!(f, "expected {}, found {found:?}", self.expected),
        }
    }
}

impl core::error::Error for LineError {}
