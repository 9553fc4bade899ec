//! How the sizes of saves change from one to the next: a straight line through all of them.
//!
//! States that a codec makes smaller often grow: a wavefield spreads, and less of it is empty. What
//! hints announce is then more than the mean of the saves so far, and the sooner that is known, the
//! longer a slow link has to make room for it.

/// A least-squares line of sizes by the number of the save, from running moments (Welford,
/// Technometrics, 1962), which stay exactly 0 where all sizes are equal.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Trend {
    count: f64,
    mean_number: f64,
    mean_size: f64,
    /// Sums of products of the deviations from both means.
    number_number: f64,
    number_size: f64,
    size_size: f64,
}

/// The fewest sizes that show a line.
const ENOUGH: f64 = 8.0;
/// How many standard errors the slope has to be away from none. Of random sizes without an order
/// eight come as far once in 800 times, and 32 once in 80,000; the next ones then deny it.
const SURE: f64 = 5.0;

impl Trend {
    /// Takes in the size of the next save, in bytes.
    pub fn add(&mut self, bytes: u64) {
        let (number, size) = (self.count, bytes as f64);
        let (by_number, by_size) = (number - self.mean_number, size - self.mean_size);
        self.count += 1.0;
        self.mean_number += by_number / self.count;
        self.mean_size += by_size / self.count;
        self.number_number += by_number * (number - self.mean_number);
        self.number_size += by_number * (size - self.mean_size);
        self.size_size += by_size * (size - self.mean_size);
    }

    /// The mean bytes of the first `saves` saves when sizes go on growing as they did. None where
    /// they do not grow for sure, or too few are known.
    pub fn mean_of(&self, saves: u64) -> Option<u64> {
        if self.count < ENOUGH || self.number_size <= 0.0 {
            return None;
        }
        let slope = self.number_size / self.number_number;
        let left = self.size_size - slope * self.number_size;
        // The square of the slope over its standard error, by which both sides are multiplied.
        let is_sure = slope * slope * self.number_number * (self.count - 2.0) > SURE * SURE * left;
        let middle = (saves as f64 - 1.0) / 2.0;
        is_sure.then_some((self.mean_size + slope * (middle - self.mean_number)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: impl IntoIterator<Item = u64>) -> Trend {
        let mut trend = Trend::default();
        sizes.into_iter().for_each(|size| trend.add(size));
        trend
    }

    #[test]
    fn a_line_is_followed() {
        let size = |n: u64| 1_000_000 + 5_000 * n;
        let all = (0..100).map(size).sum::<u64>() / 100;
        let found = of((0..10).map(size)).mean_of(100).unwrap();
        assert!(found.abs_diff(all) <= 1, "{found} and {all}");
    }

    #[test]
    fn a_line_is_seen_through_noise() {
        let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let size = |n: u64| 1_000_000 + 60_000 * n + noise(n);
        let all = (0..100).map(size).sum::<u64>() / 100;
        let found = of((0..40).map(size)).mean_of(100).unwrap();
        assert!(found.abs_diff(all) < all / 10, "{found} and {all}");
    }

    #[test]
    fn sizes_that_are_equal_shrink_or_have_no_order_show_none() {
        assert_eq!(of([7; 50]).mean_of(100), None);
        assert_eq!(of((0..50).map(|n| 1_000 - n)).mean_of(100), None);
        for seed in 1..200_u64 {
            let noise = |n: u64| (n + seed * 1_000).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
            let sizes = (0..100).map(noise).collect::<std::vec::Vec<_>>();
            for some in [8, 20, 100] {
                let found = of(sizes[..some].iter().copied()).mean_of(400);
                assert_eq!(found, None, "{some} sizes of seed {seed}");
            }
        }
    }

    #[test]
    fn few_sizes_show_nothing() {
        assert_eq!(of((0..7).map(|n| 1_000 * n)).mean_of(100), None);
        assert!(of((0..8).map(|n| 1_000 * n)).mean_of(100).is_some());
        assert_eq!(Trend::default().mean_of(0), None);
    }
}
