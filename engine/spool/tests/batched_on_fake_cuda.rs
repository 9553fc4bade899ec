//! Checkpoints that wait in front of a spool and are encoded together, on a fake GPU that is late,
//! stands still or is lost.

mod application;

use std::time::{Duration, Instant};

use application::{
    Application, BOUND, History, LIMIT, Outcome, Packages, array_of, close, every_other, floats,
    on_host, settled, wait,
};
use unspool::gpu::{DeviceArray, DeviceMemory, Stream};
use unspool::{
    Accumulate, Batched, Bound, Checkpoint, CodecId, Codecs, DiskSettings, ErrorKind, LaunchStats,
    NvComp, Settings, Spec, Spool, Stats,
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

/// A spool whose batches have up to eight checkpoints.
fn open(change: impl FnOnce(&mut Settings)) -> Outcome<Batched> {
    application::open_batched(bounded(), eight(), change)
}

/// A spool whose batches are these.
fn open_with(most: Accumulate) -> Outcome<Batched> {
    application::open_batched(bounded(), most, |_| ())
}

/// Whether `version` waits, or is saved.
fn is_there(spool: &Batched, version: i64) -> Outcome<bool> {
    Ok(spool.waits().contains(&version) || spool.spool().contains(version)?)
}

fn stats(spool: &Batched) -> Stats {
    spool.spool().stats().unwrap_or_default()
}

fn launches(spool: &Batched) -> LaunchStats {
    stats(spool).launches
}

fn notes(spool: &Batched) -> Vec<String> {
    stats(spool).application.notes
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
    assert_eq!(alone.stats().unwrap().launches, launched(20, 20, 1));
    assert_eq!(launches(&together), launched(2, 16, 8));
    for version in (0..20).rev() {
        let told = settled(&together).unwrap().achieved(version).unwrap();
        assert_eq!(told[0].codec, CodecId::Twine);
        assert_eq!(told, alone.achieved(version).unwrap());
        let bytes = application.restore(&together, version).unwrap();
        assert!(bytes == application.restore(&alone, version).unwrap(), "version {version}");
        assert!(application.restored_error(&together, version).unwrap() <= BOUND);
    }
    assert_eq!(launches(&together), launched(3, 20, 8));
    let used = |spool: &Spool| spool.stats().unwrap().tiers[0].used;
    assert_eq!(used(together.spool()), used(&alone), "no holes between them");
    alone.close().unwrap();
    close(&together).unwrap();
}

#[test]
fn saves_return_while_the_gpu_stands() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|_| ()).unwrap();
    let values = application.prepared(0..20).unwrap();
    application.stream.sync(LIMIT).unwrap();
    application.save(&spool, 100).unwrap();
    spool.hand_over(&wait()).unwrap();
    fake.hold();
    for (version, values) in (0..).zip(&values) {
        application.save_from(&spool, version, values).unwrap();
        assert!(is_there(&spool, version).unwrap());
    }
    fake.release();
    for version in 0..20 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    close(&spool).unwrap();
}

#[test]
fn whoever_needs_a_checkpoint_that_waits_has_it_launched() {
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
    let error = spool.get(50).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(launches(&spool), launched(1, 3, 3), "who waits for nothing launches nothing");
    assert_eq!(settled(&spool).unwrap().achieved(3).unwrap()[0].bytes, LEN);
    assert_eq!(launches(&spool), launched(2, 5, 3));
    assert_eq!(hold(5..6), (2, 6));
    settled(&spool).unwrap().flush(&wait()).unwrap();
    assert_eq!(launches(&spool), launched(3, 6, 3));
    assert!((0..6).all(|version| spool.spool().durable(version).unwrap()));
    assert_eq!(hold(6..8), (3, 8));
    close(&spool).unwrap();
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
fn nothing_waits_for_longer_than_the_settings_say() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let held_at_most = Duration::from_millis(2);
    let spool = open_with(Accumulate { held_at_most, ..eight() }).unwrap();
    let began = Instant::now();
    for version in 0..3 {
        application.save(&spool, version).unwrap();
        while launches(&spool).checkpoints <= version.cast_unsigned() {
            assert!(began.elapsed() < LIMIT, "it is never launched");
            std::thread::yield_now();
        }
    }
    close(&spool).unwrap();
}

#[test]
fn a_batch_is_handed_over_when_the_application_says_so() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|_| ()).unwrap();
    let values = application.prepared(0..6).unwrap();
    let keep = |version: i64| {
        application.save_from(&spool, version, &values[version as usize]).unwrap();
        launches(&spool)
    };
    let alone = |version: i64| {
        spool.hand_over(&wait()).unwrap();
        application.save_from(&**spool.spool(), version, &values[version as usize]).unwrap();
        launches(&spool)
    };
    assert_eq!(alone(0), launched(1, 1, 1));
    assert_eq!(keep(1), launched(1, 1, 1));
    assert_eq!(keep(2), launched(1, 1, 1));
    assert_eq!(keep(3), launched(1, 1, 1));
    spool.hand_over(&wait()).unwrap();
    assert_eq!(launches(&spool), launched(2, 4, 3));
    assert_eq!(keep(4), launched(2, 4, 3));
    assert_eq!(alone(5), launched(4, 6, 3), "those before it come first");
    for version in 0..6 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    close(&spool).unwrap();
}

