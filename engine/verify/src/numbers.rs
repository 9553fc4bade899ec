//! A set of numbers that are given out in ascending order, so that few ranges hold many of them.

use alloc::collections::BTreeMap;

/// The set: from the first number of each range to its last one. No two ranges touch.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberSet {
    ranges: BTreeMap<u64, u64>,
}

impl NumberSet {
    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn contains(&self, number: u64) -> bool {
        self.range_of(number).is_some()
    }

    fn range_of(&self, number: u64) -> Option<(u64, u64)> {
        let (first, last) = self.ranges.range(..=number).next_back()?;
        (number <= *last).then_some((*first, *last))
    }

    /// Adds a number that is not in the set.
    pub fn insert(&mut self, number: u64) {
        debug_assert!(!self.contains(number), "a number is added once");
        let mut last = number;
        if let Some(above) = number.checked_add(1)
            && let Some(end) = self.ranges.remove(&above)
        {
            last = end;
        }
        let below = number.checked_sub(1).and_then(|below| self.range_of(below));
        let first = below.map_or(number, |(first, _)| first);
        self.ranges.insert(first, last);
    }

    /// Takes a number out. True when it was in the set.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some((first, last)) = self.range_of(number) else { return false };
        self.ranges.remove(&first);
        if first < number {
            self.ranges.insert(first, number - 1);
        }
        if number < last {
            self.ranges.insert(number + 1, last);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn numbers_in_any_order_are_kept_as_few_ranges() {
        let mut numbers = NumberSet::default();
        [5, 3, 4, 0, u64::MAX, 1].into_iter().for_each(|number| numbers.insert(number));
        assert_eq!(numbers.ranges, BTreeMap::from([(0, 1), (3, 5), (u64::MAX, u64::MAX)]));
        assert!(numbers.contains(4) && !numbers.contains(2) && numbers.contains(u64::MAX));
    }

    #[test]
    fn a_set_of_ranges_answers_as_a_set_does() {
        let (mut numbers, mut model) = (NumberSet::default(), BTreeSet::new());
        let mut state = 1u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = (state >> 40) % 50;
            if model.remove(&number) {
                assert!(numbers.remove(number));
            } else {
                assert!(!numbers.remove(number));
                numbers.insert(number);
                model.insert(number);
            }
            assert!((0..50).all(|number| numbers.contains(number) == model.contains(&number)));
        }
        let borders = model.iter().filter(|number| !model.contains(&(*number + 1))).count();
        assert_eq!(numbers.len(), borders);
    }
}
