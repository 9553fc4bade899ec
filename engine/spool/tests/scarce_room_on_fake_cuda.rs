//! Encoded checkpoints in a tier of a fake GPU with room for two of the largest size: how many it
//! holds, and what becomes of those that are larger than the ones before.

mod application;

use std::sync::Arc;
use std::time::Duration;

use application::{Application, LIMIT, Outcome, array_of, floats, wait};
use unspool::gpu::DeviceMemory;
use unspool::{Accumulate, Batched, Codecs, ErrorKind, Settings, Spec, Spool, TierStats, Wait};
use unspool_cuda::copy;
use unspool_fakecuda::Fake;

const COUNT: u64 = 60_000;
const LEN: u64 = 4 * COUNT;
/// Versions from here on cannot be compressed.
const JUMP: i64 = 1000;
/// Versions from here on can be compressed more or less, mostly about as much as others.
const VARIED: i64 = 10_000;

/// One that is much smaller than the others once it is encoded, and one that is larger.
const SMALL: u64 = 900;
const LARGE: u64 = 901;

/// The part of the values that is noise, in percent.
fn noise(version: i64) -> u64 {
    match version as u64 {
        SMALL => 10,
        LARGE => 45,
        version if version < JUMP as u64 => 33,
        version if version < VARIED as u64 => 100,
        version if version % 5 == 4 => version * 7919 % 101,
        version => 20 + version * 7919 % 5,
    }
}

/// Noise in a part of the values and zeros in the others.
fn values(version: i64) -> Vec<u8> {
    let noise = COUNT * noise(version) / 100;
    let mut bits = version as u32 + 1;
    let mut next = |_| {
        bits ^= bits << 13;
        bits ^= bits >> 17;
        bits ^= bits << 5;
        bits.to_le_bytes()
    };
    let zeros = (noise..COUNT).flat_map(|_| [0; 4]);
    (0..noise).map(&mut next).collect::<Vec<_>>().concat().into_iter().chain(zeros).collect()
}

fn application() -> Outcome<Application> {
    Application::with(values)
}

/// A spool whose device tier has room for `states` raw checkpoints and a little more, over memory
/// of the host.
fn open(states: u64, change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    application::open(Codecs::all(Spec::Lossless), |settings| {
        settings.device = Some(states * LEN * 102 / 100);
        settings.host = Some(64 << 20);
        change(settings);
    })
}

/// Saves the values of `version` as one checkpoint, and overwrites the array after the call.
fn save(spool: &Spool, application: &Application, version: i64) -> Outcome {
    let from = application.upload(&values(version))?;
    save_from(spool, application, version, &from)
}

fn save_from(
    spool: &Spool,
    application: &Application,
    version: i64,
    from: &DeviceMemory,
) -> Outcome {
    let (array, stream) = (array_of(&application.array), &application.stream);
    copy::device_to_device(stream, &application.array.span(), &from.span())?;
    let mut checkpoint = spool.checkpoint(version, vec![floats("u", LEN)])?;
    checkpoint.put(0, &array, stream)?;
    let saved = spool.save_many(&mut vec![checkpoint], &wait());
    copy::fill(stream, &application.array.span(), 0xEE)?;
    Ok(saved?)
}

/// The device tier when all that was saved is complete.
fn device(spool: &Spool, last: i64) -> Outcome<TierStats> {
    spool.achieved(last)?;
    Ok(spool.stats()?.tiers[0].clone())
}

fn check(spool: &Spool, application: &Application, versions: impl Iterator<Item = i64>) {
    for version in versions {
        let restored = application.restore(spool, version).expect("it was saved");
        assert!(restored == values(version), "{version}");
    }
}

#[test]
fn a_tier_of_few_states_holds_most_of_what_the_ratio_promises() {
    let _fake = Fake::start();
    let application = application().unwrap();
    for states in [2, 3, 4, 6] {
        let spool = open(states, |_| ()).unwrap();
        let mut held = Vec::new();
        for version in 0..30 {
            save(&spool, &application, version).unwrap();
            held.push(device(&spool, version).unwrap().copies);
        }
        let ratio = spool.achieved(29).unwrap().remove(0);
        let ratio = ratio.bytes as f64 / ratio.stored as f64;
        assert!((2.9..3.1).contains(&ratio), "{ratio}");
        let mean = held[10..].iter().sum::<u64>() as f64 / 20.0;
        assert!(mean >= 0.8 * ratio * states as f64, "{states}: {held:?}");
        check(&spool, &application, (0..30).rev());
        spool.close().unwrap();
    }
}

#[test]
fn values_that_compress_less_than_those_before_are_saved_right() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(2, |_| ()).unwrap();
    let versions = || (0..6).chain(JUMP..JUMP + 3).chain(6..16).chain(JUMP + 3..JUMP + 5);
    for version in versions() {
        save(&spool, &application, version).unwrap();
    }
    let stats = spool.stats().unwrap();
    assert_eq!(stats.application.notes, Vec::<String>::new());
    // The first of each row that cannot be compressed was encoded twice, unless as much was free.
    let again = stats.launches.checkpoints - versions().count() as u64;
    assert!((1..=2).contains(&again), "{again}");
    check(&spool, &application, versions());
    spool.close().unwrap();
}

