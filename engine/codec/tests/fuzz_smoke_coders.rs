//! The bodies of the fuzz targets of outer coders and zfp, over mutated seeds and noise.

mod common;
mod fuzz_outer;
mod fuzz_zfp;

use common::Random;
use unspool_codec::CodecErrorKind;

type Outcomes = [Result<(), CodecErrorKind>; 2];

/// Noise, text that repeats itself, zeros or small integers, which coders shorten much or not at
/// all.
fn seed(random: &mut Random) -> Vec<u8> {
    let len = random.below(2000);
    let kind = random.below(4);
    let byte = |i: usize| match kind {
        0 => random.next() as u8,
        1 => b"wave after wave "[i % 16],
        2 => 0,
        _ => (i / 4 % 7) as u8,
    };
    (0..len).map(byte).collect()
}

fn run(cases: usize, check: fn(&[u8]) -> Outcomes) -> [usize; 2] {
    let mut random = Random(0xc0de);
    let mut accepted = [0; 2];
    for _ in 0..cases {
        let mut data = seed(&mut random);
        data.insert(0, random.next() as u8);
        data.insert(1, random.next() as u8);
        for (count, outcome) in accepted.iter_mut().zip(check(&data)) {
            *count += usize::from(outcome.is_ok());
        }
    }
    accepted
}

#[test]
fn any_bytes_are_unpacked_or_refused_and_come_back_from_packing() {
    let accepted = run(3000, fuzz_outer::check);
    assert_eq!(accepted[0], 0, "chance does not make a table");
}

#[test]
fn any_bytes_are_decoded_by_zfp_or_refused() {
    let accepted = run(4000, fuzz_zfp::check);
    assert_eq!(accepted[0], 0, "chance does not make a prefix");
    assert!(accepted[1] > 100, "after a right prefix some streams are whole: {accepted:?}");
}
