//! Several checkpoints that are kept as they are, saved by one call on a fake GPU that is late, or
//! refuses.

mod application;

use std::time::Duration;

use application::{Application, History, LIMIT, Outcome, array_of, every_other, floats, wait};
use unspool::gpu::{DeviceArray, Stream};
use unspool::{Checkpoint, Codecs, ErrorKind, Settings, Spec, Spool};
use unspool_cuda::copy;
use unspool_fakecuda::Fake;

const LEN: u64 = 4096;

fn values(version: i64) -> Vec<u8> {
    (0..LEN).map(|i| (i * 3 + version as u64 * 17) as u8).collect()
}

fn raw(change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    application::open(Codecs::all(Spec::Raw), change)
}

/// Checkpoints of one array each, on these streams by turns.
fn checkpoints<'a>(
    spool: &Spool,
    streams: &[&'a Stream],
    versions: std::ops::Range<i64>,
    arrays: &'a [DeviceArray],
) -> Vec<Checkpoint<'a>> {
    let one = |(version, array): (i64, &'a DeviceArray)| {
        let specs = vec![floats("u", array.bytes())];
        let mut checkpoint = spool.checkpoint(version, specs).expect("regions");
        let stream = streams[version as usize % streams.len()];
        checkpoint.put(0, array, stream).expect("an array of the region's size");
        checkpoint
    };
    versions.zip(arrays).map(one).collect()
}

fn check(spool: &Spool, application: &Application, versions: std::ops::Range<i64>) {
    for version in versions {
        let restored = application.restore(spool, version).expect("it was saved");
        assert!(restored == values(version), "{version}");
    }
}

#[test]
fn small_checkpoints_are_copied_by_one_launch_with_one_fence() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(30), 0);
    let application = Application::with(values).unwrap();
    let spool = raw(|_| ()).unwrap();
    let memory = application.prepared(0..100).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let mut batch = checkpoints(&spool, &[&application.stream], 0..100, &arrays);
    let calls = |name| fake.calls(name);
    let before = ["cuLaunchKernel", "cuMemcpyDtoDAsync_v2", "cuEventRecord"].map(calls);
    spool.save_many(&mut batch, &wait()).unwrap();
    let after = ["cuLaunchKernel", "cuMemcpyDtoDAsync_v2", "cuEventRecord"].map(calls);
    assert_eq!([0, 1, 2].map(|i| after[i] - before[i]), [1, 0, 1]);
    // What comes later on the stream does not change what was saved.
    for one in &memory {
        copy::fill(&application.stream, &one.span(), 0xEE).unwrap();
    }
    check(&spool, &application, 0..100);
    spool.close().unwrap();
}

#[test]
fn a_single_save_is_a_batch_of_one() {
    const CALLS: [&str; 5] = [
        "cuLaunchKernel",
        "cuMemcpyDtoDAsync_v2",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
    ];
    let fake = Fake::start();
    let application = Application::with(values).unwrap();
    for codec in [Spec::Raw, Spec::Lossless] {
        let spool = application::open(Codecs::all(codec), |_| ()).unwrap();
        let memory = application.prepared(0..6).unwrap();
        let arrays: Vec<_> = memory.iter().map(array_of).collect();
        let mut made = Vec::new();
        for version in 0..6 {
            let one = [(0, &arrays[version as usize], &application.stream)];
            let before = CALLS.map(|name| fake.calls(name));
            if version % 2 == 0 {
                spool.put(version, vec![floats("u", LEN)], &one).unwrap();
            } else {
                let arrays = &arrays[version as usize..];
                let mut batch =
                    checkpoints(&spool, &[&application.stream], version..version + 1, arrays);
                spool.save_many(&mut batch, &wait()).unwrap();
            }
            made.push([0, 1, 2, 3, 4].map(|i| fake.calls(CALLS[i]) - before[i]));
            spool.achieved(version).unwrap();
        }
        // The first two load kernels and make events that are used again.
        assert_eq!(made[2..4], made[4..], "{codec:?}");
        assert_eq!(made[4], made[5], "{codec:?}");
        check(&spool, &application, 0..6);
        spool.close().unwrap();
    }
}

#[test]
fn arrays_of_several_streams_are_saved_as_they_are_when_their_streams_come_to_the_save() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(100), 0);
    let application = Application::with(values).unwrap();
    let other = Stream::new(&application.context).unwrap();
    let spool = raw(|_| ()).unwrap();
    let (memory, later) =
        (application.prepared(0..8).unwrap(), application.prepared(100..108).unwrap());
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let streams = [&application.stream, &other];
    for (version, (to, from)) in memory.iter().zip(&later).enumerate() {
        copy::device_to_device(streams[version % 2], &to.span(), &from.span()).unwrap();
    }
    let mut batch = checkpoints(&spool, &streams, 0..8, &arrays);
    spool.save_many(&mut batch, &wait()).unwrap();
    for (version, to) in memory.iter().enumerate() {
        copy::fill(streams[version % 2], &to.span(), 0xEE).unwrap();
    }
    for version in 0..8 {
        let restored = application.restore(&spool, version).unwrap();
        assert!(restored == values(100 + version), "{version}");
    }
    spool.close().unwrap();
}

