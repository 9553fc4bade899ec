//! Messages as they are sent when they are coded, and what the sender and the receiver of a channel
//! remember.
//!
//! What holds throughout:
//! - Every message of a channel begins with a header of 8 bytes, coded or not, so a receiver needs
//!   to know nothing but that the channel is one of these.
//! - A receiver decodes the messages of a channel in the order in which they were sent. Then it has
//!   the messages before which the sender has: each says whether it is to be kept for the next one.
//! - What a sender gives up to stay within its limit it names in its next message to the same rank,
//!   so the receiver gives it up as well.
//! - Bytes that are not such a message are refused. A coded message brings a hash of what it has to
//!   become: another result is refused too. One with a bound on the error brings that of its bytes.

use std::collections::HashMap;

use crate::channel::class_of;
use crate::hash::{Quickly, hash};
use crate::measure::{Coders, Scheme};
use crate::values::Values;

/// Bytes in front of each message.
pub const HEADER: usize = 8;
/// The longest message that is sent so: what MPI counts is 31 bits.
pub const LONGEST: usize = (1 << 31) - 4096;
/// The number of ways with a bound in a header.
const BOUNDED: u8 = 6;
/// Bytes that name a message that the sender has given up.
const NOTICE: usize = 9;
/// Most of these in a message.
const MOST_NOTICES: usize = 8;
/// Messages in a row that did not pay, after which a channel is sent as it is.
const PATIENCE: u32 = 4;
/// Messages that it is then sent so; twice as many each time.
const REST: u32 = 64;
const LONGEST_REST: u32 = 1 << 14;

/// The rank at the other end, and the communicator in which it is that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// The number of the communicator.
    pub comm: u64,
    /// The rank in it.
    pub rank: u32,
}

/// The messages between two ranks that have one order and are of about one size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Lane {
    tag: i32,
    class: u8,
}

/// How messages are to be coded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// The way, with one message before at the most.
    pub scheme: Scheme,
    /// The part of the bytes that it has to save to pay.
    pub least: f64,
}

/// What was sent, or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Messages of channels that are coded.
    pub messages: u64,
    /// Of these, how many were coded.
    pub coded: u64,
    /// Bytes of the program.
    pub bytes: u64,
    /// Bytes on the wire.
    pub wire: u64,
}

impl Traffic {
    /// Adds what another one has.
    pub fn add(&mut self, other: &Traffic) {
        self.messages += other.messages;
        self.coded += other.coded;
        self.bytes += other.bytes;
        self.wire += other.wire;
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    /// Bytes of the program's message.
    length: u32,
    /// How it is coded, if it is.
    scheme: Option<Scheme>,
    /// Whether it is kept for the next one.
    keep: bool,
    values: Values,
    notices: u8,
    /// How many messages the lane had before, as far as it fits.
    number: u8,
}

impl Header {
    fn bytes(self) -> [u8; HEADER] {
        let way = self.scheme.map_or(0, |scheme| match scheme.bound() {
            Some(_) => BOUNDED,
            None => scheme as u8 + 1,
        });
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = way | u8::from(self.keep) << 3 | self.values.code() << 4;
        (bytes[5], bytes[6]) = (self.notices, self.number);
        bytes[7] = check(&bytes[..7]);
        bytes
    }

