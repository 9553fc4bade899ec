//! The order in which a program goes through the chunks, repeated without end.
//!
//! A place in it is an absolute number: entry `place % len` of lap `place / len`. So "later" is one
//! comparison, and the next use of a chunk one search in the sorted list of its entries.

use super::Wire;

/// An order of chunks that repeats without end. It has at least one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    entries: Vec<u32>,
    /// Entries of chunk `c`: `places[firsts[c]..firsts[c + 1]]`, ascending.
    places: Vec<u32>,
    firsts: Vec<u32>,
}

impl Order {
    /// The order with these entries, all below `chunks`; `None` when there is none, or one is not.
    pub(super) fn new(entries: Vec<u32>, chunks: u32) -> Option<Order> {
        if entries.is_empty() || entries.iter().any(|&chunk| chunk >= chunks) {
            return None;
        }
        let mut firsts = vec![0_u32; chunks as usize + 1];
        for &chunk in &entries {
            firsts[chunk as usize + 1] += 1;
        }
        for chunk in 0..chunks as usize {
            firsts[chunk + 1] += firsts[chunk];
        }
        let mut next = firsts.clone();
        let mut places = vec![0; entries.len()];
        for (place, &chunk) in entries.iter().enumerate() {
            places[next[chunk as usize] as usize] = place as u32;
            next[chunk as usize] += 1;
        }
        Some(Order { entries, places, firsts })
    }

    /// All chunks, upwards or downwards.
    pub(super) fn sweep(chunks: u32, downwards: bool) -> Option<Order> {
        let up = 0..chunks;
        Order::new(if downwards { up.rev().collect() } else { up.collect() }, chunks)
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The chunk at a place.
    pub(super) fn at(&self, place: u64) -> u32 {
        self.entries[(place % self.len()) as usize]
    }

    /// The first place not before `from` where `chunk` is; `None` where it is in no entry.
    pub(super) fn next_use(&self, chunk: u32, from: u64) -> Option<u64> {
        let own = self.firsts[chunk as usize] as usize..self.firsts[chunk as usize + 1] as usize;
        let own = &self.places[own];
        let (lap, entry) = (from / self.len(), (from % self.len()) as u32);
        let later = own.partition_point(|&place| place < entry);
        let (lap, place) = match own.get(later) {
            Some(&place) => (lap, place),
            None => (lap + 1, *own.first()?),
        };
        Some(lap * self.len() + u64::from(place))
    }

    /// The end of a chunk that is reached first at this place: the lower one, unless the chunk
    /// before it lies higher.
    pub(super) fn reached_at(&self, place: u64) -> Wire {
        let before = self.at(place + self.len() - 1);
        if before > self.at(place) && self.at(place + 1) < self.at(place) {
            Wire::Last
        } else {
            Wire::First
        }
    }

    /// Which chunks stay in memory from lap to lap when `room` do: as many of those that are used,
    /// spread evenly over a lap. Any choice saves as many loads; this one leaves as much time for
    /// each of the others.
    pub(super) fn keepers(&self, room: usize) -> Vec<bool> {
        let chunks = self.firsts.len() - 1;
        let used = (0..chunks).filter(|&c| self.firsts[c] < self.firsts[c + 1]).count();
        let mut keep = vec![false; chunks];
        let mut met = vec![false; chunks];
        let mut rank = 0;
        for &chunk in &self.entries {
            if !std::mem::replace(&mut met[chunk as usize], true) {
                keep[chunk as usize] = (rank + 1) * room / used > rank * room / used;
                rank += 1;
            }
        }
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Wire};

    #[test]
    fn the_next_use_goes_on_into_the_next_lap() {
        let order = Order::new(vec![2, 0, 2, 1], 4).unwrap();
        let uses: Vec<_> = (0..6).map(|from| order.next_use(2, from)).collect();
        assert_eq!(uses, [0, 2, 2, 4, 4, 6].map(Some));
        assert_eq!((order.next_use(1, 4), order.next_use(3, 0)), (Some(7), None));
        assert_eq!((order.at(0), order.at(5), order.at(7)), (2, 0, 1));
    }

    #[test]
    fn an_order_without_entries_or_with_one_beyond_the_array_is_none() {
        assert_eq!(Order::new(vec![], 3), None);
        assert_eq!(Order::new(vec![0, 3], 3), None);
    }

    #[test]
    fn a_chunk_is_reached_at_the_end_where_the_sweep_comes_from() {
        let down = Order::sweep(4, true).unwrap();
        assert_eq!((down.reached_at(1), down.reached_at(2)), (Wire::Last, Wire::Last));
        assert_eq!(Order::sweep(4, false).unwrap().reached_at(2), Wire::First);
    }

    #[test]
    fn keepers_are_as_many_as_there_is_room_and_evenly_spread() {
        let keep = Order::sweep(12, false).unwrap().keepers(3);
        let kept: Vec<usize> = (0..12).filter(|&chunk| keep[chunk]).collect();
        assert_eq!(kept, [3, 7, 11]);
        assert_eq!(Order::sweep(3, true).unwrap().keepers(9), [true; 3]);
    }
}
