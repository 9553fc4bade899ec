//! What a spool does while its GPU stands still, and after the GPU is lost: on the fake driver.

use std::error::Error;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use unspool::gpu::{Context, DeviceArray, DeviceMemory, Stream};
use unspool::{DiskSettings, Dtype, ErrorKind, On, RegionSpec, Settings, Spool, Then, Use, Wait};
use unspool_cuda::{Driver, copy};
use unspool_fakecuda::Fake;

const LEN: u64 = 10_000;
const LIMIT: Duration = Duration::from_secs(30);

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// An application with one stream, an array to save and one to restore into.
struct Application {
    stream: Stream,
    array: DeviceMemory,
    other: DeviceMemory,
}

impl Application {
    fn new() -> Outcome<Application> {
        let context = Context::new(&Driver::load()?, 0)?;
        let memory = || DeviceMemory::new(&context, LEN);
        Ok(Application { stream: Stream::new(&context)?, array: memory()?, other: memory()? })
    }

    fn array_of(memory: &DeviceMemory) -> DeviceArray {
        // SAFETY: the memory of an application lives longer than its copies: it is freed after
        // everything on the device.
        unsafe { DeviceArray::dense(0, memory.span().address(), LEN) }
    }

    /// Saves an array of bytes that are all `version`.
    fn save(&self, spool: &Spool, version: i64) -> Outcome {
        copy::fill(&self.stream, &self.array.span(), version as u8)?;
        let mut ticket = spool.save(version, spec(), &Wait::at_most(LIMIT))?;
        ticket.put(0, &Application::array_of(&self.array), &self.stream)?;
        ticket.commit()?;
        Ok(copy::fill(&self.stream, &self.array.span(), 0xEE)?)
    }

    /// Restores into the other array, without looking at it.
    fn restore(&self, spool: &Spool, version: i64) -> Outcome {
        let mut ticket = spool.restore(version, &Wait::at_most(LIMIT))?;
        ticket.get(0, &Application::array_of(&self.other), &self.stream)?;
        Ok(ticket.finish()?)
    }

    /// Whether the other array holds `version`, after all that was enqueued.
    fn holds(&self, version: i64) -> Outcome<bool> {
        let mut bytes = vec![0; LEN as usize];
        copy::device_to_host(&self.stream, &mut bytes, &self.other.span(), LIMIT)?;
        Ok(bytes == vec![version as u8; LEN as usize])
    }
}

/// One region of `LEN` bytes.
fn spec() -> Vec<RegionSpec> {
    vec![RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![LEN] }]
}

fn open(device: u64, change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    let mut settings = Settings {
        device: Some(device),
        on: On::Cuda(None),
        timeout: LIMIT,
        ..Settings::default()
    };
    change(&mut settings);
    Ok(Spool::open(settings)?)
}

/// Runs `body` while the device stands still. Lets it go on after a while, so that a call that
/// blocks fails the test and does not hang it: then the answer is an error.
fn while_it_stands(fake: &Fake, body: impl FnOnce() -> Outcome) -> Outcome {
    fake.hold();
    let executed = fake.count("executed");
    let (ended, ends) = mpsc::channel::<()>();
    let (result, blocked) = std::thread::scope(|scope| {
        let guard = scope.spawn(move || {
            let blocked = ends.recv_timeout(Duration::from_secs(10)).is_err();
            if blocked {
                fake.release();
            }
            blocked
        });
        let result = body();
        let _ = ended.send(());
        (result, guard.join())
    });
    let stood = fake.count("executed") == executed;
    fake.release();
    result?;
    match (blocked, stood) {
        (Ok(false), true) => Ok(()),
        _ => Err("a call waited for the device, which stood still".into()),
    }
}

#[test]
fn saves_and_restores_in_the_device_tier_do_not_wait_for_the_device() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let spool = open(1 << 20, |_| ()).unwrap();
    while_it_stands(&fake, || {
        (0..50).try_for_each(|version| application.save(&spool, version))?;
        (0..50).rev().try_for_each(|version| application.restore(&spool, version))
    })
    .unwrap();
    assert!(application.holds(0).unwrap());
    for version in (0..50).rev() {
        application.restore(&spool, version).unwrap();
        assert!(application.holds(version).unwrap(), "version {version}");
    }
    spool.close().unwrap();
}

