//! Arrays that are given away, on the fake driver: their memory is the copy in the device tier, and
//! is let go of once, after all that reads it.
//!
//! What owns an array here does at its end what an allocator may do then: it lets the next user
//! write the memory, on the stream of the array. Bytes that are read too late are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use unspool::gpu::{Context, DeviceArray, DeviceMemory, GivenArray, Stream, StridedLayout};
use unspool::{Codecs, Dtype, Error, ErrorKind, On, RegionSpec, Settings, Spec, Spool, Wait};
use unspool_cuda::{Driver, copy};
use unspool_fakecuda::Fake;

const LEN: u64 = 1 << 16;
const LIMIT: Duration = Duration::from_secs(60);
const OTHER: u8 = 0xEE;

/// `CUDA_ERROR_OUT_OF_MEMORY` and `CUDA_ERROR_ILLEGAL_ADDRESS`.
const OUT_OF_MEMORY: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;

/// An application that computes on one stream and looks at what comes back on another.
struct Application {
    context: Context,
    stream: Stream,
    reader: Stream,
    target: DeviceMemory,
    /// How many arrays have gone back.
    gone: Arc<AtomicUsize>,
}

/// The next user of the memory of an array.
struct NextUser {
    memory: DeviceMemory,
    stream: Stream,
    gone: Arc<AtomicUsize>,
}

impl Drop for NextUser {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
        // A context that is lost refuses: nobody uses the memory then.
        let _ = copy::fill(&self.stream, &self.memory.span(), OTHER);
    }
}

impl Application {
    fn new() -> Application {
        let context =
            Context::new(&Driver::load().expect("the fake does it"), 0).expect("the fake does it");
        let stream = || Stream::new(&context).expect("the fake does it");
        let target = DeviceMemory::new(&context, LEN).expect("the fake does it");
        let (stream, reader) = (stream(), stream());
        Application { context, stream, reader, target, gone: Arc::default() }
    }

    /// The same stream of the application once more.
    fn same_stream(&self) -> Stream {
        // SAFETY: it lives as long as the application, which the arrays do not outlive.
        unsafe { Stream::borrow(&self.context, self.stream.handle()) }.expect("the fake does it")
    }

    /// An array whose bytes are all `version`, once the stream has come so far.
    fn array(&self, version: i64, waits: bool) -> (DeviceArray, GivenArray) {
        let memory = DeviceMemory::new(&self.context, LEN).expect("the fake does it");
        copy::fill(&self.stream, &memory.span(), version as u8).expect("the fake does it");
        let (span, gone) = (memory.span(), Arc::clone(&self.gone));
        // SAFETY: what owns the memory is given away with it.
        let array = unsafe { DeviceArray::dense(0, span.address(), LEN) };
        let owner = Arc::new(NextUser { memory, stream: self.same_stream(), gone });
        (array, GivenArray::new(span, self.same_stream(), waits, owner))
    }

    fn give(&self, spool: &Spool, version: i64) -> Result<(), Error> {
        let (array, given) = self.array(version, true);
        assert!(spool.takes(&array, None));
        spool.save_given(version, spec(), (&array, given), &Wait::at_most(LIMIT))
    }

    /// Restores into the target, on the reader's stream.
    fn restore(&self, spool: &Spool, version: i64) -> Result<(), Error> {
        let mut ticket = spool.restore(version, &Wait::at_most(LIMIT))?;
        // SAFETY: the target lives longer than what is enqueued.
        let array = unsafe { DeviceArray::dense(0, self.target.span().address(), LEN) };
        ticket.get(0, &array, &self.reader)?;
        ticket.finish()
    }

    /// The bytes of the target, after all that was enqueued.
    fn target(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        copy::device_to_host(&self.reader, &mut bytes, &self.target.span(), LIMIT)
            .expect("the fake does it");
        bytes
    }

    fn gone(&self) -> usize {
        self.gone.load(Ordering::Relaxed)
    }
}

fn bytes(version: i64) -> Vec<u8> {
    vec![version as u8; LEN as usize]
}

