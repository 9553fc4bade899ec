//! Checkpoints that are held and encoded together, on a fake GPU that is late, stands still or is
//! lost.

mod application;

use std::time::{Duration, Instant};

use application::{
    Application, BOUND, LIMIT, Outcome, Packages, array_of, every_other, floats, on_host, wait,
};
use unspool::gpu::{DeviceMemory, Stream};
use unspool::{
    Accumulate, Bound, CodecId, Codecs, DiskSettings, ErrorKind, Launch, LaunchStats, NvComp,
    Settings, Spec, Spool,
};
use unspool_cuda::copy;
use unspool_fakecuda::Fake;

const COUNT: usize = 5000;
const LEN: u64 = 4 * COUNT as u64;
/// Longer than any test: nothing is launched because time has passed.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn wave(version: i64) -> Vec<u8> {
    let at = |i: usize| (i as f32 * 0.003 + version as f32).sin();
    (0..COUNT).flat_map(|i| at(i).to_le_bytes()).collect()
}

fn application() -> Outcome<Application> {
    Application::with(wave)
}

fn bounded() -> Codecs {
    Codecs::all(Spec::Bounded(Bound::Absolute(BOUND)))
}

fn eight() -> Accumulate {
    Accumulate { checkpoints: 8, bytes: 8 * LEN, held_at_most: FOR_EVER }
}

/// A spool that holds up to eight checkpoints.
fn open(change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    application::open(bounded(), |settings| {
        settings.accumulate = Some(eight());
        change(settings);
    })
}

fn launches(spool: &Spool) -> LaunchStats {
    spool.stats().map(|stats| stats.launches).unwrap_or_default()
}

fn notes(spool: &Spool) -> Vec<String> {
    spool.stats().map(|stats| stats.application.notes).unwrap_or_default()
}

fn launched(launches: u64, checkpoints: u64, most: u64) -> LaunchStats {
    LaunchStats { launches, checkpoints, most }
}

#[test]
fn checkpoints_of_one_launch_are_those_that_are_encoded_alone() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let alone = application::open(bounded(), |_| ()).unwrap();
    let together = open(|_| ()).unwrap();
    for version in 0..20 {
        application.save(&alone, version).unwrap();
        application.save(&together, version).unwrap();
    }
    assert_eq!(launches(&alone), launched(20, 20, 1));
    assert_eq!(launches(&together), launched(2, 16, 8));
    for version in (0..20).rev() {
        let told = together.achieved(version).unwrap();
        assert_eq!(told[0].codec, CodecId::Twine);
        assert_eq!(told, alone.achieved(version).unwrap());
        let bytes = application.restore(&together, version).unwrap();
        assert!(bytes == application.restore(&alone, version).unwrap(), "version {version}");
        assert!(application.restored_error(&together, version).unwrap() <= BOUND);
    }
    assert_eq!(launches(&together), launched(3, 20, 8));
    let used = |spool: &Spool| spool.stats().unwrap().tiers[0].used;
    assert_eq!(used(&together), used(&alone), "no holes between them");
    alone.close().unwrap();
    together.close().unwrap();
}

#[test]
fn saves_are_held_while_the_gpu_stands() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|_| ()).unwrap();
    let values = application.prepared(0..20).unwrap();
    application.stream.sync(LIMIT).unwrap();
    application.save(&spool, 100).unwrap();
    spool.achieved(100).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
        assert!(spool.contains(version).unwrap());
    }
    fake.release();
    for version in 0..20 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    spool.close().unwrap();
}

