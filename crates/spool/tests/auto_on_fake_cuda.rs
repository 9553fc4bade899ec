//! `Choice::Auto` on a fake GPU with a slow link, with an nvCOMP of its own and without.

mod application;

use std::time::{Duration, Instant};

use application::{Application, LIMIT, Outcome, Packages, array_of, floats, on_host, open, wait};
use unspool::gpu::DeviceMemory;
use unspool::{
    AutoCodec, AutoStats, Choice, Codec, CodecChoice, CodecId, DiskSettings, NvComp, Settings,
    Spool,
};
use unspool_fakecuda::Fake;

/// Bytes of a state: two chunks of nvCOMP.
const LEN: usize = 128 << 10;

/// Bytes a second over the link: 16 ms for a state, of which the application computes nothing.
const SLOW: u64 = 8 << 20;

fn auto() -> CodecChoice {
    CodecChoice { default: Choice::Auto, ..CodecChoice::default() }
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

/// A pattern that comes back again and again, in which values next to each other have nothing to
/// do with each other: what looks for matches finds it, what predicts values does not.
fn repeated(version: i64) -> Vec<u8> {
    noise(version as u64 + 1, 256).repeat(LEN / 256)
}

/// A wave: what predicts values finds it, what looks for matches does not.
fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| ((i as f32 + version as f32) * 1e-3).sin().mul_add(0.5, 1.5);
    (0..LEN / 4).flat_map(|i| (at(i).to_bits() & !0xfff).to_le_bytes()).collect()
}

fn nothing(version: i64) -> Vec<u8> {
    noise(version as u64 + 1, LEN)
}

fn save(application: &Application, spool: &Spool, version: i64, from: &DeviceMemory) -> Outcome {
    let mut ticket = spool.save(version, vec![floats("u", LEN as u64)], &wait())?;
    ticket.put(0, &array_of(from), &application.stream)?;
    Ok(ticket.commit()?)
}

/// A spool on the GPU that holds four raw states there and the rest behind the link.
fn opened(packages: Option<&Packages>, change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    open(auto(), |settings| {
        settings.device = Some(4 * LEN as u64 + (8 << 10));
        settings.host = Some(64 << 20);
        settings.compiler_folders = packages.map(Packages::folders).unwrap_or_default();
        change(settings);
    })
}

fn stats(spool: &Spool) -> AutoStats {
    spool.stats().expect("figures").auto.expect("it has chosen")
}

