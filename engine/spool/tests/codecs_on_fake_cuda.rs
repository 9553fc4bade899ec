//! Encoding as the save and decoding as the restore on a fake GPU that is late, stands still or is
//! lost.

mod application;

use std::time::{Duration, Instant};

use application::{Application, BOUND, LIMIT, Outcome, array_of, error, every_other, floats, wait};
use unspool::gpu::{DeviceArray, Stream};
use unspool::{
    Bound, CodecId, Codecs, DiskSettings, ErrorKind, On, RegionSpec, Settings, Spec, Spool, Wait,
};
use unspool_cuda::copy;
use unspool_fakecuda::Fake;

const COUNT: usize = 5000;
const LEN: u64 = 4 * COUNT as u64;

/// The values of `version`, as bytes.
fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| (i as f32 * 0.003 + version as f32).sin();
    (0..COUNT).flat_map(|i| at(i).to_le_bytes()).collect()
}

fn spec(name: &str) -> RegionSpec {
    floats(name, LEN)
}

fn open(change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    application::open(Codecs::all(Spec::Bounded(Bound::Absolute(BOUND))), change)
}

#[test]
fn encoded_saves_go_on_where_there_is_room_when_another_process_takes_memory() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    // Nothing of 2 MiB is mapped.
    fake.fail("cuMemCreate", 1, 2);
    let spool = open(|settings| settings.host = Some(1 << 20)).unwrap();
    for version in 0..10 {
        application.save(&spool, version).unwrap();
    }
    for version in (0..10).rev() {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
    }
    assert_eq!(spool.stats().unwrap().tiers[0].capacity, 0);
    spool.close().unwrap();
}

#[test]
fn saves_return_while_the_gpu_stands_and_leave_no_holes_between_them() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool = open(|_| ()).unwrap();
    let values = application.prepared(0..20).unwrap();
    application.stream.sync(LIMIT).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
        assert!(spool.contains(version).unwrap());
    }
    assert_eq!(spool.versions().unwrap().len(), 20);
    fake.release();
    for version in (0..20).rev() {
        let found = application.restored_error(&spool, version).unwrap();
        let told = &spool.achieved(version).unwrap()[0];
        assert_eq!(told.codec, CodecId::Twine);
        assert!(found <= BOUND && (found - told.achieved.unwrap().max_error).abs() < 1e-8);
    }
    let stored: u64 = (0..20)
        .map(|v| spool.achieved(v).unwrap()[0].stored)
        .collect::<Vec<_>>()
        .iter()
        .map(|bytes| bytes.next_multiple_of(256))
        .sum();
    assert_eq!(spool.stats().unwrap().tiers[0].used, stored);
    spool.close().unwrap();
}

#[test]
fn more_than_fits_goes_to_slower_tiers_as_it_was_encoded_and_comes_back() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(50), 0);
    let application = Application::with(wave).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        settings.device = Some(64 << 10);
        settings.host = Some(64 << 10);
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    (0..60).for_each(|version| application.save(&spool, version).unwrap());
    spool.expect((0..60).rev()).unwrap();
    for version in (0..60).rev() {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "version {version}");
    }
    // On the host, whatever tier it is in.
    for version in 0..60 {
        let ticket = spool.restore(version, &wait()).unwrap();
        ticket.read(0, |bytes| assert!(error(bytes, &wave(version)) <= BOUND)).unwrap();
        ticket.finish().unwrap();
    }
    spool.close().unwrap();
}

#[test]
fn arrays_of_a_gpu_are_encoded_there_also_for_tiers_in_main_memory() {
    let _fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let directory = tempfile::tempdir().unwrap();
    for host in [Some(1 << 20), None] {
        let spool = open(|settings| {
            (settings.device, settings.host) = (None, host);
            (settings.on, settings.check_order) = (On::Cpu, false);
            settings.disk = Some(DiskSettings::new(directory.path()));
        })
        .unwrap();
        for version in 0..5 {
            application.save(&spool, version).unwrap();
            assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
            let told = spool.achieved(version).unwrap();
            assert!(told[0].stored < LEN / 2 && told[0].achieved.is_some(), "{told:?}");
        }
        spool.close().unwrap();
    }
}

