//! Kernels of codecs, compiled while a spool is used: ahead, in time, late, not at all.

mod application;

use std::time::{Duration, Instant};

use application::{Application, BOUND, LIMIT, Outcome, array_of, error, floats, open, wait};
use unspool::{ApplicationStats, Bound, CodecId, Codecs, Spec, Spool, Zfp};
use unspool_fakecuda::Fake;

/// `NVRTC_ERROR_COMPILATION`.
const REFUSED: u32 = 6;

/// Enough values for kernels of their own.
fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| (i as f32 * 0.003 + version as f32).sin();
    (0..150_000).flat_map(|i| at(i).to_le_bytes()).collect()
}

/// A fake whose kernels nobody has compiled yet.
struct Bench {
    fake: Fake,
    application: Application,
    _cache: tempfile::TempDir,
}

impl Bench {
    fn new() -> Outcome<Bench> {
        let (fake, cache) = (Fake::start(), tempfile::tempdir()?);
        fake.cache_in(cache.path());
        Ok(Bench { application: Application::with(wave)?, fake, _cache: cache })
    }

    fn compiled(&self) -> u64 {
        self.fake.calls("nvrtcCompileProgram")
    }
}

fn lossless() -> Codecs {
    Codecs::all(Spec::Lossless)
}

fn bounded() -> Codecs {
    Codecs::all(Spec::Bounded(Bound::Absolute(BOUND)))
}

fn opened(codec: Codecs) -> Outcome<Spool> {
    open(codec, |settings| settings.device = Some(8 << 20))
}

fn told(spool: &Spool) -> ApplicationStats {
    spool.stats().expect("an open spool").application
}

