//! Increments whose changes are found by a GPU, here the fake one: the frames are those of main
//! memory byte for byte, only what has changed leaves the GPU, and faults of the driver cost no
//! checkpoint that counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use unspool::{Codecs, Dtype, Error, On, RegionSpec, Settings as SpoolSettings, Spec, Spool};
use unspool::{DiskSettings, Wait};
use unspool_fakecuda::Fake;
use unspool_restart::{Alone, Checkpointer, Every, Fulls, Outcome, Rule, Settings};
use unspool_testkit::Scratch;

const CHUNK: usize = 1 << 16;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Where the stage is.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Gpu,
    Host,
}

/// The arrays of a checkpoint, in their order.
type State = Vec<(&'static str, Vec<u8>)>;

fn open(folder: &Path, stage: Stage, codec: &Codecs) -> Result<Checkpointer, Error> {
    let rule = Rule::of(Every::Steps(1), 1);
    let (increments, keep) = (Some(Fulls::OneIn(5)), 99);
    let settings =
        Settings { increments, keep, timeout: TIMEOUT, ..Settings::new(folder.join("run"), rule) };
    Checkpointer::open(settings, &Alone, &Wait::default(), |data| {
        let disk = data.map(|data| DiskSettings { durable: true, ..DiskSettings::new(data) });
        let on = if stage == Stage::Gpu { On::Cuda(None) } else { On::Cpu };
        let device = (stage == Stage::Gpu).then_some(16 << 20);
        let settings = SpoolSettings {
            device,
            host: Some(16 << 20),
            disk,
            on,
            codec: codec.clone(),
            check_order: stage == Stage::Gpu,
            timeout: TIMEOUT,
            max_retries: 1,
            retry_delay: Duration::from_millis(1),
            ..SpoolSettings::default()
        };
        Spool::open(settings).map(Arc::new)
    })
}

fn save(c: &Checkpointer, step: u64, state: &State) -> Result<(), Error> {
    c.begin(step, String::new(), &Alone, &Wait::default())?;
    let spec = |(name, bytes): &(&str, Vec<u8>)| RegionSpec {
        name: (*name).to_owned(),
        dtype: if *name == "coded" { Dtype::Float32 } else { Dtype::UInt8 },
        shape: vec![bytes.len() as u64 / if *name == "coded" { 4 } else { 1 }],
    };
    let specs = state.iter().map(spec).collect();
    let saved = c.spool().save(step as i64, specs, &Wait::default()).and_then(|mut ticket| {
        for (index, (_, bytes)) in state.iter().enumerate() {
            ticket.fill(index, |to| to.copy_from_slice(bytes))?;
        }
        ticket.commit()
    });
    if let Err(error) = saved {
        c.abandon();
        return Err(error);
    }
    c.commit()
}

fn check(c: &Checkpointer, step: u64, state: &State) -> Result<(), Error> {
    c.ready(step, &Wait::default())?;
    let spool = c.reading(step, &Wait::default())?;
    let ticket = spool.restore(step as i64, &Wait::default())?;
    for (index, (name, bytes)) in state.iter().enumerate() {
        ticket.read(index, |found| assert!(found == bytes, "step {step}: {name}"))?;
    }
    ticket.finish()
}

/// Ends it, and its stage, which then tells of accesses that were not ordered.
fn close(c: &Checkpointer) -> Result<(), Error> {
    c.close(Some(&Alone), &Wait::default())?;
    c.spool().close()
}

/// The bytes of all frames, by their names.
fn frames(folder: &Path) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("run/rank-0000-of-0001/data"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains("frame-") {
            found.insert(name, std::fs::read(entry.path())?);
        }
    }
    Ok(found)
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    /// Changes a state: bytes here and there, rarely everything, lengths, and which arrays there
    /// are.
    fn change(&mut self, state: &mut State) {
        const LENS: [usize; 8] = [0, 8, 240, 1000, CHUNK, CHUNK + 100, 3 * CHUNK + 241, 700_000];
        for (name, bytes) in state.iter_mut() {
            if self.below(8) == 0 {
                let len = LENS[self.below(8) as usize];
                bytes.resize(if *name == "coded" { len / 4 * 4 } else { len }, 3);
            }
            for _ in 0..self.below(4) {
                let at = self.below(1_000_000) as usize;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = byte.wrapping_add(1));
            }
            if self.below(12) == 0 {
                bytes.fill(self.below(256) as u8);
            }
        }
        if self.below(5) == 0 {
            state.rotate_left(1);
        }
    }
}

