//! Checkpointers that store increments: chains, what they keep, faults and damage.

use std::fs;

use unspool::{Bound, Codecs, Outer, Spec};
use unspool_codec::increment::CHUNK_BYTES;

use super::*;
use crate::chain;
use crate::increments::Fulls;
use crate::level::RemoteSettings;

/// Chunks of the array of a test.
const CHUNKS: usize = 8;

fn with(scratch: &Scratch, fulls: Fulls) -> Settings {
    Settings { increments: Some(fulls), ..settings(scratch.path(), 2) }
}

fn opened(scratch: &Scratch, fulls: Fulls) -> Checkpointer {
    open_as(with(scratch, fulls), &Alone, None).unwrap()
}

/// The array of `step`: each step changes one chunk.
fn state(step: u64) -> Vec<u8> {
    let mut bytes = vec![0; CHUNKS * CHUNK_BYTES - 100];
    for earlier in 1..=step {
        bytes[earlier as usize % CHUNKS * CHUNK_BYTES + 3] = earlier as u8;
    }
    bytes
}

fn try_save(c: &Checkpointer, step: u64) -> Result<(), Error> {
    let bytes = state(step);
    c.begin(step, format!("[{step}]"), &Alone, &Wait::default())?;
    let spec =
        RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![bytes.len() as u64] };
    let saved = c.spool().save(step as i64, vec![spec], &Wait::default()).and_then(|mut ticket| {
        ticket.fill(0, |to| to.copy_from_slice(&bytes))?;
        ticket.commit()
    });
    if let Err(error) = saved {
        c.abandon();
        return Err(error);
    }
    c.commit()
}

fn save_all(c: &Checkpointer, steps: impl IntoIterator<Item = u64>) {
    for step in steps {
        try_save(c, step).unwrap();
        c.flush(&Wait::default()).unwrap();
    }
}

/// Whether a checkpoint comes back as it was.
fn check(c: &Checkpointer, step: u64) -> Result<(), Error> {
    c.ready(step, &Wait::default())?;
    let spool = c.reading(step, &Wait::default())?;
    let ticket = spool.restore(step as i64, &Wait::default())?;
    ticket.read(0, |bytes| assert!(bytes == state(step), "step {step}"))?;
    ticket.finish()
}

/// Restores the newest one that can be read, and says which.
fn newest(c: &Checkpointer, told: &mut Vec<String>) -> Option<u64> {
    let mut unreadable = Vec::new();
    while let Some(step) = c.candidate(&unreadable, &Alone, &Wait::default()).unwrap() {
        let outcome = match check(c, step) {
            Ok(()) => Outcome::Restored,
            Err(error) => Outcome::Unreadable(error.to_string()),
        };
        let reasons = c.restored(step, &outcome, &Alone).unwrap();
        if reasons.is_empty() {
            return Some(step);
        }
        told.extend(reasons);
        unreadable.push(step);
    }
    None
}

/// The steps that are stored as increments, each with its parent.
fn increments(scratch: &Scratch) -> Vec<(u64, u64)> {
    let (all, damaged) = listing::list(&scratch.path().join("run")).unwrap();
    assert_eq!(damaged, [""; 0]);
    let parent = |one: &listing::Listed| Some(*one.increment.as_ref()?.1.first()?);
    all.iter().filter_map(|one| Some((one.part.step, parent(one)?))).collect()
}

fn frames(scratch: &Scratch) -> Vec<(std::path::PathBuf, u64)> {
    let data = scratch.path().join("run/rank-0000-of-0001/data");
    let entries = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let frames = entries.filter(|path| path.to_string_lossy().contains("frame-"));
    frames.map(|path| (path.clone(), fs::metadata(&path).unwrap().len())).collect()
}