/// Saves versions by one call, and overwrites their arrays after it.
fn save_together(spool: &Spool, application: &Application, versions: &[i64]) -> Outcome {
    let uploaded = versions.iter().map(|version| application.upload(&values(*version)));
    let memory = uploaded.collect::<Outcome<Vec<_>>>()?;
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let mut batch = Vec::new();
    for (version, array) in versions.iter().zip(&arrays) {
        let mut checkpoint = spool.checkpoint(*version, vec![floats("u", LEN)])?;
        checkpoint.put(0, array, &application.stream)?;
        batch.push(checkpoint);
    }
    spool.save_many(&mut batch, &wait())?;
    assert!(batch.is_empty());
    for one in &memory {
        copy::fill(&application.stream, &one.span(), 0xEE)?;
    }
    Ok(())
}

#[test]
fn one_of_several_that_outgrows_its_room_is_saved_after_the_others() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(4, |_| ()).unwrap();
    save(&spool, &application, 0).unwrap();
    let versions = [1, 2, JUMP, 3, 4, 5];
    save_together(&spool, &application, &versions).unwrap();
    check(&spool, &application, [0].into_iter().chain(versions));
    spool.close().unwrap();
}

#[test]
fn one_that_ends_within_what_the_one_before_it_left_moves_away_from_the_one_after_it() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(4, |_| ()).unwrap();
    save(&spool, &application, 0).unwrap();
    let versions = [SMALL as i64, LARGE as i64, 1, 2];
    save_together(&spool, &application, &versions).unwrap();
    spool.achieved(2).unwrap();
    check(&spool, &application, [0].into_iter().chain(versions));
    spool.close().unwrap();
}

#[test]
fn without_any_room_for_what_has_grown_the_save_is_refused_and_the_others_stay() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(2, |settings| settings.host = None).unwrap();
    (0..4).for_each(|version| save(&spool, &application, version).unwrap());
    let error = save(&spool, &application, JUMP).unwrap_err();
    let error = error.downcast::<unspool::Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(!spool.contains(JUMP).unwrap());
    check(&spool, &application, 0..4);
    spool.discard(2).unwrap();
    spool.discard(3).unwrap();
    save(&spool, &application, JUMP).unwrap();
    check(&spool, &application, [0, 1, JUMP].into_iter());
    spool.close().unwrap();
}

#[test]
fn a_wait_for_the_encoder_can_be_interrupted_and_the_save_tried_again() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(2, |_| ()).unwrap();
    // So many that no room for the largest size is left.
    (0..5).for_each(|version| save(&spool, &application, version).unwrap());
    let from = application.upload(&values(5)).unwrap();
    let array = array_of(&from);
    let mut checkpoint = spool.checkpoint(5, vec![floats("u", LEN)]).unwrap();
    checkpoint.put(0, &array, &application.stream).unwrap();
    let mut batch = vec![checkpoint];
    fake.hold();
    let interrupted = Wait { interrupted: &|| true, ..wait() };
    let error = spool.save_many(&mut batch, &interrupted).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    assert_eq!(batch.len(), 1);
    fake.release();
    spool.save_many(&mut batch, &wait()).unwrap();
    check(&spool, &application, 0..6);
    spool.close().unwrap();
}

#[test]
fn a_batch_that_waits_in_front_of_a_scarce_tier_is_saved_whole() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(2, |_| ()).unwrap();
    let held_at_most = Duration::from_millis(1);
    let most = Accumulate { checkpoints: 4, bytes: 4 * LEN, held_at_most };
    let spool = Batched::new(Arc::new(spool), most);
    let versions = || (0..6).chain(JUMP..JUMP + 3).chain(6..12);
    versions().for_each(|version| application.save(&spool, version).unwrap());
    spool.hand_over(&Wait::at_most(LIMIT)).unwrap();
    check(spool.spool(), &application, versions());
    application::close(&spool).unwrap();
}

#[test]
fn a_gpu_that_takes_no_launch_leaves_the_save_to_the_host() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(2, |_| ()).unwrap();
    (0..2).for_each(|version| save(&spool, &application, version).unwrap());
    let from = application.upload(&values(JUMP)).unwrap();
    fake.fail("cuLaunchKernel", 0, 2);
    save_from(&spool, &application, JUMP, &from).unwrap();
    fake.reset();
    check(&spool, &application, [0, 1, JUMP].into_iter());
    spool.close().unwrap();
}

/// Saves 60 versions from `first` on, alone and several by one call, restores some of them in
/// between and all at the end.
fn save_and_restore(spool: &Spool, first: i64) -> Outcome {
    let application = application()?;
    let mut saved = Vec::new();
    for version in (first..first + 60).step_by(3) {
        let three = [version, version + 1, version + 2];
        for some in three.chunks(if version % 2 == 0 { 3 } else { 1 }) {
            save_together(spool, &application, some)?;
        }
        saved.extend(three);
        let again = saved[(version as usize * 31) % saved.len()];
        check(spool, &application, [again].into_iter());
        if version % 4 == 0 {
            spool.discard(saved.swap_remove(0))?;
        }
    }
    check(spool, &application, saved.into_iter());
    Ok(())
}

#[test]
fn threads_that_save_what_compresses_more_or_less_get_everything_back() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(30), 0);
    let spool = open(3, |_| ()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let spool = &spool;
            scope.spawn(move || save_and_restore(spool, VARIED + 1000 * thread).unwrap());
        }
    });
    let launches = spool.stats().unwrap().launches;
    assert!(launches.checkpoints > 180, "some were encoded again: {launches:?}");
    spool.close().unwrap();
}