fn first() -> State {
    let bytes = |len: usize| (0..len).map(|i| ((i * i) >> 8) as u8).collect();
    vec![("u", bytes(700_000)), ("v", bytes(8)), ("w", bytes(2 * CHUNK)), ("coded", bytes(40_000))]
}

#[test]
fn only_what_has_changed_leaves_the_gpu() {
    let (fake, scratch) = (Fake::start(), Scratch::new());
    let c = open(scratch.path(), Stage::Gpu, &Codecs::default()).unwrap();
    let mut state = first();
    save(&c, 1, &state).unwrap();
    c.flush(&Wait::default()).unwrap();
    assert_eq!(c.hashed_on_gpu(), 0, "there is nothing to compare with");
    for step in 2..=4 {
        // Two chunks of an array, which lie apart, and one of another.
        state[0].1[step as usize * CHUNK + 7] ^= 1;
        state[0].1[8] ^= 1;
        state[2].1[9] ^= 1;
        let before = fake.count("bytes_to_host");
        save(&c, step, &state).unwrap();
        c.flush(&Wait::default()).unwrap();
        let came = fake.count("bytes_to_host") - before;
        assert!((3 * CHUNK as u64..4 * CHUNK as u64).contains(&came), "{came}");
        assert_eq!(c.hashed_on_gpu(), step - 1);
        check(&c, step, &state).unwrap();
    }
    // Everything has changed, in a chain and at the beginning of one: it comes once, and whole.
    for step in 5..=6 {
        state.iter_mut().for_each(|(_, bytes)| bytes.iter_mut().for_each(|byte| *byte ^= 1));
        let before = fake.count("bytes_to_host");
        save(&c, step, &state).unwrap();
        c.flush(&Wait::default()).unwrap();
        let came = fake.count("bytes_to_host") - before;
        let all = 700_000 + 2 * CHUNK as u64 + 40_008;
        assert!((all..all + 10_000).contains(&came), "{came} of {all}");
        check(&c, step, &state).unwrap();
    }
    close(&c).unwrap();
}

#[test]
fn what_has_moved_to_main_memory_is_not_brought_back() {
    let (_fake, scratch) = (Fake::start(), Scratch::new());
    let c = open(scratch.path(), Stage::Gpu, &Codecs::default()).unwrap();
    let spool = c.spool();
    let put = |version: i64| {
        let spec =
            RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![(9 << 20) as u64] };
        spool.save(version, vec![spec], &Wait::default())?.commit()
    };
    // The second one takes the place of the first.
    put(1).unwrap();
    put(2).unwrap();
    spool.discard(2).unwrap();
    spool.expect([1]).unwrap();
    spool.restore(1, &Wait::default()).unwrap().finish().unwrap();
    let link = &spool.stats().unwrap().links[0];
    assert_eq!((link.flush.transfers, link.prefetch.transfers), (1, 0));
}

#[test]
fn frames_are_those_of_main_memory() {
    let _fake = Fake::start();
    let by_region = BTreeMap::from([("coded".to_owned(), Spec::Lossless)]);
    let coded = Codecs { by_region, ..Codecs::default() };
    for (seed, codec) in (0..8).zip([Codecs::default(), coded].iter().cycle()) {
        let (there, here) = (Scratch::new(), Scratch::new());
        let gpu = open(there.path(), Stage::Gpu, codec).unwrap();
        let host = open(here.path(), Stage::Host, codec).unwrap();
        let (mut dice, mut state) = (Dice(seed), first());
        for step in 1..=12 {
            for c in [&gpu, &host] {
                save(c, step, &state).unwrap();
                c.flush(&Wait::default()).unwrap();
                check(c, step, &state).unwrap();
            }
            dice.change(&mut state);
        }
        assert!(gpu.hashed_on_gpu() > 3, "{}", gpu.hashed_on_gpu());
        assert_eq!(host.hashed_on_gpu(), 0);
        [&gpu, &host].into_iter().for_each(|c| close(c).unwrap());
        assert!(frames(there.path()).unwrap() == frames(here.path()).unwrap(), "seed {seed}");
    }
}