#[test]
fn what_is_no_dense_array_of_the_gpu_is_saved_by_itself_between_the_others() {
    let _fake = Fake::start();
    let application = Application::with(values).unwrap();
    let spool = raw(|_| ()).unwrap();
    let memory = application.prepared(0..6).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let double = application.upload(&[values(2), values(3)].concat()).unwrap();
    let (strided, expected) = every_other(&double, &[values(2), values(3)].concat());
    let on_host = values(4);
    let mut batch = checkpoints(&spool, &[&application.stream], 0..6, &arrays);
    batch[2] = spool.checkpoint(2, vec![floats("u", strided.bytes())]).unwrap();
    batch[2].put(0, &strided, &application.stream).unwrap();
    batch[4] = spool.checkpoint(4, vec![floats("u", LEN)]).unwrap();
    batch[4].fill_from(0, &on_host).unwrap();
    spool.save_many(&mut batch, &wait()).unwrap();
    check(&spool, &application, 0..2);
    assert!(application::on_host(&spool, 2, 0).unwrap() == expected);
    check(&spool, &application, 3..6);
    spool.close().unwrap();
}

#[test]
fn a_launch_that_is_refused_is_made_up_for_by_copies_one_by_one() {
    let fake = Fake::start();
    let application = Application::with(values).unwrap();
    let spool = raw(|_| ()).unwrap();
    let memory = application.prepared(0..5).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    fake.fail("cuLaunchKernel", 0, 2);
    let mut batch = checkpoints(&spool, &[&application.stream], 0..5, &arrays);
    spool.save_many(&mut batch, &wait()).unwrap();
    let notes = spool.stats().unwrap().application.notes.join("\n");
    assert!(notes.contains("could not be copied together"), "{notes}");
    fake.reset();
    check(&spool, &application, 0..5);
    spool.close().unwrap();
}

#[test]
fn a_device_that_takes_no_copies_saves_nothing_and_says_so() {
    let fake = Fake::start();
    let application = Application::with(values).unwrap();
    let spool = raw(|_| ()).unwrap();
    let memory = application.prepared(0..3).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    for name in ["cuLaunchKernel", "cuMemcpyDtoDAsync_v2"] {
        fake.fail(name, 0, 2);
    }
    let mut batch = checkpoints(&spool, &[&application.stream], 0..3, &arrays);
    let error = spool.save_many(&mut batch, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    assert!(!batch.is_empty());
    fake.reset();
    spool.save_many(&mut batch, &wait()).unwrap();
    let saved = spool.versions().unwrap();
    assert!(!saved.is_empty());
    saved.iter().for_each(|version| check(&spool, &application, *version..version + 1));
    spool.close().unwrap();
}

#[test]
fn copies_of_which_nobody_knows_when_they_are_done_save_nothing() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(100), 0);
    let application = Application::with(values).unwrap();
    let other = Stream::new(&application.context).unwrap();
    let spool = raw(|_| ()).unwrap();
    let memory = application.prepared(0..4).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let mut batch = checkpoints(&spool, &[&application.stream, &other], 0..4, &arrays);
    // The first one is of the other stream, which the copies come after.
    fake.fail("cuEventRecord", 2, 2);
    for name in ["cuStreamQuery", "cuCtxSynchronize"] {
        fake.fail(name, 0, 2);
    }
    let error = spool.save_many(&mut batch, &wait()).unwrap_err();
    fake.reset();
    assert_eq!((error.kind(), error.unsaved().len(), batch.len()), (ErrorKind::Device, 4, 4));
    assert_eq!(spool.versions().unwrap(), Vec::<i64>::new(), "{error}");
    // When the device can be waited for again, so can what was under way in that memory.
    spool.save_many(&mut batch, &wait()).unwrap();
    check(&spool, &application, 0..4);
    spool.close().unwrap();
}

/// Saves of two streams with a codec, in which the `nth` event cannot be recorded and nothing can
/// be waited for by a stream or the device: how many were refused.
fn refused_without_an_end(fake: &Fake, nth: u64) -> Outcome<usize> {
    let application = Application::with(values)?;
    let other = Stream::new(&application.context)?;
    let codecs = Codecs::all(Spec::Lossless);
    let spool = application::open(codecs, |settings| settings.check_order = false)?;
    let memory = application.prepared(0..4)?;
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let mut batch = checkpoints(&spool, &[&application.stream, &other], 0..4, &arrays);
    fake.fail("cuEventRecord", nth, 2);
    for name in ["cuStreamQuery", "cuCtxSynchronize"] {
        fake.fail(name, 0, 2);
    }
    let saved = spool.save_many(&mut batch, &wait());
    fake.reset();
    for (one, on) in memory.iter().zip([&application.stream, &other].into_iter().cycle()) {
        copy::fill(on, &one.span(), 0xEE)?;
    }
    assert_eq!(saved.is_err(), !batch.is_empty());
    for version in spool.versions()? {
        check(&spool, &application, version..version + 1);
    }
    let refused = batch.len();
    for (one, version) in memory.iter().zip(0..) {
        copy::host_to_device(&application.stream, &one.span(), &values(version), LIMIT)?;
    }
    spool.save_many(&mut batch, &wait())?;
    check(&spool, &application, 0..4);
    spool.close()?;
    Ok(refused)
}

#[test]
fn encoders_of_which_nobody_knows_when_they_are_done_save_nothing() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(100), 0);
    let refused: Vec<usize> =
        (1..8).map(|nth| refused_without_an_end(&fake, nth).unwrap()).collect();
    assert!(refused.contains(&4), "{refused:?}");
}
