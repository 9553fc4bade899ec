//! The parts that one rank has in one place, with what each of them builds on. A part whose parent
//! is not there does not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{Manifest, Part, Run};

/// Parts by their steps.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Parts {
    of: BTreeMap<u64, Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    run: Run,
    /// The step that it is an increment to.
    parent: Option<u64>,
}

impl Parts {
    /// Those of these manifests.
    pub(crate) fn of<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Parts {
        let mut parts = Parts::default();
        manifests.into_iter().for_each(|manifest| parts.add(manifest));
        parts
    }

    pub(crate) fn add(&mut self, manifest: &Manifest) {
        let parent = manifest.increment.map(|increment| increment.parent);
        self.of.insert(manifest.step, Entry { run: manifest.run, parent });
    }

    pub(crate) fn retain(&mut self, wanted: impl Fn(u64) -> bool) {
        self.of.retain(|step, _| wanted(*step));
    }

    /// Those that count, oldest first, each with the step of the full one that its chain begins
    /// with.
    fn roots(&self) -> BTreeMap<Part, u64> {
        let mut roots = BTreeMap::new();
        for (&step, &Entry { run, parent }) in &self.of {
            // A parent comes before its children.
            let root = match parent {
                None => Some(step),
                Some(parent) => roots.get(&Part { step: parent, run }).copied(),
            };
            roots.extend(root.map(|root| (Part { step, run }, root)));
        }
        roots
    }

    /// Those that count, oldest first.
    pub(crate) fn counted(&self) -> Vec<Part> {
        self.roots().into_keys().collect()
    }

    /// The newest step that counts and builds on nothing that the newest one is or builds on.
    pub(crate) fn apart(&self) -> Option<u64> {
        // A part has one parent: chains that share a frame share the first one.
        let roots = self.roots();
        let (_, newest) = roots.last_key_value()?;
        roots.iter().rfind(|(_, root)| *root != newest).map(|(part, _)| part.step)
    }

    /// Whether a step goes when those below `below` do: `needed` stay, and what they build on.
    pub(crate) fn goes<'a>(&self, below: u64, needed: &'a [u64]) -> impl Fn(u64) -> bool + use<'a> {
        let stays = move |step: u64| step >= below || needed.contains(&step);
        let parents = self.needed_by(stays);
        move |step| !stays(step) && !parents.contains(&step)
    }

    /// The steps that those which stay build on.
    fn needed_by(&self, stays: impl Fn(u64) -> bool) -> BTreeSet<u64> {
        let mut needed = BTreeSet::new();
        for (step, entry) in self.of.iter().rev() {
            if stays(*step) || needed.contains(step) {
                needed.extend(entry.parent);
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::{increment, sample};

    fn steps(parts: &Parts) -> Vec<u64> {
        parts.counted().iter().map(|part| part.step).collect()
    }

    #[test]
    fn a_part_counts_while_all_that_it_builds_on_is_there() {
        let all = [sample(1), increment(2, 1), increment(3, 2), sample(4), increment(5, 4)];
        let mut parts = Parts::of(&all);
        assert_eq!(steps(&parts), [1, 2, 3, 4, 5]);
        assert_eq!(parts.apart(), Some(3));
        assert_eq!(Parts::of(&all[..3]).apart(), None);
        assert_eq!(parts.needed_by(|step| step == 3), BTreeSet::from([1, 2]));
        assert_eq!(parts.needed_by(|step| step >= 4), BTreeSet::from([4]));
        parts.retain(|step| step != 2);
        assert_eq!(steps(&parts), [1, 4, 5]);
        parts.add(&Manifest { run: Run(8), ..increment(2, 1) });
        assert_eq!(steps(&parts), [1, 4, 5], "parts of two runs are not one chain");
    }
}
