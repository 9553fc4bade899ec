//! Tests of the ways of coding.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::coders::{Coders, Timer};
use super::{BINS, Outcome, Scheme, bin_of, integers, measure};
use crate::values::Values;

/// Messages of a wave that moves, as values of 8 bytes.
fn wave(messages: usize, values: usize) -> Vec<Vec<u8>> {
    let value = |step: usize, at: usize| ((at as f64) * 0.01 + (step as f64) * 0.002).sin();
    let message = |step| (0..values).flat_map(move |at| value(step, at).to_le_bytes()).collect();
    (0..messages).map(message).collect()
}

fn outcomes(values: Values, messages: &[Vec<u8>]) -> Vec<Outcome> {
    let run: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let mut into = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    measure(&mut Coders::default(), values, &run, &mut into, deadline);
    into
}

fn of(outcomes: &[Outcome], scheme: Scheme) -> &Outcome {
    outcomes.iter().find(|one| one.scheme == scheme).expect("it was tried")
}

#[test]
fn known_messages_have_known_factors() {
    let zeros = vec![vec![0; 1 << 16]; 12];
    let all = outcomes(Values::Bytes, &zeros);
    assert_eq!(all.len(), 9, "no bound without floats");
    for one in &all {
        assert!(one.factor() > 0.98 && one.failed == 0, "{one:?}");
        assert_eq!(one.messages, 12 - one.scheme.needs() as u64);
        assert_eq!(one.original, one.messages << 16);
        assert_eq!(one.histogram[BINS - 1], one.messages);
    }
    // Noise that is the same each time: only what looks at the message before can do anything.
    let mut seed = 1_u64;
    let noise: Vec<u8> = (0..1 << 16)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as u8
        })
        .collect();
    let all = outcomes(Values::Bytes, &vec![noise; 12]);
    for scheme in [Scheme::Lz4, Scheme::Zstd, Scheme::Twine] {
        assert!(of(&all, scheme).factor().abs() < 0.02, "{scheme:?}");
    }
    for scheme in [Scheme::XorLz4, Scheme::Patch, Scheme::Order1, Scheme::Order2] {
        assert!(of(&all, scheme).factor() > 0.95, "{scheme:?}: {}", of(&all, scheme).factor());
    }
    // Two bases of twelve messages go as they are.
    let two = of(&all, Scheme::TwoLevels).factor();
    assert!((0.80..0.84).contains(&two), "{two}");
}

#[test]
fn a_wave_is_predicted_better_by_higher_orders_and_shrinks_with_a_bound() {
    let all = outcomes(Values::Float64, &wave(12, 4096));
    let factor = |scheme| of(&all, scheme).factor();
    assert!(all.iter().all(|one| one.failed == 0), "{all:?}");
    assert!(factor(Scheme::Order2) > factor(Scheme::Order1));
    assert!(factor(Scheme::Bound4) > factor(Scheme::Bound6));
    assert!(factor(Scheme::Bound6) > 0.5 && factor(Scheme::Bound4Before) > 0.8);
}

#[test]
fn values_that_no_bound_can_be_given_for_are_counted_as_failed() {
    let mut messages = wave(4, 100);
    messages[2][..8].copy_from_slice(&f64::NAN.to_le_bytes());
    let all = outcomes(Values::Float64, &messages);
    let before = of(&all, Scheme::Bound6Before);
    assert_eq!((before.messages, before.failed), (1, 2));
    assert_eq!(of(&all, Scheme::Order1).failed, 0);
}

#[test]
fn no_time_means_no_outcome() {
    let zeros = vec![0; 100];
    let mut into = Vec::new();
    let now = Instant::now();
    measure(&mut Coders::default(), Values::Bytes, &[&zeros], &mut into, now);
    assert_eq!(into, []);
}

#[test]
fn a_factor_is_in_its_tenth() {
    assert_eq!(bin_of(100, 101), 0);
    assert_eq!([bin_of(100, 100), bin_of(100, 91), bin_of(100, 90)], [1, 1, 2]);
    assert_eq!([bin_of(100, 11), bin_of(100, 10), bin_of(100, 0)], [9, 10, 10]);
}

proptest! {
    #[test]
    fn predictions_can_be_undone(
        code in 0_u8..12,
        messages in (1_usize..100).prop_flat_map(|length| {
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), length), 4)
        }),
        order in 0_usize..4,
    ) {
        let values = Values::from_code(code);
        let before: Vec<&[u8]> = messages[1..=order].iter().map(Vec::as_slice).collect();
        let (mut rest, mut back) = (Vec::new(), Vec::new());
        integers::subtract(values, &messages[0], &before, &mut rest);
        integers::add(values, &rest, &before, &mut back);
        prop_assert_eq!(&back, &messages[0]);
    }

    #[test]
    fn every_way_gives_back_any_messages(
        code in 0_u8..12,
        messages in (1_usize..300).prop_flat_map(|length| {
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), length), 1..8)
        }),
    ) {
        for one in outcomes(Values::from_code(code), &messages) {
            let bounded = one.scheme.bound().is_some();
            prop_assert!(one.failed == 0 || bounded, "{:?}", one);
        }
    }
}

#[test]
fn waiting_for_the_processor_does_not_count() {
    let timer = Timer::begin();
    std::thread::sleep(Duration::from_millis(200));
    assert!(timer.elapsed() < Duration::from_millis(100));
}
