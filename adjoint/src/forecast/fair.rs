//! Fair shares of what several flows go through.

use alloc::vec;
use alloc::vec::Vec;

/// What moves over links that are shared.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Demand {
    /// The most bytes a second that it can take.
    pub most: f64,
    /// The numbers of the shared links that it goes through.
    pub through: Vec<usize>,
}

/// The bytes a second that each flow gets over links of these capacities.
///
/// The shares are max-min fair: none can get more without taking from one that has no more itself.
/// All rates rise together from nothing, and a flow stops rising where it has what it can take or
/// where a link that it goes through is full.
pub(super) fn fair_rates(demands: &[Demand], capacities: &[f64]) -> Vec<f64> {
    debug_assert!(capacities.iter().all(|c| *c > 0.0), "a link without capacity is never through");
    let mut left = capacities.to_vec();
    let mut rates: Vec<Option<f64>> = vec![None; demands.len()];
    while rates.contains(&None) {
        let mut users = vec![0_u32; capacities.len()];
        for (demand, _) in open(demands, &rates) {
            demand.through.iter().for_each(|link| users[*link] += 1);
        }
        let level = |link: usize| left[link] / f64::from(users[link]);
        let mut lowest = f64::INFINITY;
        for (demand, _) in open(demands, &rates) {
            lowest =
                demand.through.iter().map(|l| level(*l)).fold(lowest.min(demand.most), f64::min);
        }
        let stops = |demand: &Demand| {
            demand.most <= lowest || demand.through.iter().any(|link| level(*link) <= lowest)
        };
        let fixed: Vec<usize> =
            open(demands, &rates).filter(|(d, _)| stops(d)).map(|(_, place)| place).collect();
        debug_assert!(!fixed.is_empty(), "the lowest level is that of a flow or of a link");
        for place in fixed {
            rates[place] = Some(lowest);
            for link in &demands[place].through {
                left[*link] = (left[*link] - lowest).max(0.0);
            }
        }
    }
    rates.into_iter().map(Option::unwrap_or_default).collect()
}

/// The flows whose rates still rise, with their places.
fn open<'a>(
    demands: &'a [Demand],
    rates: &'a [Option<f64>],
) -> impl Iterator<Item = (&'a Demand, usize)> {
    let all = demands.iter().zip(rates).enumerate();
    all.filter(|(_, (_, rate))| rate.is_none()).map(|(place, (demand, _))| (demand, place))
}
