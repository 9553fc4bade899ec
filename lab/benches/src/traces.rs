//! Histories of an application, on which policies are compared.

use crate::random::Random;

/// One step of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Compute for this number of steps.
    Compute(u64),
    /// Save a version.
    Save(i64),
    /// Restore a version.
    Restore(i64),
    /// Discard a version, which will not be read again.
    Discard(i64),
    /// Announce all restores of the history, in their order.
    ExpectAll,
    /// Restore a version, compute, and save the result as the next version, whose room was asked
    /// for before.
    Rewrite(i64, i64),
    /// Announce a restore of a version.
    Expect(i64),
    /// Announce a restore of a version, after which it is discarded.
    ExpectLast(i64),
    /// Stop prefetching, so that the tiers stay free for saves.
    HoldPrefetch,
    /// Allow prefetching.
    StartPrefetch,
}

/// A history: the sizes of its versions and its actions.
pub struct Trace {
    /// Payload bytes of version `i`.
    pub sizes: Vec<u64>,
    /// Compressed size of each version; empty without compression.
    pub stored: Vec<u64>,
    /// The actions, in order.
    pub actions: Vec<Action>,
}

impl Trace {
    /// The versions that are restored, in order: the hints.
    pub fn restores(&self) -> impl Iterator<Item = i64> {
        self.actions.iter().filter_map(|action| match action {
            Action::Restore(version) | Action::Rewrite(version, _) => Some(*version),
            _ => None,
        })
    }

    /// The same history, with each checkpoint compressed to between a fortieth and a third, about a
    /// tenth on average.
    pub fn compressed(mut self, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let mut kept = |bytes: u64| bytes * (30 + random.below(8) * random.below(11) * 4) / 1200;
        self.stored = self.sizes.iter().map(|&bytes| kept(bytes)).collect();
        self
    }

    /// Size of a version after compression, in bytes.
    pub fn kept(&self, version: i64) -> u64 {
        let index = version as usize;
        self.stored.get(index).copied().unwrap_or(self.sizes[index])
    }

    /// Total size of all saves in bytes.
    pub fn saved_bytes(&self) -> u64 {
        let saves = self.actions.iter().filter_map(|action| match action {
            Action::Save(version) | Action::Rewrite(_, version) => Some(*version),
            _ => None,
        });
        saves.map(|version| self.sizes[version as usize]).sum()
    }
}

/// `count` checkpoints of `bytes` each.
pub fn uniform(count: usize, bytes: u64) -> Vec<u64> {
    vec![bytes; count]
}

/// `count` checkpoints of a third to nearly three times `bytes`, most of them small; `bytes` is
/// about their mean.
pub fn variable(count: usize, bytes: u64, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let third = bytes / 3;
    // The smaller of two uniform numbers: small sizes are more frequent, as in adaptive meshes.
    let mut draw = || third + random.below(8).min(random.below(8)) * third;
    (0..count).map(|_| draw()).collect()
}

/// Time of the hints of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hints {
    /// Before the first save; prefetching is stopped until the first restore.
    FirstHeld,
    /// Before the first save, and prefetching may start at once.
    First,
    /// After the last save.
    AfterSaves,
    /// Never.
    None,
}

/// Saves every step, then restores all in the order of `versions`.
pub fn forward_then(sizes: Vec<u64>, versions: &[i64], hints: Hints) -> Trace {
    let (before, between): (&[Action], &[Action]) = match hints {
        Hints::FirstHeld => (&[Action::HoldPrefetch, Action::ExpectAll], &[Action::StartPrefetch]),
        Hints::First => (&[Action::ExpectAll], &[]),
        Hints::AfterSaves => (&[], &[Action::ExpectAll]),
        Hints::None => (&[], &[]),
    };
    let saves = (0..sizes.len()).flat_map(|index| [Action::Compute(1), Action::Save(index as i64)]);
    let restores = versions.iter().flat_map(|&v| [Action::Restore(v), Action::Compute(1)]);
    let before = before.iter().copied();
    let actions = before.chain(saves).chain(between.iter().copied()).chain(restores).collect();
    Trace { sizes, stored: Vec::new(), actions }
}

