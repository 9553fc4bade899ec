//! nvCOMP's codecs in spools, on a fake GPU with an nvCOMP of its own.

mod application;

use std::time::Duration;

use application::{
    Application, BOUND, Outcome, Packages, array_of, damage, error, every_other, floats, on_host,
    wait,
};
use unspool::{
    Bound, CodecId, Codecs, DiskSettings, ErrorKind, NvComp, On, RegionSpec, Settings, Spec, Spool,
};
use unspool_cuda::copy;
use unspool_fakecuda::Fake;

const COUNT: usize = 40_000;
const LEN: u64 = 4 * COUNT as u64;

/// Values of `version`, every other chunk of nvCOMP zeros.
fn values(version: i64) -> Vec<u8> {
    let at = |i: usize| if i >> 14 & 1 == 0 { 0.0 } else { (i as f32 * 0.01).sin() };
    (0..COUNT).flat_map(|i| (at(i) * (version + 1) as f32).to_le_bytes()).collect()
}

fn spec(name: &str) -> RegionSpec {
    floats(name, LEN)
}

/// An application, and where its spools find an nvCOMP.
fn ready() -> Outcome<(Application, Packages)> {
    Ok((Application::with(values)?, Packages::new()?))
}

/// A spool in which some raw checkpoints fit.
fn open(packages: &Packages, codec: Codecs, change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    application::open(codec, |settings| {
        settings.device = Some(4 << 20);
        settings.compiler_folders = packages.folders();
        change(settings);
    })
}

fn lz4() -> Codecs {
    Codecs::all(Spec::NvComp(NvComp::Lz4))
}

#[test]
fn a_check_decodes_what_goes_to_tiers_in_main_memory() {
    let _fake = Fake::start();
    let (application, packages) = ready().unwrap();
    let host_only = |settings: &mut Settings| {
        (settings.device, settings.host) = (None, Some(4 << 20));
        settings.check_codec = true;
    };
    for format in [NvComp::Bitcomp, NvComp::Lz4] {
        let codec = Codecs::all(Spec::NvComp(format));
        let spool = open(&packages, codec, host_only).unwrap();
        application.save(&spool, 1).unwrap();
        assert_eq!(spool.achieved(1).unwrap()[0].codec, CodecId::NvComp);
        assert!(application.restore(&spool, 1).unwrap() == values(1), "{format:?}");
        spool.close().unwrap();
    }
}

#[test]
fn every_format_comes_back_as_it_was_saved() {
    let _fake = Fake::start();
    let (application, packages) = ready().unwrap();
    for format in [NvComp::Bitcomp, NvComp::Lz4] {
        let codec = Codecs::all(Spec::NvComp(format));
        let spool = open(&packages, codec, |settings| settings.check_codec = true).unwrap();
        for version in 0..3 {
            application.save(&spool, version).unwrap();
        }
        for version in (0..3).rev() {
            assert!(application.restore(&spool, version).unwrap() == values(version), "{format:?}");
            assert!(on_host(&spool, version, 0).unwrap() == values(version), "{format:?}");
            let told = &spool.achieved(version).unwrap()[0];
            assert_eq!((told.codec, told.bytes), (CodecId::NvComp, LEN));
            assert!(told.stored < LEN, "{format:?}: {told:?}");
        }
        spool.close().unwrap();
    }
    let codec = Codecs::all(Spec::NvComp(NvComp::BitcompLossy(BOUND)));
    let spool = open(&packages, codec, |_| ()).unwrap();
    application.save(&spool, 0).unwrap();
    let restored = application.restore(&spool, 0).unwrap();
    assert!(error(&restored, &values(0)) <= BOUND);
    assert!(spool.achieved(0).unwrap()[0].achieved.unwrap().max_error <= BOUND);
    spool.close().unwrap();
}

