//! Score's experiment in virtual time.

use unspool_core::{Nanos, PolicyKind};
use unspool_sim::scenario::{self, Figures, Hints, Order, Scenario};

#[test]
fn show() {
    for (name, sizes) in [("uniform", scenario::uniform(384, 128 << 20)), ("rtm", scenario::rtm(1, 384, 128 << 20))] {
        for order in [Order::Reverse, Order::Sequential, Order::Irregular] {
            for hints in [Hints::None, Hints::Next, Hints::All] {
                for policy in [PolicyKind::Score, PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Belady] {
                    let s = Scenario::score(sizes.clone(), order, hints, policy).every(Nanos(40_000_000), Nanos(40_000_000));
                    println!("{name} {order:?} {hints:?} {policy:?}: {}", scenario::run(&s));
                }
            }
        }
    }
}
