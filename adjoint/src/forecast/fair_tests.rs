//! Shares that can be worked out by hand, and what holds for all.

use std::vec;
use std::vec::Vec;

use super::fair::{Demand, fair_rates};
use proptest::prelude::*;

fn demand(most: f64, through: &[usize]) -> Demand {
    Demand { most, through: through.to_vec() }
}

#[test]
fn what_shares_nothing_gets_what_it_can_take() {
    assert_eq!(fair_rates(&[demand(5.0, &[]), demand(7.0, &[0])], &[10.0]), [5.0, 7.0]);
}

#[test]
fn equals_get_equal_parts() {
    assert_eq!(fair_rates(&vec![demand(9.0, &[0]); 4], &[10.0]), [2.5; 4]);
}

#[test]
fn what_a_slow_one_leaves_is_divided_among_the_others() {
    let demands = [demand(1.0, &[0]), demand(9.0, &[0]), demand(9.0, &[0])];
    assert_eq!(fair_rates(&demands, &[10.0]), [1.0, 4.5, 4.5]);
}

#[test]
fn who_is_held_up_elsewhere_leaves_room_here() {
    // The first and the second share link 0, the second and the third link 1.
    let demands = [demand(99.0, &[0]), demand(99.0, &[0, 1]), demand(99.0, &[1])];
    assert_eq!(fair_rates(&demands, &[10.0, 4.0]), [8.0, 2.0, 2.0]);
}

/// Numbers of links.
fn some_of(links: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..links, 0..4)
}

proptest! {
    #[test]
    fn no_link_is_above_its_capacity_and_nobody_is_held_up_for_nothing(
        capacities in prop::collection::vec(1.0..100.0_f64, 1..5),
        flows in prop::collection::vec((0.1..50.0_f64, some_of(5)), 1..12),
    ) {
        let demands: Vec<Demand> = flows.into_iter().map(|(most, mut through)| {
            through.retain(|link| *link < capacities.len());
            through.sort_unstable();
            through.dedup();
            Demand { most, through }
        }).collect();
        let rates = fair_rates(&demands, &capacities);
        let load = |link: usize| -> f64 {
            let users = demands.iter().zip(&rates).filter(|(d, _)| d.through.contains(&link));
            users.map(|(_, rate)| rate).sum()
        };
        for (link, capacity) in capacities.iter().enumerate() {
            prop_assert!(load(link) <= capacity * (1.0 + 1e-9));
        }
        for (demand, rate) in demands.iter().zip(&rates) {
            // Max-min: it has all that it can take, or a full link on which nobody has more.
            let bottleneck = demand.through.iter().any(|link| {
                load(*link) >= capacities[*link] * (1.0 - 1e-9)
                    && demands.iter().zip(&rates).filter(|(d, _)| d.through.contains(link))
                        .all(|(_, other)| *other <= rate * (1.0 + 1e-9))
            });
            prop_assert!(*rate > 0.0 && (*rate >= demand.most || bottleneck));
        }
    }
}
