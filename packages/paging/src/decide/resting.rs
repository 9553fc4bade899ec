//! The chunks that are in memory and may be evicted.

use std::collections::BTreeSet;

use super::guide::Guide;

/// Chunks that are drawn where no order is known.
const DRAWN: usize = 8;

/// The place of a chunk that no order names: after all others.
const NEVER: u64 = u64::MAX;

/// The chunks that may be evicted, and which of them goes first.
#[derive(Debug)]
pub(super) struct Resting {
    chunks: Vec<u32>,
    /// Where a chunk is in `chunks`, and by which key in `by_use`.
    seats: Vec<Option<(u32, Key)>>,
    /// Where an order is known: the last one goes first.
    by_use: BTreeSet<(Key, u32)>,
    /// How often each had to be loaded, of late.
    loads: Vec<u8>,
    counted: usize,
    random: u64,
}

/// Whether a chunk streams past (it does not stay from lap to lap), and its next use.
type Key = (bool, u64);

impl Resting {
    pub(super) fn new(chunks: u32, seed: u64) -> Resting {
        Resting {
            chunks: Vec::new(),
            seats: vec![None; chunks as usize],
            by_use: BTreeSet::new(),
            loads: vec![0; chunks as usize],
            counted: 0,
            random: seed | 1,
        }
    }

    fn key(chunk: u32, guide: &Guide) -> Key {
        (!guide.keeps(chunk), guide.next_use(chunk).unwrap_or(NEVER))
    }

    pub(super) fn insert(&mut self, chunk: u32, guide: Option<&Guide>) {
        debug_assert!(self.seats[chunk as usize].is_none());
        let key = guide.map(|guide| Resting::key(chunk, guide));
        let index = self.chunks.len() as u32;
        self.chunks.push(chunk);
        self.seats[chunk as usize] = Some((index, key.unwrap_or_default()));
        if let Some(key) = key {
            self.by_use.insert((key, chunk));
        }
    }

    pub(super) fn remove(&mut self, chunk: u32) {
        let Some((index, key)) = self.seats[chunk as usize].take() else { return };
        self.by_use.remove(&(key, chunk));
        self.chunks.swap_remove(index as usize);
        if let Some(&moved) = self.chunks.get(index as usize)
            && let Some(seat) = &mut self.seats[moved as usize]
        {
            seat.0 = index;
        }
    }

    /// Gives `chunk`, which the program has passed, its new place.
    pub(super) fn update(&mut self, chunk: u32, guide: &Guide) {
        let Some((_, key)) = &mut self.seats[chunk as usize] else { return };
        let new = Resting::key(chunk, guide);
        self.by_use.remove(&(*key, chunk));
        *key = new;
        self.by_use.insert((new, chunk));
    }

    /// Sorts all of them by a new order.
    pub(super) fn sort(&mut self, guide: &Guide) {
        self.by_use.clear();
        for &chunk in &self.chunks {
            let new = Resting::key(chunk, guide);
            if let Some((_, key)) = &mut self.seats[chunk as usize] {
                *key = new;
                self.by_use.insert((new, chunk));
            }
        }
    }

    pub(super) fn forget_order(&mut self) {
        self.by_use.clear();
    }

    /// The one to be evicted for a chunk that is needed at `needed`: one that is needed later, and
    /// was not just used, unless it is `urgent`. First one that streams past, then one that stays.
    pub(super) fn victim(
        &mut self,
        guide: Option<&Guide>,
        needed: Option<u64>,
        urgent: bool,
    ) -> Option<u32> {
        let Some(guide) = guide else { return self.drawn() };
        let needed = needed.unwrap_or(guide.at());
        let first_stream = ((true, 0), 0);
        let streams = self.by_use.range(first_stream..).rev();
        let keepers = self.by_use.range(..first_stream).rev();
        let later = |((_, next), _): &&(Key, u32)| *next > needed;
        let mut fitting = streams.take_while(later).chain(keepers.take_while(later));
        match fitting.find(|(_, chunk)| !guide.was_just_used(*chunk)) {
            Some(&(_, chunk)) => Some(chunk),
            None => self.by_use.last().filter(|_| urgent).map(|&(_, chunk)| chunk),
        }
    }

    /// Of a few, the one that had to be loaded least often.
    fn drawn(&mut self) -> Option<u32> {
        if self.chunks.is_empty() {
            return None;
        }
        let drawn = (0..DRAWN).map(|_| {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.chunks[(self.random % self.chunks.len() as u64) as usize]
        });
        let drawn: Vec<u32> = drawn.collect();
        drawn.into_iter().min_by_key(|&chunk| self.loads[chunk as usize])
    }

    /// Counts a load of `chunk`. All counts are halved now and then, so that they are of late.
    pub(super) fn count(&mut self, chunk: u32) {
        self.loads[chunk as usize] = self.loads[chunk as usize].saturating_add(1);
        self.counted += 1;
        if self.counted >= 4 * self.loads.len() {
            self.counted = 0;
            self.loads.iter_mut().for_each(|loads| *loads /= 2);
        }
    }
}
