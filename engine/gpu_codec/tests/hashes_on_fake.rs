//! Hashes of chunks over a fake driver whose kernel is the hash of the processor: places, lengths,
//! and what is refused.

use std::time::Duration;

use unspool_codec::increment::{CHUNK_BYTES, chunk_hash};
use unspool_cuda::{Context, DeviceError, DeviceErrorKind, DeviceMemory, Driver, Stream, copy};
use unspool_fakecuda::Fake;
use unspool_gpu_codec::ChunkHasher;

const LIMIT: Duration = Duration::from_secs(20);
const SEED: u64 = 77;

struct Bench {
    stream: Stream,
    hasher: ChunkHasher,
    memory: DeviceMemory,
    answer: DeviceMemory,
    bytes: Vec<u8>,
}

impl Bench {
    fn new() -> Result<Bench, DeviceError> {
        let context = Context::new(&Driver::load()?, 0)?;
        let bytes: Vec<u8> = (0..300_000_u64).map(|i| ((i * i) >> 9) as u8).collect();
        let (stream, hasher) =
            (Stream::new(&context)?, ChunkHasher::looking_in(&context, Vec::new()));
        let memory = DeviceMemory::new(&context, bytes.len() as u64)?;
        copy::host_to_device(&stream, &memory.span(), &bytes, LIMIT)?;
        let answer = DeviceMemory::new(&context, 4096)?;
        Ok(Bench { stream, hasher, memory, answer, bytes })
    }

    fn hashes(&self, offset: u64, len: u64) -> Result<Vec<u128>, DeviceError> {
        let from = self.memory.span().slice(offset, len)?;
        let to = self.answer.span().slice(0, ChunkHasher::answer_bytes(len))?;
        self.hasher.enqueue(&self.stream, &from, SEED, &to)?;
        let mut answer = vec![0; to.len() as usize];
        copy::device_to_host(&self.stream, &mut answer, &to, LIMIT)?;
        Ok(ChunkHasher::hashes(len, SEED, &answer))
    }

    fn expected(&self, offset: u64, len: u64) -> Vec<u128> {
        let bytes = &self.bytes[offset as usize..(offset + len) as usize];
        bytes.chunks(CHUNK_BYTES).map(|chunk| chunk_hash(SEED, chunk)).collect()
    }
}

#[test]
fn hashes_are_those_of_the_host() -> Result<(), DeviceError> {
    let _fake = Fake::start();
    let bench = Bench::new()?;
    for len in [0, 1, 239, 240, 241, 1000, 65_535, 65_536, 65_537, 65_776, 65_777, 200_000] {
        for offset in [0, 16, 64, 4096] {
            assert_eq!(bench.hashes(offset, len)?, bench.expected(offset, len), "{offset} {len}");
        }
    }
    Ok(())
}

#[test]
fn odd_places_and_faults_are_errors() -> Result<(), DeviceError> {
    let fake = Fake::start();
    let bench = Bench::new()?;
    let error = bench.hashes(8, 1000).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfRange);
    let (from, to) = (bench.memory.span(), bench.answer.span());
    assert!(bench.hasher.enqueue(&bench.stream, &from, SEED, &to).is_err(), "a longer answer");
    fake.fail("cuLaunchKernel", 1, 1);
    assert!(bench.hashes(0, 1000).is_err());
    assert_eq!(bench.hashes(0, 1000)?, bench.expected(0, 1000));
    Ok(())
}
