//! Kernels of codecs on a device that none were shipped for: compiled when they are first needed.

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

#[test]
fn each_kernel_is_compiled_when_it_is_first_needed_and_kept_for_later_runs() {
    let bench = Bench::new().unwrap();
    let before = bench.compiled();
    let spool = opened(lossless()).unwrap();
    assert_eq!(bench.compiled(), before, "opening needs none");
    for version in 0..3 {
        bench.application.save(&spool, version).unwrap();
    }
    assert_eq!(bench.compiled() - before, 1, "the encoder");
    assert!(bench.application.restore(&spool, 1).unwrap() == wave(1));
    assert!(bench.application.restore(&spool, 2).unwrap() == wave(2));
    assert_eq!(bench.compiled() - before, 2, "the decoder");
    spool.close().unwrap();

    let next = opened(lossless()).unwrap();
    bench.application.save(&next, 0).unwrap();
    assert!(bench.application.restore(&next, 0).unwrap() == wave(0));
    assert_eq!(bench.compiled() - before, 2, "both were kept");
    next.close().unwrap();
}

#[test]
fn who_needs_a_kernel_waits_for_the_compiler_and_that_is_a_stall() {
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
fn the_kernels_of_zfp_are_compiled_at_once_and_raw_arrays_need_none() {
    let bench = Bench::new().unwrap();
    let before = bench.compiled();
    let spool = opened(Codecs::all(Spec::Zfp(Zfp::Rate(8.0)))).unwrap();
    bench.application.save(&spool, 0).unwrap();
    bench.application.restore(&spool, 0).unwrap();
    assert_eq!(bench.compiled() - before, 1);
    spool.close().unwrap();
    let raw = opened(Codecs::default()).unwrap();
    bench.application.save(&raw, 0).unwrap();
    assert_eq!((bench.compiled() - before, told(&raw).kernels), (1, Duration::ZERO));
    raw.close().unwrap();
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