#[test]
fn room_that_a_batch_leaves_is_found_by_the_saves_after_it() {
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
    spool.spool().expect((0..60).rev()).unwrap();
    for version in (0..60).rev() {
        let found = application.restored_error(&spool, version).unwrap();
        assert!(found <= BOUND, "version {version}: {found}");
    }
    assert_eq!(notes(&spool), [""; 0]);
    let all = launches(&spool);
    assert!(all.checkpoints == 60 && all.most > 1, "{all:?}");
    close(&spool).unwrap();
}

/// Saves a strided and a dense array of two streams as `version`, and spoils them.
fn save_two(
    application: &Application,
    spool: &Batched,
    version: i64,
    (a, b, second): (&DeviceMemory, &DeviceMemory, &Stream),
) -> Outcome {
    let (strided, expected) = every_other(b, &wave(version));
    let specs = vec![floats("few", 12), floats("a", LEN), floats("b", expected.len() as u64)];
    let few = application.upload(&[1; 12])?;
    let (few, dense) = (array_of(&few), array_of(a));
    let mut checkpoint = spool.spool().checkpoint(version, specs)?;
    checkpoint.put(2, &strided, second)?;
    checkpoint.put(1, &dense, &application.stream)?;
    match version % 3 {
        2 => checkpoint.fill_from(0, &[1; 12])?,
        _ => checkpoint.put(0, &few, &application.stream)?,
    }
    spool.save(checkpoint, &wait())?;
    copy::fill(&application.stream, &a.span(), 0)?;
    Ok(copy::fill(second, &b.span(), 0)?)
}

#[test]
fn regions_of_several_streams_strides_and_the_host_are_kept_in_order() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(30), 0);
    let application = application().unwrap();
    let second = Stream::new(&application.context).unwrap();
    let spool = open_with(Accumulate { bytes: 20 * LEN, ..eight() }).unwrap();
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
    close(&spool).unwrap();
}

#[test]
fn what_is_too_large_for_a_batch_or_has_another_codec_keeps_its_place() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = open_with(Accumulate { bytes: 3 * LEN, ..eight() }).unwrap();
    let large = application.upload(&(0..4).flat_map(wave).collect::<Vec<u8>>()).unwrap();
    application.save(&spool, 0).unwrap();
    let all = array_of(&large);
    spool.put(1, vec![floats("u", 4 * LEN)], &[(0, &all, &application.stream)]).unwrap();
    assert_eq!(launches(&spool), launched(2, 2, 1));
    application.save(&spool, 2).unwrap();
    for (version, codec) in [(3, Spec::Raw), (4, Spec::Lossless)] {
        let values = application.upload(&wave(version)).unwrap();
        let (codec, array) = (Codecs::all(codec), array_of(&values));
        let specs = vec![floats("u", LEN)];
        let mut checkpoint = spool.spool().checkpoint_as(version, specs, &codec).unwrap();
        checkpoint.put(0, &array, &application.stream).unwrap();
        spool.save(checkpoint, &wait()).unwrap();
    }
    application.save(&spool, 5).unwrap();
    assert_eq!(launches(&spool), launched(3, 5, 3), "another bound is not another encoder");
    for version in [0, 2, 3, 4, 5] {
        let found = application.restored_error(&spool, version).unwrap();
        assert!(found <= BOUND && (found == 0.0) == (version == 3 || version == 4), "{version}");
    }
    let bytes = on_host(&spool, 1, 0).unwrap();
    assert!(application::error(&bytes, &(0..4).flat_map(wave).collect::<Vec<u8>>()) <= BOUND);
    close(&spool).unwrap();
}