#[test]
fn a_chain_is_kept_until_nothing_needs_it() {
    let scratch = Scratch::new();
    let c = opened(&scratch, Fulls::OneIn(4));
    save_all(&c, 1..=4);
    assert_eq!(lying(&scratch), [1, 2, 3, 4]);
    (1..=4).for_each(|step| check(&c, step).unwrap());
    // A new chain begins; the old one is what is left should a frame of that be damaged.
    save_all(&c, 5..=8);
    assert_eq!(lying(&scratch), [1, 2, 3, 4, 5, 6, 7, 8]);
    save_all(&c, 9..=9);
    close(&c, &Alone);
    assert_eq!(lying(&scratch), [5, 6, 7, 8, 9]);
    assert_eq!(increments(&scratch), [(6, 5), (7, 6), (8, 7)]);
    let sizes: Vec<u64> = frames(&scratch).iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(sizes.iter().filter(|bytes| **bytes < 3 * CHUNK_BYTES as u64).count(), 3);
    // One that knows nothing of increments reads them, and goes on in full.
    let c = open(&scratch, &Alone);
    assert_eq!(newest(&c, &mut Vec::new()), Some(9));
    save(&c, &Alone, 10);
    save(&c, &Alone, 11);
    close(&c, &Alone);
    assert_eq!(lying(&scratch), [10, 11]);
}

#[test]
fn the_first_checkpoint_of_a_process_and_after_a_restore_is_full() {
    let scratch = Scratch::new();
    let c = opened(&scratch, Fulls::Auto);
    save_all(&c, 1..=3);
    close(&c, &Alone);
    let c = opened(&scratch, Fulls::Auto);
    assert_eq!(newest(&c, &mut Vec::new()), Some(3));
    save_all(&c, 4..=6);
    assert_eq!(increments(&scratch), [(2, 1), (3, 2), (5, 4), (6, 5)]);
    assert_eq!(newest(&c, &mut Vec::new()), Some(6));
    save_all(&c, 7..=8);
    close(&c, &Alone);
    assert_eq!(increments(&scratch), [(5, 4), (6, 5), (8, 7)]);
}

#[test]
fn what_has_changed_everywhere_is_stored_in_full() {
    let scratch = Scratch::new();
    let c = opened(&scratch, Fulls::OneIn(9));
    (1..=4).for_each(|step| save(&c, &Alone, step));
    close(&c, &Alone);
    assert_eq!((lying(&scratch), increments(&scratch)), (vec![3, 4], vec![]));
}

#[test]
fn a_chain_of_a_hundred_increments_goes_on_over_a_disk_that_fails_now_and_then() {
    let scratch = Scratch::new();
    let c = opened(&scratch, Fulls::OneIn(1000));
    let (rank, away) = (scratch.path().join("run/rank-0000-of-0001"), scratch.path().join("away"));
    let (mut acknowledged, mut failed) = (0, 0);
    for step in 1..=100 {
        let fails = step % 19 == 0;
        if fails {
            fs::rename(&rank, &away).unwrap();
        }
        try_save(&c, step).unwrap();
        let flushed = c.flush(&Wait::default());
        if fails {
            fs::rename(&away, &rank).unwrap();
        }
        match flushed {
            Ok(()) => acknowledged = step,
            Err(error) => {
                assert!(fails && error.message().contains("does not count"), "{error}");
                failed += 1;
            }
        }
        if step % 10 == 3 {
            check(&c, acknowledged).unwrap();
        }
    }
    assert_eq!((acknowledged, failed), (100, 5));
    assert_eq!(newest(&c, &mut Vec::new()), Some(100));
    close(&c, &Alone);
}

