//! Encoded histories in main memory and on disk: what comes back, how large it is, what is told.

use std::collections::BTreeMap;
use std::time::Duration;

use unspool::{
    Bound, CodecId, Codecs, DiskSettings, Dtype, Error, ErrorKind, NvComp, Outer, RegionSpec,
    Settings, Spec, Spool, Wait, Zfp,
};

const KIB: u64 = 1 << 10;
const COUNT: usize = 20_000;

fn wait() -> Wait<'static> {
    Wait::at_most(Duration::from_secs(60))
}

/// A wave of `version` that a bound makes small.
fn wave(version: i64) -> Vec<f32> {
    let at = |i: usize| (i as f32 * 0.003 + version as f32).sin() * (i as f32 / COUNT as f32);
    (0..COUNT).map(at).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(4).map(value).collect()
}

fn spec(name: &str, dtype: Dtype, count: usize) -> RegionSpec {
    RegionSpec { name: name.to_owned(), dtype, shape: vec![count as u64] }
}

fn waves() -> Vec<RegionSpec> {
    vec![spec("u", Dtype::Float32, COUNT)]
}

fn bounded(bound: f64) -> Codecs {
    Codecs::all(Spec::Bounded(Bound::Absolute(bound)))
}

fn save(spool: &Spool, version: i64) -> Result<(), Error> {
    let mut ticket = spool.save(version, waves(), &wait())?;
    ticket.fill_from(0, &bytes(&wave(version)))?;
    ticket.commit()
}

fn restored(spool: &Spool, version: i64) -> Result<Vec<f32>, Error> {
    let ticket = spool.restore(version, &wait())?;
    let mut bytes = vec![0; 4 * COUNT];
    ticket.read_into(0, &mut bytes)?;
    ticket.finish().map(|()| floats(&bytes))
}

fn largest_error(a: &[f32], b: &[f32]) -> f64 {
    let errors = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    errors.fold(0.0, f64::max)
}

#[test]
fn a_bounded_history_goes_through_all_tiers_and_holds_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        device: Some(256 * KIB),
        host: Some(256 * KIB),
        disk: Some(DiskSettings::new(dir.path())),
        codec: bounded(1e-3),
        check_codec: true,
        ..Settings::default()
    };
    let spool = Spool::open(settings).unwrap();
    for version in 0..60 {
        save(&spool, version).unwrap();
        let told = &spool.achieved(version).unwrap()[0];
        assert_eq!((told.codec, told.bytes), (CodecId::Twine, 4 * COUNT as u64));
        assert!(told.stored < told.bytes / 3, "{told:?}");
        assert!((1e-5..=1e-3).contains(&told.achieved.unwrap().max_error), "{told:?}");
    }
    spool.expect((0..60).rev()).unwrap();
    for version in (0..60).rev() {
        let error = largest_error(&restored(&spool, version).unwrap(), &wave(version));
        let told = spool.achieved(version).unwrap()[0].achieved.unwrap();
        assert!((error - told.max_error).abs() < 1e-9, "{error} {told:?}");
    }
    let stats = spool.stats().unwrap();
    let twine = stats.codecs[0];
    assert_eq!((twine.encodes, twine.decodes), (60, 60));
    assert_eq!(twine.raw_bytes, 60 * 4 * COUNT as u64);
    assert_eq!(twine.stored_bytes, stats.application.saved_bytes);
    assert!(twine.ratio() > 3.0 && twine.achieved.values == 60 * COUNT as u64);
    spool.close().unwrap();
}

