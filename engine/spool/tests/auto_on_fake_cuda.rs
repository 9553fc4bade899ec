//! `Spec::Auto` on a fake GPU with a slow link.

mod application;

use std::time::{Duration, Instant};

use application::{Application, LIMIT, Outcome, Packages, array_of, floats, on_host, open, wait};
use unspool::gpu::DeviceMemory;
use unspool::{AutoStats, CodecId, Codecs, DiskSettings, Settings, Spec, Spool};
use unspool_fakecuda::Fake;

/// Bytes of a state: two chunks of nvCOMP.
const LEN: usize = 128 << 10;

/// Bytes a second over the link: 16 ms for a state, of which the application computes nothing.
const SLOW: u64 = 8 << 20;

fn auto() -> Codecs {
    Codecs::all(Spec::Auto)
}

/// Words without any order.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word as u32).to_le_bytes()
    };
    (0..count / 4).flat_map(|_| next()).collect()
}

/// A wave, which Twine makes much smaller.
fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| ((i as f32 + version as f32) * 1e-3).sin().mul_add(0.5, 1.5);
    (0..LEN / 4).flat_map(|i| (at(i).to_bits() & !0xfff).to_le_bytes()).collect()
}

/// What nothing makes smaller.
fn nothing(version: i64) -> Vec<u8> {
    noise(version as u64 + 1, LEN)
}

fn save(application: &Application, spool: &Spool, version: i64, from: &DeviceMemory) -> Outcome {
    let mut ticket = spool.save(version, vec![floats("u", LEN as u64)], &wait())?;
    ticket.put(0, &array_of(from), &application.stream)?;
    Ok(ticket.commit()?)
}

/// A spool on the GPU that holds four raw states there and the rest beyond the link.
fn opened(change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    open(auto(), |settings| {
        settings.device = Some(4 * LEN as u64 + (8 << 10));
        settings.host = Some(64 << 20);
        change(settings);
    })
}

fn stats(spool: &Spool) -> AutoStats {
    spool.stats().expect("figures").auto.expect("it has chosen")
}

/// Saves versions until `is_enough`, and at least `least` of them; the number saved.
fn save_until(
    application: &Application,
    spool: &Spool,
    least: i64,
    is_enough: impl Fn(&AutoStats) -> bool,
) -> Outcome<i64> {
    let sources = application.prepared(0..4)?;
    let began = Instant::now();
    for version in 0.. {
        save(application, spool, version, &sources[version as usize % 4])?;
        if version + 1 >= least && is_enough(&stats(spool)) {
            return Ok(version + 1);
        }
        assert!(began.elapsed() < LIMIT, "{:?}", stats(spool));
    }
    unreachable!()
}

/// What was saved comes back bit for bit, to the GPU and to the host.
fn assert_restored(
    application: &Application,
    spool: &Spool,
    saved: i64,
    values: fn(i64) -> Vec<u8>,
) -> Outcome {
    // Of those that are encoded and those that are not a few.
    for version in (0..saved).rev().filter(|version| version % 9 < 2) {
        assert!(application.restore(spool, version)? == values(version % 4), "{version}");
    }
    for version in [0, saved / 2, saved - 1] {
        assert!(on_host(spool, version, 0)? == values(version % 4), "{version}");
    }
    Ok(())
}

#[test]
fn what_the_codec_makes_smaller_is_encoded() {
    let fake = Fake::start();
    fake.link(SLOW);
    let application = Application::with(wave).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let durable = DiskSettings { durable: true, ..DiskSettings::new(directory.path()) };
    for disk in [None, Some(durable)] {
        let spool = opened(|settings| settings.disk = disk).unwrap();
        let saved = save_until(&application, &spool, 80, |stats| stats.chosen >= 40).unwrap();
        let told = stats(&spool);
        // A slow machine lets the link keep up with it: for those nothing was chosen.
        let decided = saved as u64 - told.stays - told.keeps_up;
        assert!(told.chosen * 2 > decided && told.ratio > 2.0, "{told:?}");
        assert_restored(&application, &spool, saved, wave).unwrap();
        spool.close().unwrap();
    }
}

#[test]
fn what_the_codec_does_not_make_smaller_is_kept_as_it_is() {
    let fake = Fake::start();
    fake.link(SLOW);
    let application = Application::with(nothing).unwrap();
    let spool = opened(|_| ()).unwrap();
    let saved = save_until(&application, &spool, 60, |stats| stats.not_worth_it >= 30).unwrap();
    let told = stats(&spool);
    assert!(told.chosen == 0 && told.tried >= 1, "{told:?}");
    let decided = saved as u64 - told.stays - told.keeps_up;
    assert!(told.not_worth_it * 2 > decided, "{told:?}");
    assert_restored(&application, &spool, saved, nothing).unwrap();
    spool.close().unwrap();
}

#[test]
fn nvcomp_is_not_chosen_where_it_is_installed() {
    let fake = Fake::start();
    fake.link(SLOW);
    let (application, packages) = (Application::with(wave).unwrap(), Packages::new().unwrap());
    let spool = opened(|settings| settings.compiler_folders = packages.folders()).unwrap();
    let saved = save_until(&application, &spool, 40, |stats| stats.chosen >= 10).unwrap();
    for version in 0..saved {
        let codec = spool.achieved(version).unwrap()[0].codec;
        assert!(matches!(codec, CodecId::Raw | CodecId::Twine), "{version}: {codec:?}");
    }
    spool.close().unwrap();
}

#[test]
fn a_history_that_stays_on_the_gpu_is_not_encoded() {
    let _fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool =
        opened(|settings| (settings.device, settings.host) = (Some(8 << 20), None)).unwrap();
    let saved = save_until(&application, &spool, 10, |_| true).unwrap();
    let told = stats(&spool);
    assert_eq!((told.stays, told.chosen + told.tried), (saved as u64, 0), "{told:?}");
    assert!(told.latest.contains("stays in the fastest tier"));
    assert_eq!(spool.achieved(0).unwrap()[0].codec, CodecId::Raw);
    spool.close().unwrap();
}

#[test]
fn times_are_those_of_the_device() {
    let fake = Fake::start();
    fake.link(SLOW);
    // Each launch begins late: the host does not know it.
    fake.pace(Duration::from_millis(2), 0);
    let application = Application::with(wave).unwrap();
    let spool = opened(|_| ()).unwrap();
    let saved = save_until(&application, &spool, 30, |stats| stats.encode.is_some()).unwrap();
    let encode = stats(&spool).encode.unwrap();
    assert!(encode > Duration::from_micros(200), "{encode:?}");
    assert_restored(&application, &spool, saved.min(8), wave).unwrap();
    spool.close().unwrap();
}