#[test]
fn every_damaged_frame_is_told_and_an_older_checkpoint_is_taken() {
    let scratch = Scratch::new();
    let c = open_as(Settings { keep: 9, ..with(&scratch, Fulls::OneIn(3)) }, &Alone, None).unwrap();
    save_all(&c, 1..=5);
    close(&c, &Alone);
    assert_eq!(increments(&scratch), [(2, 1), (3, 2), (5, 4)]);
    let all = frames(&scratch);
    assert_eq!(all.len(), 5);
    let mut taken = Vec::new();
    for (path, bytes) in all {
        // Heads, tables, heads in tables, runs, and chunks.
        for at in [9, 70, 4096 + 20, 4096 + 60, bytes / 2, bytes - 5000] {
            let whole = fs::read(&path).unwrap();
            let mut changed = whole.clone();
            changed[at as usize] ^= 4;
            fs::write(&path, &changed).unwrap();
            let c = opened(&scratch, Fulls::Auto);
            let mut told = c.warnings().to_vec();
            let found = newest(&c, &mut told).expect("one of two chains is whole");
            let tells = |what: &str| told.iter().any(|text| text.contains(what));
            assert!(found == 5 || tells("tep 5"), "{told:?}");
            assert!(found > 3 || tells("increment to step 4"), "{told:?}");
            taken.push(found);
            c.give_up();
            drop(c);
            fs::write(&path, &whole).unwrap();
        }
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken, [3, 4, 5]);
}

#[test]
fn a_foreign_parent_is_noticed() {
    let scratch = Scratch::new();
    let c = opened(&scratch, Fulls::OneIn(3));
    save_all(&c, 1..=2);
    // Another checkpoint of the same step, as from a copy of another run.
    discard(&c.places().data, |step| step == 1).unwrap();
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![10] };
    c.places().data.save(1, vec![spec], &Wait::default()).unwrap().commit().unwrap();
    c.places().data.flush(&Wait::default()).unwrap();
    let told = chain::whole(&c.places().data, 2).unwrap_err();
    assert!(told.message().contains("Step 2 is an increment to step 1"), "{told}");
    assert!(told.message().contains("another checkpoint of version 1"), "{told}");
    discard(&c.places().data, |step| step == 1).unwrap();
    let told = chain::whole(&c.places().data, 2).unwrap_err();
    assert!(told.message().contains("increment to step 1, which cannot be read"), "{told}");
    assert_eq!(told.kind(), ErrorKind::Lost);
}

/// A Checkpointer whose own disk, where it has one, packs frames.
fn packing(settings: Settings) -> Checkpointer {
    Checkpointer::open(settings, &Alone, &Wait::default(), |data| {
        let compress = Some(Outer::Lz4);
        let disk =
            data.map(|data| DiskSettings { durable: true, compress, ..DiskSettings::new(data) });
        let settings = SpoolSettings { host: Some(8 << 20), disk, ..SpoolSettings::default() };
        Spool::open(settings).map(Arc::new)
    })
    .unwrap()
}

#[test]
fn a_packed_checkpoint_of_a_run_without_increments_is_read_whole() {
    const LEN: u64 = 5 << 20;
    let scratch = Scratch::new();
    let c = packing(settings(scratch.path(), 2));
    save_of(&c, &Alone, 1, LEN).unwrap();
    c.flush(&Wait::default()).unwrap();
    assert!(c.places().data.stored(1).unwrap().bytes().unwrap() < LEN / 10, "it is packed");
    close(&c, &Alone);
    let c = packing(with(&scratch, Fulls::OneIn(4)));
    let spool = c.reading(1, &Wait::default()).unwrap();
    let ticket = spool.restore(1, &Wait::default()).unwrap();
    ticket.read(0, |bytes| assert!(bytes == vec![1; LEN as usize])).unwrap();
    ticket.finish().unwrap();
    c.give_up();
}