#[test]
fn checkpoints_that_wait_are_discarded_given_up_and_saved_again() {
    let fake = Fake::start();
    let application = application().unwrap();
    let spool = open(|settings| settings.device = Some(128 << 10)).unwrap();
    for round in 0..10 {
        fake.seed(round);
        let values = application.prepared(0..3).unwrap();
        let specs = vec![floats("u", LEN)];
        let mut ticket = spool.spool().save(7, specs, &wait()).unwrap();
        ticket.put(0, &array_of(&values[0]), &application.stream).unwrap();
        drop(ticket);
        assert!(!is_there(&spool, 7).unwrap());
        application.save(&spool, 7).unwrap();
        application.save(&spool, 8).unwrap();
        settled(&spool).unwrap().discard(7).unwrap();
        let error = spool.get(7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Discarded, "{error}");
        application.save(&spool, 7).unwrap();
        for version in [7, 8] {
            assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
            settled(&spool).unwrap().discard(version).unwrap();
        }
    }
    settled(&spool).unwrap().achieved(7).unwrap_err();
    assert_eq!(stats(&spool).tiers[0].used, 0);
    close(&spool).unwrap();
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
    assert!(settled(&spool).unwrap().achieved(4).unwrap()[0].stored < LEN / 2);
    assert_eq!(launches(&spool), launched(3, 3, 1));
    fake.reset();
    for version in 0..6 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    let told = notes(&spool);
    assert!(told.iter().any(|note| note.contains("encoded together")), "{told:?}");
    close(&spool).unwrap();
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
    spool.hand_over(&wait()).unwrap();
    for version in 1..4 {
        application.save(&spool, version).unwrap();
    }
    fake.fail("cuLaunchKernel", 0, 2);
    let text = spool.hand_over(&wait()).unwrap_err().to_string();
    fake.reset();
    assert_eq!(settled(&spool).unwrap().achieved(0).unwrap()[0].bytes, LEN, "it is reported once");
    assert!(text.contains("Versions 1, 2 and 3 were not saved"), "{text}");
    assert_eq!(spool.spool().versions().unwrap(), [0]);
    assert!(application.restored_error(&spool, 0).unwrap() <= BOUND);
    application.save(&spool, 1).unwrap();
    assert!(application.restored_error(&spool, 1).unwrap() <= BOUND);
    close(&spool).unwrap();
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
    let errors = (0..6).filter_map(|_| spool.get(1).err());
    let told = errors.filter(|error| error.to_string().contains("not saved")).count();
    assert!(told > 0);
    let _ = close(&spool);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn closing_while_the_gpu_stands_is_bounded_and_says_what_is_lost() {
    let fake = Fake::start();
    let application = application().unwrap();
    // The kernels are made without haste.
    let first = open(|_| ()).unwrap();
    application.save(&first, 9).unwrap();
    first.hand_over(&wait()).unwrap();
    close(&first).unwrap();
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
    let error = close(&spool).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().starts_with("Versions 0 and 1 were not saved"), "{error}");
    fake.release();
}

#[test]
fn threads_share_a_batch() {
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
    close(&spool).unwrap();
}

#[test]
fn without_memory_for_them_checkpoints_are_encoded_alone() {
    let fake = Fake::start();
    let application = application().unwrap();
    fake.memory(32 << 20);
    let (checkpoints, bytes) = (u32::MAX, 1 << 50);
    let spool = open_with(Accumulate { checkpoints, bytes, held_at_most: FOR_EVER }).unwrap();
    for version in 0..3 {
        application.save(&spool, version).unwrap();
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND);
    }
    assert_eq!(launches(&spool).most, 1);
    let told = notes(&spool);
    assert!(told.iter().any(|note| note.contains("no memory to hold more")), "{told:?}");
    close(&spool).unwrap();
}

/// A save of which the copy aside is refused, and the fence after it where `fence_too`.
fn refused_copy(
    (fake, application, spool): (&Fake, &Application, &Batched),
    version: i64,
    fence_too: bool,
) -> String {
    let specs = vec![floats("u", LEN)];
    fake.fail("cuMemcpyDtoDAsync_v2", 1, 2);
    if fence_too {
        fake.fail("cuEventRecord", 1, 2);
    }
    let array = array_of(&application.array);
    let put = spool.put(version, specs, &[(0, &array, &application.stream)]);
    fake.reset();
    put.expect_err("a save that was refused").to_string()
}

#[test]
fn saves_are_held_together_again_after_a_copy_aside_was_refused() {
    let fake = Fake::start();
    let application = application().unwrap();
    for fence_too in [false, true] {
        let spool = open(|_| ()).unwrap();
        (0..3).for_each(|version| application.save(&spool, version).unwrap());
        let told = refused_copy((&fake, &application, &spool), 100, fence_too);
        assert!(told.contains("memory"), "{told}");
        (3..67).for_each(|version| application.save(&spool, version).unwrap());
        let all = launches(&spool);
        assert!(all.launches <= 10 && all.most == 8, "{all:?}");
        let given_up = notes(&spool).iter().any(|note| note.contains("given up and taken anew"));
        assert_eq!(given_up, fence_too);
        for version in 0..67 {
            assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
        }
        close(&spool).unwrap();
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
        let opened = |checkpoints| {
            let codec = Codecs::all(Spec::NvComp(codec));
            application::open_batched(codec, Accumulate { checkpoints, ..eight() }, |settings| {
                settings.compiler_folders = packages.folders();
            })
        };
        let alone = opened(1).unwrap();
        let spool = opened(8).unwrap();
        let before = fake.calls(call(codec));
        for version in 0..20 {
            application.save(&spool, version).unwrap();
        }
        assert_eq!(launches(&spool), launched(2, 16, 8), "{codec:?}");
        spool.hand_over(&wait()).unwrap();
        assert_eq!(fake.calls(call(codec)) - before, 3, "{codec:?}");
        for version in 0..20 {
            let told = &spool.spool().achieved(version).unwrap()[0];
            application.save(&alone, version).unwrap();
            assert_eq!(told, &settled(&alone).unwrap().achieved(version).unwrap()[0]);
            assert_eq!(told.codec, CodecId::NvComp);
            let found = application.restored_error(&spool, version).unwrap();
            assert!(found <= BOUND, "{codec:?}, version {version}: {found}");
        }
        close(&alone).unwrap();
        close(&spool).unwrap();
    }
}

