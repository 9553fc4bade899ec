//! The sequence of what a rank did, in bounded space: its first events and its last ones, each
//! without a gap. That is what a simulation of other networks needs: it plays the sequences of all
//! ranks, in which a receive finds its message by sender, tag and communicator in the order of MPI,
//! and a wait its request by number. The first events show how a run begins, the last ones what it
//! does when it has settled, or before it crashed.

use crate::wire::{Broken, In, Wire};

/// Words of an event in a part.
pub(crate) const WORDS: usize = 5;

/// One call, or one request that it has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// When the call began, in nanoseconds since the rank did.
    pub start_ns: u64,
    /// How long it took; at most 4.29 s are told.
    pub duration_ns: u32,
    /// The row of the table of calls.
    pub call: u8,
    /// The index of the communicator.
    pub comm: u16,
    /// The rank in `MPI_COMM_WORLD` of the other side, or of the root. Where there is none:
    /// [`Event::NOBODY`] of a receive that receives nothing, else [`Event::ANYBODY`].
    pub peer: i32,
    /// The tag; of a receive of any tag, what MPI has for that.
    pub tag: i32,
    /// Bytes that are sent, or that a receive has room for.
    pub bytes: u64,
    /// The request that is begun or completed; 0 for none.
    pub request: u64,
}

/// The events of a rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// How many there were.
    pub total: u64,
    /// The first of them.
    pub first: Vec<Event>,
    /// The last of them, when not all are in `first`.
    pub last: Vec<Event>,
}

impl Event {
    /// The peer of a receive that takes a message of any rank, and of calls that have none.
    pub const ANYBODY: i32 = -1;
    /// The peer of a receive from no rank, or from one of another world.
    pub const NOBODY: i32 = -2;

    pub(crate) fn words(&self) -> [u64; WORDS] {
        let call = u64::from(self.call) | u64::from(self.comm) << 16;
        [
            self.start_ns,
            u64::from(self.duration_ns) | call << 32,
            u64::from(self.peer as u32) | u64::from(self.tag as u32) << 32,
            self.bytes,
            self.request,
        ]
    }

    pub(crate) fn of_words(words: [u64; WORDS]) -> Event {
        Event {
            start_ns: words[0],
            duration_ns: words[1] as u32,
            call: (words[1] >> 32) as u8,
            comm: (words[1] >> 48) as u16,
            peer: words[2] as u32 as i32,
            tag: (words[2] >> 32) as u32 as i32,
            bytes: words[3],
            request: words[4],
        }
    }

    /// Writes it after another one. Threads may have begun in another order than they have ended.
    fn put(&self, before: &Event, out: &mut Vec<u8>) {
        let later = self.start_ns.wrapping_sub(before.start_ns) as i64;
        ((later << 1 ^ later >> 63) as u64).put(out);
        self.duration_ns.put(out);
        self.call.put(out);
        self.comm.put(out);
        self.peer.put(out);
        self.tag.put(out);
        self.bytes.put(out);
        (self.request ^ before.request).put(out);
    }

    fn take(before: &Event, from: &mut In) -> Result<Event, Broken> {
        let folded = u64::take(from)?;
        let later = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        Ok(Event {
            start_ns: before.start_ns.wrapping_add(later as u64),
            duration_ns: Wire::take(from)?,
            call: Wire::take(from)?,
            comm: Wire::take(from)?,
            peer: Wire::take(from)?,
            tag: Wire::take(from)?,
            bytes: Wire::take(from)?,
            request: u64::take(from)? ^ before.request,
        })
    }
}

fn put_all(events: &[Event], out: &mut Vec<u8>) {
    (events.len() as u64).put(out);
    let mut before = &Event::default();
    for event in events {
        event.put(before, out);
        before = event;
    }
}

fn take_all(from: &mut In) -> Result<Vec<Event>, Broken> {
    let length = u64::take(from)?;
    if length > from.0.len() as u64 {
        return Err("there are fewer events than it says");
    }
    let mut before = Event::default();
    (0..length)
        .map(|_| {
            before = Event::take(&before, from)?;
            Ok(before)
        })
        .collect()
}

impl Wire for Events {
    fn put(&self, out: &mut Vec<u8>) {
        self.total.put(out);
        put_all(&self.first, out);
        put_all(&self.last, out);
    }

    fn take(from: &mut In) -> Result<Events, Broken> {
        let (total, first, last) = (u64::take(from)?, take_all(from)?, take_all(from)?);
        if (first.len() + last.len()) as u64 > total {
            return Err("there are more events than there were");
        }
        Ok(Events { total, first, last })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Event, Events};
    use crate::wire::{In, Wire};

    prop_compose! {
        fn any_event()(words: [u64; 5]) -> Event { Event::of_words(words) }
    }

    proptest! {
        #[test]
        fn events_come_back(
            first in proptest::collection::vec(any_event(), 0..20),
            last in proptest::collection::vec(any_event(), 0..20),
            more: u32,
        ) {
            for event in first.iter().chain(&last) {
                prop_assert_eq!(Event::of_words(event.words()), *event);
            }
            let total = (first.len() + last.len()) as u64 + u64::from(more);
            let events = Events { total, first, last };
            let mut bytes = Vec::new();
            events.put(&mut bytes);
            let mut from = In(&bytes);
            prop_assert_eq!(Events::take(&mut from), Ok(events));
            prop_assert!(from.end().is_ok());
        }
    }
}
