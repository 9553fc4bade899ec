//! An order that is followed: where the program is in it, and how far ahead of it chunks are there.

use std::collections::VecDeque;

use super::order::Order;
use super::resting::Resting;
use super::{DOUBT, Wire};

/// The most chunks that are loaded ahead of the program.
const MOST_AHEAD: usize = 64;

/// Chunks of the room that those which stream past have: half of them ahead, half just used. The
/// fewer there are the more stay from lap to lap.
pub(super) fn stream(room: usize) -> usize {
    (room / 16).clamp((room / 8).clamp(1, 6), 2 * MOST_AHEAD)
}

/// An order, and the place of the program in it.
#[derive(Debug)]
pub(super) struct Guide {
    order: Order,
    source: Source,
    keepers: Vec<bool>,
    /// Chunks that may be there ahead of the program.
    depth: usize,
    /// Entries that the program has passed and may come back to, since what it does within them is
    /// not known: what computes in blocks goes to and fro.
    grace: u64,
    /// Every so many loads ahead have a wire.
    wires: usize,
    /// Entries within which the program is taken to have gone on, not elsewhere.
    reach: u64,
    at: u64,
    /// The place that the last touch would be, when it was not within reach.
    stray: Option<u64>,
    doubt: u32,
    /// From `at` up to here, everything is in memory or on its way.
    ahead: u64,
    /// The places of loads ahead that the program has not passed, ascending.
    unused: VecDeque<u64>,
    since_wire: usize,
}

/// Who says that the program goes in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The program itself.
    Given,
    /// A run of faults, upwards or downwards.
    Guess { downwards: bool },
}

impl Guide {
    pub(super) fn given(order: Order, room: usize) -> Guide {
        Guide::new(order, room, Source::Given, 0)
    }

    /// The guess that the program sweeps over the whole array and is at `chunk`.
    pub(super) fn guess(order: Order, room: usize, chunk: u32, downwards: bool) -> Guide {
        let at = order.next_use(chunk, 0).unwrap_or(0);
        Guide::new(order, room, Source::Guess { downwards }, at)
    }

    fn new(order: Order, room: usize, source: Source, at: u64) -> Guide {
        let stream = stream(room);
        // What streams past may be there encoded as well.
        let keepers = order.keepers(room.saturating_sub(2 * stream).max(1));
        let depth = (stream / 2).max(1);
        let grace = (stream - depth) as u64;
        let wires = (depth / 4).max(1);
        let streaming = keepers.iter().filter(|&&keeps| !keeps).count().max(1);
        let between = wires * keepers.len().div_ceil(streaming);
        let reach = if source == Source::Given { room.max(2 * between) } else { 2 * between };
        Guide {
            order,
            source,
            keepers,
            depth,
            grace,
            wires,
            reach: reach as u64 + 8,
            at,
            stray: None,
            doubt: 0,
            ahead: at,
            unused: VecDeque::new(),
            since_wire: 0,
        }
    }

    pub(super) fn is_given(&self) -> bool {
        self.source == Source::Given
    }

    pub(super) fn is_guess_of(&self, downwards: bool) -> bool {
        self.source == Source::Guess { downwards }
    }

    pub(super) fn doubt(&self) -> u32 {
        self.doubt
    }

    /// Where the program is.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where what is loaded ahead of the program ends.
    pub(super) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Whether the program has passed `chunk` so lately that it may be at work on it.
    pub(super) fn was_just_used(&self, chunk: u32) -> bool {
        let used = self.order.next_use(chunk, self.at.saturating_sub(self.grace));
        used.is_some_and(|place| place <= self.at)
    }

    /// The next place, from where the program is, at which it needs `chunk`.
    pub(super) fn next_use(&self, chunk: u32) -> Option<u64> {
        self.order.next_use(chunk, self.at)
    }

    pub(super) fn keeps(&self, chunk: u32) -> bool {
        self.keepers[chunk as usize]
    }

    /// Takes in a touch; gives how many loads ahead the program has come to by it.
    pub(super) fn touched(&mut self, chunk: u32, resting: &mut Resting) -> u64 {
        let Some(place) = self.order.next_use(chunk, self.at) else {
            self.doubt = (self.doubt + 1).min(2 * DOUBT);
            return 0;
        };
        let goes_on = place - self.at <= self.reach;
        // Elsewhere once may be an exception; twice in a row, it is where the program is.
        let returns = self.stray.is_some_and(|stray| place >= stray && place - stray <= self.reach);
        if !goes_on && !returns {
            self.stray = Some(place);
            self.doubt = (self.doubt + 1).min(2 * DOUBT);
            return 0;
        }
        self.stray = None;
        self.doubt = self.doubt.saturating_sub(1);
        self.advance(place, resting)
    }

    fn advance(&mut self, place: u64, resting: &mut Resting) -> u64 {
        let passed = self.at..place;
        self.at = place;
        self.ahead = self.ahead.max(place);
        for place in passed.take(self.order.len() as usize) {
            resting.update(self.order.at(place), self);
        }
        let before = self.unused.len();
        while self.unused.front().is_some_and(|&first| first <= place) {
            self.unused.pop_front();
        }
        (before - self.unused.len()) as u64
    }

    /// Chunks more that may be loaded ahead now.
    pub(super) fn wanted(&self) -> usize {
        self.depth - self.unused.len().min(self.depth)
    }

    /// The next chunk to be loaded ahead, and its place; `None` when as much is there as may be.
    pub(super) fn next_load(&mut self, is_there: impl Fn(u32) -> bool) -> Option<(u32, u64)> {
        let end = self.at + self.order.len();
        while self.ahead < end && self.unused.len() < self.depth {
            let chunk = self.order.at(self.ahead);
            if !is_there(chunk) {
                return Some((chunk, self.ahead));
            }
            self.ahead += 1;
        }
        None
    }

    /// Takes the load at `place` as begun, and says by which wire its use will be noticed.
    pub(super) fn load_begins(&mut self, place: u64) -> Option<Wire> {
        self.unused.push_back(place);
        self.ahead = place + 1;
        self.since_wire += 1;
        if self.since_wire < self.wires {
            return None;
        }
        self.since_wire = 0;
        Some(self.order.reached_at(place))
    }

    /// Hears that `chunk` has left memory.
    pub(super) fn left(&mut self, chunk: u32) {
        if let Some(place) = self.next_use(chunk).filter(|&place| place < self.ahead) {
            self.ahead = place.max(self.at);
            self.unused.retain(|&other| other < place);
        }
    }
}
