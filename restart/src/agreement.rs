//! What all ranks have, and what each of them may delete: pure functions of what ranks said.

use std::collections::BTreeSet;

use crate::manifest::{Part, Run};

/// The bytes of one part in a message.
const PART_BYTES: usize = 24;

/// The bytes of a score in a message.
const SCORE_BYTES: usize = 16;

/// Parts as bytes of a message.
#[must_use]
pub fn encode(parts: &[Part]) -> Vec<u8> {
    let bytes = |part: &Part| [&part.step.to_le_bytes()[..], &part.run.0.to_le_bytes()].concat();
    parts.iter().flat_map(bytes).collect()
}

/// The parts in the bytes of a message; `None` when they are something else.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Vec<Part>> {
    let (parts, rest) = bytes.as_chunks::<PART_BYTES>();
    let part = |bytes: &[u8; PART_BYTES]| {
        let (step, run) = bytes.split_at(8);
        let step = u64::from_le_bytes(step.try_into().ok()?);
        Some(Part { step, run: Run(u128::from_le_bytes(run.try_into().ok()?)) })
    };
    rest.is_empty().then(|| parts.iter().map(part).collect())?
}

/// A part that a rank keeps for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Held {
    /// Whose part it is.
    pub(crate) rank: u32,
    pub(crate) part: Part,
}

/// What one rank says in an exchange about checkpoints.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Said {
    /// Its parts that count in the folder of the run.
    pub(crate) local: Vec<Part>,
    /// Those that count in the remote place.
    pub(crate) remote: Vec<Part>,
    /// Parts that it keeps for others.
    pub(crate) held: Vec<Held>,
    /// How good the application says that steps are: lower is better.
    pub(crate) scores: Vec<(u64, f64)>,
    /// The newest of the former that has no frame in common with the newest of all.
    pub(crate) apart: Option<u64>,
    /// Another part could be copied there now.
    pub(crate) free: bool,
    /// One is due there, by its clock.
    pub(crate) due: bool,
    /// One is due at the partners, by its clock.
    pub(crate) partner_due: bool,
    /// It was asked to stop.
    pub(crate) stop: bool,
}

impl Said {
    /// It as bytes of a message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = [self.free, self.due, self.partner_due, self.stop].map(u8::from);
        let counts = [self.local.len(), self.remote.len(), self.scores.len()];
        let counts = counts.map(|count| (count as u64).to_le_bytes());
        let score = |(step, score): &(u64, f64)| [step.to_le_bytes(), score.to_le_bytes()].concat();
        let scores: Vec<u8> = self.scores.iter().flat_map(score).collect();
        let held: Vec<Part> = self.held.iter().map(|held| held.part).collect();
        let ranks = self.held.iter().flat_map(|held| held.rank.to_le_bytes());
        let apart = self.apart.unwrap_or(u64::MAX).to_le_bytes();
        let mut bytes = [&flags[..], &apart, &counts.concat(), &encode(&self.local)].concat();
        bytes.extend([encode(&self.remote), scores, encode(&held), ranks.collect()].concat());
        bytes
    }

    /// What the bytes of a message say; `None` when they are something else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Said> {
        let (flags, rest) = bytes.split_at_checked(4)?;
        let (apart, rest) = rest.split_at_checked(8)?;
        let apart = u64::from_le_bytes(apart.try_into().ok()?);
        let (counts, rest) = rest.split_at_checked(24)?;
        let count = |bytes: &[u8]| usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok();
        let (local, remote) = (count(&counts[..8])?, count(&counts[8..16])?);
        let scores = count(&counts[16..])?;
        let (local, rest) = rest.split_at_checked(local.checked_mul(PART_BYTES)?)?;
        let (remote, rest) = rest.split_at_checked(remote.checked_mul(PART_BYTES)?)?;
        let (scores, rest) = rest.split_at_checked(scores.checked_mul(SCORE_BYTES)?)?;
        let (scores, _) = scores.as_chunks::<SCORE_BYTES>();
        let score = |bytes: &[u8; SCORE_BYTES]| {
            let (step, score) = bytes.split_at(8);
            let score = f64::from_le_bytes(score.try_into().ok()?);
            Some((u64::from_le_bytes(step.try_into().ok()?), score))
        };
        let held = rest.len() / (PART_BYTES + 4);
        let (parts, ranks) = rest.split_at(held * PART_BYTES);
        let (ranks, odd) = ranks.as_chunks::<4>();
        let ranks: Vec<u32> = ranks.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let pairs = ranks.iter().zip(decode(parts)?).map(|(&rank, part)| Held { rank, part });
        let flag = |number: usize| flags[number] == 1;
        (odd.is_empty() && ranks.len() == held).then_some(Said {
            local: decode(local)?,
            remote: decode(remote)?,
            held: pairs.collect(),
            scores: scores.iter().map(score).collect::<Option<_>>()?,
            apart: Some(apart).filter(|step| *step != u64::MAX),
            free: flag(0),
            due: flag(1),
            partner_due: flag(2),
            stop: flag(3),
        })
    }
}

