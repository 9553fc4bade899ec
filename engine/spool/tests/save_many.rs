//! Several checkpoints by one call, in main memory.

use unspool::{Codecs, DiskSettings, Dtype, ErrorKind, RegionSpec, Settings, Spec, Spool, Wait};

const LEN: usize = 4096;

fn spec(name: &str) -> RegionSpec {
    RegionSpec { name: name.into(), dtype: Dtype::Float32, shape: vec![LEN as u64 / 4] }
}

fn values(version: i64) -> Vec<u8> {
    let at = |i: usize| (i as f32 * 0.01 + version as f32).sin();
    (0..LEN / 4).flat_map(|i| at(i).to_le_bytes()).collect()
}

fn restored(spool: &Spool, version: i64, index: usize) -> Vec<u8> {
    let ticket = spool.restore(version, &Wait::default()).expect("it was saved");
    let mut bytes = vec![0; LEN];
    ticket.read_into(index, &mut bytes).expect("it is as long");
    ticket.finish().expect("it was read");
    bytes
}

#[test]
fn checkpoints_that_do_not_fit_together_are_saved_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    for codec in [Spec::Raw, Spec::Lossless] {
        let spool = Spool::open(Settings {
            host: Some(3 * 8192 + 4096),
            disk: Some(DiskSettings::new(directory.path())),
            codec: Codecs::all(codec),
            ..Settings::default()
        });
        let (spool, all) = (spool.unwrap(), (0..20).map(values).collect::<Vec<_>>());
        let mut batch = Vec::new();
        for (version, bytes) in (0..).zip(&all) {
            let mut checkpoint = spool.checkpoint(version, vec![spec("u"), spec("v")]).unwrap();
            checkpoint.fill_from(0, bytes).unwrap();
            checkpoint.fill(1, |room| room.copy_from_slice(&bytes.repeat(1)));
            batch.push(checkpoint);
        }
        spool.save_many(&mut batch, &Wait::default()).unwrap();
        for (version, bytes) in (0..).zip(&all) {
            assert!(&restored(&spool, version, 0) == bytes, "{codec:?}, version {version}");
            assert!(&restored(&spool, version, 1) == bytes, "{codec:?}, version {version}");
        }
        spool.close().unwrap();
    }
}

#[test]
fn values_of_another_size_are_refused_before_anything_is_saved() {
    let spool = Spool::open(Settings { host: Some(1 << 20), ..Settings::default() }).unwrap();
    let mut checkpoint = spool.checkpoint(0, vec![spec("u")]).unwrap();
    assert_eq!(checkpoint.fill_from(0, &[1, 2, 3]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(spool.versions().unwrap().is_empty());
}

#[test]
fn code_of_the_caller_that_panics_gives_up_what_is_not_saved() {
    let spool = Spool::open(Settings { host: Some(1 << 20), ..Settings::default() }).unwrap();
    let call = || {
        let mut batch = Vec::new();
        for version in 0..3 {
            let mut checkpoint = spool.checkpoint(version, vec![spec("u")]).unwrap();
            checkpoint.fill(0, move |_| assert!(version != 1, "no values"));
            batch.push(checkpoint);
        }
        spool.save_many(&mut batch, &Wait::default())
    };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    assert!(panicked.is_err());
    assert_eq!(spool.versions().unwrap(), [0]);
    let mut ticket = spool.save(1, vec![spec("u")], &Wait::default()).unwrap();
    ticket.fill_from(0, &values(1)).unwrap();
    ticket.commit().unwrap();
    assert!(restored(&spool, 1, 0) == values(1));
}
