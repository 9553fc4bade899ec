//! Frames that are copied from one durable spool to another.

mod common;

use std::path::Path;

use common::{bytes_spec, region, restore, save, wait};
use unspool::{
    Bound, Codecs, DiskSettings, Dtype, ErrorKind, Outer, RegionSpec, Settings, Spec, Spool,
};

fn open(dir: &Path, compress: Option<Outer>) -> Spool {
    let disk = DiskSettings { durable: true, compress, ..DiskSettings::new(dir) };
    let settings = Settings { host: Some(1 << 20), disk: Some(disk), ..Settings::default() };
    Spool::open(settings).expect("a durable directory")
}

/// The frame of a version, read in pieces.
fn frame(spool: &Spool, version: i64) -> Vec<u8> {
    let stored = spool.stored(version).expect("a durable version");
    let mut bytes = vec![0; stored.bytes().expect("its length") as usize];
    for (piece, into) in bytes.chunks_mut(1000).enumerate() {
        stored.read(1000 * piece as u64, into).expect("its bytes");
    }
    bytes
}

#[test]
fn a_frame_is_the_same_in_another_spool_whatever_its_codec() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = open(here.path(), None);
    save(&spool, 1, 200).unwrap();
    save(&spool, 2, 300_000).unwrap();
    let waves: Vec<u8> = (0..40_000).flat_map(|n| (n as f32 * 0.001).sin().to_le_bytes()).collect();
    let spec = RegionSpec { name: "w".into(), dtype: Dtype::Float32, shape: vec![40_000] };
    let codecs = Codecs::all(Spec::Bounded(Bound::Absolute(1e-3)));
    let mut ticket = spool.save_as(3, vec![spec], &codecs, &wait()).unwrap();
    ticket.fill(0, |bytes| bytes.copy_from_slice(&waves)).unwrap();
    ticket.commit().unwrap();
    // Larger than the host tier, which then cannot take it.
    save(&spool, 4, 3 << 20).unwrap();
    spool.flush(&wait()).unwrap();
    let decoded = |spool: &Spool| {
        let ticket = spool.restore(3, &wait()).unwrap();
        region(&ticket, 0)
    };
    let other = open(there.path(), None);
    for version in 1..=4 {
        assert_eq!(other.adopt(&frame(&spool, version), &wait()).unwrap(), version);
    }
    other.flush(&wait()).unwrap();
    for (version, len) in [(1, 200), (2, 300_000), (4, 3 << 20)] {
        restore(&other, version, len).unwrap();
    }
    assert!(frame(&spool, 3).len() < waves.len() / 2);
    for version in 1..=4 {
        assert!(frame(&other, version) == frame(&spool, version), "{version}");
    }
    assert!(decoded(&other) == decoded(&spool));
    other.close().unwrap();
    drop(other);
    let again = open(there.path(), None);
    assert!(decoded(&again) == decoded(&spool));
}

#[test]
fn packed_frames_are_taken_too() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = open(here.path(), Some(Outer::Lz4));
    let mut ticket = spool.save(1, bytes_spec(100_000), &wait()).unwrap();
    ticket.fill(0, |bytes| bytes.fill(7)).unwrap();
    ticket.commit().unwrap();
    spool.flush(&wait()).unwrap();
    let packed = frame(&spool, 1);
    assert!(packed.len() < 50_000);
    let other = open(there.path(), None);
    other.adopt(&packed, &wait()).unwrap();
    assert!(region(&other.restore(1, &wait()).unwrap(), 0).iter().all(|byte| *byte == 7));
}

#[test]
fn bytes_that_are_no_whole_frame_are_refused() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = open(here.path(), None);
    save(&spool, 1, 5000).unwrap();
    spool.flush(&wait()).unwrap();
    let whole = frame(&spool, 1);
    let other = open(there.path(), None);
    let refused = |bytes: &[u8]| {
        assert_eq!(other.adopt(bytes, &wait()).unwrap_err().kind(), ErrorKind::Corrupt);
    };
    refused(&[]);
    for end in [1, 64, 4095, 4096, whole.len() - 1] {
        refused(&whole[..end]);
    }
    refused(&[&whole[..], &[0]].concat());
    for place in [0, 20, 100, 4096, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        refused(&changed);
    }
    assert_eq!(other.adopt(&whole, &wait()).unwrap(), 1);
    assert_eq!(other.adopt(&whole, &wait()).unwrap_err().kind(), ErrorKind::Duplicate);
    let stored = spool.stored(1).unwrap();
    spool.discard(1).unwrap();
    spool.flush(&wait()).unwrap();
    let mut into = [0; 10];
    assert!(stored.read(0, &mut into).is_err());
    assert_eq!(spool.stored(1).unwrap_err().kind(), ErrorKind::Unknown);
}