#[test]
fn room_is_used_again_while_the_work_of_its_last_owner_stands() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let spool = open(3 * LEN, |_| ()).unwrap();
    while_it_stands(&fake, || {
        for version in 0..20 {
            application.save(&spool, version)?;
            application.restore(&spool, version)?;
            if version < 19 {
                spool.discard(version)?;
            }
        }
        Ok(())
    })
    .unwrap();
    assert!(application.holds(19).unwrap());
    application.restore(&spool, 19).unwrap();
    assert!(application.holds(19).unwrap());
}

#[test]
fn a_stream_that_stands_does_not_stop_the_flushes_of_others() {
    let fake = Fake::start();
    let (stuck, application) = (Application::new().unwrap(), Application::new().unwrap());
    let spool = open(4 * LEN, |settings| settings.host = Some(1 << 20)).unwrap();
    assert!(fake.hold_stream(stuck.stream.handle()));
    stuck.save(&spool, 100).unwrap();
    // More than the device tier holds: each needs the flush of another.
    (0..20).for_each(|version| application.save(&spool, version).unwrap());
    for version in 0..20 {
        application.restore(&spool, version).unwrap();
        assert!(application.holds(version).unwrap(), "version {version}");
    }
    fake.release();
    application.restore(&spool, 100).unwrap();
    assert!(application.holds(100).unwrap());
    spool.close().unwrap();
}

#[test]
fn close_returns_in_time_while_the_device_stands_and_leaves_its_memory_to_the_work() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let spool = open(5 * LEN, |settings| {
        settings.host = Some(8 * LEN);
        settings.timeout = Duration::from_secs(1);
    })
    .unwrap();
    application.save(&spool, 0).unwrap();
    fake.hold();
    (1..4).for_each(|version| application.save(&spool, version).unwrap());
    application.restore(&spool, 0).unwrap();
    let began = Instant::now();
    let closed = spool.close();
    drop(spool);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}: {closed:?}", began.elapsed());
    fake.release();
    assert!(application.holds(0).unwrap(), "the copy that was under way is done");
    let context = application.stream.context();
    context.synchronize().unwrap();
    assert!(context.memory().is_ok(), "no work has found its memory gone");
}

#[test]
fn a_save_that_waits_for_room_while_the_device_stands_ends_in_time_and_loses_nothing() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let spool = open(2 * LEN + 500, |settings| settings.host = Some(1 << 20)).unwrap();
    fake.hold();
    (0..2).for_each(|version| application.save(&spool, version).unwrap());
    let began = Instant::now();
    let error = spool.save(2, spec(), &Wait::at_most(Duration::from_millis(300))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(began.elapsed() < Duration::from_secs(8));
    fake.release();
    (2..6).for_each(|version| application.save(&spool, version).unwrap());
    for version in 0..6 {
        application.restore(&spool, version).unwrap();
        assert!(application.holds(version).unwrap(), "version {version}");
    }
}