#[test]
fn checkpoints_are_put_together_one_after_the_other_from_what_follows() {
    let scratch = Scratch::new();
    let c = open_as(Settings { keep: 9, ..with(&scratch, Fulls::OneIn(5)) }, &Alone, None).unwrap();
    save_all(&c, 1..=7);
    let same = |found: Option<Arc<Spool>>, step: u64| {
        let spool = found.expect("an increment");
        let ticket = spool.restore(step as i64, &Wait::default()).unwrap();
        ticket.read(0, |bytes| assert!(bytes == state(step), "step {step}")).unwrap();
        ticket.finish().unwrap();
    };
    let mut chains = chain::Chains::of(Arc::clone(&c.places().data));
    for step in [2, 3, 5, 4, 7] {
        same(chains.reader(step, &Wait::default()).unwrap(), step as u64);
    }
    assert!(chains.reader(6, &Wait::default()).unwrap().is_none(), "it is stored in full");
    same(chains.reader(3, &Wait::default()).unwrap(), 3);
    // What is in memory already is not read again.
    discard(&c.places().data, |step| step < 4).unwrap();
    same(chains.reader(4, &Wait::default()).unwrap(), 4);
    same(chains.reader(5, &Wait::default()).unwrap(), 5);
    let told = chains.reader(4, &Wait::default()).unwrap_err();
    assert!(told.message().contains("Step 4 is an increment to step 3"), "{told}");
    close(&c, &Alone);
}

#[test]
fn what_goes_beyond_the_machine_is_in_full() {
    let scratch = Scratch::new();
    let place = scratch.path().join("remote").to_string_lossy().into_owned();
    let remote = Some(RemoteSettings::new(place));
    let c = open_as(Settings { remote, ..with(&scratch, Fulls::Auto) }, &Alone, None).unwrap();
    save_all(&c, 1..=4);
    close(&c, &Alone);
    fs::remove_dir_all(scratch.path().join("run")).unwrap();
    let place = scratch.path().join("remote").to_string_lossy().into_owned();
    let remote = Some(RemoteSettings::new(place));
    let c = open_as(Settings { remote, ..with(&scratch, Fulls::Auto) }, &Alone, None).unwrap();
    assert_eq!(newest(&c, &mut Vec::new()), Some(4));
    assert_eq!(increments(&scratch), []);
    save_all(&c, 5..=6);
    close(&c, &Alone);
    assert_eq!(increments(&scratch), [(6, 5)]);
}

#[test]
fn a_damaged_chain_is_replaced_by_what_is_beyond_the_machine() {
    let scratch = Scratch::new();
    let place = scratch.path().join("remote").to_string_lossy().into_owned();
    let settings = || {
        let remote = Some(RemoteSettings::new(place.clone()));
        Settings { remote, ..with(&scratch, Fulls::Auto) }
    };
    let c = open_as(settings(), &Alone, None).unwrap();
    save_all(&c, 1..=3);
    close(&c, &Alone);
    for (path, bytes) in frames(&scratch) {
        let mut changed = fs::read(&path).unwrap();
        changed[bytes as usize - 5000] ^= 1;
        fs::write(&path, changed).unwrap();
    }
    let c = open_as(settings(), &Alone, None).unwrap();
    assert_eq!(c.candidate(&[], &Alone, &Wait::default()).unwrap(), Some(3));
    assert!(check(&c, 3).is_err());
    assert!(c.fetch(3, &Wait::default()).unwrap());
    check(&c, 3).unwrap();
    c.restored(3, &Outcome::Restored, &Alone).unwrap();
    save_all(&c, 4..=5);
    close(&c, &Alone);
    assert_eq!(increments(&scratch), [(5, 4)]);
}

#[test]
fn arrays_with_the_names_of_an_increment_are_refused() {
    let scratch = Scratch::new();
    let c = open(&scratch, &Alone);
    c.begin(1, String::new(), &Alone, &Wait::default()).unwrap();
    let spec = |name: &str| RegionSpec { name: name.into(), dtype: Dtype::UInt8, shape: vec![9] };
    let specs = vec![spec("unspool.increment"), spec("unspool.chunks")];
    c.spool().save(1, specs, &Wait::default()).unwrap().commit().unwrap();
    assert!(c.commit().unwrap_err().message().contains("other names"));
    c.abandon();
}