#[test]
fn saves_return_while_the_gpu_stands_and_leave_no_holes_between_them() {
    let fake = Fake::start();
    let (application, packages) = ready().unwrap();
    let spool = open(&packages, lz4(), |_| ()).unwrap();
    let sources: Vec<_> =
        (0..10).map(|version| application.upload(&values(version)).unwrap()).collect();
    // What is made at the first use takes its time.
    application.save(&spool, 10).unwrap();
    spool.achieved(10).unwrap();
    fake.hold();
    for (version, source) in (0..).zip(&sources) {
        let mut ticket = spool.save(version, vec![spec("u")], &wait()).unwrap();
        ticket.put(0, &array_of(source), &application.stream).unwrap();
        ticket.commit().unwrap();
    }
    assert_eq!(spool.versions().unwrap().len(), 11);
    fake.release();
    let mut stored = 0;
    for version in (0..11).rev() {
        assert!(application.restore(&spool, version).unwrap() == values(version), "{version}");
        stored += spool.achieved(version).unwrap()[0].stored.next_multiple_of(256);
    }
    assert_eq!(spool.stats().unwrap().tiers[0].used, stored);
    spool.close().unwrap();
}

#[test]
fn more_than_fits_goes_to_slower_tiers_as_it_was_encoded_and_comes_back() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let (application, packages) = ready().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(&packages, lz4(), |settings| {
        settings.device = Some(512 << 10);
        settings.host = Some(512 << 10);
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    (0..30).for_each(|version| application.save(&spool, version).unwrap());
    spool.expect((0..30).rev()).unwrap();
    for version in (0..30).rev() {
        assert!(application.restore(&spool, version).unwrap() == values(version), "{version}");
    }
    for version in 0..30 {
        assert!(on_host(&spool, version, 0).unwrap() == values(version), "{version}");
    }
    spool.close().unwrap();
}

#[test]
fn arrays_of_a_gpu_are_encoded_there_also_for_tiers_in_main_memory() {
    let _fake = Fake::start();
    let (application, packages) = ready().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for host in [Some(1 << 20), None] {
        let spool = open(&packages, lz4(), |settings| {
            (settings.device, settings.host) = (None, host);
            (settings.on, settings.check_order) = (On::Cpu, false);
            settings.disk = Some(DiskSettings::new(directory.path()));
        })
        .unwrap();
        for version in 0..3 {
            application.save(&spool, version).unwrap();
            assert!(application.restore(&spool, version).unwrap() == values(version));
            assert!(on_host(&spool, version, 0).unwrap() == values(version));
            assert!(spool.achieved(version).unwrap()[0].stored < LEN);
        }
        spool.close().unwrap();
    }
}

#[test]
fn regions_of_several_codecs_and_of_the_host_are_one_checkpoint() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let (application, packages) = ready().unwrap();
    let by_region = [
        ("a", Spec::NvComp(NvComp::Lz4)),
        ("b", Spec::Bounded(Bound::Absolute(BOUND))),
        ("c", Spec::NvComp(NvComp::Lz4)),
        ("d", Spec::NvComp(NvComp::Bitcomp)),
        ("e", Spec::Raw),
        ("empty", Spec::NvComp(NvComp::Lz4)),
    ];
    let codec = Codecs {
        by_region: by_region.map(|(name, codec)| (name.to_owned(), codec)).into(),
        ..Codecs::default()
    };
    let empty = RegionSpec { shape: vec![0], ..spec("empty") };
    let specs = [spec("a"), spec("b"), spec("c"), spec("d"), spec("e"), empty];
    for (round, check) in [(0, false), (1, true), (2, false)] {
        let spool = open(&packages, codec.clone(), |s| s.check_codec = check).unwrap();
        let twice = [values(2), values(2)].concat();
        let memory = application.upload(&twice).unwrap();
        let (strided, kept) = every_other(&memory, &twice);
        for version in 0..3 {
            let source = application.upload(&values(version)).unwrap();
            let dense = array_of(&source);
            let mut ticket = spool.save(version, specs.to_vec(), &wait()).unwrap();
            ticket.fill_from(0, &values(version)).unwrap();
            ticket.fill(4, |room| room.copy_from_slice(&values(5))).unwrap();
            if round == 0 {
                let on = &application.stream;
                ticket.put_all(&[(1, &dense, on), (2, &strided, on), (3, &dense, on)]).unwrap();
            } else {
                ticket.put(3, &dense, &application.stream).unwrap();
                ticket.put(2, &strided, &application.stream).unwrap();
                ticket.put(1, &dense, &application.stream).unwrap();
            }
            copy::fill(&application.stream, &source.span(), 0xEE).unwrap();
            ticket.commit().unwrap();
        }
        for version in 0..3 {
            let own = values(version);
            for (index, expected) in [&own, &own, &kept, &own, &values(5)].iter().enumerate() {
                let found = on_host(&spool, version, index).unwrap();
                let allowed = if index == 1 { BOUND } else { 0.0 };
                assert!(error(&found, expected) <= allowed, "round {round}, region {index}");
            }
            assert!(on_host(&spool, version, 5).unwrap().is_empty());
            let found = application.restore(&spool, version).unwrap();
            assert!(found == own, "round {round}");
        }
        spool.close().unwrap();
    }
}

