//! Which messages are kept to be coded afterwards, and how they lie in a file.
//!
//! Samples come in runs of consecutive messages of a channel, as differences need what went before.
//! The first run of a channel begins with its first message; the next ones begin later and later,
//! so that a long computation is seen in all of its phases. The bytes of all samples of a rank have
//! a budget, and a run takes at most an eighth of what is left of it, so that no channel takes all.

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
/// The message with which the second run of a channel begins, and the growth from there.
const SECOND: u64 = 64;
const GROWTH: u64 = 4;

const MAGIC: u64 = u64::from_le_bytes(*b"UNSPSAMP");
const HEAD: usize = 6 * 8;

/// What decides which messages are kept.
#[derive(Clone, Debug)]
pub struct Sampler {
    left: u64,
    channels: Vec<Progress>,
}

/// How far the samples of a channel are.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The number of the message with which the next run begins.
    next: u64,
    /// Messages of this run that are still to come.
    to_come: u32,
    /// The part of a message that this run keeps.
    part: u64,
}

impl Sampler {
    /// A sampler that keeps so many bytes.
    #[must_use]
    pub fn new(budget: u64) -> Sampler {
        Sampler { left: budget, channels: Vec::new() }
    }

    /// How many bytes are kept of a message: that with this number, from 0, of the channel in
    /// `row`.
    pub fn wants(&mut self, row: usize, number: u64, bytes: u64) -> Option<usize> {
        if bytes < SHORTEST || self.left == 0 {
            return None;
        }
        if row >= self.channels.len() {
            self.channels.resize(row + 1, Progress::default());
        }
        let progress = &mut self.channels[row];
        if progress.to_come == 0 {
            if number < progress.next {
                return None;
            }
            let most = self.left / (SHARE * u64::from(RUN));
            let part = bytes.min(LONGEST).min(most.saturating_sub(HEAD as u64));
            progress.next = (number * GROWTH).max(SECOND);
            if part < bytes && part < SHORTEST_PART {
                return None;
            }
            (progress.to_come, progress.part) = (RUN, part.max(SHORTEST));
        }
        let kept = bytes.min(progress.part);
        // In the file it has a head, and is filled up to eight bytes. There may no longer be room
        // for it, as other channels have kept samples since this run of messages began.
        let Some(left) = self.left.checked_sub(kept.next_multiple_of(8) + HEAD as u64) else {
            progress.to_come = 0;
            return None;
        };
        self.left = left;
        progress.to_come -= 1;
        Some(kept as usize)
    }

    /// Keeps nothing more.
    pub fn stop(&mut self) {
        self.left = 0;
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

/// The samples at the beginning of `bytes`, and how many bytes after them are not whole samples:
/// what a rank was writing when it was killed.
#[must_use]
pub fn read(mut bytes: &[u8]) -> (Vec<Sample<'_>>, usize) {
    let mut found = Vec::new();
    while let Some((sample, rest)) = read_one(bytes) {
        found.push(sample);
        bytes = rest;
    }
    (found, bytes.len())
}

fn read_one(bytes: &[u8]) -> Option<(Sample<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let field = |index: usize| {
        u64::from_le_bytes(head[index * 8..index * 8 + 8].try_into().unwrap_or_default())
    };
    let length = usize::try_from(field(4)).ok().filter(|length| *length as u64 <= LONGEST)?;
    let payload = rest.get(..length)?;
    let mut sum = Checksum::new();
    sum.update(&head[..HEAD - 8]);
    sum.update(payload);
    if field(0) != MAGIC || sum.value() != field(5) {
        return None;
    }
    let row = u32::try_from(field(1)).ok()?;
    let sample = Sample { row, number: field(2), bytes: field(3), payload };
    Some((sample, rest.get(length.next_multiple_of(8)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LONGEST, RUN, Sample, Sampler, read, write};

    proptest! {
        #[test]
        fn what_is_kept_is_within_the_budget(
            budget in 0_u64..1 << 22, sizes in proptest::collection::vec(1_u64..1 << 20, 1..40),
        ) {
            let mut sampler = Sampler::new(budget);
            let mut kept = 0;
            for number in 0..200 {
                for (row, size) in sizes.iter().enumerate() {
                    if let Some(part) = sampler.wants(row, number, *size) {
                        prop_assert!(part as u64 <= (*size).min(LONGEST));
                        kept += (part as u64).next_multiple_of(8) + 48;
                    }
                }
            }
            prop_assert!(kept <= budget, "{} of {}", kept, budget);
        }

        #[test]
        fn a_torn_tail_is_cut_off(
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
            let mut cut = cut.index(bytes.len() + 1);
            bytes.truncate(cut);
            if let Some(index) = flipped.filter(|_| !bytes.is_empty()) {
                let at = index.index(bytes.len());
                bytes[at] ^= 1;
                // Filling is not looked at.
                let sample = ends.iter().position(|end| *end > at).unwrap_or(1) - 1;
                let filling = ends[sample] + 48 + payloads[sample].len();
                if at < filling {
                    cut = at;
                }
            }
            let (samples, _) = read(&bytes);
            let filled = |end: usize| payloads.iter().zip(&ends).any(|(payload, start)| {
                let least = start + 48 + payload.len();
                start + 48 <= end && (least..=least.next_multiple_of(8)).contains(&end)
            });
            let whole = ends.iter().filter(|end| **end > 0 && **end <= cut).count();
            prop_assert!(samples.len() == whole || samples.len() == whole + 1 && filled(cut));
            for (sample, payload) in samples.iter().zip(&payloads) {
                prop_assert_eq!(sample.payload, &payload[..]);
            }
        }
    }

    #[test]
    fn runs_are_consecutive_and_begin_later_and_later() {
        let mut sampler = Sampler::new(1 << 30);
        let kept: Vec<u64> = (0..2000).filter(|n| sampler.wants(0, *n, 1000).is_some()).collect();
        let starts = [0, 64, 256, 1024];
        let expected: Vec<u64> =
            starts.iter().flat_map(|start| *start..start + u64::from(RUN)).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn no_channel_takes_all_of_the_budget() {
        let mut sampler = Sampler::new(1 << 20);
        for number in 0..10_000 {
            let _one = sampler.wants(0, number, 1 << 20);
        }
        assert_eq!(sampler.wants(1, 0, 1000), Some(1000));
        sampler.stop();
        assert_eq!(sampler.wants(2, 0, 1000), None);
    }
}
