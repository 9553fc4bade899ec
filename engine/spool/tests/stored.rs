//! What a durable frame says of itself without being read whole.

mod common;

use std::path::Path;

use common::wait;
use unspool::{
    Bound, Codecs, DiskSettings, Dtype, MadeBy, Outer, RegionSpec, Settings, Spec, Spool, Zfp,
};
use unspool_codec::checksum;

const ITEMS: u64 = 100_000;

fn open(dir: &Path, compress: Option<Outer>) -> Spool {
    let disk = DiskSettings { durable: true, compress, ..DiskSettings::new(dir) };
    let settings = Settings { host: Some(4 << 20), disk: Some(disk), ..Settings::default() };
    Spool::open(settings).expect("a durable directory")
}

/// The bytes of a wave of small steps, which can be packed, with one item changed.
fn wave(items: u64, changed: usize) -> Vec<u8> {
    let value = |n: u64| if n as usize == changed { 5.0 } else { ((n / 64) as f32 * 0.064).sin() };
    (0..items).flat_map(|n| value(n).to_le_bytes()).collect()
}

fn save(spool: &Spool, version: i64, codec: Spec, bytes: &[u8]) {
    let shape = vec![bytes.len() as u64 / 4];
    let spec = RegionSpec { name: "w".into(), dtype: Dtype::Float32, shape };
    let mut ticket =
        spool.save_as(version, vec![spec], &Codecs::all(codec), &wait()).expect("there is room");
    ticket.fill(0, |into| into.copy_from_slice(bytes)).expect("its bytes");
    ticket.commit().expect("a save");
    spool.flush(&wait()).expect("it is durable");
}

fn sums(spool: &Spool, version: i64) -> Vec<u64> {
    spool.stored(version).expect("a durable version").sums().expect("sums").expect("it has them")
}

#[test]
fn equal_pieces_have_equal_sums_and_the_one_that_was_changed_has_another() {
    for compress in [None, Some(Outer::Lz4)] {
        let folder = tempfile::tempdir().unwrap();
        let spool = open(folder.path(), compress);
        save(&spool, 1, Spec::Raw, &wave(ITEMS, usize::MAX));
        // In the third piece of 64 KiB.
        save(&spool, 2, Spec::Raw, &wave(ITEMS, 40_000));
        let (one, other) = (sums(&spool, 1), sums(&spool, 2));
        assert_eq!(one.len(), 7, "{compress:?}");
        assert_eq!(spool.stored(1).unwrap().may_be_packed(), compress.is_some());
        let differing: Vec<usize> = (0..7).filter(|piece| one[*piece] != other[*piece]).collect();
        assert_eq!(differing, [2], "{compress:?}");
        let pieces = wave(ITEMS, usize::MAX);
        let found: Vec<u64> = pieces.chunks(1 << 16).map(checksum).collect();
        assert_eq!(one, found);
    }
}

#[test]
fn a_small_frame_has_the_sum_of_its_payload() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), None);
    let bytes = wave(50, usize::MAX);
    save(&spool, 1, Spec::Raw, &bytes);
    assert_eq!(sums(&spool, 1), [checksum(&bytes)]);
}

#[test]
fn encoded_regions_say_what_made_them() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), None);
    let made = |version, codec| {
        save(&spool, version, codec, &wave(ITEMS, usize::MAX));
        spool.stored(version).unwrap().made_by(0).unwrap()
    };
    assert_eq!(made(1, Spec::Raw), None);
    let Some(MadeBy::Twine(said)) = made(2, Spec::Lossless) else { panic!("it says nothing") };
    assert_eq!((said.mode, said.max_error), (0, 0.0));
    let bound = Spec::Bounded(Bound::Absolute(1e-3));
    let Some(MadeBy::Twine(said)) = made(3, bound) else { panic!("it says nothing") };
    assert_eq!((said.mode, said.bound), (1, 1e-3));
    assert!((0.0..=1e-3).contains(&said.max_error));
    let zfp = Zfp::Tolerance(1e-3);
    assert_eq!(made(4, Spec::Zfp(zfp)), Some(MadeBy::Zfp(zfp)));
}

#[test]
fn sums_that_were_changed_are_not_given() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), None);
    save(&spool, 1, Spec::Raw, &wave(ITEMS, usize::MAX));
    let path = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let path = path.into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let told = spool.stored(1).unwrap().sums().unwrap_err();
    assert_eq!(told.kind(), unspool::ErrorKind::Corrupt, "{told}");
}