    fn of(wire: &[u8]) -> Option<Header> {
        let bytes = wire.get(..HEADER)?;
        let way = bytes[4] & 7;
        let scheme = match way.checked_sub(1) {
            None => None,
            // Decoding is the same for every bound.
            Some(_) if way == BOUNDED => Some(Scheme::Bound6),
            Some(code) => Some(Scheme::of_code(code).filter(|found| found.alone().is_some())?),
        };
        let values = Values::from_code(bytes[4] >> 4);
        let length = u32::from_le_bytes(bytes[..4].try_into().ok()?);
        let known = values.code() == bytes[4] >> 4
            && usize::from(bytes[5]) <= MOST_NOTICES
            && length as usize <= LONGEST
            && check(&bytes[..7]) == bytes[7];
        known.then_some(Header {
            length,
            scheme,
            keep: bytes[4] & 8 != 0,
            values,
            notices: bytes[5],
            number: bytes[6],
        })
    }
}

/// What tells that a message has come back: the hash of what it has to become, or, where a bound
/// makes something else of it, of its bytes.
fn sum(scheme: Scheme, message: &[u8], packed: &[u8]) -> [u8; 8] {
    let bytes = if scheme.is_lossless() { message } else { packed };
    (hash(bytes) as u64).to_le_bytes()
}

/// What tells a header from other bytes.
fn check(bytes: &[u8]) -> u8 {
    (hash(bytes) >> 64) as u8 ^ 0x5a
}

/// What a sender remembers of a lane.
#[derive(Debug, Default)]
struct Sent {
    /// Messages so far.
    number: u32,
    before: Option<Vec<u8>>,
    /// When it was used last.
    used: u64,
    /// Messages in a row that did not pay.
    unpaid: u32,
    /// Messages that are still sent as they are.
    resting: u32,
    /// How many that were the last time.
    rested: u32,
}

impl Sent {
    /// Takes in what a message has saved. What does not pay is left alone for a while.
    fn judge(&mut self, saved: f64, least: f64) {
        if saved >= least {
            (self.unpaid, self.rested) = (0, 0);
            return;
        }
        self.unpaid += 1;
        if self.unpaid == PATIENCE {
            self.unpaid = 0;
            self.rested = (self.rested * 2).clamp(REST, LONGEST_REST);
            self.resting = self.rested;
        }
    }
}

/// The lanes to a rank.
#[derive(Debug, Default)]
struct Lanes {
    sent: HashMap<Lane, Sent, Quickly>,
    /// Bytes of the messages that are kept.
    kept: usize,
}

/// The end of channels that sends.
#[derive(Debug)]
pub struct Sender {
    coders: Coders,
    /// Bytes that are kept for each peer at most.
    quota: usize,
    peers: HashMap<Peer, Lanes, Quickly>,
    clock: u64,
    /// What was sent so far.
    pub traffic: Traffic,
}

impl Sender {
    /// One that keeps so many bytes for each peer.
    #[must_use]
    pub fn new(quota: usize) -> Sender {
        let traffic = Traffic::default();
        Sender { coders: Coders::default(), quota, peers: HashMap::default(), clock: 0, traffic }
    }

    /// Puts a message of at most [`LONGEST`] bytes as it is sent into `out`.
    pub fn put(
        &mut self,
        to: Peer,
        tag: i32,
        choice: Option<Choice>,
        values: Values,
        message: &[u8],
        out: &mut Vec<u8>,
    ) {
        debug_assert!(message.len() <= LONGEST, "longer messages are refused before");
        self.clock += 1;
        let lane = Lane { tag, class: class_of(message.len() as u64) };
        let lanes = self.peers.entry(to).or_default();
        let mut sent = lanes.sent.remove(&lane).unwrap_or_default();
        sent.used = self.clock;
        let before = sent.before.take();
        lanes.kept -= before.as_ref().map_or(0, Vec::len);
        let rests = sent.resting > 0;
        sent.resting = sent.resting.saturating_sub(1);
        let choice = choice.filter(|_| !rests && !message.is_empty());
        let coded = choice.and_then(|choice| {
            let (scheme, packed) =
                code(&mut self.coders, choice, values, message, before.as_deref())?;
            let saved = 1.0 - (packed.len() + 8) as f64 / message.len() as f64;
            // The first message of a way that looks back says nothing of those after it.
            if scheme == choice.scheme {
                sent.judge(saved, choice.least);
            }
            (saved > 0.0).then_some((scheme, packed))
        });
        let looks_back = choice.is_some_and(|choice| choice.scheme.needs() > 0);
        let looks_back = looks_back && sent.resting == 0 && message.len() <= self.quota;
        let notices =
            if looks_back { lanes.make_room(message.len(), self.quota) } else { Vec::new() };
        let keep = looks_back && lanes.kept + message.len() <= self.quota;
        let header = Header {
            length: message.len() as u32,
            scheme: coded.as_ref().map(|(scheme, _)| *scheme),
            keep,
            values,
            notices: (notices.len() / NOTICE) as u8,
            number: sent.number as u8,
        };
        out.clear();
        out.extend_from_slice(&header.bytes());
        out.extend_from_slice(&notices);
        match &coded {
            Some((scheme, packed)) => {
                out.extend_from_slice(&sum(*scheme, message, packed));
                out.extend_from_slice(packed);
            }
            None => out.extend_from_slice(message),
        }
        sent.number = sent.number.wrapping_add(1);
        if keep {
            let mut room = before.unwrap_or_default();
            room.clear();
            room.extend_from_slice(message);
            lanes.kept += room.len();
            sent.before = Some(room);
        }
        lanes.sent.insert(lane, sent);
        self.traffic.add(&Traffic {
            messages: 1,
            coded: u64::from(coded.is_some()),
            bytes: message.len() as u64,
            wire: out.len() as u64,
        });
    }
}

impl Lanes {
    /// Gives up messages that were used longest ago, until there is room for one of this length or
    /// a message can name no more of them, and names them.
    fn make_room(&mut self, length: usize, quota: usize) -> Vec<u8> {
        let mut notices = Vec::new();
        while self.kept + length > quota && notices.len() < MOST_NOTICES * NOTICE {
            let kept = self.sent.iter_mut().filter(|(_, sent)| sent.before.is_some());
            let Some((lane, sent)) = kept.min_by_key(|(_, sent)| sent.used) else { break };
            self.kept -= sent.before.take().map_or(0, |before| before.len());
            notices.extend_from_slice(&lane.tag.to_le_bytes());
            notices.push(lane.class);
            notices.extend_from_slice(&sent.number.to_le_bytes());
        }
        notices
    }
}

/// A message by the way that was chosen, or, without one before it, by the same way alone.
fn code(
    coders: &mut Coders,
    choice: Choice,
    values: Values,
    message: &[u8],
    before: Option<&[u8]>,
) -> Option<(Scheme, Vec<u8>)> {
    if let Some(before) = before.filter(|_| choice.scheme.needs() > 0)
        && let Some(packed) = coders.pack(choice.scheme, values, message, &[before])
    {
        return Some((choice.scheme, packed));
    }
    let scheme = choice.scheme.alone()?;
    Some((scheme, coders.pack(scheme, values, message, &[])?))
}

/// What a receiver remembers of a lane.
#[derive(Debug, Default)]
struct Got {
    /// Messages so far.
    number: u32,
    before: Option<Vec<u8>>,
    /// How many messages there will have been when the one before is given up.
    until: Option<u32>,
}

/// The end of channels that receives.
#[derive(Debug, Default)]
pub struct Receiver {
    coders: Coders,
    lanes: HashMap<(Peer, Lane), Got, Quickly>,
    /// What was received so far.
    pub traffic: Traffic,
}

/// A message of the program, again.
#[derive(PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// It lies in what was received.
    There(&'a [u8]),
    /// It was decoded.
    Made(Vec<u8>),
}

impl Body<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::There(bytes) => bytes,
            Body::Made(bytes) => bytes,
        }
    }
}

