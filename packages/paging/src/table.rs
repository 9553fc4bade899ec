//! The one table of chunks, and what it says under one lock.

use crate::decide::{Decider, Wire};
use crate::store::Kept;

/// Which chunks in memory keep their encoded bytes in main memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    /// All: to encode them again would change values once more.
    All,
    /// Those that come and go in every lap of an order; the bytes count as resident.
    Passing,
    /// None: encoded bytes have a limit.
    None,
}

/// What a clean chunk is a copy of.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Zeros.
    Zeros,
    /// Encoded bytes, to which it goes back.
    Kept(Kept),
    /// Encoded bytes in main memory, which are counted as resident.
    Doubled(Kept),
    /// Encoded bytes in main memory that were given back when it came: it is encoded again.
    Dropped,
}

impl Origin {
    /// What a chunk is a copy of that was filled from this.
    pub(crate) fn of(source: Chunk) -> Origin {
        if let Chunk::Stored(kept) = source { Origin::Kept(kept) } else { Origin::Zeros }
    }

    fn doubled_bytes(&self) -> usize {
        if let Origin::Doubled(kept) = self { kept.len() } else { 0 }
    }

    /// Takes the encoded bytes away, if there are any: they are given back or stored again.
    pub(crate) fn take(&mut self) -> Option<Kept> {
        match std::mem::replace(self, Origin::Dropped) {
            Origin::Kept(kept) | Origin::Doubled(kept) => Some(kept),
            origin => {
                *self = origin;
                None
            }
        }
    }
}

/// A chunk, and what it owns.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Zeros, nowhere. Touched or loaded ahead: `Coming`.
    Zero,
    /// Put aside, and not in memory. Touched or loaded ahead: `Coming`.
    Stored(Kept),
    /// A thread is filling it. Done: `Clean` or `Dirty`; not possible: back, or `Lost`.
    Coming {
        /// Whether a thread of the program waits for it, so that it gets no wire.
        wanted: bool,
    },
    /// In memory, write protected, as it was put aside (or zeros). Written: `Dirty`; evicted: back.
    Clean {
        /// What it is a copy of.
        origin: Origin,
        /// The page that is missing, and its bytes.
        wire: Option<(Wire, Box<[u8]>)>,
    },
    /// In memory, and maybe written to. Evicted: `Going`.
    Dirty,
    /// Write protected, and on its way out. Done: `Stored` or `Zero`; refused: `Dirty`.
    Going {
        /// Whether a thread of the program waits for it.
        wanted: bool,
    },
    /// Its bytes cannot be had back: whoever touches it ends by a signal.
    Lost,
}

/// The chunks, and who decides on them.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) chunks: Vec<Chunk>,
    /// How often each was encoded with a loss.
    pub(crate) lossy: Vec<u32>,
    pub(crate) decider: Decider,
    pub(crate) last_refusal: String,
    copies: Copies,
    chunk_bytes: usize,
    /// Encoded bytes of chunks in memory that are counted as resident.
    doubled: usize,
}

impl Table {
    pub(crate) fn new(chunks: u32, chunk_bytes: usize, copies: Copies, decider: Decider) -> Table {
        let lossy = vec![0; chunks as usize];
        let chunks = (0..chunks).map(|_| Chunk::Zero).collect();
        Table {
            chunks,
            lossy,
            decider,
            last_refusal: String::new(),
            copies,
            chunk_bytes,
            doubled: 0,
        }
    }

    pub(crate) fn chunk(&mut self, index: u32) -> &mut Chunk {
        &mut self.chunks[index as usize]
    }

    /// Puts `new` in the place of a chunk and gives what was there.
    pub(crate) fn replace(&mut self, index: u32, new: Chunk) -> Chunk {
        std::mem::replace(self.chunk(index), new)
    }

    /// What a chunk is a copy of that comes from `source`, and its encoded bytes if they are to go.
    pub(crate) fn origin(&self, chunk: u32, source: Chunk) -> (Origin, Option<Kept>) {
        match (Origin::of(source), self.copies) {
            (Origin::Kept(kept), Copies::Passing | Copies::None) if kept.is_in_memory() => {
                // What hardly got shorter takes more room than encoding it again is worth.
                let short = kept.len() <= self.chunk_bytes / 4 * 3;
                if short && self.copies == Copies::Passing && self.decider.passes(chunk) {
                    (Origin::Doubled(kept), None)
                } else {
                    (Origin::Dropped, Some(kept))
                }
            }
            (origin, _) => (origin, None),
        }
    }

    /// Notes that a chunk is in memory, as `origin` is.
    pub(crate) fn shown(&mut self, chunk: u32, origin: Origin, wire: Option<(Wire, Box<[u8]>)>) {
        self.count(self.doubled + origin.doubled_bytes());
        *self.chunk(chunk) = Chunk::Clean { origin, wire };
    }

    /// Puts `new` in the place of a chunk in memory and gives what was there.
    pub(crate) fn changes(&mut self, chunk: u32, new: Chunk) -> Chunk {
        let old = self.replace(chunk, new);
        if let Chunk::Clean { origin, .. } = &old {
            self.count(self.doubled - origin.doubled_bytes());
        }
        old
    }

    fn count(&mut self, doubled: usize) {
        self.doubled = doubled;
        self.decider.give_up(doubled.div_ceil(self.chunk_bytes));
    }
}