#[test]
fn after_the_context_breaks_every_call_is_an_error_and_close_returns() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(4 * LEN, |settings| {
        settings.host = Some(8 * LEN);
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    (0..10).for_each(|version| application.save(&spool, version).unwrap());
    fake.break_context(0, 700);
    let mut named = 0;
    for version in 0..10 {
        let error = application.restore(&spool, version).unwrap_err().to_string();
        named += usize::from(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert!(application.save(&spool, 50 + version).is_err());
    }
    assert_eq!(named, 10, "each error names the cause");
    let closed = Instant::now();
    let _ = spool.close();
    assert!(closed.elapsed() < Duration::from_secs(10));
    let error = spool.restore(0, &Wait::at_most(LIMIT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

/// Reads `version` on the host: whether it is right.
fn read(spool: &Spool, version: i64) -> Result<bool, unspool::Error> {
    let (ticket, mut right) = (spool.restore(version, &Wait::at_most(LIMIT))?, false);
    ticket.read(0, |bytes| right = bytes == vec![version as u8; LEN as usize])?;
    ticket.finish().map(|()| right)
}

#[test]
fn what_is_on_the_disk_or_in_main_memory_is_there_for_the_host_after_the_context_breaks() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    for host in [None, Some(3 * LEN)] {
        let directory = tempfile::tempdir().unwrap();
        let spool = open(4 * LEN, |settings| {
            settings.host = host;
            settings.disk = Some(DiskSettings::new(directory.path()));
        })
        .unwrap();
        (0..10).for_each(|version| application.save(&spool, version).unwrap());
        spool.flush(&Wait::at_most(LIMIT)).unwrap();
        spool.expect([7, 2, 3].map(i64::from)).unwrap();
        fake.break_context(0, 700);
        for version in (0..10).chain((0..10).rev()) {
            assert!(read(&spool, version).unwrap(), "version {version}");
        }
        let notes = spool.stats().unwrap().application.notes;
        assert!(notes.iter().any(|note| note.contains("CUDA device 0 is lost")), "{notes:?}");
        fake.reset();
    }
}

#[test]
fn what_is_in_pinned_memory_alone_is_there_for_the_host_after_the_context_breaks() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let spool = open(2 * LEN, |settings| settings.host = Some(12 * LEN)).unwrap();
    (0..8).for_each(|version| application.save(&spool, version).unwrap());
    spool.flush(&Wait::at_most(LIMIT)).unwrap();
    fake.break_context(0, 700);
    (0..8).for_each(|version| assert!(read(&spool, version).unwrap(), "version {version}"));
    let mut ticket = spool.save(8, spec(), &Wait::at_most(LIMIT)).unwrap();
    ticket.fill(0, |bytes| bytes.fill(8)).unwrap();
    ticket.commit().unwrap();
    assert!(read(&spool, 8).unwrap(), "saves of the host go on");
}

#[test]
fn bytes_that_may_not_all_have_come_before_the_context_broke_are_refused() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let spool = open(LEN, |settings| {
        (settings.device, settings.host) = (None, Some(9 * LEN));
    })
    .unwrap();
    application.save(&spool, 0).unwrap();
    assert!(read(&spool, 0).unwrap());
    // Copies to memory that is not registered yet are waited for.
    let began = Instant::now();
    while spool.stats().unwrap().tiers[0].ready < 2 * LEN {
        assert!(began.elapsed() < LIMIT, "it is never registered");
        std::thread::yield_now();
    }
    fake.hold();
    application.save(&spool, 1).unwrap();
    fake.break_context(0, 700);
    fake.release();
    let error = read(&spool, 1).unwrap_err().to_string();
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    assert!(read(&spool, 0).unwrap(), "its copy was seen done before");
}

#[test]
fn a_durable_close_writes_what_is_in_main_memory_and_names_what_is_lost_with_the_device() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let disk = || DiskSettings { durable: true, ..DiskSettings::new(directory.path()) };
    let spool = open(3 * 4096 * 3, |settings| {
        settings.host = Some(6 * 4096 * 3);
        settings.disk = Some(disk());
    })
    .unwrap();
    // Nothing moves before its room is needed.
    spool.expect_uses((0..6).map(|version| Use { version, then: Then::Goes })).unwrap();
    (0..6).for_each(|version| application.save(&spool, version).unwrap());
    let began = Instant::now();
    let copies = spool.stats().unwrap().tiers.iter().map(|tier| tier.copies).collect::<Vec<_>>();
    assert!(copies[1] > 0 && copies[2] == 0, "some are in the host's memory alone: {copies:?}");
    fake.break_context(0, 700);
    let error = spool.close().unwrap_err();
    assert!(error.to_string().contains("not durable yet"), "{error}");
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    let lost: Vec<i64> = error.unsaved().iter().map(|(version, _)| *version).collect();
    drop(spool);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(!lost.is_empty() && lost.len() < 6, "{lost:?}");
    fake.reset();
    let again = Spool::open(Settings { disk: Some(disk()), ..Settings::default() }).unwrap();
    for version in (0..6).filter(|version| !lost.contains(version)) {
        assert!(read(&again, version).unwrap(), "version {version}");
    }
}

#[test]
fn memory_that_another_process_holds_is_an_error_with_figures_or_a_smaller_arena() {
    let fake = Fake::start();
    fake.memory(1 << 30);
    fake.take(0, 400 << 20);
    let refused = open(800 << 20, |_| ()).unwrap_err().to_string();
    // Arenas of other tests may still be on their way back.
    assert!(refused.contains("800 MiB asked for, 6"), "{refused}");
    let spool = open(800 << 20, |settings| settings.shrink_ok = true).unwrap();
    let capacity = spool.stats().unwrap().tiers[0].capacity;
    assert!((1 << 20..=112 << 20).contains(&capacity), "half a GiB is left to others: {capacity}");
}

/// Bytes of which a device of 64 MiB that loses half of them holds two.
const LARGE: usize = 12 << 20;

fn large() -> Vec<RegionSpec> {
    vec![RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![LARGE as u64] }]
}