#[test]
fn increments_need_a_host_tier() {
    let scratch = Scratch::new();
    let told = Checkpointer::open(with(&scratch, Fulls::Auto), &Alone, &Wait::default(), |data| {
        assert!(data.is_none());
        Spool::open(SpoolSettings { device: Some(1 << 20), ..SpoolSettings::default() })
            .map(Arc::new)
    });
    assert!(told.unwrap_err().message().contains("need a host tier"));
}

/// Values without a pattern, of which each step moves a thousand a little.
fn field(step: u64) -> Vec<f32> {
    const MOVED: usize = 1024;
    let noise = |i: u32| f32::from(i.wrapping_mul(2_654_435_761) as u16) / 1024.0;
    let mut values: Vec<f32> = (0..800 * MOVED as u32).map(noise).collect();
    for earlier in 1..=step as usize {
        let moved = &mut values[earlier % 7 * MOVED..][..MOVED];
        moved.iter_mut().enumerate().for_each(|(i, value)| *value += (i % 9) as f32 * 1e-3);
    }
    values
}

fn save_field(c: &Checkpointer, step: u64) {
    let values = field(step);
    c.begin(step, String::new(), &Alone, &Wait::default()).unwrap();
    let shape = vec![values.len() as u64];
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::Float32, shape };
    let mut ticket = c.spool().save(step as i64, vec![spec], &Wait::default()).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    ticket.fill(0, |to| to.copy_from_slice(&bytes)).unwrap();
    ticket.commit().unwrap();
    c.commit().unwrap();
    c.flush(&Wait::default()).unwrap();
}

/// The largest error of the field of a step.
fn error_of(c: &Checkpointer, step: u64) -> f32 {
    c.ready(step, &Wait::default()).unwrap();
    let spool = c.reading(step, &Wait::default()).unwrap();
    let ticket = spool.restore(step as i64, &Wait::default()).unwrap();
    let values = field(step);
    let mut bytes = vec![0; 4 * values.len()];
    ticket.read_into(0, &mut bytes).unwrap();
    ticket.finish().unwrap();
    let back = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    values.iter().zip(back).map(|(value, back)| (value - back).abs()).fold(0.0, f32::max)
}

#[test]
fn a_chain_of_a_hundred_differences_gives_what_was_saved() {
    let bounded = Spec::Bounded(Bound::Absolute(1e-5));
    for (codec, bound, last) in [(Spec::Lossless, 0.0, 21), (bounded, 1e-5, 101)] {
        let scratch = Scratch::new();
        let open = || {
            Checkpointer::open(
                with(&scratch, Fulls::OneIn(1000)),
                &Alone,
                &Wait::default(),
                |data| {
                    let disk =
                        data.map(|data| DiskSettings { durable: true, ..DiskSettings::new(data) });
                    let codec = Codecs::all(codec);
                    let settings =
                        SpoolSettings { host: Some(24 << 20), disk, codec, ..Default::default() };
                    Spool::open(settings).map(Arc::new)
                },
            )
            .unwrap()
        };
        let c = open();
        (1..=last).for_each(|step| save_field(&c, step));
        [1, 2, last / 2, last].into_iter().for_each(|step| assert!(error_of(&c, step) <= bound));
        close(&c, &Alone);
        assert_eq!(increments(&scratch).len() as u64, last - 1, "one chain");
        // Another process reads it, and says so when a frame of the chain is damaged.
        let c = open();
        assert!(error_of(&c, last) <= bound);
        c.give_up();
        drop(c);
        let (path, bytes) = frames(&scratch).into_iter().min_by_key(|(_, bytes)| *bytes).unwrap();
        let mut changed = fs::read(&path).unwrap();
        changed[bytes as usize / 2] ^= 4;
        fs::write(&path, changed).unwrap();
        let c = open();
        let told = c.reading(last, &Wait::default()).unwrap_err();
        assert!(told.message().contains("increment to step"), "{told}");
        c.give_up();
    }
}