impl Receiver {
    /// The message of the program of which these bytes were made. Messages of a channel have to be
    /// given in the order in which they were sent.
    ///
    /// # Errors
    /// Why they are not such a message, in a sentence without its end.
    pub fn take<'a>(
        &mut self,
        from: Peer,
        tag: i32,
        wire: &'a [u8],
    ) -> Result<Body<'a>, &'static str> {
        let header = Header::of(wire).ok_or("what has arrived has no header, or a damaged one")?;
        let length = header.length as usize;
        let lane = Lane { tag, class: class_of(header.length.into()) };
        let number = self.lanes.entry((from, lane)).or_default().number;
        if number as u8 != header.number {
            return Err("a message is missing, or there is one too many");
        }
        let notices = NOTICE * usize::from(header.notices);
        let rest = &wire[HEADER..];
        let (notices, rest) = rest.split_at_checked(notices).ok_or("a message is cut off")?;
        notices.chunks_exact(NOTICE).for_each(|notice| self.give_up(from, notice));
        let got = self.lanes.entry((from, lane)).or_default();
        let body = match header.scheme {
            None if rest.len() == length => Body::There(rest),
            None => return Err("a message has another length than its header says"),
            Some(scheme) => {
                let (found, packed) = rest.split_at_checked(8).ok_or("a message is cut off")?;
                let before = got.before.as_deref().filter(|_| scheme.needs() > 0);
                let before: Vec<&[u8]> = before.into_iter().collect();
                if before.len() < scheme.needs() {
                    return Err("the message before, which it needs, is not here");
                }
                let made = self.coders.unpack(scheme, header.values, packed, &before, length);
                let made = made.filter(|made| sum(scheme, made, packed) == *found);
                Body::Made(made.ok_or("a message cannot be decoded")?)
            }
        };
        got.number = got.number.wrapping_add(1);
        let room = got.before.take();
        let given_up = got.until == Some(got.number);
        got.until = got.until.filter(|_| !given_up);
        if header.keep && !given_up {
            let mut room = room.unwrap_or_default();
            room.clear();
            room.extend_from_slice(body.bytes());
            got.before = Some(room);
        }
        self.traffic.add(&Traffic {
            messages: 1,
            coded: u64::from(header.scheme.is_some()),
            bytes: u64::from(header.length),
            wire: wire.len() as u64,
        });
        Ok(body)
    }

    /// Gives up what the sender has given up, now or when its messages until then are here.
    fn give_up(&mut self, from: Peer, notice: &[u8]) {
        let word = |at: usize| notice[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let lane = Lane { tag: word(0) as i32, class: notice[4] };
        let until = word(5);
        let got = self.lanes.entry((from, lane)).or_default();
        match until.wrapping_sub(got.number) as i32 {
            0 => got.before = None,
            1.. => got.until = Some(until),
            // The sender has kept a later one since.
            _ => {}
        }
    }

    /// Bytes of messages that are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.lanes.values().filter_map(|got| got.before.as_ref()).map(Vec::len).sum()
    }
}

#[cfg(test)]
#[path = "coded_tests.rs"]
mod tests;
