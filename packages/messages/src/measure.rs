//! What each way of coding makes of samples of messages: sizes, and how long it takes on one core.
//!
//! Times are processor time of the thread that codes, the least of several tries: on a machine that
//! is busy with other work the verdict is the same.
//!
//! Every message is decoded again, for the time that takes, and compared: a way without loss that
//! does not give back the bytes counts as a failure and not as a saving. Bytes are those that would
//! be sent, so the base of a window counts in the way with two levels. What needs messages before
//! counts from the message on that has them.

use std::time::{Duration, Instant};

use crate::channel::Key;
use crate::part::{Comm, number_of};
use crate::values::Values;
use crate::wire::{Broken, In, Wire, wire};

mod coders;
mod integers;

pub use coders::Coders;

/// A way of coding messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Scheme {
    /// LZ4, each message by itself.
    Lz4 = 0,
    /// Zstandard of level 3, each message by itself.
    Zstd = 1,
    /// Twine without loss, each message by itself.
    Twine = 2,
    /// The exclusive or with the message before, packed by LZ4.
    XorLz4 = 3,
    /// What Zstandard needs besides the message before: a difference of one level.
    Patch = 4,
    /// The difference between two differences to a fixed base: two levels, a window of five.
    TwoLevels = 5,
    /// Predicted to be as the message before, the rest by Twine.
    Order1 = 6,
    /// Predicted on a line through the two messages before.
    Order2 = 7,
    /// Predicted on a parabola through the three before.
    Order3 = 8,
    /// Twine within 1e-6 of the range.
    Bound6 = 9,
    /// The same, as differences to the message before.
    Bound6Before = 10,
    /// Twine within 1e-4 of the range.
    Bound4 = 11,
    /// The same, as differences to the message before.
    Bound4Before = 12,
}

/// Messages between one base and the next one, itself included.
pub(crate) const WINDOW: usize = 6;

impl Scheme {
    /// Every way, those without loss first.
    pub const ALL: [Scheme; 13] = [
        Scheme::Lz4,
        Scheme::Zstd,
        Scheme::Twine,
        Scheme::XorLz4,
        Scheme::Patch,
        Scheme::TwoLevels,
        Scheme::Order1,
        Scheme::Order2,
        Scheme::Order3,
        Scheme::Bound6,
        Scheme::Bound6Before,
        Scheme::Bound4,
        Scheme::Bound4Before,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Lz4 => "LZ4",
            Scheme::Zstd => "Zstandard",
            Scheme::Twine => "Twine",
            Scheme::XorLz4 => "xor with the message before, LZ4",
            Scheme::Patch => "difference, one level",
            Scheme::TwoLevels => "difference, two levels",
            Scheme::Order1 => "predicted in time, order 1",
            Scheme::Order2 => "predicted in time, order 2",
            Scheme::Order3 => "predicted in time, order 3",
            Scheme::Bound6 => "within 1e-6 of the range",
            Scheme::Bound6Before => "within 1e-6, with the message before",
            Scheme::Bound4 => "within 1e-4 of the range",
            Scheme::Bound4Before => "within 1e-4, with the message before",
        }
    }

    /// Whether the values come back bit for bit.
    #[must_use]
    pub fn is_lossless(self) -> bool {
        self.bound().is_none()
    }

    /// The error that it allows, as a part of the range.
    #[must_use]
    pub fn bound(self) -> Option<f64> {
        match self {
            Scheme::Bound6 | Scheme::Bound6Before => Some(1e-6),
            Scheme::Bound4 | Scheme::Bound4Before => Some(1e-4),
            _ => None,
        }
    }

    /// How many messages before it needs.
    #[must_use]
    pub fn needs(self) -> usize {
        match self {
            Scheme::XorLz4 | Scheme::Patch | Scheme::Order1 => 1,
            Scheme::Bound6Before | Scheme::Bound4Before => 1,
            Scheme::Order2 => 2,
            Scheme::Order3 => 3,
            _ => 0,
        }
    }

    /// The way that is taken for a message without one before it; `None` for ways that messages
    /// are not sent by.
    #[must_use]
    pub fn alone(self) -> Option<Scheme> {
        match self {
            Scheme::Lz4 | Scheme::XorLz4 => Some(Scheme::Lz4),
            Scheme::Zstd | Scheme::Patch => Some(Scheme::Zstd),
            Scheme::Twine | Scheme::Order1 => Some(Scheme::Twine),
            Scheme::Bound6 | Scheme::Bound4 => Some(self),
            _ => None,
        }
    }

    /// The way with this number.
    pub(crate) fn of_code(code: u8) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| *scheme as u8 == code)
    }

    /// Whether it takes values of this type.
    #[must_use]
    pub fn takes(self, values: Values) -> bool {
        self.is_lossless() || values.is_float()
    }
}

/// Parts of a histogram of factors: below 0, then tenths.
pub const BINS: usize = 11;

/// What a way of coding has made of the samples of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The way.
    pub scheme: Scheme,
    /// How many messages it was tried on.
    pub messages: u64,
    /// Their bytes.
    pub original: u64,
    /// What they became.
    pub coded: u64,
    /// How long coding took, on one core.
    pub encode_ns: u64,
    /// How long decoding took.
    pub decode_ns: u64,
    /// How many messages have which factor.
    pub histogram: Vec<u64>,
    /// Messages that did not come back as they were, or that it does not take.
    pub failed: u64,
}

