//! What one rank counts, in words of memory under which a file lies: so a rank that is killed
//! leaves what it had counted. `docs/reference/messages.md` has the layout.
//!
//! Every table has a fixed length, given when it begins. What does not fit is counted as such:
//! messages of channels without a row, payloads that were not remembered, events between the first
//! and the last. A reader believes nothing: lengths are checked against the file, keys against
//! their checksum.

use std::collections::HashMap;

use unspool_codec::checksum;

use crate::calls::CALLS;
use crate::channel::{Channel, Key};
use crate::events::{self, Event, Events};
use crate::hash::Quickly;
use crate::wire::wire;

const MAGIC: u64 = u64::from_le_bytes(*b"UNSPPART");
const VERSION: u64 = 2;
const HEADER: usize = 64;
/// Words of the header that are written once, then their checksum.
const FIXED: usize = 40;
const CALL: usize = 2;
const MOST_CALLS: usize = 256;
const COMM: usize = 12;
const NAME: usize = 64;
const CHANNEL: usize = 16;
const PAYLOAD: usize = 3;
/// Rows of the payloads that are looked at for one.
const PROBES: usize = 16;

/// Words of the header that change.
mod at {
    pub(super) const ENDING: usize = 41;
    pub(super) const LAST_NS: usize = 42;
    pub(super) const COMMS: usize = 43;
    pub(super) const CHANNELS: usize = 44;
    pub(super) const EVENTS: usize = 45;
    pub(super) const UNSTARTED: usize = 46;
    pub(super) const UNPACKED: usize = 47;
    pub(super) const SAMPLING: usize = 48;
    pub(super) const FOLDED: usize = 49;
}

/// How long the tables of a part are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Communicators.
    pub comms: usize,
    /// Channels.
    pub channels: usize,
    /// Payloads that are remembered to be known again.
    pub payloads: usize,
    /// Events, half of them the first, half the last.
    pub events: usize,
}

impl Default for Limits {
    /// 6 MB in all.
    fn default() -> Limits {
        Limits { comms: 256, channels: 4096, payloads: 1 << 17, events: 1 << 16 }
    }
}

impl Limits {
    /// Limits that cannot overflow anything, from what somebody has asked for.
    #[must_use]
    pub fn clamped(self) -> Limits {
        Limits {
            comms: self.comms.clamp(2, 1 << 15),
            channels: self.channels.clamp(8, 1 << 20),
            payloads: self.payloads.clamp(PROBES, 1 << 24),
            events: self.events.clamp(2, 1 << 26) & !1,
        }
    }

    /// The words of a part with these limits.
    #[must_use]
    pub fn words(&self) -> usize {
        self.events_at() + self.events * events::WORDS
    }

    fn comms_at(&self) -> usize {
        HEADER + MOST_CALLS * CALL
    }

    fn channels_at(&self) -> usize {
        self.comms_at() + self.comms * COMM
    }

    fn payloads_at(&self) -> usize {
        self.channels_at() + self.channels * CHANNEL
    }

    fn events_at(&self) -> usize {
        self.payloads_at() + self.payloads * PAYLOAD
    }

    fn event_at(&self, number: u64) -> usize {
        let half = self.events as u64 / 2;
        let row = if number < half { number } else { half + (number - half) % half };
        self.events_at() + row as usize * events::WORDS
    }
}

/// Who writes a part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Its process.
    pub process: u32,
    /// When it began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The name of its machine, at most 64 bytes.
    pub host: String,
    /// The MPI that it uses, at most 64 bytes.
    pub mpi: String,
}

/// How a rank has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It called nothing that ends it: it crashed, was killed, or left by `exit`.
    Cut = 0,
    /// It called `MPI_Finalize`.
    Finalized = 1,
    /// It called `MPI_Abort`.
    Aborted = 2,
}

/// A communicator as a rank knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comm {
    /// The number that all of its ranks have for it.
    pub id: u64,
    /// How many ranks it has; of two groups, the other one.
    pub size: u32,
    /// What it is called.
    pub name: String,
    /// Whether MPI may do with its messages what coding rules out, as the program has allowed it.
    pub plain: bool,
}

wire!(Comm { id, size, name, plain });

/// The number of the communicator with this index in the table of a rank; 0 when it is not there.
pub(crate) fn number_of(comms: &[Comm], index: u16) -> u64 {
    comms.get(usize::from(index)).map_or(0, |comm| comm.id)
}

/// A message, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its channel.
    pub key: Key,
    /// Its bytes.
    pub bytes: u64,
    /// The hash of its payload, where it was looked at.
    pub payload: Option<u128>,
    /// When its call began, in nanoseconds since the rank did.
    pub start_ns: u64,
    /// How long the call took.
    pub call_ns: u64,
}