/// The newest checkpoint, by a Checkpointer without a GPU.
fn newest(folder: &Path, states: &BTreeMap<u64, State>) -> Result<Option<u64>, Error> {
    let c = open(folder, Stage::Host, &Codecs::default())?;
    let found = c.candidate(&[], &Alone, &Wait::default())?;
    if let Some(step) = found {
        check(&c, step, &states[&step])?;
        c.restored(step, &Outcome::Restored, &Alone)?;
    }
    c.give_up();
    Ok(found)
}

/// Calls that may fail between a save and its frame, with codes that a context survives.
const CALLS: [&str; 7] = [
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemAlloc_v2",
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuModuleLoadData",
];

#[test]
fn faults_of_the_driver_cost_no_checkpoint_that_counts() {
    for seed in 0..40 {
        let (fake, scratch) = (Fake::start(), Scratch::new());
        let (mut dice, mut state) = (Dice(seed), first());
        let (mut states, mut acknowledged) = (BTreeMap::new(), 0);
        let c = open(scratch.path(), Stage::Gpu, &Codecs::default()).unwrap();
        for step in 1..=8 {
            if dice.below(2) == 0 {
                let call = CALLS[dice.below(CALLS.len() as u64) as usize];
                // All calls of it fail from now on, or one of the next.
                fake.fail(call, dice.below(4), 2);
            }
            states.insert(step, state.clone());
            let saved = save(&c, step, &state);
            let counts = saved.and_then(|()| c.flush(&Wait::default()));
            if dice.below(3) == 0 {
                fake.reset();
            }
            match counts {
                Ok(()) => acknowledged = step,
                Err(error) => assert!(!error.message().is_empty()),
            }
            dice.change(&mut state);
        }
        fake.reset();
        // Once nothing fails any more, the next one counts.
        states.insert(9, state.clone());
        if save(&c, 9, &state).and_then(|()| c.flush(&Wait::default())).is_ok() {
            acknowledged = 9;
        }
        c.give_up();
        drop(c);
        let found = newest(scratch.path(), &states).unwrap();
        assert!(found.unwrap_or(0) >= acknowledged, "{seed}: {found:?} {acknowledged}");
    }
}

#[test]
fn without_a_kernel_the_host_finds_what_has_changed() {
    // Several arrays are copied by a kernel as well, one array is not.
    for (call, arrays) in [("cuModuleLoadData", 4), ("cuLaunchKernel", 1)] {
        let (fake, scratch) = (Fake::start(), Scratch::new());
        let c = open(scratch.path(), Stage::Gpu, &Codecs::default()).unwrap();
        let mut state = first();
        state.truncate(arrays);
        for step in 1..=3 {
            fake.fail(call, 0, 1);
            save(&c, step, &state).unwrap();
            c.flush(&Wait::default()).unwrap();
            check(&c, step, &state).unwrap();
            state[0].1[7] ^= 1;
        }
        assert_eq!(c.hashed_on_gpu(), 0);
        let increments =
            frames(scratch.path()).unwrap().values().filter(|bytes| bytes.len() < 200_000).count();
        assert_eq!(increments, 2);
        // It goes on with the hashes of the host.
        fake.reset();
        save(&c, 4, &state).unwrap();
        c.flush(&Wait::default()).unwrap();
        check(&c, 4, &state).unwrap();
        assert_eq!(c.hashed_on_gpu(), 1);
        close(&c).unwrap();
    }
}

#[test]
fn a_device_that_breaks_costs_no_checkpoint_that_counts() {
    for call in ["execute", "cuLaunchKernel"] {
        let (fake, scratch) = (Fake::start(), Scratch::new());
        let c = open(scratch.path(), Stage::Gpu, &Codecs::default()).unwrap();
        let (mut state, mut states) = (first(), BTreeMap::new());
        for step in 1..=3 {
            states.insert(step, state.clone());
            save(&c, step, &state).unwrap();
            if step == 3 {
                fake.fail(call, 1, 700);
            }
            state[0].1[7] ^= 1;
            let counts = c.flush(&Wait::default());
            assert!(step == 3 || counts.is_ok());
        }
        c.give_up();
        drop(c);
        fake.reset();
        assert!(newest(scratch.path(), &states).unwrap() >= Some(2));
    }
}