#[test]
fn whoever_needs_a_held_checkpoint_has_it_launched() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        let disk = DiskSettings::new(directory.path());
        settings.disk = Some(DiskSettings { durable: true, ..disk });
    })
    .unwrap();
    let mut count = 0;
    let mut hold = |versions: std::ops::Range<i64>| {
        for version in versions {
            application.save(&spool, version).unwrap();
            count += 1;
        }
        (launches(&spool).launches, count)
    };
    assert_eq!(hold(0..3), (0, 3));
    assert!(application.restored_error(&spool, 1).unwrap() <= BOUND);
    assert_eq!(launches(&spool), launched(1, 3, 3));
    assert_eq!(hold(3..5), (1, 5));
    let error = spool.restore(50, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(launches(&spool), launched(1, 3, 3), "who waits for nothing launches nothing");
    assert_eq!(spool.achieved(3).unwrap()[0].bytes, LEN);
    assert_eq!(launches(&spool), launched(2, 5, 3));
    assert_eq!(hold(5..6), (2, 6));
    spool.flush(&wait()).unwrap();
    assert_eq!(launches(&spool), launched(3, 6, 3));
    assert!((0..6).all(|version| spool.durable(version).unwrap()));
    assert_eq!(hold(6..8), (3, 8));
    spool.close().unwrap();
    drop(spool);
    let spool = Spool::open(Settings {
        disk: Some(DiskSettings { durable: true, ..DiskSettings::new(directory.path()) }),
        ..Settings::default()
    })
    .unwrap();
    assert_eq!(spool.versions().unwrap(), (0..8).collect::<Vec<_>>());
    let bytes = on_host(&spool, 7, 0).unwrap();
    assert!(application::error(&bytes, &wave(7)) <= BOUND);
}

#[test]
fn nothing_is_held_for_longer_than_the_settings_say() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|settings| {
        let held_at_most = Duration::from_millis(2);
        settings.accumulate = settings.accumulate.map(|all| Accumulate { held_at_most, ..all });
    })
    .unwrap();
    let began = Instant::now();
    for version in 0..3 {
        application.save(&spool, version).unwrap();
        while launches(&spool).checkpoints <= version.cast_unsigned() {
            assert!(began.elapsed() < LIMIT, "it is never launched");
            std::thread::yield_now();
        }
    }
    spool.close().unwrap();
}

#[test]
fn a_save_says_when_it_is_launched() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|_| ()).unwrap();
    let values = application.prepared(0..6).unwrap();
    let save = |version: i64, launch| {
        let mut ticket = spool.save(version, vec![floats("u", LEN)], &wait()).unwrap();
        ticket.set_launch(launch);
        ticket.put(0, &array_of(&values[version as usize]), &application.stream).unwrap();
        ticket.commit().unwrap();
        launches(&spool)
    };
    assert_eq!(save(0, Launch::Alone), launched(1, 1, 1));
    assert_eq!(save(1, Launch::Held), launched(1, 1, 1));
    assert_eq!(save(2, Launch::Held), launched(1, 1, 1));
    assert_eq!(save(3, Launch::WithHeld), launched(2, 4, 3));
    assert_eq!(save(4, Launch::Held), launched(2, 4, 3));
    assert_eq!(save(5, Launch::Alone), launched(4, 6, 3), "those before it come first");
    for version in 0..6 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    spool.close().unwrap();
}

#[test]
fn room_that_held_checkpoints_leave_is_found_by_the_saves_behind_them() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let application = application().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        settings.device = Some(96 << 10);
        settings.host = Some(64 << 10);
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    (0..60).for_each(|version| application.save(&spool, version).unwrap());
    spool.expect((0..60).rev()).unwrap();
    for version in (0..60).rev() {
        let found = application.restored_error(&spool, version).unwrap();
        assert!(found <= BOUND, "version {version}: {found}");
    }
    assert_eq!(notes(&spool), [""; 0]);
    let all = launches(&spool);
    assert!(all.checkpoints == 60 && all.most > 1, "{all:?}");
    spool.close().unwrap();
}

/// Saves a strided and a dense array of two streams as `version`, and spoils them.
fn save_two(
    application: &Application,
    spool: &Spool,
    version: i64,
    (a, b, second): (&DeviceMemory, &DeviceMemory, &Stream),
) -> Outcome {
    let (strided, expected) = every_other(b, &wave(version));
    let specs = vec![floats("few", 12), floats("a", LEN), floats("b", expected.len() as u64)];
    let mut ticket = spool.save(version, specs, &wait())?;
    let few = application.upload(&[1; 12])?;
    let dense = array_of(a);
    if version % 3 != 2 {
        let few = array_of(&few);
        let all = [(1, &dense, &application.stream), (2, &strided, second)];
        ticket.put(0, &few, &application.stream)?;
        ticket.put_all(&all)?;
    } else {
        ticket.put(2, &strided, second)?;
        ticket.put(1, &dense, &application.stream)?;
        ticket.fill_from(0, &[1; 12])?;
    }
    copy::fill(&application.stream, &a.span(), 0)?;
    copy::fill(second, &b.span(), 0)?;
    Ok(ticket.commit()?)
}