fn spec() -> RegionSpec {
    RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![LEN] }
}

/// A spool whose device tier has room for `arrays`.
fn open(arrays: u64, change: impl FnOnce(&mut Settings)) -> Spool {
    let mut settings = Settings {
        device: Some(arrays * LEN),
        host: Some(32 * LEN),
        on: On::Cuda(None),
        check_order: true,
        timeout: LIMIT,
        ..Settings::default()
    };
    change(&mut settings);
    Spool::open(settings).expect("the fake does it")
}

#[test]
fn a_given_array_is_the_copy_and_comes_back() {
    let fake = Fake::start();
    let application = Application::new();
    let spool = open(4, |_| ());
    let copies = fake.calls("cuMemcpyDtoDAsync");
    application.give(&spool, 3).unwrap();
    assert_eq!(fake.calls("cuMemcpyDtoDAsync"), copies, "nothing is copied on the device");
    assert_eq!(spool.stats().unwrap().tiers[0].used, LEN, "it counts all the same");
    application.restore(&spool, 3).unwrap();
    assert_eq!(application.target(), bytes(3));
    assert_eq!(application.gone(), 0, "the copy is still there");
    spool.discard(3).unwrap();
    spool.close().unwrap();
    assert_eq!(application.gone(), 1);
}

#[test]
fn more_arrays_than_the_tier_holds_are_flushed_from_where_they_lie() {
    for (seed, latency) in [(1, 0), (2, 20), (3, 150)] {
        let fake = Fake::start();
        fake.seed(seed);
        fake.pace(Duration::from_micros(latency), 0);
        let application = Application::new();
        let spool = open(3, |_| ());
        for version in 0..16 {
            application.give(&spool, version).unwrap();
            let kept = version as usize + 1 - application.gone();
            assert!(kept <= 3, "{kept} arrays are kept, and the tier has room for 3");
        }
        for version in (0..16).rev() {
            application.restore(&spool, version).unwrap();
            assert_eq!(application.target(), bytes(version), "version {version}, seed {seed}");
        }
        spool.close().unwrap();
        assert_eq!(application.gone(), 16, "each one once");
    }
}

#[test]
fn the_next_user_of_the_memory_comes_after_a_restore_that_is_under_way() {
    let fake = Fake::start();
    let application = Application::new();
    let spool = open(2, |settings| settings.host = None);
    application.give(&spool, 5).unwrap();
    assert!(fake.hold_stream(application.reader.handle()));
    application.restore(&spool, 5).unwrap();
    spool.discard(5).unwrap();
    assert_eq!(application.gone(), 1, "it is let go of at once, without a wait");
    fake.release();
    assert_eq!(application.target(), bytes(5));
    spool.close().unwrap();
}

#[test]
fn an_array_whose_stream_says_nothing_of_its_memory_is_kept_until_it_is_read() {
    let fake = Fake::start();
    let application = Application::new();
    let spool = open(2, |settings| settings.host = None);
    let (array, given) = application.array(5, false);
    spool.save_given(5, spec(), (&array, given), &Wait::at_most(LIMIT)).unwrap();
    assert!(fake.hold_stream(application.reader.handle()));
    application.restore(&spool, 5).unwrap();
    spool.discard(5).unwrap();
    application.give(&spool, 6).unwrap();
    assert_eq!(application.gone(), 0, "its copy is still being read");
    fake.release();
    assert_eq!(application.target(), bytes(5));
    spool.discard(6).unwrap();
    assert_eq!(application.gone(), 2, "the next call lets go of both");
    spool.close().unwrap();
}

#[test]
fn a_spool_that_ends_lets_go_of_everything_once() {
    let _fake = Fake::start();
    let application = Application::new();
    let spool = open(4, |_| ());
    (0..4).for_each(|version| application.give(&spool, version).unwrap());
    spool.close().unwrap();
    assert_eq!(application.gone(), 4);
    let spool = open(4, |_| ());
    (0..4).for_each(|version| application.give(&spool, version).unwrap());
    let ticket = spool.restore(2, &Wait::at_most(LIMIT)).unwrap();
    // The ticket keeps the tier: what is in it goes with the last one.
    drop(spool);
    drop(ticket);
    assert_eq!(application.gone(), 8);
}

