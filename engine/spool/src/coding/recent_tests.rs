//! Which sizes a save expects.

use unspool_codec::{Dtype, Head, RegionSpec, Spec};

use super::plan::EncodingPlan;
use super::recent::RecentSizes;
use crate::coding::Codecs;

const MOST: u64 = 6400;

fn plan(values: u64) -> EncodingPlan {
    let (name, dtype) = ("u".to_owned(), Dtype::Float32);
    let head = Head::layout(0, vec![RegionSpec { name, dtype, shape: vec![values] }]).unwrap();
    let plan = EncodingPlan::of(&head, &Codecs::all(Spec::Lossless), || None).unwrap();
    plan.expect("a region that is encoded")
}

#[test]
fn the_largest_of_the_last_eight_counts() {
    let (mut recent, plan) = (RecentSizes::default(), plan(100));
    assert_eq!(recent.expected(&plan, MOST, 0), MOST);
    for bytes in [2000, 1001, 0, 1000, 999, 998, 997, 996, 995] {
        recent.learn(&plan, bytes);
    }
    assert_eq!(recent.expected(&plan, MOST, 0), 1001 + 101 + 100);
    recent.learn(&plan, 6300);
    assert_eq!(recent.expected(&plan, MOST, 0), MOST, "never more than the most");
}

#[test]
fn a_gap_that_sizes_like_the_last_ones_fit_is_taken_as_it_is() {
    let (mut recent, plan) = (RecentSizes::default(), plan(100));
    recent.learn(&plan, 1000);
    let at = |recent: &RecentSizes, gap| recent.expected(&plan, MOST, gap);
    let found = [999, 1000, 1199, 1201].map(|gap| at(&recent, gap));
    assert_eq!(found, [1200, 1000, 1199, 1200]);
    assert_eq!(at(&recent, MOST), MOST, "so much is free");
}

#[test]
fn each_layout_has_its_own_sizes_and_the_oldest_layout_goes() {
    let mut recent = RecentSizes::default();
    let plans: Vec<_> = (100..110).map(plan).collect();
    for (plan, bytes) in plans.iter().zip(100..) {
        recent.learn(plan, bytes);
    }
    assert_eq!(recent.expected(&plans[9], MOST, 0), 109 + 11 + 100);
    assert_eq!(recent.expected(&plans[2], MOST, 0), 102 + 11 + 100);
    assert_eq!(recent.expected(&plans[1], MOST, 0), MOST);
    recent.forget(&plans[9]);
    assert_eq!(recent.expected(&plans[9], MOST, 0), MOST);
}