#[test]
fn regions_of_several_streams_strides_and_the_host_are_kept_in_order() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(30), 0);
    let application = application().unwrap();
    let second = Stream::new(&application.context).unwrap();
    let spool = open(|settings| {
        settings.accumulate = settings.accumulate.map(|all| Accumulate { bytes: 20 * LEN, ..all });
    })
    .unwrap();
    for version in 0..9 {
        let values = [wave(version), wave(version)];
        let [a, b] = values.map(|values| application.upload(&values).unwrap());
        save_two(&application, &spool, version, (&a, &b, &second)).unwrap();
    }
    for version in 0..9 {
        let other: Vec<u8> =
            wave(version).chunks_exact(8).flat_map(|pair| pair[..4].to_vec()).collect();
        for (index, expected) in [vec![1; 12], wave(version), other].iter().enumerate() {
            let bytes = on_host(&spool, version, index).unwrap();
            assert_eq!(bytes.len(), expected.len());
            assert!(application::error(&bytes, expected) <= BOUND, "{version}, region {index}");
        }
    }
    assert!(launches(&spool).launches < 9);
    spool.close().unwrap();
}

#[test]
fn what_is_too_large_to_be_held_or_has_another_codec_keeps_its_place() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|settings| {
        settings.accumulate = settings.accumulate.map(|all| Accumulate { bytes: 3 * LEN, ..all });
    })
    .unwrap();
    let large = application.upload(&(0..4).flat_map(wave).collect::<Vec<u8>>()).unwrap();
    application.save(&spool, 0).unwrap();
    let mut ticket = spool.save(1, vec![floats("u", 4 * LEN)], &wait()).unwrap();
    ticket.put(0, &array_of(&large), &application.stream).unwrap();
    ticket.commit().unwrap();
    assert_eq!(launches(&spool), launched(2, 2, 1));
    application.save(&spool, 2).unwrap();
    for (version, codec) in [(3, Spec::Raw), (4, Spec::Lossless)] {
        let values = application.upload(&wave(version)).unwrap();
        let codec = Codecs::all(codec);
        let mut ticket = spool.save_as(version, vec![floats("u", LEN)], &codec, &wait()).unwrap();
        ticket.put(0, &array_of(&values), &application.stream).unwrap();
        ticket.commit().unwrap();
    }
    application.save(&spool, 5).unwrap();
    assert_eq!(launches(&spool), launched(3, 5, 3), "another bound is no other encoder");
    for version in [0, 2, 3, 4, 5] {
        let found = application.restored_error(&spool, version).unwrap();
        assert!(found <= BOUND && (found == 0.0) == (version == 3 || version == 4), "{version}");
    }
    let bytes = on_host(&spool, 1, 0).unwrap();
    assert!(application::error(&bytes, &(0..4).flat_map(wave).collect::<Vec<u8>>()) <= BOUND);
    spool.close().unwrap();
}

#[test]
fn held_checkpoints_are_discarded_given_up_and_saved_again() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|settings| settings.device = Some(128 << 10)).unwrap();
    for round in 0..10 {
        fake.seed(round);
        let values = application.prepared(0..3).unwrap();
        let mut ticket = spool.save(7, vec![floats("u", LEN)], &wait()).unwrap();
        ticket.put(0, &array_of(&values[0]), &application.stream).unwrap();
        drop(ticket);
        assert!(!spool.contains(7).unwrap());
        application.save(&spool, 7).unwrap();
        application.save(&spool, 8).unwrap();
        spool.discard(7).unwrap();
        let error = spool.restore(7, &wait()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Discarded, "{error}");
        application.save(&spool, 7).unwrap();
        for version in [7, 8] {
            assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
            spool.discard(version).unwrap();
        }
    }
    spool.achieved(7).unwrap_err();
    assert_eq!(spool.stats().unwrap().tiers[0].used, 0);
    spool.close().unwrap();
}

