//! Settings that make no core, each with what is wrong with it.

mod support;

use support::config;
use unspool_core::{Config, ConfigError, Core, TierKind};

/// Device, host and disk with two rooms each.
fn changed(change: impl FnOnce(&mut Config)) -> Result<(), ConfigError> {
    let mut settings = config(8, 2, 2, 2);
    change(&mut settings);
    Core::new(settings).map(|_| ())
}

#[test]
fn a_stack_has_one_to_four_tiers_in_order_and_a_link_between_two() {
    assert_eq!(changed(|_| {}), Ok(()));
    let none = changed(|c| (c.tiers, c.links) = (vec![], vec![]));
    assert_eq!(none, Err(ConfigError::TierCount(0)));
    let one = changed(|c| {
        c.tiers.truncate(1);
        c.links.clear();
    });
    assert_eq!(one, Ok(()));
    let four = |more: usize| {
        changed(|c| {
            c.tiers.push(c.tiers[2]);
            c.tiers[3].kind = TierKind::Remote;
            c.tiers.extend((0..more).map(|_| c.tiers[3]).collect::<Vec<_>>());
            c.links.resize(2 + more, c.links[0]);
            c.links.push(c.links[0]);
        })
    };
    assert_eq!((four(0), four(1)), (Ok(()), Err(ConfigError::TierCount(5))));
    let links = changed(|c| c.links.push(c.links[0]));
    assert_eq!(links, Err(ConfigError::LinkCount { needed: 2, given: 3 }));
    let swapped = changed(|c| c.tiers.swap(1, 2));
    assert_eq!(swapped, Err(ConfigError::Order));
    let twice = changed(|c| c.tiers[1].kind = TierKind::Device);
    assert_eq!(twice, Err(ConfigError::Order));
}

#[test]
fn a_tier_holds_its_alignment_which_is_a_power_of_two() {
    let aligned = |alignment| changed(|c| (c.tiers[1].alignment, c.tiers[1].capacity) = alignment);
    assert_eq!((aligned((8, 8)), aligned((1, 9))), (Ok(()), Ok(())));
    for alignment in [0, 3, 12] {
        assert_eq!(aligned((alignment, 96)), Err(ConfigError::Alignment(1)));
    }
    assert_eq!(aligned((8, 7)), Err(ConfigError::Capacity(1)));
}

#[test]
fn a_link_moves_something_in_both_directions() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(changed(|c| c.links[1].flush_rate = rate), Err(ConfigError::Link(1)));
        assert_eq!(changed(|c| c.links[0].prefetch_rate = rate), Err(ConfigError::Link(0)));
    }
    assert_eq!(changed(|c| c.links[1].max_in_flight = 0), Err(ConfigError::Link(1)));
    assert_eq!(changed(|c| c.links[1].max_in_flight_bytes = 0), Ok(()), "one always may");
}