/// What all ranks said, taken together.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Agreed {
    /// The parts that every rank has in the folder of the run, oldest first.
    pub(crate) local: Vec<Part>,
    /// Those that every rank has in the remote place.
    pub(crate) remote: Vec<Part>,
    /// Those of every rank that another one keeps, oldest first.
    pub(crate) partner: Vec<Part>,
    /// Those of every rank that are in one of these places, oldest first.
    pub(crate) either: Vec<Part>,
    /// The newest part that every rank has in the folder, and that has no frame in common with the
    /// newest one on any rank: what is left when a frame of that one is damaged.
    pub(crate) apart: Option<Part>,
    /// Whether the newest one is to be given to the partners.
    pub(crate) partner_due: bool,
    /// What each rank said.
    pub(crate) ranks: Vec<Said>,
    /// Whether a checkpoint that is saved now is to be copied to the remote place.
    pub(crate) copy: Copy,
}

/// Whether a checkpoint is copied to the remote place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// It is not due there.
    No,
    /// It is due, and all ranks can.
    Yes,
    /// It is due, and some rank is still at an earlier one.
    Skipped,
}

impl Agreed {
    pub(crate) fn of(ranks: Vec<Said>) -> Agreed {
        let all =
            |parts: fn(&Said) -> Vec<Part>| common(&ranks.iter().map(parts).collect::<Vec<_>>());
        let mut kept: Vec<Vec<Part>> = vec![Vec::new(); ranks.len()];
        for held in ranks.iter().flat_map(|said| &said.held) {
            kept.get_mut(held.rank as usize).into_iter().for_each(|of| of.push(held.part));
        }
        let anywhere = ranks.iter().zip(&kept);
        let anywhere: Vec<Vec<Part>> =
            anywhere.map(|(said, kept)| [&said.local[..], &said.remote, kept].concat()).collect();
        let due = ranks.first().is_some_and(|lead| lead.due);
        let copy = match (due, ranks.iter().all(|said| said.free)) {
            (false, _) => Copy::No,
            (true, true) => Copy::Yes,
            (true, false) => Copy::Skipped,
        };
        let local = all(|said| said.local.clone());
        // One that comes before it has none in common either.
        let apart: Option<Vec<u64>> = ranks.iter().map(|said| said.apart).collect();
        let apart = apart.and_then(|steps| steps.into_iter().min());
        let apart = apart.and_then(|step| local.iter().rfind(|part| part.step <= step).copied());
        Agreed {
            local,
            apart,
            remote: all(|said| said.remote.clone()),
            partner: common(&kept),
            either: common(&anywhere),
            partner_due: ranks.first().is_some_and(|lead| lead.partner_due),
            copy,
            ranks,
        }
    }

    /// The ranks that lack `part` in the folder of the run and have a keeper of it: each with its
    /// keeper.
    pub(crate) fn kept_elsewhere(&self, part: Part) -> Vec<(u32, u32)> {
        let lacks = |(_, said): &(u32, &Said)| !said.local.contains(&part);
        let keeper = |(rank, _): (u32, &Said)| {
            let held = Held { rank, part };
            let keeper = (0..).zip(&self.ranks).find(|(_, said)| said.held.contains(&held))?.0;
            Some((rank, keeper))
        };
        (0..).zip(&self.ranks).filter(lacks).filter_map(keeper).collect()
    }
}

/// The parts that every rank has, in ascending order.
#[must_use]
pub fn common(of_ranks: &[Vec<Part>]) -> Vec<Part> {
    let Some((first, others)) = of_ranks.split_first() else { return Vec::new() };
    let first: BTreeSet<Part> = first.iter().copied().collect();
    first.into_iter().filter(|part| others.iter().all(|parts| parts.contains(part))).collect()
}

