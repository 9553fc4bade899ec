//! Hashes of chunks and parts of regions, asked of a checkpoint where it lies, on a fake GPU.

mod application;

use application::{History, LIMIT, Outcome, array_of, floats, open, upload, wait};
use unspool::gpu::{Context, Stream};
use unspool::{Codecs, RestoreTicket, Spool};
use unspool_codec::increment::{CHUNK_BYTES, chunk_hash};
use unspool_cuda::{Driver, copy};
use unspool_fakecuda::Fake;

const SEED: u64 = 9;
const LENS: [u64; 4] = [300_000, 8, CHUNK_BYTES as u64, 0];

fn bytes(len: u64, version: i64) -> Vec<u8> {
    (0..len).map(|i| ((i * i) >> 7) as u8 ^ version as u8).collect()
}

fn hashes(bytes: &[u8]) -> Vec<u128> {
    bytes.chunks(CHUNK_BYTES).map(|chunk| chunk_hash(SEED, chunk)).collect()
}

/// Saves versions 1 to 3 from one set of arrays, each of which the application's stream overwrites
/// after the save.
fn save_all(spool: &Spool) -> Outcome {
    let context = Context::new(&Driver::load()?, 0)?;
    let stream = Stream::new(&context)?;
    let memory = LENS.map(|len| upload(&context, &stream, &bytes(len, 0)));
    let memory: Vec<_> = memory.into_iter().collect::<Outcome<_>>()?;
    for version in 1..=3 {
        for (memory, len) in memory.iter().zip(LENS) {
            copy::host_to_device(&stream, &memory.span(), &bytes(len, version), LIMIT)?;
        }
        let arrays: Vec<_> = memory.iter().map(array_of).collect();
        let given: Vec<_> = arrays.iter().enumerate().map(|(i, a)| (i, a, &stream)).collect();
        let specs = ["a", "b", "c", "d"].iter().zip(LENS).map(|(name, len)| floats(name, len));
        spool.put(version, specs.collect(), &given)?;
    }
    Ok(())
}

fn check(ticket: &mut RestoreTicket, version: i64) -> Outcome {
    let all = bytes(LENS[0], version);
    let parts = [5..6, 100..100, 65_536..140_000, 299_990..300_000];
    let mut found = vec![0; parts.iter().map(|part| part.len()).sum()];
    ticket.read_parts(0, &parts, &mut found)?;
    assert!(ticket.read_parts(0, &parts, &mut [0; 6]).is_err(), "another size");
    assert_eq!(found, parts.map(|part| all[part].to_vec()).concat());
    for (index, len) in LENS.into_iter().enumerate() {
        let mut found = vec![7; 3];
        ticket.append_stored(index, &mut found)?;
        assert_eq!(found, [vec![7; 3], bytes(len, version)].concat());
    }
    Ok(())
}

#[test]
fn what_lies_on_the_gpu_is_hashed_there() -> Outcome {
    let fake = Fake::start();
    let spool = open(Codecs::default(), |settings| settings.device = Some(4 << 20))?;
    save_all(&spool)?;
    for version in [3, 1, 2] {
        let mut ticket = spool.restore(version, &wait())?;
        let before = fake.count("bytes_to_host");
        let found = ticket.hash_chunks(&[2, 0, 1, 3], SEED)?.expect("it lies on the GPU");
        assert!(fake.count("bytes_to_host") - before < 1000, "the hashes alone");
        let expected = [2, 0, 1, 3].map(|index: usize| hashes(&bytes(LENS[index], version)));
        assert_eq!(found, expected);
        check(&mut ticket, version)?;
        ticket.finish()?;
    }
    // Without a launch there are none; the bytes come all the same.
    fake.fail("cuLaunchKernel", 0, 1);
    let mut ticket = spool.restore(1, &wait())?;
    assert!(ticket.hash_chunks(&[0], SEED).is_err());
    check(&mut ticket, 1)?;
    ticket.finish()?;
    fake.reset();
    // It is told here when an access was not ordered after the application's work.
    Ok(spool.close()?)
}

#[test]
fn what_lies_in_main_memory_is_not() -> Outcome {
    let _fake = Fake::start();
    let spool = open(Codecs::default(), |settings| {
        (settings.device, settings.host) = (None, Some(4 << 20));
    })?;
    save_all(&spool)?;
    let mut ticket = spool.restore(2, &wait())?;
    assert!(ticket.hash_chunks(&[0], SEED)?.is_none());
    check(&mut ticket, 2)?;
    ticket.finish()?;
    Ok(spool.close()?)
}
