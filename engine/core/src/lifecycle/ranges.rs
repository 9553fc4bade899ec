//! A set of integers that is small when its members stand together.

use alloc::collections::BTreeMap;

/// Disjoint closed ranges `first -> last`, never adjacent. A history that is consumed in order,
/// from either end, is one range however long it is.
#[derive(Default, Debug)]
pub(crate) struct Ranges(BTreeMap<i64, i64>);

impl Ranges {
    pub fn contains(&self, value: i64) -> bool {
        self.range_of(value).is_some()
    }

    pub fn insert(&mut self, value: i64) {
        if self.contains(value) {
            return;
        }
        let mut first = value;
        let mut last = value;
        if let Some((f, _)) = value.checked_sub(1).and_then(|v| self.range_of(v)) {
            first = f;
        }
        if let Some(next) = value.checked_add(1)
            && let Some(l) = self.0.remove(&next)
        {
            last = l;
        }
        debug_assert!(first <= value && value <= last, "the range has the value");
        self.0.insert(first, last);
    }

    pub fn remove(&mut self, value: i64) {
        let Some((first, last)) = self.range_of(value) else { return };
        self.0.remove(&first);
        if first < value {
            self.0.insert(first, value - 1);
        }
        if value < last {
            self.0.insert(value + 1, last);
        }
    }

    fn range_of(&self, value: i64) -> Option<(i64, i64)> {
        let (&first, &last) = self.0.range(..=value).next_back()?;
        (value <= last).then_some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_history_consumed_in_reverse_is_one_range() {
        let mut ranges = Ranges::default();
        (0..1000).rev().for_each(|v| ranges.insert(v));
        assert_eq!(ranges.0.len(), 1);
    }

    #[test]
    fn the_ends_of_the_integers_are_members_like_others() {
        let mut ranges = Ranges::default();
        for v in [i64::MIN, i64::MAX] {
            ranges.insert(v);
            assert!(ranges.contains(v));
            ranges.remove(v);
            assert!(!ranges.contains(v));
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(ops in prop::collection::vec((any::<bool>(), -20i64..20), 0..200)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (add, v) in ops {
                if add {
                    ranges.insert(v);
                    set.insert(v);
                } else {
                    ranges.remove(v);
                    set.remove(&v);
                }
                for x in -22..22 {
                    prop_assert_eq!(ranges.contains(x), set.contains(&x));
                }
            }
        }
    }
}
