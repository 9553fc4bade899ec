//! Which messages are kept to be coded afterwards, and how they lie in a file.
//!
//! Samples come in runs of consecutive messages of a channel, as differences need what went before.
//! A channel keeps a few runs, drawn from all that it has had so far, each as likely as any other:
//! a later run is written over an earlier one. So what a program sends in its first steps counts
//! for no more than what it sends later. The bytes of all samples of a rank have a budget, and a
//! run takes at most an eighth of what is left of it, so that no channel takes all.

use unspool_codec::Checksum;

/// Messages of a run: two windows of a base and five that follow it.
pub const RUN: u32 = 12;
/// The longest part of a message that is kept: from its beginning.
pub const LONGEST: u64 = 256 << 10;
/// Messages that are shorter than this are not kept: there is nothing to be won.
pub const SHORTEST: u64 = 64;
/// A part of a message that is shorter than this does not stand for it.
const SHORTEST_PART: u64 = 4096;
/// The part of the remaining budget that a run may take.
const SHARE: u64 = 8;
/// The runs that a channel keeps at most.
const RUNS: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"UNSPSAMP");
const HEAD: usize = 6 * 8;

/// What decides which messages are kept.
#[derive(Clone, Debug)]
pub struct Sampler {
    left: u64,
    /// Bytes that were given to runs so far.
    end: u64,
    channels: Vec<Channel>,
    random: u64,
}

/// A sample that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The bytes of the message that are kept, from its beginning.
    pub kept: usize,
    /// Where the sample lies after the tables.
    pub place: u64,
    /// The bytes that it has there; those that it does not fill are zeros.
    pub room: usize,
}

/// The runs of a channel.
#[derive(Clone, Debug, Default)]
struct Channel {
    runs: Vec<Slot>,
    /// Whether no further run fits.
    full: bool,
    /// The run that is being kept, by its number in the channel, and where.
    now: Option<(u64, Slot)>,
}

/// Room for a run.
#[derive(Clone, Copy, Debug)]
struct Slot {
    place: u64,
    /// The part of a message that is kept in it.
    part: u64,
}

impl Slot {
    /// The bytes of a sample in it, with its head.
    fn stride(self) -> u64 {
        self.part.next_multiple_of(8) + HEAD as u64
    }
}

impl Sampler {
    /// A sampler that keeps `budget` bytes at most. `seed` decides which runs it draws.
    #[must_use]
    pub fn new(budget: u64, seed: u64) -> Sampler {
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Sampler { left: budget, end: 0, channels: Vec::new(), random }
    }

    /// What is kept of a message: that with this number, from 0, of the channel in `row`.
    pub fn wants(&mut self, row: usize, number: u64, bytes: u64) -> Option<Wanted> {
        if bytes < SHORTEST {
            return None;
        }
        if row >= self.channels.len() {
            self.channels.resize(row + 1, Channel::default());
        }
        let (run, at) = (number / u64::from(RUN), number % u64::from(RUN));
        if at == 0 {
            self.channels[row].now = self.drawn(row, run, bytes).map(|slot| (run, slot));
        }
        let (_, slot) = self.channels[row].now.filter(|(now, _)| *now == run)?;
        let kept = bytes.min(slot.part) as usize;
        let room = slot.stride();
        Some(Wanted { kept, place: slot.place + at * room, room: room as usize })
    }

    /// Where a run that begins is kept: in a new place as long as there is one, then with the
    /// probability that makes all runs of the channel as likely (Vitter's algorithm R).
    fn drawn(&mut self, row: usize, run: u64, bytes: u64) -> Option<Slot> {
        if !self.channels[row].full {
            if let Some(slot) = self.new_slot(bytes) {
                let channel = &mut self.channels[row];
                channel.runs.push(slot);
                channel.full = channel.runs.len() == RUNS;
                return Some(slot);
            }
            self.channels[row].full = true;
        }
        let drawn = self.random() % (run + 1);
        self.channels[row].runs.get(usize::try_from(drawn).ok()?).copied()
    }