#[test]
fn what_the_device_tier_cannot_hold_is_copied_and_let_go_of() {
    let _fake = Fake::start();
    let application = Application::new();
    let spool = open(1, |settings| settings.device = Some(LEN / 2));
    application.give(&spool, 7).unwrap();
    assert_eq!(application.gone(), 1);
    application.restore(&spool, 7).unwrap();
    assert_eq!(application.target(), bytes(7));
    spool.close().unwrap();
}

#[test]
fn a_refused_save_lets_go_of_the_array_and_leaves_the_version_free() {
    let _fake = Fake::start();
    let application = Application::new();
    let spool = open(2, |_| ());
    application.give(&spool, 1).unwrap();
    assert_eq!(application.give(&spool, 1).unwrap_err().kind(), ErrorKind::Duplicate);
    assert_eq!(application.gone(), 1, "the second array");
    application.restore(&spool, 1).unwrap();
    assert_eq!(application.target(), bytes(1));
    spool.close().unwrap();
    assert_eq!(application.gone(), 2);
    let (array, given) = application.array(2, true);
    assert!(!spool.takes(&array, None), "its tier is gone");
    let refused = spool.save_given(2, spec(), (&array, given), &Wait::at_most(LIMIT));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(application.gone(), 3);
}

#[test]
fn an_array_is_kept_when_its_flush_fails() {
    let fake = Fake::start();
    let application = Application::new();
    let spool = open(2, |settings| settings.check_order = false);
    fake.fail("cuMemcpyDtoHAsync", 0, OUT_OF_MEMORY);
    (0..2).for_each(|version| application.give(&spool, version).unwrap());
    // Every flush fails: the third one has no room on the device, and is copied to the host.
    let third = application.give(&spool, 2);
    fake.reset();
    for version in [0, 1] {
        application.restore(&spool, version).unwrap();
        assert_eq!(application.target(), bytes(version));
    }
    drop(third);
    spool.close().unwrap();
    assert_eq!(application.gone(), 3, "each one once");
}

#[test]
fn a_context_that_breaks_takes_the_arrays_with_it() {
    let fake = Fake::start();
    let application = Application::new();
    let spool = open(4, |settings| settings.check_order = false);
    (0..3).for_each(|version| application.give(&spool, version).unwrap());
    fake.break_context(0, ILLEGAL_ADDRESS);
    for version in 0..3 {
        // Whether it was flushed before is up to the workers.
        let _ = application.restore(&spool, version);
    }
    let _ = spool.close();
    drop(spool);
    assert_eq!(application.gone(), 3, "each one once");
}

#[test]
fn only_dense_arrays_of_that_device_that_no_codec_encodes_are_taken() {
    let _fake = Fake::start();
    let spool = open(2, |_| ());
    // SAFETY: nothing is copied from these.
    let (dense, empty, strided, elsewhere) = unsafe {
        let layout = StridedLayout { shape: vec![4], strides: vec![16], itemsize: 8 };
        (
            DeviceArray::dense(0, 1 << 20, 8),
            DeviceArray::dense(0, 1 << 20, 0),
            DeviceArray::strided(0, 1 << 20, layout),
            DeviceArray::dense(1, 1 << 20, 8),
        )
    };
    assert!(spool.takes(&dense, None) && spool.takes(&dense, Some(&Codecs::default())));
    assert!([&empty, &strided, &elsewhere].iter().all(|array| !spool.takes(array, None)));
    assert!(!spool.takes(&dense, Some(&Codecs::all(Spec::Lossless))));
    let on_host = Settings { device: Some(1 << 20), on: On::Cpu, ..Settings::default() };
    assert!(!Spool::open(on_host).unwrap().takes(&dense, None));
    let host_only = Settings { host: Some(1 << 20), on: On::Cuda(None), ..Settings::default() };
    assert!(!Spool::open(host_only).unwrap().takes(&dense, None));
}
