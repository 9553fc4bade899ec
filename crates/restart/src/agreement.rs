//! What all ranks have, and what each of them may delete: pure functions of what ranks said.

use std::collections::BTreeSet;

use crate::manifest::Run;

/// The bytes of one part in a message.
const PART_BYTES: usize = 24;

/// One rank's part of a checkpoint, as ranks tell each other of it. Parts of the same step that
/// different runs wrote are not parts of one checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    /// The step.
    pub step: u64,
    /// The run that wrote it.
    pub run: Run,
}

/// Parts as bytes of a message.
pub(crate) fn encode(parts: &[Part]) -> Vec<u8> {
    let bytes = |part: &Part| [&part.step.to_le_bytes()[..], &part.run.0.to_le_bytes()].concat();
    parts.iter().flat_map(bytes).collect()
}

/// The parts in the bytes of a message; `None` when they are something else.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Part>> {
    let (parts, rest) = bytes.as_chunks::<PART_BYTES>();
    let part = |bytes: &[u8; PART_BYTES]| {
        let (step, run) = bytes.split_at(8);
        let step = u64::from_le_bytes(step.try_into().ok()?);
        Some(Part { step, run: Run(u128::from_le_bytes(run.try_into().ok()?)) })
    };
    rest.is_empty().then(|| parts.iter().map(part).collect())?
}

/// The parts that every rank has, oldest first.
pub(crate) fn common(of_ranks: &[Vec<Part>]) -> Vec<Part> {
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