/// The tables of a rank while it runs.
#[derive(Debug)]
pub struct Part<'a> {
    words: &'a mut [u64],
    limits: Limits,
    rows: HashMap<Key, u32, Quickly>,
}

impl<'a> Part<'a> {
    /// Begins the tables in `words`, which are all 0 and as many as the limits say.
    ///
    /// # Panics
    /// When they are not as many.
    #[must_use]
    pub fn begin(words: &'a mut [u64], limits: Limits, who: &Identity) -> Part<'a> {
        assert_eq!(words.len(), limits.words(), "words for other limits");
        let sizes = [limits.comms, limits.channels, limits.payloads, limits.events];
        words[1] = VERSION;
        for (word, size) in words[2..].iter_mut().zip(sizes) {
            *word = size as u64;
        }
        words[6] = u64::from(who.rank) | u64::from(who.size) << 32;
        words[7] = u64::from(who.process);
        words[8] = who.started_unix_ns;
        put_text(&mut words[9..17], &who.host);
        put_text(&mut words[17..25], &who.mpi);
        // The magic comes first in the file and last in time.
        words[0] = MAGIC;
        words[FIXED] = sum(&words[..FIXED]);
        let mut part = Part { words, limits, rows: HashMap::default() };
        part.row(Key::REST);
        part
    }

    /// The index of a new communicator; the last one stands for those that have no row.
    pub fn comm(&mut self, comm: &Comm) -> u16 {
        let index = (self.words[at::COMMS] as usize).min(self.limits.comms - 1);
        let full = index == self.limits.comms - 1;
        let row = self.limits.comms_at() + index * COMM;
        let words = &mut self.words[row..row + COMM];
        words[0] = if full { 0 } else { comm.id };
        words[1] = if full { 0 } else { u64::from(comm.size) };
        put_text(&mut words[2..2 + NAME / 8], if full { "all further ones" } else { &comm.name });
        words[2 + NAME / 8] = u64::from(comm.plain);
        self.words[at::COMMS] = index as u64 + 1;
        index as u16
    }

    /// Gives a communicator another name.
    pub fn rename(&mut self, comm: u16, name: &str) {
        let row = self.limits.comms_at() + usize::from(comm) * COMM;
        if usize::from(comm) + 1 < self.limits.comms {
            put_text(&mut self.words[row + 2..row + 2 + NAME / 8], name);
        }
    }

    /// Says that the messages of a communicator are not to be coded.
    pub fn keep_plain(&mut self, comm: u16) {
        let row = self.limits.comms_at() + usize::from(comm) * COMM;
        self.words[row + 2 + NAME / 8] = 1;
    }

    /// The row of a channel, and how many messages were counted in it.
    pub fn peek(&mut self, key: Key) -> (usize, u64) {
        let row = self.row(key);
        (row, self.words[self.limits.channels_at() + row * CHANNEL + 3])
    }

    /// Counts a message.
    pub fn message(&mut self, message: &Message) {
        let row = self.row(message.key);
        self.message_in(row, message);
    }

    /// Counts a message whose channel has this row, as [`Part::peek`] has found.
    pub fn message_in(&mut self, row: usize, message: &Message) {
        let seen = message.payload.map(|hash| self.remember(hash, message.key.peer));
        let start = self.limits.channels_at() + row * CHANNEL;
        let words = &mut self.words[start..start + CHANNEL];
        if words[3] == 0 {
            (words[5], words[10]) = (message.bytes, message.start_ns);
        }
        words[3] += 1;
        words[4] = words[4].wrapping_add(message.bytes);
        words[5] = words[5].min(message.bytes);
        words[6] = words[6].max(message.bytes);
        if let Some(Some(known)) = seen {
            words[7] += u64::from(known);
            words[8] += 1;
        }
        words[9] += message.call_ns;
        words[11] = message.start_ns;
    }

    /// Counts a sample of the channel in this row.
    pub fn sampled(&mut self, row: usize) {
        self.words[self.limits.channels_at() + row * CHANNEL + 12] += 1;
    }

    /// Counts a call that took so long.
    pub fn call(&mut self, call: u8, ns: u64) {
        let row = HEADER + usize::from(call) * CALL;
        self.words[row] += 1;
        self.words[row + 1] += ns;
    }

    /// Writes an event down.
    pub fn event(&mut self, event: &Event) {
        let number = self.words[at::EVENTS];
        let row = self.limits.event_at(number);
        self.words[row..row + events::WORDS].copy_from_slice(&event.words());
        self.words[at::EVENTS] = number + 1;
    }

    /// Says until when the rank has run.
    pub fn now(&mut self, ns: u64) {
        self.words[at::LAST_NS] = ns;
    }

    /// Counts a start of a request that was not seen being prepared.
    pub fn unknown_start(&mut self) {
        self.words[at::UNSTARTED] += 1;
    }

    /// Counts a message of scattered values that was too large to be looked at.
    pub fn not_packed(&mut self) {
        self.words[at::UNPACKED] += 1;
    }

    /// Says that samples could not be written.
    pub fn sampling_failed(&mut self) {
        self.words[at::SAMPLING] = 1;
    }

    /// Says how the rank has ended.
    pub fn finish(&mut self, ending: Ending, ns: u64) {
        self.words[at::LAST_NS] = ns;
        self.words[at::ENDING] = ending as u64;
    }

    /// The row of a channel. When three quarters are taken, new channels stand for all tags; when
    /// all are, for everything.
    fn row(&mut self, mut key: Key) -> usize {
        if let Some(row) = self.rows.get(&key) {
            return *row as usize;
        }
        let taken = self.words[at::CHANNELS] as usize;
        let folds = taken >= self.limits.channels / 4 * 3 && key.tag != Key::ANY_TAG;
        if folds {
            key.tag = Key::ANY_TAG;
            if let Some(row) = self.rows.get(&key) {
                return *row as usize;
            }
        }
        if taken == self.limits.channels {
            return 0;
        }
        self.words[at::FOLDED] += u64::from(folds);
        let start = self.limits.channels_at() + taken * CHANNEL;
        let words = key.words();
        self.words[start..start + 2].copy_from_slice(&words);
        self.words[start + 2] = sum(&words);
        self.words[at::CHANNELS] = taken as u64 + 1;
        self.rows.insert(key, taken as u32);
        taken
    }

    /// Whether the peer had this payload before; `None` when there is no room to know it again.
    fn remember(&mut self, hash: u128, peer: u32) -> Option<bool> {
        let (low, high) = (hash as u64, (hash >> 64) as u64);
        let first = (low ^ u64::from(peer).wrapping_mul(0x9e37_79b9_7f4a_7c15)) as usize;
        let rows = self.limits.payloads;
        for probe in 0..PROBES {
            let row = self.limits.payloads_at() + (first.wrapping_add(probe) % rows) * PAYLOAD;
            let words = &mut self.words[row..row + PAYLOAD];
            let count = words[2] >> 32;
            if count == 0 {
                words.copy_from_slice(&[low, high, u64::from(peer) | 1 << 32]);
                return Some(false);
            }
            if words[..2] == [low, high] && words[2] as u32 == peer {
                words[2] += u64::from(count < u64::from(u32::MAX)) << 32;
                return Some(true);
            }
        }
        None
    }
}

/// A payload that a rank has sent, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    /// Its hash.
    pub hash: u128,
    /// Who got it.
    pub peer: u32,
    /// How often.
    pub count: u32,
}