#[test]
fn what_an_encoded_checkpoint_does_not_need_of_its_room_is_there_for_others() {
    let settings = Settings { host: Some(400 * KIB), codec: bounded(1e-2), ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    // Raw, the arena would hold five of them.
    (0..20).for_each(|version| save(&spool, version).unwrap());
    for version in 0..20 {
        assert!(largest_error(&restored(&spool, version).unwrap(), &wave(version)) <= 1e-2);
    }
    assert_eq!(spool.stats().unwrap().tiers[0].copies, 20);
}

#[test]
fn lossless_regions_come_back_bit_for_bit_and_each_region_has_its_codec() {
    let by_region = BTreeMap::from([
        ("raw".to_owned(), Spec::Raw),
        ("near".to_owned(), Spec::Bounded(Bound::Range(1e-3))),
    ]);
    let codec = Codecs { default: Spec::Lossless, by_region };
    let spool = Spool::open(Settings { host: Some(KIB * KIB), codec, ..Settings::default() });
    let spool = spool.unwrap();
    let specs = vec![
        spec("count", Dtype::Int32, 1000),
        spec("raw", Dtype::Float32, COUNT),
        spec("near", Dtype::Float32, COUNT),
        spec("none", Dtype::Float64, 0),
        spec("few", Dtype::Float64, 3),
        spec("odd", Dtype::Opaque { itemsize: 7, tag: "odd".into() }, 500),
    ];
    let wave = wave(0);
    let ints: Vec<u8> = (0..1000i32).flat_map(|i| (i * i).to_le_bytes()).collect();
    let odd: Vec<u8> = (0..3500u32).map(|i| (i % 11) as u8).collect();
    let few = [1.0f64, f64::NAN, -0.0].map(f64::to_le_bytes).concat();
    let values = [ints, bytes(&wave), bytes(&wave), Vec::new(), few, odd];
    let mut ticket = spool.save(7, specs, &wait()).unwrap();
    // Not in their order, and in each of the ways.
    for index in [5, 1, 3] {
        ticket.fill(index, |room| room.copy_from_slice(&values[index])).unwrap();
    }
    ticket.host_region(2).unwrap().copy_from_slice(&values[2]);
    ticket.fill_from(4, &values[4]).unwrap();
    ticket.fill_from(0, &values[0]).unwrap();
    ticket.commit().unwrap();
    let ticket = spool.restore(7, &wait()).unwrap();
    for (index, values) in values.iter().enumerate() {
        if index == 2 {
            assert!(largest_error(&floats(ticket.host_region(2).unwrap()), &wave) <= 2e-3);
        } else {
            assert!(ticket.host_region(index).unwrap() == values, "region {index}");
        }
    }
    ticket.finish().unwrap();
    let codecs: Vec<CodecId> = spool.achieved(7).unwrap().iter().map(|r| r.codec).collect();
    let (raw, twine) = (CodecId::Raw, CodecId::Twine);
    assert_eq!(codecs, [twine, raw, twine, raw, raw, twine]);
}

#[test]
fn a_region_that_is_encoded_already_cannot_be_filled_again() {
    let settings = Settings { host: Some(KIB * KIB), codec: bounded(1e-3), ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    let mut ticket = spool.save(0, waves(), &wait()).unwrap();
    assert_eq!(ticket.fill_from(0, &[1, 2]).unwrap_err().kind(), ErrorKind::Invalid);
    ticket.fill_from(0, &bytes(&wave(0))).unwrap();
    let error = ticket.fill(0, |room| room.fill(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(ticket.host_region(0).is_none() && ticket.memory().is_none());
    drop(ticket);
    assert!(!spool.contains(0).unwrap());
    save(&spool, 0).unwrap();
}

#[test]
fn a_checkpoint_that_nearly_fills_its_tier_is_kept_as_it_is() {
    let room = (4 * COUNT as u64).next_multiple_of(256);
    let settings = Settings { host: Some(room), codec: bounded(1e-3), ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    save(&spool, 0).unwrap();
    assert!(restored(&spool, 0).unwrap() == wave(0));
    assert_eq!(spool.achieved(0).unwrap()[0].codec, CodecId::Raw);
    spool.discard(0).unwrap();
    save(&spool, 1).unwrap();
    let notes = spool.stats().unwrap().application.notes;
    assert!(notes.len() == 1 && notes[0].contains("kept as they are"), "{notes:?}");
}

#[test]
fn what_may_become_too_large_for_every_tier_is_refused_with_the_most_that_it_may_take() {
    let settings = Settings { host: Some(64 << 10), codec: bounded(1e-3), ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    let error = spool.save(0, waves(), &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let expected = ["may take up to 7", "64 KiB", "known only afterwards", "`disk`"];
    assert!(expected.iter().all(|part| error.message().contains(part)), "{error}");
    let raw = spool.save_as(0, waves(), &Codecs::default(), &wait()).unwrap_err();
    assert!(raw.message().contains("has 78"), "{raw}");
}

#[test]
fn a_durable_history_is_read_by_a_later_run_whatever_its_codecs_are() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |codec| Settings {
        disk: Some(DiskSettings { durable: true, ..DiskSettings::new(dir.path()) }),
        host: Some(256 * KIB),
        codec,
        ..Settings::default()
    };
    let spool = Spool::open(settings(bounded(1e-4))).unwrap();
    (0..5).for_each(|version| save(&spool, version).unwrap());
    spool.close().unwrap();
    let spool = Spool::open(settings(Codecs::default())).unwrap();
    for version in 0..5 {
        let told = &spool.achieved(version).unwrap()[0];
        assert_eq!((told.codec, told.achieved), (CodecId::Twine, None));
        assert!(largest_error(&restored(&spool, version).unwrap(), &wave(version)) <= 1e-4);
    }
}

#[test]
fn without_an_arena_the_exact_stream_goes_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Some(DiskSettings::new(dir.path()));
    let spool = Spool::open(Settings { disk, codec: bounded(1e-3), ..Settings::default() });
    let spool = spool.unwrap();
    (0..3).for_each(|version| save(&spool, version).unwrap());
    for version in 0..3 {
        assert!(largest_error(&restored(&spool, version).unwrap(), &wave(version)) <= 1e-3);
    }
    let saved = spool.stats().unwrap().application.saved_bytes;
    assert!(saved < 4 * COUNT as u64, "{saved}");
}

#[test]
fn frames_are_packed_on_the_disk_and_only_there() {
    for compress in [Outer::Zstd(3), Outer::Lz4, Outer::Archive] {
        let dir = tempfile::tempdir().unwrap();
        let settings = |host| Settings {
            disk: Some(DiskSettings {
                durable: true,
                compress: Some(compress),
                ..DiskSettings::new(dir.path())
            }),
            host,
            ..Settings::default()
        };
        let coarse = |version: i64| -> Vec<u8> {
            let steps = wave(version).into_iter().map(|value| (20.0 * value).round());
            steps.flat_map(f32::to_le_bytes).collect()
        };
        let keep = |spool: &Spool, version| {
            let mut ticket = spool.save(version, waves(), &wait()).unwrap();
            ticket.fill_from(0, &coarse(version)).unwrap();
            ticket.commit().unwrap();
        };
        let spool = Spool::open(settings(Some(256 * KIB))).unwrap();
        (0..6).for_each(|version| keep(&spool, version));
        spool.close().unwrap();
        let files = std::fs::read_dir(dir.path()).unwrap();
        let size: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(size < 3 * 4 * COUNT as u64, "{compress:?}: {size}");
        // Without an arena the caller's own thread reads and writes.
        let spool = Spool::open(settings(None)).unwrap();
        keep(&spool, 6);
        for version in 0..7 {
            let back = restored(&spool, version).unwrap();
            assert!(bytes(&back) == coarse(version), "{compress:?}");
        }
        spool.close().unwrap();
    }
}

#[test]
fn zfp_keeps_its_accuracy_and_says_what_it_achieved() {
    let codec = Codecs::all(Spec::Zfp(Zfp::Tolerance(1e-3)));
    let settings = Settings { host: Some(KIB * KIB), check_codec: true, ..Settings::default() };
    let spool = Spool::open(Settings { codec, ..settings }).unwrap();
    save(&spool, 0).unwrap();
    let error = largest_error(&restored(&spool, 0).unwrap(), &wave(0));
    let told = &spool.achieved(0).unwrap()[0];
    assert_eq!(told.codec, CodecId::Zfp);
    assert!(error > 0.0 && (error - told.achieved.unwrap().max_error).abs() < 1e-9, "{told:?}");
    let mut ticket = spool.save(1, waves(), &wait()).unwrap();
    let error = ticket.fill_from(0, &bytes(&vec![f32::NAN; COUNT])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn nvcomp_is_refused_for_a_durable_history_and_without_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let codec = Codecs::all(Spec::NvComp(NvComp::Lz4));
    let disk = DiskSettings { durable: true, ..DiskSettings::new(dir.path()) };
    let settings = Settings { disk: Some(disk), codec: codec.clone(), ..Settings::default() };
    let error = Spool::open(settings).unwrap_err();
    assert!(error.to_string().contains("durable"), "{error}");
    let spool = Spool::open(Settings { host: Some(KIB * KIB), codec, ..Settings::default() });
    let error = save(&spool.unwrap(), 0).unwrap_err();
    assert!(error.to_string().contains("pip install"), "{error}");
}

#[test]
fn integers_under_a_bound_of_their_own_are_refused_before_anything_is_waited_for() {
    let bound = Spec::Bounded(Bound::Absolute(1.0));
    let codec =
        Codecs { by_region: BTreeMap::from([("k".to_owned(), bound)]), ..Codecs::default() };
    let spool = Spool::open(Settings { host: Some(KIB * KIB), ..Settings::default() }).unwrap();
    let specs = vec![spec("k", Dtype::Int64, 1000)];
    let error = spool.save_as(0, specs, &codec, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("\"k\""), "{error}");
    let bad = Settings { host: Some(KIB), codec: bounded(f64::NAN), ..Settings::default() };
    assert_eq!(Spool::open(bad).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_region_that_was_refused_is_not_saved_as_something_else() {
    let zfp = Codecs::all(Spec::Zfp(Zfp::Tolerance(1e-3)));
    let settings = Settings { host: Some(KIB * KIB), codec: zfp, ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    let good = bytes(&wave(1));
    let bad = bytes(&vec![f32::NAN; COUNT]);
    let specs = || vec![spec("a", Dtype::Float32, COUNT), spec("b", Dtype::Float32, COUNT)];
    for out_of_turn in [false, true] {
        let mut ticket = spool.save(0, specs(), &wait()).unwrap();
        if out_of_turn {
            ticket.fill(0, |room| room.copy_from_slice(&bad)).unwrap();
            assert_eq!(ticket.fill_from(1, &good).unwrap_err().kind(), ErrorKind::Invalid);
        } else {
            assert_eq!(ticket.fill_from(0, &bad).unwrap_err().kind(), ErrorKind::Invalid);
        }
        let error = ticket.commit().unwrap_err();
        assert!(error.to_string().contains("region \"a\""), "{error}");
        assert!(!spool.contains(0).unwrap());
    }
    let mut ticket = spool.save(0, specs(), &wait()).unwrap();
    ticket.fill_from(0, &bad).unwrap_err();
    ticket.fill_from(0, &good).unwrap();
    ticket.fill_from(1, &good).unwrap();
    ticket.commit().unwrap();
    assert!(spool.contains(0).unwrap());
}