/// Regions of every kind in one checkpoint: on two streams, strided, from the host, without bytes.
fn mixed(application: &Application, spool: &Spool, in_one_call: bool) -> Outcome {
    let second = Stream::new(&application.context)?;
    let twice = [wave(2), wave(2)].concat();
    let (a, b) = (application.upload(&wave(1))?, application.upload(&twice)?);
    application.stream.sync(LIMIT)?;
    let (strided, kept) = every_other(&b, &twice);
    let empty = RegionSpec { shape: vec![0], ..spec("empty") };
    let few = RegionSpec { shape: vec![3], ..spec("few") };
    let specs = vec![few, spec("a"), empty, spec("b"), spec("c")];
    let mut ticket = spool.save(0, specs, &wait())?;
    ticket.fill_from(0, &[1; 12])?;
    ticket.fill(4, |room| room.copy_from_slice(&wave(3)))?;
    let dense = array_of(&a);
    if in_one_call {
        ticket.put_all(&[(1, &dense, &application.stream), (3, &strided, &second)])?;
    } else {
        ticket.put(3, &strided, &second)?;
        ticket.put(1, &dense, &application.stream)?;
    }
    copy::fill(&application.stream, &a.span(), 0)?;
    copy::fill(&second, &b.span(), 0)?;
    ticket.commit()?;
    let ticket = spool.restore(0, &wait())?;
    let expected = [vec![1; 12], wave(1), Vec::new(), kept, wave(3)];
    for (index, expected) in expected.iter().enumerate() {
        let mut right = false;
        ticket.read(index, |bytes| {
            right = bytes.len() == expected.len() && error(bytes, expected) <= BOUND;
        })?;
        assert!(right, "region {index}");
    }
    ticket.finish()?;
    Ok(spool.discard(0)?)
}

#[test]
fn regions_from_several_streams_and_from_the_host_are_one_checkpoint() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(30), 0);
    let application = Application::with(wave).unwrap();
    for check in [false, true] {
        let spool = open(|settings| settings.check_codec = check).unwrap();
        for in_one_call in [true, false, true] {
            mixed(&application, &spool, in_one_call).unwrap();
        }
        spool.close().unwrap();
    }
}

#[test]
fn regions_of_the_host_may_come_behind_those_of_a_gpu_in_any_order() {
    let _fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let array = application.upload(&wave(5)).unwrap();
    for device in [Some(1 << 20), None] {
        let spool = open(|settings| {
            settings.device = device;
            settings.host = Some(1 << 20);
        })
        .unwrap();
        let specs = vec![spec("a"), spec("b"), spec("c")];
        let mut ticket = spool.save(0, specs, &wait()).unwrap();
        ticket.put(1, &array_of(&array), &application.stream).unwrap();
        ticket.fill_from(0, &wave(6)).unwrap();
        ticket.fill_from(2, &wave(7)).unwrap();
        ticket.commit().unwrap();
        let ticket = spool.restore(0, &wait()).unwrap();
        for (index, version) in [6, 5, 7].into_iter().enumerate() {
            let mut found = f64::MAX;
            ticket.read(index, |bytes| found = error_of(bytes, version)).unwrap();
            assert!(found <= BOUND, "region {index}: {found:e}");
        }
        ticket.finish().unwrap();
        spool.close().unwrap();
    }
}

#[test]
fn a_check_looks_at_what_a_gpu_encodes_wherever_the_tiers_are() {
    let _fake = Fake::start();
    let application = Application::with(wave).unwrap();
    // All errors are about as large as the bound allows, which the model of PSNR does not expect.
    let large = 0.98 * 3f32.sqrt() * 1e-3;
    let at = |i: usize| match i {
        0 => 1.0,
        i if i % 2 == 0 => large,
        _ => -large,
    };
    let values: Vec<u8> = (0..COUNT).flat_map(|i| at(i).to_le_bytes()).collect();
    let array = application.upload(&values).unwrap();
    for device in [Some(1 << 20), None] {
        let spool = open(|settings| {
            (settings.device, settings.host) = (device, Some(1 << 20));
            settings.codec = Codecs::all(Spec::Bounded(Bound::Psnr(60.0)));
            settings.check_codec = true;
        })
        .unwrap();
        let refused = application.save_from(&spool, 0, &array).unwrap_err();
        let refused = refused.downcast_ref::<unspool::Error>().unwrap();
        assert_eq!(refused.kind(), ErrorKind::BoundViolated, "{device:?}: {refused}");
        assert!(!spool.contains(0).unwrap());
        spool.close().unwrap();
    }
}

#[test]
fn an_array_without_bytes_that_comes_last_changes_nothing() {
    let _fake = Fake::start();
    let application = Application::with(wave).unwrap();
    for device in [Some(1 << 20), None] {
        let spool = open(|settings| {
            settings.device = device;
            settings.host = Some(1 << 20);
        })
        .unwrap();
        let empty = RegionSpec { shape: vec![0], ..spec("empty") };
        let array = application.upload(&wave(4)).unwrap();
        // SAFETY: an array without bytes is not looked at.
        let nothing = unsafe { DeviceArray::dense(0, array.span().address(), 0) };
        let mut ticket = spool.save(4, vec![spec("u"), empty], &wait()).unwrap();
        ticket.put(0, &array_of(&array), &application.stream).unwrap();
        ticket.put(1, &nothing, &application.stream).unwrap();
        let again = ticket.put(0, &array_of(&array), &application.stream).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Invalid, "{again}");
        ticket.commit().unwrap();
        assert!(application.restored_error(&spool, 4).unwrap() <= BOUND);
        spool.close().unwrap();
    }
}