/// What was found in a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Who wrote it.
    pub who: Identity,
    /// How the rank has ended.
    pub ending: Ending,
    /// Until when it has run, in nanoseconds since it began.
    pub last_ns: u64,
    /// Row, how often and how long for each function that was called.
    pub calls: Vec<(u8, u64, u64)>,
    /// Its communicators.
    pub comms: Vec<Comm>,
    /// Its channels, by row; one whose row is damaged is `None`.
    pub channels: Vec<Option<Channel>>,
    /// The payloads that it remembered.
    pub payloads: Vec<Payload>,
    /// What it did, in order.
    pub events: Events,
    /// Starts of requests that it had not seen being prepared.
    pub unknown_starts: u64,
    /// Messages of scattered values that were too large to be looked at.
    pub not_packed: u64,
    /// Whether samples could not be written.
    pub sampling_failed: bool,
    /// Channels that stand for all tags.
    pub folded: u64,
    /// Where samples begin in the file, in bytes.
    pub samples_at: usize,
}

/// Bytes of a part that say who wrote it.
pub const HEADER_BYTES: u64 = HEADER as u64 * 8;

/// Reads who wrote a part, from its first [`HEADER_BYTES`].
///
/// # Errors
/// Why this is not a part, in a sentence without its end.
pub fn read_identity(bytes: &[u8]) -> Result<Identity, String> {
    header(bytes).map(|(words, _)| identity(&words))
}

/// Reads the part at the beginning of `bytes`, also one that its rank had no time to end.
///
/// # Errors
/// Why this is not a part, in a sentence without its end.
pub fn read(bytes: &[u8]) -> Result<Found, String> {
    let (_, limits) = header(bytes)?;
    let whole = bytes.get(..limits.words() * 8).ok_or_else(|| {
        format!("it has {} bytes of the {} of its tables", bytes.len(), limits.words() * 8)
    })?;
    Ok(found(&words_of(whole), &limits))
}