#[test]
fn a_launch_that_fails_is_made_up_for_one_by_one_or_by_the_host() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|_| ()).unwrap();
    for version in 0..3 {
        application.save(&spool, version).unwrap();
    }
    fake.fail("cuLaunchKernel", 1, 2);
    assert!(application.restored_error(&spool, 1).unwrap() <= BOUND);
    assert_eq!(launches(&spool), launched(3, 3, 1));
    for version in 3..6 {
        application.save(&spool, version).unwrap();
    }
    fake.fail("cuLaunchKernel", 0, 2);
    assert!(spool.achieved(4).unwrap()[0].stored < LEN / 2);
    assert_eq!(launches(&spool), launched(3, 3, 1));
    fake.reset();
    for version in 0..6 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    let told = notes(&spool);
    assert!(told.iter().any(|note| note.contains("encoded together")), "{told:?}");
    spool.close().unwrap();
}

#[test]
fn what_only_a_gpu_encodes_is_told_of_when_it_cannot() {
    let fake = Fake::start();
    let (application, packages) = (application().unwrap(), Packages::new().unwrap());
    let spool = open(|settings| {
        settings.codec = Codecs::all(Spec::NvComp(NvComp::Lz4));
        settings.compiler_folders = packages.folders();
    })
    .unwrap();
    application.save(&spool, 0).unwrap();
    spool.achieved(0).unwrap();
    for version in 1..4 {
        application.save(&spool, version).unwrap();
    }
    fake.fail("cuLaunchKernel", 0, 2);
    assert_eq!(spool.achieved(0).unwrap()[0].bytes, LEN, "it waits for all");
    fake.reset();
    let text = spool.restore(0, &wait()).unwrap_err().to_string();
    assert!(text.contains("Versions 1, 2 and 3 were not saved"), "{text}");
    assert_eq!(spool.versions().unwrap(), [0]);
    assert!(application.restored_error(&spool, 0).unwrap() <= BOUND);
    application.save(&spool, 1).unwrap();
    assert!(application.restored_error(&spool, 1).unwrap() <= BOUND);
    spool.close().unwrap();
}

#[test]
fn a_gpu_that_is_lost_ends_the_spool_in_time() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|settings| settings.check_order = false).unwrap();
    for version in 0..5 {
        application.save(&spool, version).unwrap();
    }
    fake.break_context(0, 700);
    let began = Instant::now();
    let errors = (0..6).filter_map(|_| spool.restore(1, &wait()).err());
    let told = errors.filter(|error| error.to_string().contains("not saved")).count();
    assert!(told > 0);
    let _ = spool.close();
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn closing_while_the_gpu_stands_is_bounded_and_says_what_is_lost() {
    let fake = Fake::start();
    let application = application().unwrap();
    // The kernels are made without haste.
    let first = open(|_| ()).unwrap();
    application.save(&first, 9).unwrap();
    first.achieved(9).unwrap();
    first.close().unwrap();
    let spool = open(|settings| {
        settings.timeout = Duration::from_millis(300);
        settings.check_order = false;
    })
    .unwrap();
    let values = application.prepared(0..2).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
    }
    let error = spool.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().starts_with("Versions 0 and 1 were not saved"), "{error}");
    fake.release();
}

