//! An adjoint: a forward pass that saves, and a backward pass that restores.

use unspool_core::Version;

use super::sizes::Sizes;
use super::sprinkle;
use crate::plan::script::Step;
use crate::random::Random;

/// Time and accuracy of the announcements of restores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hinting {
    None,
    Upfront,
    AfterForward,
    OneAhead,
    Partial,
    Wrong,
    Repeated,
}

/// The order of the backward pass: version numbers from 0.
fn order(random: &mut Random, count: usize) -> Vec<i64> {
    let mut order: Vec<i64> = (0..count as i64).collect();
    match random.below(5) {
        0 | 1 => order.reverse(),
        2 => {}
        3 => random.shuffle(&mut order),
        _ => {
            let again: Vec<i64> = order.iter().rev().copied().collect();
            order.extend(again);
        }
    }
    order
}

/// The steps of the application.
pub(super) fn steps(random: &mut Random, sizes: &Sizes, base: i64) -> Vec<Step> {
    let count = random.magnitude(2.0, 100.0) as usize;
    let order: Vec<i64> = order(random, count).into_iter().map(|v| v + base).collect();
    use Hinting::{AfterForward, None, OneAhead, Partial, Repeated, Upfront, Wrong};
    let hinting = random.pick(&[
        None,
        Upfront,
        Upfront,
        AfterForward,
        AfterForward,
        OneAhead,
        Partial,
        Wrong,
        Repeated,
    ]);
    let mut steps = Vec::new();
    let hold = random.chance(0.3);
    if hold {
        steps.push(Step::HoldPrefetch);
    }
    let hints = hints(random, hinting, &order);
    if hinting == Upfront || (hinting != AfterForward && random.chance(0.5)) {
        steps.extend(&hints);
    }
    for version in 0..count as i64 {
        steps.push(Step::save(base + version, sizes.draw(random)));
    }
    if steps.iter().all(|step| !matches!(step, Step::Expect(_))) {
        steps.extend(&hints);
    }
    if hold {
        steps.push(Step::StartPrefetch);
    }
    backward(random, hinting, &order, &mut steps);
    let often = random.pick(&[0.0, 0.0, 0.05]);
    sprinkle(random, &mut steps, often);
    steps
}

fn hints(random: &mut Random, hinting: Hinting, order: &[i64]) -> Vec<Step> {
    let expect = |version: i64| Step::Expect(Version(version));
    let mut hints: Vec<Step> = order.iter().copied().map(expect).collect();
    match hinting {
        Hinting::None | Hinting::OneAhead => hints.clear(),
        Hinting::Upfront | Hinting::AfterForward => {}
        Hinting::Partial => hints.retain(|_| random.chance(0.6)),
        Hinting::Wrong => {
            hints.push(expect(-99));
            random.shuffle(&mut hints);
        }
        Hinting::Repeated => hints = [hints.clone(), hints].concat(),
    }
    hints
}

fn backward(random: &mut Random, hinting: Hinting, order: &[i64], steps: &mut Vec<Step>) {
    let discard = random.chance(0.3);
    let stray = random.pick(&[0.0, 0.0, 0.1]);
    for (at, version) in order.iter().enumerate() {
        if hinting == Hinting::OneAhead
            && let Some(next) = order.get(at + 1)
        {
            steps.push(Step::Expect(Version(*next)));
        }
        let stray = random.chance(stray);
        steps.push(Step::restore(if stray { random.pick(order) } else { *version }));
        if discard && !order[at + 1..].contains(version) {
            steps.push(Step::Discard(Version(*version)));
        }
    }
}

/// A thread that restores what another one saves, perhaps too early or without success.
pub(super) fn consumer(random: &mut Random, base: i64) -> Vec<Step> {
    let other = base - 1000 * random.range(0, 2) as i64;
    let count = random.magnitude(2.0, 30.0) as i64;
    let hint = random.chance(0.5);
    let step = |version: i64| {
        let hint = hint.then_some(Step::Expect(Version(other + version)));
        hint.into_iter().chain([Step::restore(other + version)])
    };
    (0..count).flat_map(step).collect()
}