#[test]
fn arrays_of_the_host_are_encoded_by_the_gpu_of_the_spool() {
    let _fake = Fake::start();
    let packages = Packages::new().unwrap();
    for device in [Some(4 << 20), None] {
        let change = |settings: &mut Settings| {
            settings.device = device;
            settings.host = Some(4 << 20);
        };
        let spool = open(&packages, lz4(), change).unwrap();
        let mut ticket = spool.save(0, vec![spec("u"), spec("v")], &wait()).unwrap();
        ticket.fill_from(0, &values(0)).unwrap();
        ticket.fill_from(1, &values(1)).unwrap();
        ticket.commit().unwrap();
        assert!(on_host(&spool, 0, 0).unwrap() == values(0));
        assert!(on_host(&spool, 0, 1).unwrap() == values(1));
        assert!(spool.achieved(0).unwrap().iter().all(|told| told.codec == CodecId::NvComp));
        spool.close().unwrap();
    }
}

#[test]
fn containers_that_were_damaged_are_told_and_not_decoded() {
    let _fake = Fake::start();
    let (application, packages) = ready().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(&packages, lz4(), |settings| {
        settings.device = None;
        (settings.on, settings.check_order) = (On::Cpu, false);
        settings.verify = false;
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    application.save(&spool, 0).unwrap();
    damage(directory.path(), b"NVC1", 200, 0x55);
    let error = on_host(&spool, 0, 0).unwrap_err();
    let error = error.downcast::<unspool::Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let on_gpu = application.restore(&spool, 0).map(drop);
    let told = on_gpu.err().map(|error| error.to_string());
    let later = spool.restore(0, &wait()).map(drop).err().map(|error| error.to_string());
    assert!(told.is_some() || later.is_some());
    let _ = spool.close();
}

#[test]
fn without_the_library_and_for_a_durable_history_it_is_refused_with_what_to_do() {
    let fake = Fake::start();
    let (application, packages) = ready().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskSettings { durable: true, ..DiskSettings::new(directory.path()) };
    let durable = |settings: &mut Settings| settings.disk = Some(disk.clone());
    let error = open(&packages, lz4(), durable).unwrap_err();
    assert!(error.to_string().contains("durable"), "{error}");
    let spool = open(&packages, Codecs::default(), durable).unwrap();
    let error = spool.save_as(0, vec![spec("u")], &lz4(), &wait()).unwrap_err();
    assert!(error.to_string().contains("durable"), "{error}");
    spool.close().unwrap();
    let ans = Codecs::all(Spec::NvComp(NvComp::Ans));
    let spool = open(&packages, ans, |_| ()).unwrap();
    let error = spool.save(0, vec![spec("u")], &wait()).unwrap_err();
    assert!(error.to_string().contains("Ans"), "a library without it: {error}");
    spool.close().unwrap();
    fake.nvcomp(4200);
    let spool = open(&packages, lz4(), |_| ()).unwrap();
    let error = spool.save(0, vec![spec("u")], &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("pip install unspool[nvcomp]"), "{error}");
    // Other codecs go on.
    let mut ticket =
        spool.save_as(0, vec![spec("u")], &Codecs::all(Spec::Lossless), &wait()).unwrap();
    ticket.put(0, &array_of(&application.array), &application.stream).unwrap();
    ticket.commit().unwrap();
    assert_eq!(spool.achieved(0).unwrap()[0].codec, CodecId::Twine);
    spool.close().unwrap();
}
