//! The decider: which chunk is loaded, which one makes room for it, and when.
//!
//! It is pure: it hears what the program touched and what has been done, and answers with what to
//! do next. The doer sees a page fault and nothing between two of them, so the decider knows where
//! the program is from faults alone: those on chunks that are not there, and those on *wires*, the
//! one page that a chunk which was loaded ahead is left without.
//!
//! Invariants:
//! - A chunk has one seat: out, coming, in or going. Only what is in, and not pinned, is evicted.
//! - Chunks that are not out are at most `room`, except for those that were seated by force.
//! - With an order, nothing is evicted for a load ahead that is needed before it.
//!
//! Where an order is known the one with the farthest next use goes first (Belady 1966), but in a
//! cycle the chunks that stay from lap to lap are spread over it ([`Order::keepers`]). Where none
//! is, a few are drawn and the one that had to be loaded least often goes: neither LRU nor FIFO,
//! which miss everything in a cycle.

mod guide;
mod order;
mod resting;
mod sweep;
#[cfg(test)]
mod tests;

use guide::Guide;
use order::Order;
use resting::Resting;
use sweep::SweepDetector;

/// Touches that do not fit the order, less those that do, after which it is not believed.
const DOUBT: u32 = 8;

/// Where a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seat {
    /// Not in memory. Seated by a claim or a load ahead: `Coming`.
    Out,
    /// On its way in. Loaded: `In`; failed: `Out`.
    Coming,
    /// In memory. Chosen to make room: `Going`.
    In,
    /// On its way out. Evicted: `Out`; refused: `In`.
    Going,
}

/// The page that a chunk which is loaded ahead is left without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// The answer to a thread that has to load a chunk now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The chunk has a seat: load it.
    Seated,
    /// Evict this one, then ask again.
    Evict(u32),
    /// Others are loading or evicting: ask again when one is done.
    Wait,
    /// All that is in memory has to stay.
    Full,
}

/// What can be done ahead of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ahead {
    /// Load this chunk, and leave it without that page.
    Load(u32, Option<Wire>),
    /// Evict this one.
    Evict(u32),
}

/// Decides what is in memory. See the module for what it knows.
#[derive(Debug)]
pub(crate) struct Decider {
    seats: Vec<Seat>,
    pins: Vec<u32>,
    room: usize,
    /// How much of the room is given up for what else is counted in it.
    given_up: usize,
    taken: usize,
    coming: usize,
    going: usize,
    pinned: usize,
    resting: Resting,
    detector: SweepDetector,
    guide: Option<Guide>,
    /// Whether a chunk could not be evicted since the program last touched one.
    refused: bool,
    loaded_ahead: u64,
    hits: u64,
}

impl Decider {
    /// A decider for an array of `chunks`, of which `room` may be in memory.
    pub(crate) fn new(chunks: u32, room: usize, seed: u64) -> Decider {
        assert!(room > 0, "there is room for a chunk");
        Decider {
            seats: vec![Seat::Out; chunks as usize],
            pins: vec![0; chunks as usize],
            room,
            given_up: 0,
            taken: 0,
            coming: 0,
            going: 0,
            pinned: 0,
            resting: Resting::new(chunks, seed),
            detector: SweepDetector::default(),
            guide: None,
            refused: false,
            loaded_ahead: 0,
            hits: 0,
        }
    }

    /// Takes the order in which the program will go, again and again, from its first entry on;
    /// `None` forgets what was given. False when an entry is beyond the array or there is none.
    pub(crate) fn expect(&mut self, entries: Option<Vec<u32>>) -> bool {
        let Some(entries) = entries else {
            self.guide = None;
            self.resting.forget_order();
            return true;
        };
        let Some(order) = Order::new(entries, self.seats.len() as u32) else { return false };
        self.follow(Guide::given(order, self.room));
        true
    }

    fn follow(&mut self, guide: Guide) {
        self.resting.sort(&guide);
        self.guide = Some(guide);
    }

    /// Hears that the program is at `chunk`: a fault on it, or on its wire.
    pub(crate) fn touched(&mut self, chunk: u32) {
        self.refused = false;
        let found = self.detector.fault(chunk);
        if let Some(guide) = &mut self.guide {
            self.hits += guide.touched(chunk, &mut self.resting);
            let turned = found.is_some_and(|downwards| guide.is_guess_of(!downwards));
            if !guide.is_given() && (guide.doubt() >= DOUBT || turned) {
                self.guide = None;
                self.resting.forget_order();
            }
        }
        if let (None, Some(downwards)) = (&self.guide, found) {
            let order = Order::sweep(self.seats.len() as u32, downwards);
            if let Some(order) = order {
                self.follow(Guide::guess(order, self.room, chunk, downwards));
            }
        }
    }

    /// Asks for a seat for `chunk`, which is out and is needed now.
    pub(crate) fn claim(&mut self, chunk: u32) -> Claim {
        debug_assert_eq!(self.seats[chunk as usize], Seat::Out);
        if self.taken < self.limit() {
            self.seat(chunk);
            return Claim::Seated;
        }
        // Those that are going make room for others that wait, one for one.
        let needed = self.guide.as_ref().and_then(|guide| guide.next_use(chunk));
        match self.resting.victim(self.guide.as_ref(), needed, true) {
            Some(victim) => {
                self.go(victim);
                Claim::Evict(victim)
            }
            None if self.going + self.coming > 0 => Claim::Wait,
            None => Claim::Full,
        }
    }

    /// Gives `chunk`, which is out, a seat whether there is room or not.
    pub(crate) fn seat(&mut self, chunk: u32) {
        self.seats[chunk as usize] = Seat::Coming;
        self.taken += 1;
        self.coming += 1;
    }

