//! A recorded run: what all ranks have counted, what coding their samples gave, and the file that
//! keeps it. `docs/reference/messages.md` specifies the file.
//!
//! The file is a list of blocks, each with its kind, length and checksum, so that a reader takes
//! what it wants, one block in memory at a time: the sequences of events, which are most of the
//! file of a large run, are read one rank after the other by who simulates and are passed over by a
//! report.

use std::fmt;
use std::io::{self, Read, Write};

use unspool_codec::Checksum;

use crate::channel::Channel;
use crate::events::Events;
use crate::measure::Measure;
use crate::part::{Comm, Ending};
use crate::wire::{Broken, In, Wire, wire};

/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"UNSPMSG\n";
/// The version of the format.
pub const VERSION: u32 = 2;
const BLOCK_HEAD: usize = 24;
/// The longest block that is read.
const LONGEST: u64 = 1 << 30;

/// The most ranks of a run that is read.
const MOST_RANKS: u32 = 1 << 22;

/// The kinds of blocks.
mod kind {
    pub(super) const RUN: u64 = 1;
    pub(super) const RANK: u64 = 2;
    pub(super) const EVENTS: u64 = 3;
    pub(super) const MEASURES: u64 = 4;
    pub(super) const END: u64 = 5;
}

/// What is known of a run as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The command that was run.
    pub command: Vec<String>,
    /// The MPI that it used.
    pub mpi: String,
    /// How many ranks there were.
    pub size: u32,
    /// When the first began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// What went wrong or was left out, in sentences.
    pub notes: Vec<String>,
}

wire!(About { command, mpi, size, started_unix_ns, notes });

/// How often a function was called, and how long that took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallTotal {
    /// Its name, such as `MPI_Send`.
    pub name: String,
    /// How often.
    pub calls: u64,
    /// Nanoseconds in all.
    pub ns: u64,
}

wire!(CallTotal { name, calls, ns });

/// Payloads that were there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Duplicates {
    /// Messages whose payload was compared.
    pub compared: u64,
    /// Of these, how many were the same as an earlier one.
    pub same: u64,
}

wire!(Duplicates { compared, same });

/// What a rank has counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankRecord {
    /// The rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Its machine.
    pub host: String,
    /// How it has ended.
    pub ending: Ending,
    /// How long it ran, from `MPI_Init` on.
    pub wall_ns: u64,
    /// The functions that it called.
    pub calls: Vec<CallTotal>,
    /// Its communicators.
    pub comms: Vec<Comm>,
    /// Its channels.
    pub channels: Vec<Channel>,
    /// Of all that it sent, to anybody.
    pub sent: Duplicates,
    /// Of all that it was sent, by anybody.
    pub received: Duplicates,
}

impl Wire for Ending {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(from: &mut In) -> Result<Ending, Broken> {
        match u8::take(from)? {
            0 => Ok(Ending::Cut),
            1 => Ok(Ending::Finalized),
            2 => Ok(Ending::Aborted),
            _ => Err("a rank has ended in a way that is not known"),
        }
    }
}

wire!(RankRecord { rank, host, ending, wall_ns, calls, comms, channels, sent, received });

/// A run without its events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// What is known of it as a whole.
    pub about: About,
    /// What its ranks have counted, in their order; those that left nothing are not here.
    pub ranks: Vec<RankRecord>,
    /// What coding their samples gave.
    pub measures: Vec<Measure>,
}

/// Why a file is not a run that can be used.
#[derive(Debug)]
pub enum RunError {
    /// It cannot be read.
    Io(io::Error),
    /// It is something else.
    Foreign,
    /// It is of another version.
    Version(u32),
    /// It ends before its end.
    Truncated,
    /// It was changed.
    Damaged(&'static str),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Io(error) => write!(f, "it cannot be read: {error}."),
            RunError::Foreign => f.write_str(
                "it is not a file that `unspool-messages record` or `merge` has written.",
            ),
            RunError::Version(version) => write!(
                f,
                "it is of version {version} of the format, and this program reads {VERSION}. Use \
                 the program that has written it, or record the run again."
            ),
            RunError::Truncated => {
                f.write_str("its end is missing: it was not written or not copied as a whole.")
            }
            RunError::Damaged(what) => write!(f, "it is damaged: {what}. Take another copy."),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> RunError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => RunError::Truncated,
            _ => RunError::Io(error),
        }
    }
}

/// Writes the file of a run, rank by rank.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    blocks: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn begin(mut to: W, about: &About) -> io::Result<Writer<W>> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Writer { to, blocks: 0 };
        writer.block(kind::RUN, about)?;
        Ok(writer)
    }

    /// Writes a rank.
    ///
    /// # Errors
    /// Those of writing.
    pub fn rank(&mut self, rank: &RankRecord) -> io::Result<()> {
        self.block(kind::RANK, rank)
    }

    /// Writes what a rank did.
    ///
    /// # Errors
    /// Those of writing.
    pub fn events(&mut self, rank: u32, events: &Events) -> io::Result<()> {
        let mut bytes = Vec::new();
        rank.put(&mut bytes);
        events.put(&mut bytes);
        self.bytes(kind::EVENTS, &bytes)
    }

    /// Writes what was measured, and the end.
    ///
    /// # Errors
    /// Those of writing.
    pub fn end(mut self, measures: &Vec<Measure>) -> io::Result<W> {
        self.block(kind::MEASURES, measures)?;
        let blocks = self.blocks;
        self.block(kind::END, &blocks)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn block(&mut self, kind: u64, value: &impl Wire) -> io::Result<()> {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        self.bytes(kind, &bytes)
    }

    fn bytes(&mut self, kind: u64, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(&head_of(kind, bytes))?;
        self.to.write_all(bytes)?;
        self.blocks += 1;
        Ok(())
    }
}