    fn new_slot(&mut self, bytes: u64) -> Option<Slot> {
        let most = self.left / (SHARE * u64::from(RUN));
        let part = bytes.min(LONGEST).min(most.saturating_sub(HEAD as u64 + 8));
        if part < bytes && part < SHORTEST_PART {
            return None;
        }
        let slot = Slot { place: self.end, part };
        let whole = u64::from(RUN) * slot.stride();
        self.left = self.left.checked_sub(whole)?;
        self.end += whole;
        Some(slot)
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    /// Keeps nothing more.
    pub fn stop(&mut self) {
        self.left = 0;
        self.channels.iter_mut().for_each(|channel| *channel = Channel::default());
    }
}

/// A message of which a part was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample<'a> {
    /// The row of its channel.
    pub row: u32,
    /// Its number in the channel, from 0.
    pub number: u64,
    /// Its bytes in all.
    pub bytes: u64,
    /// The part of them that was kept.
    pub payload: &'a [u8],
}

/// Writes a sample as it lies in a file: a multiple of eight bytes.
pub fn write(sample: &Sample, out: &mut Vec<u8>) {
    let start = out.len();
    let fields =
        [MAGIC, u64::from(sample.row), sample.number, sample.bytes, sample.payload.len() as u64];
    fields.iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
    let mut sum = Checksum::new();
    sum.update(&out[start..]);
    sum.update(sample.payload);
    out.extend_from_slice(&sum.value().to_le_bytes());
    out.extend_from_slice(sample.payload);
    out.resize(out.len().next_multiple_of(8), 0);
}

/// The whole samples in `bytes`, and how many bytes are neither of them nor zero, as room for
/// samples that did not come is: what a rank was writing when it was killed, and what is damaged.
#[must_use]
pub fn read(mut bytes: &[u8]) -> (Vec<Sample<'_>>, usize) {
    let (mut found, mut other) = (Vec::new(), 0);
    while !bytes.is_empty() {
        if let Some((sample, rest)) = read_one(bytes) {
            found.push(sample);
            bytes = rest;
            continue;
        }
        let (word, rest) = bytes.split_at(bytes.len().min(8));
        other += word.iter().filter(|&&byte| byte != 0).count();
        bytes = rest;
    }
    (found, other)
}

