//! Kernels that came with the library: loaded when they are first needed, and nothing is compiled.

mod application;

use std::borrow::Cow;
use std::sync::Once;

use application::{Application, BOUND, Outcome, array_of, error, every_other, floats, open, wait};
use unspool::{Bound, Codecs, Spec, Spool, Zfp};
use unspool_cuda::Arch;
use unspool_cuda::kernels::{Image, KernelText, Key, NewImage, Pack, Target, shipped};
use unspool_fakecuda::{Fake, IMAGE};

/// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
const NO_BINARY: u32 = 209;

/// Enough values for kernels of their own.
fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| (i as f32 * 0.003 + version as f32).sin();
    (0..150_000).flat_map(|i| at(i).to_le_bytes()).collect()
}

/// Gives this process kernels for the fake's device, once.
fn ship() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let made = |source: KernelText| NewImage {
            key: Key::of(&source.text),
            target: Target::Code(Arch::new(9, 0)),
            image: Image::from_bytes(IMAGE.to_vec()).expect("an image"),
        };
        let all = unspool_gpu_codec::sources().into_iter().map(made).collect();
        let pack = Pack::write((12, 9), &[all], 1).expect("a pack");
        unspool::ship_kernels(pack.leak()).expect("a whole pack");
    });
}

struct Bench {
    fake: Fake,
    application: Application,
    _cache: tempfile::TempDir,
}

impl Bench {
    fn new() -> Outcome<Bench> {
        ship();
        let (fake, cache) = (Fake::start(), tempfile::tempdir()?);
        fake.cache_in(cache.path());
        Ok(Bench { application: Application::with(wave)?, fake, _cache: cache })
    }

    /// Modules that were loaded, and texts that were compiled.
    fn counts(&self) -> (u64, u64) {
        (self.fake.calls("cuModuleLoadData"), self.fake.calls("nvrtcCompileProgram"))
    }

    fn counted(&self, before: (u64, u64)) -> (u64, u64) {
        let now = self.counts();
        (now.0 - before.0, now.1 - before.1)
    }
}

fn opened(codec: Spec) -> Outcome<Spool> {
    open(Codecs::all(codec), |settings| settings.device = Some(8 << 20))
}

#[test]
fn every_codec_finds_its_kernels_and_loads_each_once() {
    let bench = Bench::new().unwrap();
    let ranged = Spec::Bounded(Bound::Range(1e-3));
    for (codec, modules) in [(Spec::Lossless, 2), (ranged, 2), (Spec::Zfp(Zfp::Rate(16.0)), 1)] {
        let before = bench.counts();
        let spool = opened(codec).unwrap();
        for version in 0..2 {
            bench.application.save(&spool, version).unwrap();
            let found = bench.application.restore(&spool, version).unwrap();
            assert!(error(&found, &wave(version)) <= 2.0 * BOUND);
        }
        assert_eq!(bench.counted(before), (modules, 0), "{codec:?}");
        spool.close().unwrap();
    }
}

#[test]
fn arrays_with_gaps_find_theirs() {
    let bench = Bench::new().unwrap();
    let spool = opened(Spec::Raw).unwrap();
    let before = bench.counts();
    let memory = bench.application.upload(&wave(0)).unwrap();
    let (array, _) = every_other(&memory, &wave(0));
    let specs = vec![floats("u", memory.span().len() / 2)];
    let mut ticket = spool.save(0, specs, &wait()).unwrap();
    ticket.put(0, &array, &bench.application.stream).unwrap();
    ticket.commit().unwrap();
    assert_eq!(bench.counted(before), (1, 0));
    let mut ticket = spool.restore(0, &wait()).unwrap();
    let room = bench.application.upload(&vec![0; 300_000]).unwrap();
    let target = array_of(&room);
    ticket.get(0, &target, &bench.application.stream).unwrap();
    ticket.finish().unwrap();
    spool.close().unwrap();
}

#[test]
fn a_driver_that_refuses_them_gets_those_of_the_compiler() {
    let bench = Bench::new().unwrap();
    let spool = opened(Spec::Lossless).unwrap();
    let before = bench.counts();
    bench.fake.fail("cuModuleLoadData", 1, NO_BINARY);
    bench.application.save(&spool, 0).unwrap();
    assert_eq!(bench.counted(before), (2, 1));
    assert!(bench.application.restore(&spool, 0).unwrap() == wave(0));
    assert_eq!(bench.counted(before), (3, 1), "the decoder is taken");
    spool.close().unwrap();
}

#[test]
fn a_text_that_nothing_was_made_from_is_not_in_the_pack() {
    let _bench = Bench::new().unwrap();
    let pack = shipped().expect("it was shipped");
    assert_eq!(pack.image(Key::of("another text"), Arch::new(9, 0)), None);
    assert_eq!(pack.count(), unspool_gpu_codec::sources().len());
    assert!(Pack::open(Cow::Borrowed(b"nothing")).is_none());
}