/// Waits until nothing is compiled any more.
fn prepared(spool: &Spool) {
    let began = Instant::now();
    while told(spool).kernels_pending > 0 {
        assert!(began.elapsed() < LIMIT, "kernels are still pending");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_prepared_at_the_opening_is_not_waited_for() {
    let bench = Bench::new().unwrap();
    let before = bench.compiled();
    let spool = opened(lossless()).unwrap();
    prepared(&spool);
    assert_eq!(bench.compiled() - before, 4, "encoders and decoders, narrow and wide");
    for version in 0..3 {
        bench.application.save(&spool, version).unwrap();
    }
    assert!(bench.application.restore(&spool, 1).unwrap() == wave(1));
    assert_eq!(told(&spool).kernels, Duration::ZERO);
    // Those for this kind of array came behind.
    prepared(&spool);
    assert_eq!(bench.compiled() - before, 6);
    bench.application.save(&spool, 3).unwrap();
    assert!(bench.application.restore(&spool, 3).unwrap() == wave(3));
    assert_eq!(told(&spool).kernels, Duration::ZERO);
    spool.close().unwrap();

    let next = opened(lossless()).unwrap();
    prepared(&next);
    bench.application.save(&next, 0).unwrap();
    assert!(bench.application.restore(&next, 0).unwrap() == wave(0));
    prepared(&next);
    assert_eq!(bench.compiled() - before, 6, "all of them were kept");
    next.close().unwrap();
}

#[test]
fn who_comes_before_the_compiler_is_done_waits_and_that_is_a_stall() {
    let bench = Bench::new().unwrap();
    bench.fake.compile_ms(20);
    // A codec that its settings do not name.
    let spool = opened(Codecs::default()).unwrap();
    let array = bench.application.upload(&wave(0)).unwrap();
    let specs = vec![floats("u", array.span().len())];
    let mut ticket = spool.save_as(0, specs, &bounded(), &wait()).unwrap();
    ticket.put(0, &array_of(&array), &bench.application.stream).unwrap();
    ticket.commit().unwrap();
    let saved = told(&spool);
    assert!(saved.kernels > Duration::ZERO && saved.kernels <= saved.save_stall);
    assert!(saved.longest_stall.is_some_and(|stall| stall.awaited.contains("kernels")));
    let found = bench.application.restore(&spool, 0).unwrap();
    assert!(error(&found, &wave(0)) <= BOUND);
    let restored = told(&spool);
    assert!(restored.kernels > saved.kernels);
    assert!(restored.kernels <= restored.save_stall + restored.restore_stall);
    assert_eq!(spool.achieved(0).unwrap()[0].codec, CodecId::Twine);
    spool.close().unwrap();
}

#[test]
fn a_text_that_does_not_compile_is_told_at_the_save_that_needs_it() {
    let bench = Bench::new().unwrap();
    bench.fake.fail("nvrtcCompileProgram", 0, REFUSED);
    for codec in [bounded(), Codecs::all(Spec::Zfp(Zfp::Rate(8.0)))] {
        let spool = opened(codec).unwrap();
        prepared(&spool);
        assert!(told(&spool).notes.is_empty(), "nobody has needed it yet");
        bench.application.save(&spool, 0).unwrap();
        let notes = told(&spool).notes.join(" ");
        let expected = ["on the host", "do not compile", "sm_", "told to refuse this"];
        assert!(expected.iter().all(|part| notes.contains(part)), "{notes}");
        let found = bench.application.restore(&spool, 0).unwrap();
        assert!(error(&found, &wave(0)) < 0.1);
        spool.close().unwrap();
    }
}

#[test]
fn kernels_of_zfp_are_prepared_where_it_is_the_codec() {
    let bench = Bench::new().unwrap();
    let before = bench.compiled();
    let spool = opened(Codecs::all(Spec::Zfp(Zfp::Rate(8.0)))).unwrap();
    prepared(&spool);
    assert_eq!(bench.compiled() - before, 1);
    bench.application.save(&spool, 0).unwrap();
    bench.application.restore(&spool, 0).unwrap();
    assert_eq!((bench.compiled() - before, told(&spool).kernels), (1, Duration::ZERO));
    spool.close().unwrap();
    let raw = opened(Codecs::default()).unwrap();
    assert_eq!(told(&raw).kernels_pending, 0);
    raw.close().unwrap();
}

#[test]
fn closing_waits_for_a_compiler_at_work_and_starts_none_again() {
    let bench = Bench::new().unwrap();
    let before = bench.compiled();
    bench.fake.compile_ms(100);
    let spool = opened(bounded()).unwrap();
    let began = Instant::now();
    while bench.compiled() == before {
        assert!(began.elapsed() < LIMIT, "nothing is compiled");
        std::thread::yield_now();
    }
    spool.close().unwrap();
    assert_eq!(told(&spool).kernels_pending, 0);
    let compiled = bench.compiled() - before;
    assert!(compiled <= 2, "two threads had begun: {compiled}");
}

#[test]
fn decoders_of_a_lost_device_are_told_once() {
    let bench = Bench::new().unwrap();
    let spool = open(lossless(), |settings| {
        (settings.device, settings.check_order) = (Some(8 << 20), false);
    })
    .unwrap();
    bench.application.save(&spool, 0).unwrap();
    bench.application.restore(&spool, 0).unwrap();
    bench.fake.hold();
    let array = array_of(&bench.application.other);
    for _ in 0..5 {
        let mut ticket = spool.restore(0, &wait()).unwrap();
        ticket.get(0, &array, &bench.application.stream).unwrap();
        ticket.finish().unwrap();
    }
    bench.fake.break_context(0, 700);
    bench.fake.release();
    let began = Instant::now();
    let told = loop {
        // The ticket reads nothing, so that only what was decoded before can fail.
        match spool.restore(0, &wait()) {
            Err(error) => break error.to_string(),
            Ok(_) => assert!(began.elapsed() < LIMIT, "nobody tells of the device"),
        }
    };
    assert!(told.contains("(and 4 restored after it)"), "{told}");
    assert!(spool.restore(0, &wait()).is_ok(), "it was told");
    let _ = spool.close();
}
