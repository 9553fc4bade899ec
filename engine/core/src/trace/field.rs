//! The fields of a line: `key=value` words, written and read by the type of the field.

use core::fmt;
use core::str::{FromStr, Split};

use crate::command::{Refusal, TransferKind};
use crate::config::PolicyKind;
use crate::event::{Failure, Kept, Size};
use crate::trace::record;
use crate::types::{CheckpointId, Nanos, Place, RequestId, TierId, TierKind, TransferId, Version};

/// What a line lacks: the key (or the kind of word) that should have come next, and its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Expected {
    pub key: &'static str,
    pub value: &'static str,
}

/// The words of a line, from left to right.
#[derive(Clone, Debug)]
pub(super) struct LineWords<'a> {
    rest: Split<'a, char>,
    /// The word that was taken last, for messages; empty at the end of the line.
    pub last: &'a str,
}

impl<'a> LineWords<'a> {
    pub fn of(line: &'a str) -> LineWords<'a> {
        LineWords { rest: line.split(' '), last: "" }
    }

    /// The next word, empty when there is none.
    pub fn next(&mut self) -> &'a str {
        self.last = self.rest.next().unwrap_or("");
        self.last
    }

    /// The text after `key=` in the next word.
    pub fn value(&mut self, expected: Expected) -> Result<&'a str, Expected> {
        let (key, value) = self.next().split_once('=').ok_or(expected)?;
        if key == expected.key { Ok(value) } else { Err(expected) }
    }

    /// The text after `key=` in the next word, which is only taken if it begins like this.
    pub fn optional(&mut self, key: &str) -> Option<&'a str> {
        let mut ahead = self.clone();
        let (found, value) = ahead.next().split_once('=')?;
        if found != key {
            return None;
        }
        *self = ahead;
        Some(value)
    }

    /// Fails unless every word was taken.
    pub fn finish(mut self) -> Result<(), (Expected, &'a str)> {
        match self.rest.next() {
            None => Ok(()),
            Some(word) => Err((Expected { key: "", value: "the end of the line" }, word)),
        }
    }
}

/// A type that fields have.
pub(super) trait Field: Sized {
    /// What values look like, for messages.
    const VALUES: &'static str;

    /// Writes the value alone.
    fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// Reads the value alone; `None` when it is none.
    fn parse(text: &str) -> Option<Self>;

    /// Writes ` key=value`.
    fn put(&self, key: &str, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, " {key}=")?;
        self.write(out)
    }

    /// Reads the next word as `key=value`.
    fn take(key: &'static str, words: &mut LineWords<'_>) -> Result<Self, Expected> {
        let expected = Expected { key, value: Self::VALUES };
        Self::parse(words.value(expected)?).ok_or(expected)
    }
}

/// Types that are one number, or wrap one.
macro_rules! number_fields {
    ($values:literal: $($type:ty = $read:expr, $write:expr;)*) => {$(
        impl Field for $type {
            const VALUES: &'static str = $values;
            fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
                let write: fn(&$type) -> _ = $write;
                write!(out, "{}", write(self))
            }
            fn parse(text: &str) -> Option<$type> {
                plain_number(text).map($read)
            }
        }
    )*};
}

number_fields! { "a number":
    u64 = |n| n, |n| *n;
    u32 = |n| n, |n| *n;
    Version = Version, |v| v.0;
    CheckpointId = CheckpointId, |c| c.0;
    TierId = TierId, |t| t.0;
    RequestId = RequestId, |r| r.0;
    TransferId = TransferId, |t| t.0;
}

number_fields! { "nanoseconds":
    Nanos = Nanos, |n| n.0;
}

/// One spelling for every number: no sign but a minus, no leading zero.
fn plain_number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit());
    let padded = digits.len() > 1 && digits.starts_with('0');
    if plain && !padded { text.parse().ok() } else { None }
}

impl Field for f64 {
    const VALUES: &'static str = "a number that is not negative";
    fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "{self:?}")
    }
    fn parse(text: &str) -> Option<f64> {
        text.parse().ok().filter(|rate| *rate >= 0.0)
    }
}