impl Wire for Scheme {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(from: &mut In) -> Result<Scheme, Broken> {
        let code = u8::take(from)?;
        Scheme::of_code(code).ok_or("a way of coding is not known")
    }
}

wire!(Outcome { scheme, messages, original, coded, encode_ns, decode_ns, histogram, failed });

/// Messages that are measured as one: of one communicator, tag, class of sizes and type of values,
/// between all ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// The number of the communicator.
    pub comm: u64,
    /// The tag.
    pub tag: i32,
    /// The class of their sizes.
    pub class: u8,
    /// The type of their values.
    pub values: Values,
}

impl Wire for Values {
    fn put(&self, out: &mut Vec<u8>) {
        self.code().put(out);
    }

    fn take(from: &mut In) -> Result<Values, Broken> {
        let code = u8::take(from)?;
        let values = Values::from_code(code);
        if values.code() == code { Ok(values) } else { Err("a type of values is not known") }
    }
}

wire!(Flow { comm, tag, class, values });

impl Flow {
    /// The flow of a channel of a rank with these communicators.
    #[must_use]
    pub fn of(key: &Key, comms: &[Comm]) -> Flow {
        let comm = number_of(comms, key.comm);
        Flow { comm, tag: key.tag, class: key.class, values: key.values }
    }
}

/// What was measured of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measure {
    /// The flow.
    pub flow: Flow,
    /// What each way has made of its samples.
    pub outcomes: Vec<Outcome>,
}

wire!(Measure { flow, outcomes });

impl Outcome {
    /// One of nothing.
    #[must_use]
    pub fn new(scheme: Scheme) -> Outcome {
        Outcome {
            scheme,
            messages: 0,
            original: 0,
            coded: 0,
            encode_ns: 0,
            decode_ns: 0,
            histogram: vec![0; BINS],
            failed: 0,
        }
    }

    /// The compression factor: the part of the bytes that is saved; below 0 when they become more.
    #[must_use]
    pub fn factor(&self) -> f64 {
        if self.original == 0 { 0.0 } else { 1.0 - self.coded as f64 / self.original as f64 }
    }

    /// Bytes a second that are coded, and decoded; both count the bytes of the message.
    #[must_use]
    pub fn speeds(&self) -> (f64, f64) {
        let speed = |ns: u64| self.original as f64 / (ns.max(1) as f64 * 1e-9);
        (speed(self.encode_ns), speed(self.decode_ns))
    }

    /// What coding and decoding cost on a path of so many bytes a second, as a part of the time
    /// that a message takes there: coding pays when the factor is more.
    #[must_use]
    pub fn cost(&self, network: f64) -> f64 {
        let (encode, decode) = self.speeds();
        network * (1.0 / encode + 1.0 / decode)
    }

    /// The part of the time of messages on such a path that coding saves in all; below 0 when it
    /// costs more than it saves.
    #[must_use]
    pub fn gain(&self, network: f64) -> f64 {
        self.factor() - self.cost(network)
    }

    /// Takes in a message.
    pub fn add(&mut self, original: usize, coded: usize, encode: Duration, decode: Duration) {
        self.messages += 1;
        self.original += original as u64;
        self.coded += coded as u64;
        self.encode_ns += encode.as_nanos() as u64;
        self.decode_ns += decode.as_nanos() as u64;
        self.histogram[bin_of(original, coded)] += 1;
    }

    /// Takes in what another one has.
    pub fn merge(&mut self, other: &Outcome) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.messages, other.messages);
        add(&mut self.original, other.original);
        add(&mut self.coded, other.coded);
        add(&mut self.encode_ns, other.encode_ns);
        add(&mut self.decode_ns, other.decode_ns);
        add(&mut self.failed, other.failed);
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(bin, more)| add(bin, *more));
    }
}

/// The part of the histogram for a message.
fn bin_of(original: usize, coded: usize) -> usize {
    match original.checked_sub(coded) {
        None => 0,
        Some(saved) => (saved * 10 / original.max(1)).min(9) + 1,
    }
}

/// Tries every way on consecutive messages of equal length, until `deadline`.
pub fn measure(
    coders: &mut Coders,
    values: Values,
    run: &[&[u8]],
    into: &mut Vec<Outcome>,
    deadline: Instant,
) {
    let lengths_match = run.iter().all(|message| message.len() == run[0].len());
    debug_assert!(lengths_match, "a run has messages of one length");
    coders.on_one_thread(|coders| try_every_way(coders, values, run, into, deadline));
}

fn try_every_way(
    coders: &mut Coders,
    values: Values,
    run: &[&[u8]],
    into: &mut Vec<Outcome>,
    deadline: Instant,
) {
    for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.takes(values)) {
        if Instant::now() >= deadline {
            return;
        }
        let outcome = match into.iter().position(|outcome| outcome.scheme == scheme) {
            Some(place) => &mut into[place],
            None => {
                into.push(Outcome::new(scheme));
                into.last_mut().expect("one was pushed")
            }
        };
        for index in scheme.needs()..run.len() {
            match coders.quickest(scheme, values, run, index) {
                Some(coded) => {
                    outcome.add(run[index].len(), coded.bytes, coded.encode, coded.decode);
                }
                None => outcome.failed += 1,
            }
        }
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