/// Checkpoints of the values of `versions`, which lie in `arrays`, one each.
fn checkpoints<'a>(
    spool: &Spool,
    application: &'a Application,
    versions: std::ops::Range<i64>,
    arrays: &'a [DeviceArray],
) -> Vec<Checkpoint<'a>> {
    let one = |(version, array): (i64, &'a DeviceArray)| {
        let mut checkpoint = spool.checkpoint(version, vec![floats("u", LEN)]).expect("regions");
        checkpoint.put(0, array, &application.stream).expect("an array of the region's size");
        checkpoint
    };
    versions.zip(arrays).map(one).collect()
}

#[test]
fn save_many_encodes_arrays_where_they_are_by_one_launch() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(30), 0);
    let application = application().unwrap();
    let spool = application::open(bounded(), |_| ()).unwrap();
    let memory = application.prepared(0..8).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    let mut batch = checkpoints(&spool, &application, 0..8, &arrays);
    spool.save_many(&mut batch, &wait()).unwrap();
    assert!(batch.is_empty());
    for one in &memory {
        copy::fill(&application.stream, &one.span(), 0xEE).unwrap();
    }
    assert_eq!(spool.stats().unwrap().launches, launched(1, 8, 8));
    for version in 0..8 {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    spool.close().unwrap();
}

#[test]
fn what_save_many_refuses_stays_and_is_named_and_the_others_are_saved() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let spool = application::open(bounded(), |settings| settings.device = Some(64 << 10)).unwrap();
    let memory = application.prepared(0..40).unwrap();
    let arrays: Vec<_> = memory.iter().map(array_of).collect();
    application.save(&spool, 1).unwrap();
    let mut batch = checkpoints(&spool, &application, 0..3, &arrays);
    let error = spool.save_many(&mut batch, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Duplicate, "{error}");
    assert_eq!(error.unsaved(), [(1, ErrorKind::Duplicate)]);
    let left = |batch: &[Checkpoint<'_>]| batch.iter().map(Checkpoint::version).collect::<Vec<_>>();
    assert_eq!(left(&batch), [1]);
    let mut batch = checkpoints(&spool, &application, 3..40, &arrays[3..]);
    let error = spool.save_many(&mut batch, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    let first = left(&batch)[0];
    assert!(first > 3 && left(&batch) == (first..40).collect::<Vec<_>>(), "{error}");
    assert_eq!(spool.versions().unwrap(), (0..first).collect::<Vec<_>>());
    (0..first - 1).for_each(|version| spool.discard(version).unwrap());
    batch.truncate(1);
    spool.save_many(&mut batch, &wait()).unwrap();
    for version in [first - 1, first] {
        assert!(application.restored_error(&spool, version).unwrap() <= BOUND, "{version}");
    }
    spool.close().unwrap();
}

#[test]
fn a_full_spool_keeps_what_waits_until_there_is_room() {
    let _fake = Fake::start();
    let application = application().unwrap();
    let change = |settings: &mut Settings| {
        settings.device = Some(48 << 10);
        settings.codec = Codecs::all(Spec::Lossless);
    };
    let spool =
        application::open_batched(bounded(), Accumulate { checkpoints: 2, ..eight() }, change);
    let spool = spool.unwrap();
    let saved = (0..).take_while(|version| application.save(&spool, *version).is_ok()).count();
    let mut versions = spool.spool().versions().unwrap();
    versions.extend(spool.waits());
    assert_eq!(versions, (0..saved.cast_signed() as i64).collect::<Vec<_>>());
    let error = spool.hand_over(&wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    for version in &versions[..versions.len() - 1] {
        spool.spool().discard(*version).unwrap_or_default();
    }
    settled(&spool).unwrap().flush(&wait()).unwrap();
    let last = versions[versions.len() - 1];
    assert_eq!(application.restored_error(&spool, last).unwrap(), 0.0);
    close(&spool).unwrap();
}
