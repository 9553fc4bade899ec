//! What a channel is, and what is counted of it.

use crate::values::Values;
use crate::wire::wire;

/// What is the same for all messages of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The index of the communicator in the table of the rank.
    pub comm: u16,
    /// What is sent.
    pub what: What,
    /// The rank in `MPI_COMM_WORLD` that it is sent to; [`Key::NOBODY`] for calls of all ranks,
    /// [`Key::OUTSIDE`] for ranks of other worlds.
    pub peer: u32,
    /// The tag; 0 for calls of all ranks.
    pub tag: i32,
    /// The class of the size: see [`class_of`].
    pub class: u8,
    /// The type of the values.
    pub values: Values,
    /// Where the bytes are.
    pub place: Place,
}

/// What is sent in a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum What {
    /// Messages from one rank to another.
    Messages,
    /// Parts of a call of all ranks: the row of the table of calls.
    Together(u8),
    /// Messages of channels for which there was no row left.
    Rest,
}

/// Where the bytes of a message are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Place {
    /// In the memory of the host.
    Host = 0,
    /// In the memory of a GPU.
    Device = 1,
    /// Somewhere that is not looked at: a library for GPUs is loaded that cannot be asked, or it is
    /// an array of Fortran with gaps between its values.
    Unknown = 2,
}

impl Key {
    /// The peer of calls of all ranks.
    pub const NOBODY: u32 = u32::MAX;
    /// The peer of messages to ranks that are not in this rank's `MPI_COMM_WORLD`.
    pub const OUTSIDE: u32 = u32::MAX - 1;
    /// The tag of channels that stand for all tags, where a rank has used too many.
    pub const ANY_TAG: i32 = i32::MIN;

    /// The channel of what has no row of its own.
    pub(crate) const REST: Key = Key {
        comm: 0,
        what: What::Rest,
        peer: Key::NOBODY,
        tag: Key::ANY_TAG,
        class: 0,
        values: Values::Bytes,
        place: Place::Unknown,
    };

    /// The two words that stand for it in a part.
    pub(crate) fn words(self) -> [u64; 2] {
        let what = match self.what {
            What::Messages => 0xffff,
            What::Rest => 0xfffe,
            What::Together(call) => u64::from(call),
        };
        let codes = u64::from(self.class)
            | u64::from(self.values.code()) << 8
            | (self.place as u64) << 16
            | 1 << 24;
        let first = u64::from(self.comm) | what << 16 | codes << 32;
        [first, u64::from(self.peer) | u64::from(self.tag as u32) << 32]
    }

    /// The key of these words; `None` where there is none.
    pub(crate) fn of_words(words: [u64; 2]) -> Option<Key> {
        let codes = words[0] >> 32;
        if codes >> 24 != 1 {
            return None;
        }
        let what = match words[0] >> 16 & 0xffff {
            0xffff => What::Messages,
            0xfffe => What::Rest,
            call => What::Together(u8::try_from(call).ok()?),
        };
        let place = match codes >> 16 & 0xff {
            0 => Place::Host,
            1 => Place::Device,
            2 => Place::Unknown,
            _ => return None,
        };
        Some(Key {
            comm: words[0] as u16,
            what,
            peer: words[1] as u32,
            tag: (words[1] >> 32) as u32 as i32,
            class: codes as u8,
            values: Values::from_code((codes >> 8) as u8),
            place,
        })
    }
}

/// The class of a message of so many bytes: 0 for none, else the number of bits of its size.
#[must_use]
pub fn class_of(bytes: u64) -> u8 {
    (u64::BITS - bytes.leading_zeros()) as u8
}

/// The smallest and the largest size of a class.
#[must_use]
pub fn class_range(class: u8) -> (u64, u64) {
    match class {
        0 => (0, 0),
        64.. => (1 << 63, u64::MAX),
        _ => (1 << (class - 1), (1 << class) - 1),
    }
}

/// What was counted of a channel. Times are nanoseconds since the rank began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// What is the same for all of its messages.
    pub key: Key,
    /// How many there were.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The smallest of them.
    pub least: u64,
    /// The largest.
    pub most: u64,
    /// How many had a payload that the peer had got from this rank before.
    pub duplicates: u64,
    /// Of how many that is known.
    pub compared: u64,
    /// How long their calls took, together.
    pub call_ns: u64,
    /// When the first was sent.
    pub first_ns: u64,
    /// When the last was.
    pub last_ns: u64,
    /// How many were kept as samples.
    pub samples: u64,
}

impl crate::wire::Wire for Key {
    fn put(&self, out: &mut Vec<u8>) {
        self.words().iter().for_each(|word| word.put(out));
    }

    fn take(from: &mut crate::wire::In) -> Result<Key, crate::wire::Broken> {
        let words = [u64::take(from)?, u64::take(from)?];
        Key::of_words(words).ok_or("a channel is none")
    }
}

wire!(Channel {
    key,
    messages,
    bytes,
    least,
    most,
    duplicates,
    compared,
    call_ns,
    first_ns,
    last_ns,
    samples,
});

impl Channel {
    /// Bytes a second between its first and its last message; 0 when there was one.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let seconds = self.last_ns.saturating_sub(self.first_ns) as f64 * 1e-9;
        if seconds > 0.0 { self.bytes as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Key, Place, What, class_of, class_range};
    use crate::values::Values;

    proptest! {
        #[test]
        fn keys_come_back_from_their_words(
            comm: u16, call: Option<u8>, peer: u32, tag: i32, class in 0_u8..65, code in 0_u8..12,
        ) {
            for place in [Place::Host, Place::Device, Place::Unknown] {
                let what = call.map_or(What::Messages, What::Together);
                let values = Values::from_code(code);
                let key = Key { comm, what, peer, tag, class, values, place };
                prop_assert_eq!(Key::of_words(key.words()), Some(key));
            }
        }

        #[test]
        fn a_size_is_within_its_class(bytes: u64) {
            let (least, most) = class_range(class_of(bytes));
            prop_assert!((least..=most).contains(&bytes));
        }
    }

    #[test]
    fn words_of_nothing_are_no_key() {
        assert_eq!(Key::of_words([0, 0]), None);
        assert_eq!(Key::of_words(Key::REST.words()), Some(Key::REST));
    }
}
