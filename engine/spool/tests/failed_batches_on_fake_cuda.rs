//! Batches of checkpoints that nothing can encode: which call reports it, of which, and how soon,
//! on a fake GPU whose launches fail.

mod application;

use std::time::{Duration, Instant};

use application::{Application, BOUND, LIMIT, Outcome, Packages, close, wait};
use unspool::{
    Accumulate, Batched, Bound, Codecs, ErrorKind, NvComp, Settings, Spec, Unflushed, Wait,
};
use unspool_fakecuda::Fake;

const COUNT: usize = 1000;
const LEN: u64 = 4 * COUNT as u64;

fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| (i as f32 * 0.003 + version as f32).sin();
    (0..COUNT).flat_map(|i| at(i).to_le_bytes()).collect()
}

/// A spool whose batches have up to eight checkpoints, and wait for longer than any test.
fn open(codec: Spec, change: impl FnOnce(&mut Settings)) -> Outcome<Batched> {
    let held_at_most = Duration::from_secs(3600);
    let most = Accumulate { checkpoints: 8, bytes: 8 * LEN, held_at_most };
    application::open_batched(Codecs::all(codec), most, |settings| {
        settings.check_order = false;
        change(settings);
    })
}

/// The same with five checkpoints in the batch that only a GPU encodes, and a GPU that refuses
/// launches; one was saved before.
fn with_a_refused_batch(
    fake: &Fake,
    application: &Application,
    packages: &Packages,
) -> Outcome<Batched> {
    let spool = open(Spec::NvComp(NvComp::Lz4), |settings| {
        settings.compiler_folders = packages.folders();
    })?;
    application.save(&spool, 100)?;
    spool.hand_over(&wait())?;
    for version in 0..5 {
        application.save(&spool, version)?;
    }
    fake.fail("cuLaunchKernel", 0, 2);
    Ok(spool)
}

#[test]
fn one_call_tells_of_a_whole_batch_and_the_next_one_works() {
    let fake = Fake::start();
    let (application, packages) = (Application::with(wave).unwrap(), Packages::new().unwrap());
    let spool = with_a_refused_batch(&fake, &application, &packages).unwrap();
    let text = spool.hand_over(&wait()).unwrap_err().to_string();
    fake.reset();
    assert!(text.starts_with("Versions 0, 1, 2, 3 and 4 were not saved: "), "{text}");
    assert!(text.contains("cuLaunchKernel"), "{text}");
    (0..6).for_each(|version| application.save(&spool, version).unwrap());
    for version in 0..6 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    close(&spool).unwrap();
}

#[test]
fn a_close_that_loses_a_whole_batch_leaves_the_spool_open() {
    let fake = Fake::start();
    let (application, packages) = (Application::with(wave).unwrap(), Packages::new().unwrap());
    let spool = with_a_refused_batch(&fake, &application, &packages).unwrap();
    let error = close(&spool).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("Versions 0, 1, 2, 3 and 4 were not saved: "), "{text}");
    assert!(!text.contains("This call did nothing"), "{text}");
    fake.reset();
    assert!(!spool.spool().is_closed());
    (0..5).for_each(|version| application.save(&spool, version).unwrap());
    close(&spool).unwrap();
    assert!(spool.spool().is_closed());
}

#[test]
fn a_close_that_discards_ends_whatever_the_gpu_refuses() {
    let fake = Fake::start();
    let (application, packages) = (Application::with(wave).unwrap(), Packages::new().unwrap());
    let spool = with_a_refused_batch(&fake, &application, &packages).unwrap();
    let error = spool.hand_over(&wait()).unwrap_err();
    assert!(!spool.spool().is_closed());
    spool.spool().close_as(Unflushed::Discard, &wait()).unwrap();
    assert!(error.to_string().starts_with("Versions 0, 1, 2, 3 and 4 were not saved: "), "{error}");
    fake.reset();
    assert!(spool.spool().is_closed());
}

#[test]
fn the_error_names_what_the_gpu_and_what_the_host_could_not_do() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool = open(Spec::Bounded(Bound::Absolute(BOUND)), |_| ()).unwrap();
    (0..2).for_each(|version| application.save(&spool, version).unwrap());
    fake.fail("cuLaunchKernel", 0, 2);
    fake.fail("cuMemcpyDtoHAsync_v2", 0, 2);
    let text = close(&spool).unwrap_err().to_string();
    assert!(text.starts_with("Versions 0 and 1 were not saved: "), "{text}");
    assert!(text.contains("cuLaunchKernel") && text.contains("cuMemcpyDtoHAsync"), "{text}");
    fake.reset();
}

#[test]
fn calls_end_in_time_while_the_gpu_stands_and_takes_no_launch() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool = open(Spec::Bounded(Bound::Absolute(BOUND)), |settings| {
        settings.timeout = Duration::from_millis(300);
    })
    .unwrap();
    let values = application.prepared(0..3).unwrap();
    application.save(&spool, 9).unwrap();
    spool.hand_over(&wait()).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
    }
    fake.fail("cuLaunchKernel", 0, 2);
    let began = Instant::now();
    let short = Wait::at_most(Duration::from_millis(100));
    let error = spool.hand_over_for(1, &short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let error = spool.hand_over(&Wait::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().starts_with("Versions 0, 1 and 2 were not saved: "), "{error}");
    let interrupted = Wait { interrupted: &|| true, ..wait() };
    let error = spool.hand_over_for(2, &interrupted).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    let error = close(&spool).unwrap_err();
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().starts_with("Versions 0, 1 and 2 were not saved: "), "{error}");
    fake.release();
    fake.reset();
}
