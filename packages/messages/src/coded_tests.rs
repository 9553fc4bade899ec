//! Tests of coded messages: what comes out is what went in, both ends keep the same, and what is
//! damaged is refused.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{Body, Choice, HEADER, Peer, Receiver, Sender};
use crate::measure::Scheme;
use crate::values::Values;

const TO: Peer = Peer { comm: 7, rank: 1 };
const FROM: Peer = Peer { comm: 7, rank: 0 };

fn by(scheme: Scheme) -> Option<Choice> {
    Some(Choice { scheme, least: 0.05 })
}

/// Values that change a little from message to message.
fn smooth(step: usize, bytes: usize) -> Vec<u8> {
    let value = |at: usize| ((at as f64) * 0.01 + (step as f64) * 0.002).sin();
    let mut all: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|at| value(at).to_le_bytes()).collect();
    all.truncate(bytes);
    all
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut seed = seed;
    let byte = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as u8
    };
    (0..bytes).map(byte).collect()
}

fn sent(sender: &mut Sender, tag: i32, choice: Option<Choice>, message: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    sender.put(TO, tag, choice, Values::Float64, message, &mut wire);
    wire
}

#[test]
fn each_way_sends_less_of_what_it_is_made_for_and_gives_it_back() {
    for scheme in
        [Scheme::Lz4, Scheme::Zstd, Scheme::Twine, Scheme::XorLz4, Scheme::Patch, Scheme::Order1]
    {
        let (mut sender, mut receiver) = (Sender::new(1 << 20), Receiver::default());
        for step in 0..6 {
            let mut message = if scheme == Scheme::Twine || scheme == Scheme::Order1 {
                smooth(step, 8003)
            } else if scheme.needs() > 0 {
                noise(1, 8003)
            } else {
                vec![3; 8003]
            };
            message[step] ^= 1;
            let wire = sent(&mut sender, 5, by(scheme), &message);
            if step > 0 {
                assert!(wire.len() < 8003 * 9 / 10, "{scheme:?}: {}", wire.len());
            }
            assert_eq!(receiver.take(FROM, 5, &wire).unwrap().bytes(), message);
        }
        assert_eq!(sender.traffic, receiver.traffic);
        assert_eq!(sender.traffic.messages, 6);
        assert_eq!(receiver.kept(), if scheme.needs() > 0 { 8003 } else { 0 });
    }
}

#[test]
fn a_bound_holds_for_every_value_and_damage_is_found() {
    for (scheme, bound) in [(Scheme::Bound6, 1e-6), (Scheme::Bound4, 1e-4)] {
        let mut sender = Sender::new(1 << 20);
        let mut message = smooth(1, 8003);
        message[80..88].copy_from_slice(&f64::NAN.to_le_bytes());
        let wire = sent(&mut sender, 5, by(scheme), &message);
        assert!(wire.len() < 8003 / 2, "{scheme:?}: {}", wire.len());
        let mut receiver = Receiver::default();
        let body = receiver.take(FROM, 5, &wire).unwrap();
        let got = body.bytes();
        assert!(got.len() == 8003 && got[8000..] == message[8000..] && got != message);
        assert_eq!(got[80..88], message[80..88]);
        let value = |bytes: &[u8], at: usize| {
            f64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap())
        };
        for at in (0..1000).filter(|at| *at != 10) {
            let error = (value(got, at) - value(&message, at)).abs();
            assert!(error <= bound * 2.0, "{at}: {error}");
        }
        for at in HEADER..wire.len() {
            let mut bad = wire.clone();
            bad[at] ^= 0x10;
            assert!(Receiver::default().take(FROM, 5, &bad).is_err(), "{at}");
        }
        // Bytes whose meaning is not known have no error.
        let mut plain = Vec::new();
        sender.put(TO, 6, by(scheme), Values::Bytes, &message, &mut plain);
        assert_eq!(receiver.take(FROM, 6, &plain).unwrap().bytes(), message);
    }
}

#[test]
fn what_is_not_coded_has_eight_bytes_more() {
    let (mut sender, mut receiver) = (Sender::new(1 << 20), Receiver::default());
    for message in [&b""[..], b"short", &noise(3, 5000)] {
        for choice in [None, by(Scheme::Lz4)] {
            let wire = sent(&mut sender, 0, choice, message);
            assert_eq!(wire.len(), message.len() + HEADER);
            assert_eq!(receiver.take(FROM, 0, &wire), Ok(Body::There(message)));
        }
    }
}