/// Kind, length, and the checksum of both and of the bytes.
fn head_of(kind: u64, bytes: &[u8]) -> [u8; BLOCK_HEAD] {
    let mut head = [0; BLOCK_HEAD];
    head[..8].copy_from_slice(&kind.to_le_bytes());
    head[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    let mut sum = Checksum::new();
    sum.update(&head[..16]);
    sum.update(bytes);
    head[16..].copy_from_slice(&sum.value().to_le_bytes());
    head
}

impl Run {
    /// Reads a run without its events.
    ///
    /// # Errors
    /// Why it is not one that can be used.
    pub fn read(from: impl Read) -> Result<Run, RunError> {
        Run::read_with(from, |_, _| ())
    }

    /// Reads a run, and gives the events of one rank after the other.
    ///
    /// # Errors
    /// Why it is not one that can be used.
    pub fn read_with(
        mut from: impl Read,
        mut events: impl FnMut(u32, Events),
    ) -> Result<Run, RunError> {
        let mut magic = [0; 12];
        let length = fill(&mut from, &mut magic)?;
        if length < 8 || magic[..8] != MAGIC {
            return Err(RunError::Foreign);
        }
        let version = u32::from_le_bytes([magic[8], magic[9], magic[10], magic[11]]);
        if length < magic.len() {
            return Err(RunError::Truncated);
        }
        if version != VERSION {
            return Err(RunError::Version(version));
        }
        let mut run = Run::default();
        for number in 0_u64.. {
            let (kind, bytes) = read_block(&mut from)?;
            let mut left = In(&bytes);
            let told = (number == 0) == (kind == kind::RUN);
            let told = told.then_some(()).ok_or("its blocks have a wrong order");
            let done = told
                .and_then(|()| run.take(kind, number, &mut left, &mut events))
                .and_then(|done| left.end().map(|()| done))
                .map_err(RunError::Damaged)?;
            if done {
                break;
            }
        }
        if fill(&mut from, &mut [0])? != 0 {
            return Err(RunError::Damaged("something follows its end"));
        }
        Ok(run)
    }

    /// Takes a block in; whether it was the last one.
    fn take(
        &mut self,
        kind: u64,
        number: u64,
        from: &mut In,
        events: &mut impl FnMut(u32, Events),
    ) -> Result<bool, Broken> {
        match kind {
            kind::RUN => {
                self.about = About::take(from)?;
                if self.about.size > MOST_RANKS {
                    return Err("it has more ranks than any program");
                }
            }
            kind::RANK => {
                let rank = RankRecord::take(from)?;
                let last = self.ranks.last().map(|last| last.rank);
                if rank.rank >= self.about.size || last.is_some_and(|last| rank.rank <= last) {
                    return Err("its ranks are not in order");
                }
                check(&rank)?;
                self.ranks.push(rank);
            }
            kind::EVENTS => events(u32::take(from)?, Events::take(from)?),
            kind::MEASURES => self.measures = Wire::take(from)?,
            kind::END => {
                let blocks = u64::take(from)?;
                return if blocks == number { Ok(true) } else { Err("blocks are missing") };
            }
            _ => return Err("a block is of a kind that is not known"),
        }
        Ok(false)
    }

    /// The ranks that left nothing.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        let mut here = self.ranks.iter().map(|rank| rank.rank).peekable();
        (0..self.about.size).filter(|rank| here.next_if_eq(rank).is_none()).collect()
    }
}

/// What a report takes for granted.
fn check(rank: &RankRecord) -> Result<(), Broken> {
    let comms = rank.comms.len();
    let known = |channel: &Channel| usize::from(channel.key.comm) < comms.max(1);
    if rank.channels.iter().all(known) { Ok(()) } else { Err("a channel has no communicator") }
}

fn read_block(from: &mut impl Read) -> Result<(u64, Vec<u8>), RunError> {
    let mut head = [0; BLOCK_HEAD];
    from.read_exact(&mut head)?;
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let (kind, length) = (number(0), number(8));
    if length > LONGEST {
        return Err(RunError::Damaged("a block is longer than any"));
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(RunError::Truncated);
    }
    if head != head_of(kind, &bytes) {
        return Err(RunError::Damaged("the checksum of a block is another one"));
    }
    Ok((kind, bytes))
}

/// Reads as much as there is, up to the room.
fn fill(from: &mut impl Read, room: &mut [u8]) -> Result<usize, RunError> {
    let mut bytes = Vec::new();
    from.take(room.len() as u64).read_to_end(&mut bytes)?;
    room[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