/// The step below which everything may be deleted, when the last `keep` of what counts are to stay;
/// `None` while there are no more than that.
pub(crate) fn deletable_below(common: &[Part], keep: usize) -> Option<u64> {
    let oldest_kept = common.len().checked_sub(keep.max(1))?;
    Some(common[oldest_kept].step)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(step: u64, run: u128) -> Part {
        Part { step, run: Run(run) }
    }

    #[test]
    fn parts_come_back_from_a_message() {
        let parts = vec![part(3, 7), part(u64::MAX, u128::MAX)];
        assert_eq!(decode(&encode(&parts)), Some(parts));
        assert_eq!(decode(&[]), Some(Vec::new()));
        assert_eq!(decode(&[0; 25]), None);
    }

    #[test]
    fn what_a_rank_says_comes_back_from_a_message() {
        let said = Said {
            local: vec![part(3, 7)],
            remote: vec![part(1, 7), part(2, 7)],
            held: vec![Held { rank: 9, part: part(3, 7) }],
            scores: vec![(3, 0.5), (2, f64::INFINITY)],
            apart: Some(2),
            free: true,
            due: false,
            partner_due: true,
            stop: true,
        };
        assert_eq!(Said::decode(&said.encode()), Some(said.clone()));
        assert_eq!(Said::decode(&Said::default().encode()), Some(Said::default()));
        let bytes = said.encode();
        (0..36).for_each(|end| assert_eq!(Said::decode(&bytes[..end]), None));
        assert_eq!(Said::decode(&bytes[..bytes.len() - 1]), None);
        for place in [12, 20, 28] {
            let mut odd = [0; 36];
            odd[place..place + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            assert_eq!(Said::decode(&odd), None);
        }
    }

    #[test]
    fn a_part_counts_that_each_rank_has_somewhere() {
        let (old, new) = (part(100, 1), part(200, 1));
        let here = Said { local: vec![old, new], remote: vec![old], ..Said::default() };
        let lost = Said { remote: vec![old], ..Said::default() };
        let agreed = Agreed::of(vec![here.clone(), lost]);
        assert_eq!((agreed.local, agreed.remote), (vec![], vec![old]));
        assert_eq!(agreed.either, [old]);
        let fetched = Said { local: vec![new], ..Said::default() };
        assert_eq!(Agreed::of(vec![here.clone(), fetched]).either, [new]);
        // Rank 0 keeps the part of rank 1, and rank 2 that of rank 0.
        let held = |rank| vec![Held { rank, part: new }];
        let ranks = vec![
            Said { held: held(1), ..here.clone() },
            Said { held: vec![Held { rank: 7, part: new }], ..Said::default() },
            Said { held: held(0), ..here },
        ];
        let agreed = Agreed::of(ranks);
        assert_eq!((&agreed.either[..], &agreed.partner[..]), (&[new][..], &[][..]));
        assert_eq!(agreed.kept_elsewhere(new), [(1, 0)]);
    }

    #[test]
    fn what_has_no_frame_in_common_with_the_newest_is_one_for_all_ranks() {
        let local: Vec<Part> = (1..=6).map(|step| part(step, 1)).collect();
        let says = |apart| Said { local: local.clone(), apart, ..Said::default() };
        let agreed = |steps: &[Option<u64>]| {
            Agreed::of(steps.iter().copied().map(says).collect()).apart.map(|part| part.step)
        };
        assert_eq!(agreed(&[Some(5), Some(3), Some(4)]), Some(3));
        assert_eq!(agreed(&[Some(5), None]), None);
        assert_eq!(agreed(&[Some(5), Some(0)]), None);
    }

    #[test]
    fn a_checkpoint_is_copied_when_rank_0_says_so_and_all_can() {
        let copy = |due, free: [bool; 2]| {
            let lead = Said { due, free: free[0], ..Said::default() };
            Agreed::of(vec![lead, Said { free: free[1], due: true, ..Said::default() }]).copy
        };
        assert_eq!(copy(true, [true, true]), Copy::Yes);
        assert_eq!(copy(true, [true, false]), Copy::Skipped);
        assert_eq!(copy(true, [false, true]), Copy::Skipped);
        assert_eq!(copy(false, [true, true]), Copy::No);
    }

    #[test]
    fn parts_of_two_runs_are_not_one_checkpoint() {
        let ranks = [vec![part(100, 1), part(200, 1)], vec![part(100, 1), part(200, 2)]];
        assert_eq!(common(&ranks), [part(100, 1)]);
    }

    #[test]
    fn a_checkpoint_goes_when_as_many_newer_ones_count_as_are_kept() {
        let all = [part(100, 1), part(200, 1), part(300, 1)];
        assert_eq!(deletable_below(&all, 2), Some(200));
        assert_eq!(deletable_below(&all, 3), Some(100));
        assert_eq!(deletable_below(&all, 4), None);
        assert_eq!(deletable_below(&all, 0), Some(300), "the last one always stays");
        assert_eq!(deletable_below(&[], 2), None);
    }

    proptest! {
        /// Whatever ranks have: what is left after deleting has the newest `keep` that count.
        #[test]
        fn deleting_never_takes_what_is_kept(
            has in prop::collection::vec(prop::collection::vec(any::<bool>(), 10), 1..5),
            keep in 1_usize..4,
        ) {
            let ranks: Vec<Vec<Part>> = has
                .iter()
                .map(|has| (0..10).filter(|n| has[*n as usize]).map(|n| part(n, 0)).collect())
                .collect();
            let before = common(&ranks);
            let below = deletable_below(&before, keep).unwrap_or(0);
            let left: Vec<Vec<Part>> = ranks
                .iter()
                .map(|parts| parts.iter().copied().filter(|p| p.step >= below).collect())
                .collect();
            let newest = before.len().saturating_sub(keep);
            prop_assert_eq!(&common(&left)[..], &before[newest..]);
        }
    }
}