fn of(stats: &AutoStats, codec: Codec) -> Option<AutoCodec> {
    stats.codecs.iter().find(|one| one.codec == codec).copied()
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

fn chosen(stats: &AutoStats, codec: Codec) -> u64 {
    of(stats, codec).map_or(0, |one| one.chosen)
}

/// What was saved comes back bit for bit, to the GPU and to the host.
fn assert_restored(
    application: &Application,
    spool: &Spool,
    saved: i64,
    values: fn(i64) -> Vec<u8>,
) -> Outcome {
    // Of each codec a few.
    for version in (0..saved).rev().filter(|version| version % 9 < 2) {
        assert!(application.restore(spool, version)? == values(version % 4), "{version}");
    }
    for version in [0, saved / 2, saved - 1] {
        assert!(on_host(spool, version, 0)? == values(version % 4), "{version}");
    }
    Ok(())
}

const LZ4: Codec = Codec::NvComp(NvComp::Lz4);
const BITCOMP: Codec = Codec::NvComp(NvComp::Bitcomp);

#[test]
fn data_that_only_nvcomp_makes_small_end_with_it() {
    let fake = Fake::start();
    fake.link(SLOW);
    let (application, packages) = (Application::with(repeated).unwrap(), Packages::new().unwrap());
    let spool = opened(Some(&packages), |_| ()).unwrap();
    let nvcomp = |stats: &AutoStats| chosen(stats, LZ4) + chosen(stats, BITCOMP);
    let saved = save_until(&application, &spool, 0, |stats| nvcomp(stats) >= 20).unwrap();
    let told = stats(&spool);
    assert_eq!(chosen(&told, Codec::Lossless), 0, "{told:?}");
    let twine = of(&told, Codec::Lossless).unwrap();
    assert!(twine.tried >= 1 && twine.ratio < 1.1, "{told:?}");
    let best = told.codecs.iter().max_by_key(|one| one.chosen).unwrap();
    assert!(best.ratio > 100.0 && best.encode.is_some(), "{told:?}");
    assert_eq!(spool.achieved(saved - 1).unwrap()[0].codec, CodecId::NvComp);
    assert_restored(&application, &spool, saved, repeated).unwrap();
    spool.close().unwrap();
}

#[test]
fn data_that_twine_makes_smaller_stay_with_it() {
    let fake = Fake::start();
    fake.link(SLOW);
    let (application, packages) = (Application::with(wave).unwrap(), Packages::new().unwrap());
    let spool = opened(Some(&packages), |_| ()).unwrap();
    let is_enough = |stats: &AutoStats| {
        let tried = of(stats, LZ4).is_some() && of(stats, BITCOMP).is_some();
        let twine = chosen(stats, Codec::Lossless);
        // While the machine is busy with other things, encoding may be slower than the link.
        tried && twine >= 40 && twine > stats.not_worth_it
    };
    let saved = save_until(&application, &spool, 80, is_enough).unwrap();
    let told = stats(&spool);
    assert_eq!((chosen(&told, LZ4), chosen(&told, BITCOMP)), (0, 0), "{told:?}");
    // The ratio of nvCOMP was seen at once, and that ended it: nothing is encoded warm in vain.
    assert!(of(&told, LZ4).unwrap().tried <= 2 && of(&told, BITCOMP).unwrap().tried <= 2);
    assert_restored(&application, &spool, saved, wave).unwrap();
    spool.close().unwrap();
}

#[test]
fn what_no_codec_makes_smaller_is_kept_as_it_is() {
    let fake = Fake::start();
    fake.link(SLOW);
    let (application, packages) = (Application::with(nothing).unwrap(), Packages::new().unwrap());
    let spool = opened(Some(&packages), |_| ()).unwrap();
    let saved = save_until(&application, &spool, 60, |stats| stats.not_worth_it >= 30).unwrap();
    let told = stats(&spool);
    assert!(told.codecs.iter().all(|one| one.chosen == 0), "{told:?}");
    let decided = saved as u64 - told.stays - told.keeps_up;
    assert!(told.not_worth_it * 2 > decided, "{told:?}");
    assert_restored(&application, &spool, saved, nothing).unwrap();
    spool.close().unwrap();
}

#[test]
fn without_nvcomp_and_for_a_durable_history_twine_is_all_there_is() {
    let fake = Fake::start();
    fake.link(SLOW);
    let (application, packages) = (Application::with(wave).unwrap(), Packages::new().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let durable = DiskSettings { durable: true, ..DiskSettings::new(directory.path()) };
    for (packages, disk) in [(None, None), (Some(&packages), Some(durable))] {
        let spool = opened(packages, |settings| settings.disk = disk).unwrap();
        let is_enough = |stats: &AutoStats| chosen(stats, Codec::Lossless) > 10;
        let saved = save_until(&application, &spool, 40, is_enough).unwrap();
        let told = stats(&spool);
        assert_eq!(told.codecs.len(), 1, "{told:?}");
        assert_restored(&application, &spool, saved, wave).unwrap();
        spool.close().unwrap();
    }
}

#[test]
fn an_nvcomp_that_fails_costs_no_save_and_is_left_alone() {
    let fake = Fake::start();
    fake.link(SLOW);
    let (application, packages) = (Application::with(repeated).unwrap(), Packages::new().unwrap());
    let spool = opened(Some(&packages), |_| ()).unwrap();
    for format in ["LZ4", "Bitcomp"] {
        fake.fail(&format!("nvcompBatched{format}CompressAsync"), 0, 999);
    }
    let is_out = |stats: &AutoStats| {
        [LZ4, BITCOMP].iter().all(|codec| of(stats, *codec).is_some_and(|one| one.is_out))
    };
    let saved = save_until(&application, &spool, 0, is_out).unwrap();
    let notes = spool.stats().unwrap().application.notes;
    assert!(notes.iter().any(|note| note.contains("is not chosen any more")), "{notes:?}");
    assert!(stats(&spool).codecs.iter().all(|one| one.chosen == 0));
    assert_restored(&application, &spool, saved, repeated).unwrap();
    spool.close().unwrap();
}

#[test]
fn a_history_that_stays_on_the_gpu_is_not_encoded() {
    let _fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool =
        opened(None, |settings| (settings.device, settings.host) = (Some(8 << 20), None)).unwrap();
    let saved = save_until(&application, &spool, 10, |_| true).unwrap();
    let told = stats(&spool);
    assert_eq!((told.stays, told.codecs.len()), (saved as u64, 0), "{told:?}");
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
    let spool = opened(None, |_| ()).unwrap();
    let saved = save_until(&application, &spool, 30, |stats| {
        of(stats, Codec::Lossless).is_some_and(|one| one.encode.is_some())
    })
    .unwrap();
    let encode = of(&stats(&spool), Codec::Lossless).unwrap().encode.unwrap();
    assert!(encode > Duration::from_micros(200), "{encode:?}");
    assert_restored(&application, &spool, saved.min(8), wave).unwrap();
    spool.close().unwrap();
}