#[test]
fn threads_share_what_is_held() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        settings.device = Some(256 << 10);
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let spool = &spool;
            scope.spawn(move || {
                let application = application().unwrap();
                for version in 20 * thread..20 * thread + 20 {
                    application.save(spool, version).unwrap();
                    if version % 5 == 4 {
                        let found = application.restored_error(spool, version - 1).unwrap();
                        assert!(found > 0.0 && found <= BOUND, "{found}");
                    }
                }
            });
        }
    });
    let last = application().unwrap();
    for version in 0..60 {
        assert!(last.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    assert_eq!(notes(&spool), [""; 0]);
    let all = launches(&spool);
    assert!(all.checkpoints == 60 && all.most > 1 && all.launches < 60, "{all:?}");
    spool.close().unwrap();
}

#[test]
fn without_memory_for_them_checkpoints_are_encoded_alone() {
    let fake = Fake::start();
    let application = application().unwrap();
    fake.memory(32 << 20);
    let spool = open(|settings| {
        let (checkpoints, bytes) = (u32::MAX, 1 << 50);
        let held_at_most = FOR_EVER;
        settings.accumulate = Some(Accumulate { checkpoints, bytes, held_at_most });
    })
    .unwrap();
    for version in 0..3 {
        application.save(&spool, version).unwrap();
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
    }
    assert_eq!(launches(&spool).most, 1);
    let told = notes(&spool);
    assert!(told.iter().any(|note| note.contains("no memory to hold more")), "{told:?}");
    spool.close().unwrap();
}

/// A save of which the copy aside is refused, and the mark behind it where `mark_too`.
fn refused_copy(
    (fake, application, spool): (&Fake, &Application, &Spool),
    version: i64,
    mark_too: bool,
) -> String {
    let specs = vec![floats("u", LEN)];
    let mut ticket = spool.save(version, specs, &wait()).expect("a ticket");
    fake.fail("cuMemcpyDtoDAsync_v2", 1, 2);
    if mark_too {
        fake.fail("cuEventRecord", 1, 2);
    }
    let put = ticket.put(0, &array_of(&application.array), &application.stream);
    fake.reset();
    put.expect_err("a save that was refused").to_string()
}

#[test]
fn saves_are_held_together_again_after_a_copy_aside_was_refused() {
    let fake = Fake::start();
    let application = application().unwrap();
    for mark_too in [false, true] {
        let spool = open(|_| ()).unwrap();
        (0..3).for_each(|version| application.save(&spool, version).unwrap());
        let told = refused_copy((&fake, &application, &spool), 100, mark_too);
        assert!(told.contains("memory"), "{told}");
        (3..67).for_each(|version| application.save(&spool, version).unwrap());
        let all = launches(&spool);
        assert!(all.launches <= 10 && all.most == 8, "{all:?}");
        let given_up = notes(&spool).iter().any(|note| note.contains("given up and taken anew"));
        assert_eq!(given_up, mark_too);
        for version in 0..67 {
            assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
        }
        spool.close().unwrap();
    }
}

#[test]
fn containers_of_nvcomp_share_one_call_of_the_library() {
    let fake = Fake::start();
    let (application, packages) = (application().unwrap(), Packages::new().unwrap());
    let call = |codec| match codec {
        NvComp::Lz4 => "nvcompBatchedLZ4CompressAsync",
        _ => "nvcompBatchedBitcompCompressAsync",
    };
    for codec in [NvComp::Lz4, NvComp::BitcompLossy(BOUND)] {
        let opened = |accumulate: Option<Accumulate>| {
            open(|settings| {
                settings.codec = Codecs::all(Spec::NvComp(codec));
                settings.compiler_folders = packages.folders();
                settings.accumulate = settings.accumulate.and(accumulate);
            })
        };
        let alone = opened(None).unwrap();
        let spool = opened(Some(eight())).unwrap();
        let before = fake.calls(call(codec));
        for version in 0..20 {
            application.save(&spool, version).unwrap();
        }
        assert_eq!(launches(&spool), launched(2, 16, 8), "{codec:?}");
        spool.achieved(0).unwrap();
        assert_eq!(fake.calls(call(codec)) - before, 3, "{codec:?}");
        for version in 0..20 {
            let told = &spool.achieved(version).unwrap()[0];
            application.save(&alone, version).unwrap();
            assert_eq!(told, &alone.achieved(version).unwrap()[0]);
            assert_eq!(told.codec, CodecId::NvComp);
            let found = application.restored_error(&spool, version).unwrap();
            assert!(found <= BOUND, "{codec:?}, version {version}: {found}");
        }
        alone.close().unwrap();
        spool.close().unwrap();
    }
}
