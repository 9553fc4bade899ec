//! Rates of the checksum, beside a plain read and a copy of the same bytes, and the cost of heads.
//! Run with `cargo bench -p unspool-codec`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use unspool_codec::{Checksum, Dtype, Head, RegionSpec, checksum, parse_head};

const BYTES: usize = 16 << 20;
const ROUNDS: usize = 60;

/// The median duration of a call in seconds.
fn median(mut call: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn rate(name: &str, call: impl FnMut()) {
    println!("{name:32} {:6.1} GB/s", BYTES as f64 / median(call) / 1e9);
}

fn cost(name: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 1000;
    let seconds = median(|| (0..CALLS).for_each(|_| call()));
    println!("{name:32} {:6.2} microseconds", seconds / f64::from(CALLS) * 1e6);
}

fn sum_of_words(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(0, u64::wrapping_add)
}

fn streamed(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    bytes.chunks(1 << 16).for_each(|piece| sum.update(piece));
    sum.value()
}

fn head_of(arrays: usize) -> Head {
    let spec = |i: usize| RegionSpec {
        name: format!("layers.{i}.weight"),
        dtype: Dtype::Float32,
        shape: vec![1024, 1024],
    };
    Head::layout(1, (0..arrays).map(spec).collect()).expect("within the limits")
}

fn main() {
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i * 7) as u8).collect();
    let mut copy = vec![0; BYTES];
    println!("16 MiB, one thread, median of {ROUNDS}");
    rate("copy", || copy.copy_from_slice(black_box(&bytes)));
    rate("read (sum of 64-bit words)", || _ = black_box(sum_of_words(black_box(&bytes))));
    rate("checksum", || _ = black_box(checksum(black_box(&bytes))));
    rate("checksum in pieces of 64 KiB", || _ = black_box(streamed(black_box(&bytes))));
    cost("checksum of 4 KiB", || _ = black_box(checksum(black_box(&bytes[..4096]))));
    for arrays in [1, 100] {
        let head = head_of(arrays);
        let encoded = head.encode(1);
        cost(&format!("lay out, arrays: {arrays}"), || _ = black_box(head_of(arrays)));
        cost(&format!("encode, arrays: {arrays}"), || _ = black_box(head.encode(1)));
        cost(&format!("parse, arrays: {arrays}"), || _ = black_box(parse_head(&encoded).is_ok()));
    }
}