impl Field for Place {
    const VALUES: &'static str = "tier:offset";
    fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "{}:{}", self.tier.0, self.offset)
    }
    fn parse(text: &str) -> Option<Place> {
        let (tier, offset) = text.split_once(':')?;
        Some(Place { tier: Field::parse(tier)?, offset: Field::parse(offset)? })
    }
}

/// Types that are one of a few names.
macro_rules! name_fields {
    ($($type:ty, $values:literal: $($name:literal => $value:expr),*;)*) => {$(
        impl Field for $type {
            const VALUES: &'static str = $values;
            fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
                let named = [$(($name, $value)),*];
                let (name, _) = named.iter().find(|(_, value)| value == self).ok_or(fmt::Error)?;
                out.write_str(name)
            }
            fn parse(text: &str) -> Option<$type> {
                let mut named = [$(($name, $value)),*].into_iter();
                named.find(|(name, _)| *name == text).map(|found| found.1)
            }
        }
    )*};
}

name_fields! {
    bool, "true or false": "true" => true, "false" => false;
    TransferKind, "flush or prefetch":
        "flush" => TransferKind::Flush, "prefetch" => TransferKind::Prefetch;
    TierKind, "device, host, disk or remote":
        "device" => TierKind::Device, "host" => TierKind::Host,
        "disk" => TierKind::Disk, "remote" => TierKind::Remote;
    PolicyKind, "score, lru, fifo or belady":
        "score" => PolicyKind::Score, "lru" => PolicyKind::Lru,
        "fifo" => PolicyKind::Fifo, "belady" => PolicyKind::Belady;
    Failure, "no-space, io, corrupt, missing or permanent":
        "no-space" => Failure::NoSpace, "io" => Failure::Io, "corrupt" => Failure::Corrupt,
        "missing" => Failure::Missing, "permanent" => Failure::Permanent;
}

impl Field for Option<Failure> {
    const VALUES: &'static str = "none, no-space, io, corrupt, missing or permanent";
    fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            None => out.write_str("none"),
            Some(failure) => failure.write(out),
        }
    }
    fn parse(text: &str) -> Option<Option<Failure>> {
        if text == "none" { Some(None) } else { Failure::parse(text).map(Some) }
    }
}

/// Fields that are only written when they are not the usual, at the end of a line.
macro_rules! optional_fields {
    ($($type:ty, $values:literal, $usual:expr, $write:expr, $read:expr;)*) => {$(
        impl Field for $type {
            const VALUES: &'static str = $values;
            fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
                let write: fn(&$type, &mut dyn fmt::Write) -> fmt::Result = $write;
                write(self, out)
            }
            fn parse(text: &str) -> Option<$type> {
                let read: fn(&str) -> Option<$type> = $read;
                read(text).filter(|value| *value != $usual)
            }
            fn put(&self, key: &str, out: &mut dyn fmt::Write) -> fmt::Result {
                if *self == $usual {
                    return Ok(());
                }
                write!(out, " {key}=")?;
                self.write(out)
            }
            fn take(key: &'static str, words: &mut LineWords<'_>) -> Result<$type, Expected> {
                let Some(value) = words.optional(key) else { return Ok($usual) };
                Self::parse(value).ok_or(Expected { key, value: Self::VALUES })
            }
        }
    )*};
}

optional_fields! {
    Size, "at-most", Size::Exact,
        |_, out| out.write_str("at-most"),
        |text| (text == "at-most").then_some(Size::AtMost);
    Option<Kept>, "offset:bytes", None,
        |kept, out| kept.map_or(Ok(()), |k| write!(out, "{}:{}", k.offset, k.bytes)),
        |text| {
            let (offset, bytes) = text.split_once(':')?;
            Some(Some(Kept { offset: Field::parse(offset)?, bytes: Field::parse(bytes)? }))
        };
}

impl Field for Refusal {
    const VALUES: &'static str = "the name of a refusal";
    fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        record::write_refusal(out, self)
    }
    fn parse(text: &str) -> Option<Refusal> {
        let mut words = LineWords::of(text);
        Self::take("refusal", &mut words).ok().filter(|_| words.finish().is_ok())
    }
    fn take(key: &'static str, words: &mut LineWords<'_>) -> Result<Refusal, Expected> {
        let name = words.value(Expected { key, value: Self::VALUES })?;
        record::read_refusal(name, words)
    }
}