/// `0..count` backwards.
pub fn reverse(count: usize) -> Vec<i64> {
    (0..count as i64).rev().collect()
}

/// `0..count` forwards.
pub fn sequential(count: usize) -> Vec<i64> {
    (0..count as i64).collect()
}

/// `0..count` in a random order.
pub fn irregular(count: usize, seed: u64) -> Vec<i64> {
    let mut versions = sequential(count);
    Random::new(seed).shuffle(&mut versions);
    versions
}

/// Saves and restores interleaved as in a memory-bounded adjoint: the forward pass saves the begin
/// of each of `parts` ranges; then, from the last range to the first, a range is split, its right
/// part is reversed from a checkpoint at the split, then the left part from the checkpoint at its
/// begin, which is restored again for every part (Griewank and Walther, "Revolve", 2000, with the
/// split in the middle).
pub fn interleaved(sizes: Vec<u64>, parts: usize) -> Trace {
    let length = sizes.len() / parts;
    let begins: Vec<i64> = (0..parts).map(|part| (part * length) as i64).collect();
    let mut actions = vec![Action::ExpectAll];
    for begin in &begins {
        actions.extend([Action::Save(*begin), Action::Compute(length as u64)]);
    }
    for begin in begins.iter().rev() {
        reverse_range(*begin, *begin + length as i64, &mut actions);
        actions.push(Action::Discard(*begin));
    }
    Trace { sizes, stored: Vec::new(), actions }
}

/// Reverses the steps `begin..end`, with a checkpoint at `begin` in place.
fn reverse_range(begin: i64, end: i64, actions: &mut Vec<Action>) {
    actions.push(Action::Restore(begin));
    if end - begin == 1 {
        actions.push(Action::Compute(1));
        return;
    }
    let middle = begin + (end - begin) / 2;
    actions.push(Action::Compute((middle - begin) as u64));
    actions.push(Action::Save(middle));
    reverse_range(middle, end, actions);
    actions.push(Action::Discard(middle));
    reverse_range(begin, middle, actions);
}

#[cfg(test)]
mod tests {
    use super::{Action, interleaved, irregular, uniform, variable};
    use std::collections::HashSet;

    #[test]
    fn an_interleaved_trace_restores_only_what_it_holds_and_reverses_every_step_in_order() {
        let trace = interleaved(uniform(48, 1), 6);
        let (mut held, mut reversed) = (HashSet::new(), Vec::new());
        for pair in trace.actions.windows(2) {
            match pair[0] {
                Action::Save(version) => assert!(held.insert(version)),
                Action::Discard(version) => assert!(held.remove(&version)),
                Action::Restore(version) => {
                    assert!(held.contains(&version));
                    let saves_next = trace.actions.iter().filter(|a| **a == Action::Save(version));
                    assert_eq!(saves_next.count(), 1);
                    reversed.extend((pair[1] == Action::Compute(1)).then_some(version));
                }
                _ => {}
            }
        }
        let mut last_restores: Vec<i64> = Vec::new();
        for version in reversed.into_iter().rev() {
            if !last_restores.contains(&version) {
                last_restores.push(version);
            }
        }
        assert_eq!(last_restores, (0..48).collect::<Vec<i64>>());
    }

    #[test]
    fn seeds_decide_orders_and_sizes() {
        assert_eq!(irregular(50, 1), irregular(50, 1));
        assert_ne!(irregular(50, 1), irregular(50, 2));
        let sizes = variable(1000, 1024, 3);
        assert!(sizes.iter().all(|bytes| (341..=2728).contains(bytes)));
        assert!(sizes.iter().collect::<HashSet<_>>().len() > 5);
    }
}