/// Lets a device arena of 64 MiB end after half of them.
fn lose_half(fake: &Fake) {
    [1, 3, 4].into_iter().for_each(|nth| fake.fail("cuMemCreate", nth, 2));
}

/// Restores versions, each of which is `LARGE` bytes of its number.
fn assert_all_restored(spool: &Spool, versions: std::ops::Range<i64>) -> Outcome {
    for version in versions {
        let ticket = spool.restore(version, &Wait::at_most(LIMIT))?;
        let mut same = false;
        ticket.read(0, |bytes| same = bytes.iter().all(|byte| *byte == version as u8))?;
        assert!(same, "version {version}");
        ticket.finish()?;
    }
    Ok(())
}

#[test]
fn memory_that_another_process_takes_while_it_is_mapped_makes_the_tier_smaller() {
    let fake = Fake::start();
    lose_half(&fake);
    let spool = open(64 << 20, |settings| settings.host = Some(64 << 20)).unwrap();
    for version in 0..5 {
        let mut ticket = spool.save(version, large(), &Wait::at_most(LIMIT)).unwrap();
        ticket.fill(0, |bytes| bytes.fill(version as u8)).unwrap();
        ticket.commit().unwrap();
    }
    assert_all_restored(&spool, 0..5).unwrap();
    let stats = spool.stats().unwrap();
    assert_eq!(stats.tiers[0].capacity, 32 << 20);
    assert!(stats.tiers[0].peak <= 32 << 20, "{:?}", stats.tiers[0]);
    let [note] = &stats.application.notes[..] else { panic!("{:?}", stats.application.notes) };
    assert!(note.contains("device tier has 32 MiB of the 64 MiB"), "{note}");
    let [note] = &stats.tiers[0].notes[..] else { panic!("{:?}", stats.tiers[0].notes) };
    assert!(note.contains("cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY"), "{note}");
}

#[test]
fn saves_by_one_call_go_on_where_there_is_room_when_another_process_takes_memory() {
    let fake = Fake::start();
    lose_half(&fake);
    let spool = open(64 << 20, |settings| settings.host = Some(64 << 20)).unwrap();
    let checkpoint = |version| {
        let mut checkpoint = spool.checkpoint(version, large()).unwrap();
        checkpoint.fill(0, move |bytes| bytes.fill(version as u8));
        checkpoint
    };
    let mut all = (0..5).map(checkpoint).collect();
    spool.save_many(&mut all, &Wait::at_most(LIMIT)).unwrap();
    assert_all_restored(&spool, 0..5).unwrap();
    assert_eq!(spool.stats().unwrap().tiers[0].capacity, 32 << 20);
}

#[test]
fn a_device_that_gets_no_memory_at_all_is_a_tier_without_room() {
    let fake = Fake::start();
    let application = Application::new().unwrap();
    fake.fail("cuMemCreate", 1, 2);
    let spool = open(1 << 20, |settings| settings.host = Some(1 << 20)).unwrap();
    for version in 0..3 {
        application.save(&spool, version).unwrap();
        application.restore(&spool, version).unwrap();
        assert!(application.holds(version).unwrap());
    }
    assert_eq!(spool.stats().unwrap().tiers[0].capacity, 0);
    fake.fail("cuMemCreate", 1, 2);
    let alone = open(1 << 20, |_| ()).unwrap();
    let error = alone.save(0, spec(), &Wait::at_most(LIMIT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}