#[test]
fn a_channel_that_stops_paying_rests_and_is_tried_again() {
    let (mut sender, mut receiver) = (Sender::new(1 << 20), Receiver::default());
    let mut coded = Vec::new();
    for step in 0..600 {
        let message = if (10..300).contains(&step) { noise(step, 4096) } else { vec![1; 4096] };
        let before = sender.traffic.coded;
        let wire = sent(&mut sender, 0, by(Scheme::XorLz4), &message);
        coded.push(sender.traffic.coded > before);
        assert_eq!(receiver.take(FROM, 0, &wire).unwrap().bytes(), message);
        if step == 50 {
            assert_eq!(receiver.kept(), 0, "a channel that rests keeps nothing");
        }
    }
    assert!(coded[..10].iter().all(|coded| *coded));
    assert!(coded[11..300].iter().all(|coded| !*coded));
    assert!(coded[599] && coded[300..].iter().filter(|coded| **coded).count() > 10);
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    let mut sender = Sender::new(1 << 20);
    let first = sent(&mut sender, 0, by(Scheme::XorLz4), &[9; 3000]);
    let second = sent(&mut sender, 0, by(Scheme::XorLz4), &[9; 3000]);
    let refused = |wires: &[&[u8]]| {
        let mut receiver = Receiver::default();
        let (last, all) = wires.split_last().unwrap();
        all.iter().for_each(|wire| drop(receiver.take(FROM, 0, wire).unwrap()));
        receiver.take(FROM, 0, last).expect_err("refused")
    };
    assert_eq!(refused(&[&second]), "a message is missing, or there is one too many");
    assert!(refused(&[b"raw"]).contains("no header"));
    assert!(refused(&[&[9; 3000]]).contains("no header"));
    assert_eq!(refused(&[&first[..HEADER + 4]]), "a message is cut off");
    let mut whole = Receiver::default();
    whole.take(FROM, 0, &first).unwrap();
    for at in 0..second.len() {
        let mut bad = second.clone();
        bad[at] ^= 0x10;
        refused(&[&first, &bad]);
        refused(&[&first, &second[..at]]);
    }
    assert_eq!(whole.take(FROM, 0, &second).unwrap().bytes(), [9; 3000]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lanes_that_overtake_each_other_come_back_within_the_limit(
        steps in proptest::collection::vec((0_i32..5, 0_usize..4, 0_usize..6, any::<u8>()), 1..300),
        quota in 0_usize..20_000,
    ) {
        let ways = [Scheme::XorLz4, Scheme::Patch, Scheme::Order1, Scheme::Lz4];
        let (mut sender, mut receiver) = (Sender::new(quota), Receiver::default());
        // What is under way, in the order of each tag.
        let mut under_way: Vec<VecDeque<(Vec<u8>, Vec<u8>)>> = vec![VecDeque::new(); 5];
        for (number, (tag, way, size, turn)) in steps.into_iter().enumerate() {
            let message = smooth(number / 7, [0, 100, 1000, 1500, 3000, 6000][size]);
            let wire = sent(&mut sender, tag, by(ways[way]), &message);
            under_way[tag as usize].push_back((wire, message));
            // Some of what is under way arrives, of any tag.
            let arrives = |tag: usize| turn >> tag & 1 == 1;
            let tags = under_way.iter_mut().enumerate().filter(|(tag, _)| arrives(*tag));
            for (tag, waiting) in tags {
                let Some((wire, message)) = waiting.pop_front() else { continue };
                let got = receiver.take(FROM, tag as i32, &wire);
                prop_assert_eq!(got.as_ref().map(Body::bytes), Ok(&message[..]));
            }
        }
        for (tag, waiting) in under_way.iter_mut().enumerate() {
            for (wire, message) in waiting.drain(..) {
                let got = receiver.take(FROM, tag as i32, &wire);
                prop_assert_eq!(got.as_ref().map(Body::bytes), Ok(&message[..]));
            }
        }
        prop_assert!(receiver.kept() <= quota, "{} of {}", receiver.kept(), quota);
        prop_assert_eq!(sender.traffic, receiver.traffic);
    }

    #[test]
    fn any_bytes_have_an_answer(wire in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _either = Receiver::default().take(FROM, 0, &wire);
    }
}
