//! The hashes of chunks on the device: against those of the processor, and their speed beside a
//! copy.

use std::time::Duration;

use unspool_codec::increment::{CHUNK_BYTES, chunk_hash};
use unspool_cuda::{Context, DeviceMemory, Event, Stream, copy};
use unspool_gpu_codec::ChunkHasher;

use crate::bench::{LONG, download, upload};
use crate::fields::Dice;

const MIB: u64 = 1 << 20;

pub fn check(context: &Context, rounds: u64) {
    let stream = Stream::new(context).unwrap();
    let hasher = ChunkHasher::looking_in(context, Vec::new());
    let mut dice = Dice(5);
    let bytes: Vec<u8> = (0..4 * MIB / 8).flat_map(|_| dice.next().to_le_bytes()).collect();
    let memory = upload(context, &stream, &bytes, 0);
    for round in 0..rounds {
        let chunk = CHUNK_BYTES as u64;
        let near = [0, 1, 240, 241, 1024, 1025, chunk - 64, chunk - 63, chunk, chunk + 240];
        let len = match dice.below(3) {
            0 => dice.pick(&near),
            1 => dice.below(2 * chunk),
            _ => dice.below(3 * MIB),
        };
        let (offset, seed) = (16 * dice.below(MIB / 16), dice.pick(&[0, 1, round, u64::MAX]));
        let answer = DeviceMemory::new(context, ChunkHasher::answer_bytes(len)).unwrap();
        let from = memory.span().slice(offset, len).unwrap();
        hasher.enqueue(&stream, &from, seed, &answer.span()).unwrap();
        let found = ChunkHasher::hashes(len, seed, &download(&stream, &answer));
        let chunks = bytes[offset as usize..(offset + len) as usize].chunks(CHUNK_BYTES);
        let expected: Vec<u128> = chunks.map(|chunk| chunk_hash(seed, chunk)).collect();
        assert!(found == expected, "round {round}: {len} bytes at {offset}, seed {seed}");
    }
    println!("{rounds} rounds: the hashes of chunks are those of the processor");
}

/// Device time of a call, the mean of some.
fn time(context: &Context, stream: &Stream, mut call: impl FnMut()) -> Duration {
    const REPEATS: u32 = 10;
    call();
    let (start, end) = (Event::timed(context).unwrap(), Event::timed(context).unwrap());
    start.record(stream).unwrap();
    (0..REPEATS).for_each(|_| call());
    end.record(stream).unwrap();
    end.wait(LONG).unwrap();
    end.since(&start).unwrap() / REPEATS
}

pub fn figures(context: &Context, most: u64) {
    let stream = Stream::new(context).unwrap();
    let hasher = ChunkHasher::looking_in(context, Vec::new());
    for mib in [1, 16, 256, 4096].into_iter().filter(|mib| *mib <= most) {
        let len = mib * MIB;
        let memory: Vec<_> = (0..2).map(|_| DeviceMemory::new(context, len).unwrap()).collect();
        let (from, to) = (memory[0].span(), memory[1].span());
        copy::fill(&stream, &from, 7).unwrap();
        let answer = to.slice(0, ChunkHasher::answer_bytes(len)).unwrap();
        let hashed = time(context, &stream, || hasher.enqueue(&stream, &from, 3, &answer).unwrap());
        let copied =
            time(context, &stream, || copy::device_to_device(&stream, &to, &from).unwrap());
        let rate = |time: Duration| len as f64 / time.as_secs_f64() / 1e9;
        println!(
            "{mib:4} MiB: hashed in {:.3} ms, {:.0} GB/s read; copied in {:.3} ms, {:.0} GB/s read \
             and written",
            hashed.as_secs_f64() * 1e3,
            rate(hashed),
            copied.as_secs_f64() * 1e3,
            rate(copied)
        );
    }
}