fn header(bytes: &[u8]) -> Result<(Vec<u64>, Limits), String> {
    let header = words_of(bytes.get(..HEADER * 8).ok_or("it is shorter than a header")?);
    if header[0] != MAGIC {
        return Err("it does not begin as a part does".to_owned());
    }
    if header[1] != VERSION {
        return Err(format!("it is of version {}, and this reads version {VERSION}", header[1]));
    }
    if header[FIXED] != sum(&header[..FIXED]) {
        return Err("its header is damaged".to_owned());
    }
    let sizes = [2, 3, 4, 5].map(|index| header[index] as usize);
    let limits =
        Limits { comms: sizes[0], channels: sizes[1], payloads: sizes[2], events: sizes[3] };
    if limits.clamped() != limits {
        return Err("its tables have lengths that no table has".to_owned());
    }
    Ok((header, limits))
}

fn found(words: &[u64], limits: &Limits) -> Found {
    let rows = |from: usize, width: usize, count: usize| words[from..].chunks(width).take(count);
    let calls = rows(HEADER, CALL, CALLS.len().min(MOST_CALLS)).enumerate();
    let comms = rows(limits.comms_at(), COMM, limits.comms.min(words[at::COMMS] as usize));
    let channels =
        rows(limits.channels_at(), CHANNEL, limits.channels.min(words[at::CHANNELS] as usize));
    let payloads = rows(limits.payloads_at(), PAYLOAD, limits.payloads);
    Found {
        who: identity(words),
        ending: match words[at::ENDING] {
            1 => Ending::Finalized,
            2 => Ending::Aborted,
            _ => Ending::Cut,
        },
        last_ns: words[at::LAST_NS],
        calls: calls
            .filter(|(_, row)| row[0] > 0)
            .map(|(i, row)| (i as u8, row[0], row[1]))
            .collect(),
        comms: comms.map(comm_of).collect(),
        channels: channels.map(channel_of).collect(),
        payloads: payloads.filter(|row| row[2] >> 32 > 0).map(payload_of).collect(),
        events: events_of(words, limits),
        unknown_starts: words[at::UNSTARTED],
        not_packed: words[at::UNPACKED],
        sampling_failed: words[at::SAMPLING] != 0,
        folded: words[at::FOLDED],
        samples_at: limits.words() * 8,
    }
}

fn identity(words: &[u64]) -> Identity {
    Identity {
        rank: words[6] as u32,
        size: (words[6] >> 32) as u32,
        process: words[7] as u32,
        started_unix_ns: words[8],
        host: text(&words[9..17]),
        mpi: text(&words[17..25]),
    }
}

fn comm_of(row: &[u64]) -> Comm {
    let (name, plain) = (text(&row[2..2 + NAME / 8]), row[2 + NAME / 8] != 0);
    Comm { id: row[0], size: row[1] as u32, name, plain }
}

fn payload_of(row: &[u64]) -> Payload {
    let hash = u128::from(row[1]) << 64 | u128::from(row[0]);
    Payload { hash, peer: row[2] as u32, count: (row[2] >> 32) as u32 }
}

fn channel_of(row: &[u64]) -> Option<Channel> {
    let key = Key::of_words([row[0], row[1]]).filter(|_| sum(&row[..2]) == row[2])?;
    Some(Channel {
        key,
        messages: row[3],
        bytes: row[4],
        least: row[5],
        most: row[6],
        duplicates: row[7],
        compared: row[8],
        call_ns: row[9],
        first_ns: row[10],
        last_ns: row[11],
        samples: row[12],
    })
}

fn events_of(words: &[u64], limits: &Limits) -> Events {
    let total = words[at::EVENTS];
    let half = limits.events as u64 / 2;
    let one = |number: u64| {
        let row = limits.event_at(number);
        Event::of_words(words[row..row + events::WORDS].try_into().unwrap_or_default())
    };
    Events {
        total,
        first: (0..total.min(half)).map(one).collect(),
        last: (half.max(total.saturating_sub(half))..total.max(half)).map(one).collect(),
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn sum(words: &[u64]) -> u64 {
    let mut bytes = [0; FIXED * 8];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    checksum(&bytes[..words.len() * 8])
}

/// Writes as much of a text as there is room for, in whole letters.
fn put_text(words: &mut [u64], text: &str) {
    let mut bytes = text[..text.floor_char_boundary(words.len() * 8)].bytes();
    for word in words {
        let mut eight = [0; 8];
        eight.iter_mut().zip(&mut bytes).for_each(|(place, byte)| *place = byte);
        *word = u64::from_le_bytes(eight);
    }
}

fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