#[test]
fn a_save_that_is_given_up_after_its_launch_leaves_version_and_room_free() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool = open(|settings| settings.device = Some(64 << 10)).unwrap();
    let values = application.prepared(0..1).unwrap();
    application.stream.sync(LIMIT).unwrap();
    for _ in 0..10 {
        fake.hold();
        let mut ticket = spool.save(0, vec![spec("u")], &wait()).unwrap();
        ticket.put(0, &array_of(&values[0]), &application.stream).unwrap();
        drop(ticket);
        assert!(!spool.contains(0).unwrap());
        application.save_from(&spool, 0, &values[0]).unwrap();
        fake.release();
        assert!(application.restored_error(&spool, 0).unwrap() <= BOUND);
        spool.discard(0).unwrap();
    }
    spool.close().unwrap();
}

#[test]
fn what_is_pending_can_be_discarded_and_flushed() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        let disk = DiskSettings::new(directory.path());
        settings.disk = Some(DiskSettings { durable: true, ..disk });
    })
    .unwrap();
    let values = application.prepared(0..6).unwrap();
    application.stream.sync(LIMIT).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
    }
    [0, 2, 5].into_iter().for_each(|version| spool.discard(version).unwrap());
    let error = spool.flush(&Wait::at_most(Duration::from_millis(100))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let error = spool.restore(1, &Wait::at_most(Duration::from_millis(100))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(spool.versions().unwrap(), [1, 3, 4]);
    fake.release();
    spool.flush(&wait()).unwrap();
    for version in [1, 3, 4] {
        assert!(spool.durable(version).unwrap());
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
    }
    spool.close().unwrap();
    drop(spool);
    let spool = Spool::open(Settings {
        disk: Some(DiskSettings { durable: true, ..DiskSettings::new(directory.path()) }),
        ..Settings::default()
    })
    .unwrap();
    assert_eq!(spool.versions().unwrap(), [1, 3, 4]);
    let ticket = spool.restore(3, &wait()).unwrap();
    assert!(error_of(ticket.host_region(0).unwrap(), 3) <= BOUND);
}

fn error_of(bytes: &[u8], version: i64) -> f64 {
    error(bytes, &wave(version))
}

#[test]
fn a_gpu_that_is_lost_while_it_encodes_is_told_by_the_next_call_and_close_returns() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool = open(|settings| settings.check_order = false).unwrap();
    let values = application.prepared(0..3).unwrap();
    application.stream.sync(LIMIT).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
    }
    fake.break_context(0, 700);
    fake.release();
    let error = spool.restore(1, &wait()).unwrap_err().to_string();
    let second = spool.restore(1, &wait()).unwrap_err().to_string();
    let told = [&error, &second].iter().any(|text| text.contains("not saved"));
    assert!(told, "{error} {second}");
    let began = Instant::now();
    let _ = spool.close();
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn closing_while_the_gpu_stands_is_bounded_and_says_what_is_lost() {
    let fake = Fake::start();
    let application = Application::with(wave).unwrap();
    let spool = open(|settings| {
        settings.timeout = Duration::from_millis(300);
        settings.check_order = false;
    })
    .unwrap();
    let values = application.prepared(0..2).unwrap();
    application.stream.sync(LIMIT).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
    }
    let error = spool.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("not saved"), "{error}");
    fake.release();
}

#[test]
fn threads_with_streams_of_their_own_share_a_spool_that_encodes() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        settings.device = Some(80 << 10);
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    let errors: Vec<f64> = std::thread::scope(|scope| {
        let work = |thread: i64| {
            let application = Application::with(wave).unwrap();
            let mut largest = 0f64;
            for version in 20 * thread..20 * thread + 20 {
                application.save(&spool, version).unwrap();
                if version % 2 == 1 {
                    largest = largest.max(application.restored_error(&spool, version - 1).unwrap());
                }
            }
            for version in 20 * thread..20 * thread + 20 {
                largest = largest.max(application.restored_error(&spool, version).unwrap());
            }
            largest
        };
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(errors.iter().all(|error| *error > 0.0 && *error <= BOUND), "{errors:?}");
    spool.close().unwrap();
}