    fn go(&mut self, chunk: u32) {
        debug_assert_eq!(self.seats[chunk as usize], Seat::In);
        self.resting.remove(chunk);
        self.seats[chunk as usize] = Seat::Going;
        self.going += 1;
    }

    /// What can be done now, ahead of the program, by one thread. It is taken as begun.
    pub(crate) fn ahead(&mut self) -> Option<Ahead> {
        let limit = self.limit();
        if self.taken > limit {
            // Not of what was loaded ahead.
            return self.make_room(self.guide.as_ref().map(Guide::ahead));
        }
        let Some(guide) = self.guide.as_mut().filter(|guide| guide.doubt() < DOUBT) else {
            // A fault finds a free seat where one is kept free.
            let spare = (self.room / 8).min(2);
            let enough = self.taken + spare <= limit || self.going > 0;
            return if enough { None } else { self.make_room(None) };
        };
        let may_go = self.going < guide.wanted();
        let seats = &self.seats;
        let (chunk, place) = guide.next_load(|chunk| seats[chunk as usize] != Seat::Out)?;
        if self.taken == limit {
            return if may_go { self.make_room(Some(place)) } else { None };
        }
        let wire = guide.load_begins(place);
        self.loaded_ahead += 1;
        self.seat(chunk);
        Some(Ahead::Load(chunk, wire))
    }

    fn make_room(&mut self, needed: Option<u64>) -> Option<Ahead> {
        if self.refused {
            return None;
        }
        let victim = self.resting.victim(self.guide.as_ref(), needed, false)?;
        self.go(victim);
        Some(Ahead::Evict(victim))
    }

    /// Hears that `chunk` is in memory.
    pub(crate) fn loaded(&mut self, chunk: u32) {
        debug_assert_eq!(self.seats[chunk as usize], Seat::Coming);
        self.seats[chunk as usize] = Seat::In;
        self.coming -= 1;
        self.resting.count(chunk);
        self.rest(chunk);
    }

    /// Hears that `chunk` could not be loaded. It is not tried again before it is needed, or in
    /// the next lap.
    pub(crate) fn failed(&mut self, chunk: u32) {
        debug_assert_eq!(self.seats[chunk as usize], Seat::Coming);
        self.seats[chunk as usize] = Seat::Out;
        self.taken -= 1;
        self.coming -= 1;
    }

    /// Hears that `chunk` is gone from memory.
    pub(crate) fn evicted(&mut self, chunk: u32) {
        debug_assert_eq!(self.seats[chunk as usize], Seat::Going);
        self.going -= 1;
        self.seats[chunk as usize] = Seat::Out;
        self.taken -= 1;
        if let Some(guide) = &mut self.guide {
            guide.left(chunk);
        }
    }

    /// Hears that `chunk` could not be evicted and stays.
    pub(crate) fn stays(&mut self, chunk: u32) {
        debug_assert_eq!(self.seats[chunk as usize], Seat::Going);
        self.going -= 1;
        self.refused = true;
        self.seats[chunk as usize] = Seat::In;
        self.rest(chunk);
    }

    /// Whether more is in memory than may be, since chunks could not be evicted.
    pub(crate) fn is_stuck(&self) -> bool {
        self.refused && self.taken > self.limit()
    }

    /// Says that what could not be evicted may be tried again.
    pub(crate) fn try_again(&mut self) {
        self.refused = false;
    }

    fn rest(&mut self, chunk: u32) {
        if self.pins[chunk as usize] == 0 {
            self.resting.insert(chunk, self.guide.as_ref());
        }
    }

    /// Keeps `chunk` in memory once it is there, until as many calls of `unpin`. False when that
    /// would leave no room for others.
    pub(crate) fn pin(&mut self, chunk: u32) -> bool {
        let first = self.pins[chunk as usize] == 0;
        if first && self.pinned + 2 > self.room {
            return false;
        }
        self.pins[chunk as usize] += 1;
        self.pinned += usize::from(first);
        if first && self.seats[chunk as usize] == Seat::In {
            self.resting.remove(chunk);
        }
        true
    }

    /// Ends one pin of `chunk`.
    pub(crate) fn unpin(&mut self, chunk: u32) {
        let pins = &mut self.pins[chunk as usize];
        assert!(*pins > 0, "a chunk is unpinned as often as it was pinned");
        *pins -= 1;
        if *pins == 0 {
            self.pinned -= 1;
            if self.seats[chunk as usize] == Seat::In {
                self.rest(chunk);
            }
        }
    }

    /// Whether `chunk` comes and goes in every lap of the order that is followed.
    pub(crate) fn passes(&self, chunk: u32) -> bool {
        self.followed().is_some_and(|guide| !guide.keeps(chunk))
    }

    /// Hears that as much as so many chunks is in memory besides them.
    pub(crate) fn give_up(&mut self, chunks: usize) {
        self.given_up = chunks;
    }

    /// Chunks that may be in memory now: half of the room at least.
    fn limit(&self) -> usize {
        self.room - self.given_up.min(self.room / 2)
    }

    fn followed(&self) -> Option<&Guide> {
        self.guide.as_ref().filter(|guide| guide.doubt() < DOUBT)
    }

    /// Chunks that may be in memory.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Chunks that were loaded ahead, and how many of them the program has come to.
    pub(crate) fn prefetches(&self) -> (u64, u64) {
        (self.loaded_ahead, self.hits)
    }

    /// Whether it goes by an order, and whether by one that was given.
    pub(crate) fn order(&self) -> Option<bool> {
        self.followed().map(Guide::is_given)
    }
}
