//! The body of the fuzz target over mutated golden heads, from a fixed seed.

mod common;
mod fuzz_body;

use std::collections::BTreeMap;

use common::{Random, golden_head, golden_head_2, spec};
use unspool_codec::{Dtype, FrameErrorKind, Head};

const CASES: usize = 20_000;

fn seeds() -> Vec<Vec<u8>> {
    let small = Head::layout(3, vec![spec("u", Dtype::Float32, &[2, 3])]).expect("small");
    let empty = Head::layout(0, vec![]).expect("empty");
    [golden_head(), small, golden_head_2(), empty].iter().map(|head| head.encode(7)).collect()
}

/// One to four changes of kinds that find faults: flipped bits, extreme integers, copied ranges,
/// other lengths.
fn mutate(head: &mut Vec<u8>, random: &mut Random) {
    const EXTREMES: [u64; 8] = [0, 1, 63, 64, 4096, 1 << 62, u64::MAX >> 1, u64::MAX];
    for _ in 0..=random.below(4) {
        let len = head.len().max(64);
        head.resize(len, 0);
        // Most of a head is padding: half of the changes go to its beginning.
        let reach = if random.below(2) == 0 { len.min(512) } else { len };
        let at = random.below(reach - 8);
        match random.below(5) {
            0 => head[at] ^= 1 << random.below(8),
            1 => head[at] = random.next() as u8,
            2 => head[at & !7..][..8].copy_from_slice(&EXTREMES[random.below(8)].to_le_bytes()),
            3 => head.copy_within(at..at + 8, random.below(reach - 8)),
            _ => head.resize(random.below(2 * len), random.next() as u8),
        }
    }
}

#[test]
fn mutated_heads_are_refused_with_a_reason_or_encode_to_the_same_bytes() {
    let seeds = seeds();
    let mut random = Random(0x5eed);
    let mut seen: BTreeMap<Result<(), FrameErrorKind>, usize> = BTreeMap::new();
    for case in 0..CASES {
        let mut head = seeds[case % seeds.len()].clone();
        mutate(&mut head, &mut random);
        for outcome in fuzz_body::check(&head) {
            *seen.entry(outcome).or_default() += 1;
        }
    }
    let reached = |outcome| seen.get(&outcome).copied().unwrap_or(0);
    assert!(reached(Ok(())) > 1000, "{seen:?}");
    for kind in [
        FrameErrorKind::Foreign,
        FrameErrorKind::Truncated,
        FrameErrorKind::Newer,
        FrameErrorKind::Damaged,
        FrameErrorKind::Malformed,
    ] {
        assert!(reached(Err(kind)) > 100, "{kind:?} in {seen:?}");
    }
}

#[test]
fn random_bytes_are_refused_unless_their_checksum_is_repaired() {
    let mut random = Random(0xf00d);
    for _ in 0..500 {
        let len = random.below(9000);
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        assert!(fuzz_body::check(&bytes)[0].is_err());
    }
}