fn read_one(bytes: &[u8]) -> Option<(Sample<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    if head[..8] != MAGIC.to_le_bytes() {
        return None;
    }
    let field = |index: usize| {
        u64::from_le_bytes(head[index * 8..index * 8 + 8].try_into().unwrap_or_default())
    };
    let length = usize::try_from(field(4)).ok().filter(|length| *length as u64 <= LONGEST)?;
    let payload = rest.get(..length)?;
    let mut sum = Checksum::new();
    sum.update(&head[..HEAD - 8]);
    sum.update(payload);
    if sum.value() != field(5) {
        return None;
    }
    let row = u32::try_from(field(1)).ok()?;
    let sample = Sample { row, number: field(2), bytes: field(3), payload };
    Some((sample, rest.get(length.next_multiple_of(8)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{LONGEST, RUN, RUNS, Sample, Sampler, read, write};

    proptest! {
        #[test]
        fn what_is_kept_is_within_the_budget(
            budget in 0_u64..1 << 22, sizes in proptest::collection::vec(1_u64..1 << 20, 1..40),
        ) {
            let mut sampler = Sampler::new(budget, 1);
            let mut owners = HashMap::new();
            for number in 0..200 {
                for (row, size) in sizes.iter().enumerate() {
                    if let Some(wanted) = sampler.wants(row, number, *size) {
                        prop_assert!(wanted.kept as u64 <= (*size).min(LONGEST));
                        prop_assert!(wanted.kept.next_multiple_of(8) + 48 <= wanted.room);
                        let end = wanted.place + wanted.room as u64;
                        prop_assert!(end <= budget, "{} of {}", end, budget);
                        let owner = owners.entry(wanted.place).or_insert((row, wanted.room));
                        prop_assert_eq!(*owner, (row, wanted.room));
                    }
                }
            }
            let mut places: Vec<_> = owners.into_iter().collect();
            places.sort_unstable();
            let apart = places.windows(2).all(|two| two[0].0 + two[0].1.1 as u64 <= two[1].0);
            prop_assert!(apart, "samples lie on each other");
        }

        #[test]
        fn a_torn_tail_and_what_is_damaged_are_left_out(
            payloads in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..100), 1..6,
            ),
            cut: prop::sample::Index,
            flipped: Option<prop::sample::Index>,
        ) {
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for (number, payload) in payloads.iter().enumerate() {
                let number = number as u64;
                write(&Sample { row: 3, number, bytes: 200, payload }, &mut bytes);
                ends.push(bytes.len());
            }
            let cut = cut.index(bytes.len() + 1);
            bytes.truncate(cut);
            let mut damaged = None;
            if let Some(index) = flipped.filter(|_| !bytes.is_empty()) {
                let at = index.index(bytes.len());
                bytes[at] ^= 1;
                // Filling is not looked at.
                let sample = ends.iter().position(|end| *end > at).unwrap_or(1) - 1;
                let filling = ends[sample] + 48 + payloads[sample].len();
                if at < filling {
                    damaged = Some(sample as u64);
                }
            }
            let (samples, other) = read(&bytes);
            prop_assert!(damaged.is_none() || other > 0);
            let filled = |end: usize| payloads.iter().zip(&ends).any(|(payload, start)| {
                let least = start + 48 + payload.len();
                start + 48 <= end && (least..=least.next_multiple_of(8)).contains(&end)
            });
            let whole = ends.iter().filter(|end| **end > 0 && **end <= cut).count() as u64;
            let numbers: Vec<u64> = samples.iter().map(|sample| sample.number).collect();
            let complete: Vec<u64> = (0..whole).filter(|n| Some(*n) != damaged).collect();
            let also_last = [&complete[..], &[whole]].concat();
            prop_assert!(numbers == complete || numbers == also_last && filled(cut));
            for sample in samples {
                prop_assert_eq!(sample.payload, &payloads[sample.number as usize][..]);
            }
        }
    }

    /// The numbers of the messages of a channel that are kept in the end.
    fn kept(seed: u64, messages: u64) -> Vec<u64> {
        let mut sampler = Sampler::new(1 << 30, seed);
        let mut places = HashMap::new();
        for number in 0..messages {
            if let Some(wanted) = sampler.wants(0, number, 1000) {
                places.insert(wanted.place, number);
            }
        }
        let mut numbers: Vec<u64> = places.into_values().collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn a_channel_keeps_runs_of_consecutive_messages() {
        let all: Vec<u64> = (0..60).collect();
        assert_eq!(kept(1, 60), all);
        let numbers = kept(1, 120_000);
        assert_eq!(numbers.len(), RUNS * RUN as usize);
        for run in numbers.chunks(RUN as usize) {
            let follows: Vec<u64> = (run[0]..run[0] + u64::from(RUN)).collect();
            assert_eq!((run, run[0] % u64::from(RUN)), (&follows[..], 0));
        }
    }

    #[test]
    fn all_messages_of_a_channel_are_kept_as_likely() {
        let messages = 12_000;
        let mut quarters = [0_u32; 4];
        for seed in 0..400 {
            let numbers = kept(seed, messages);
            numbers.iter().for_each(|number| quarters[(number * 4 / messages) as usize] += 1);
        }
        let mean = quarters.iter().sum::<u32>() / 4;
        assert!(quarters.iter().all(|count| count.abs_diff(mean) < mean / 10), "{quarters:?}");
    }

    #[test]
    fn a_program_that_changes_is_measured_as_it_is_and_not_as_it_began() {
        // The first twentieth of the messages saves everything, and the others a half.
        let saved = |number: u64| if number < 500 { 1.0 } else { 0.5 };
        let exact = (500.0 + 0.5 * 9_500.0) / 10_000.0;
        let of_ranks: Vec<u64> = (0..64).flat_map(|rank| kept(rank, 10_000)).collect();
        let told = of_ranks.iter().copied().map(saved).sum::<f64>() / of_ranks.len() as f64;
        assert!((told - exact).abs() < 0.02, "{told} {exact}");
    }

    #[test]
    fn no_channel_takes_all_of_the_budget() {
        let mut sampler = Sampler::new(1 << 20, 1);
        for number in 0..10_000 {
            let _one = sampler.wants(0, number, 1 << 20);
        }
        assert_eq!(sampler.wants(1, 0, 1000).map(|wanted| wanted.kept), Some(1000));
        sampler.stop();
        assert_eq!(sampler.wants(2, 0, 1000), None);
    }
}
