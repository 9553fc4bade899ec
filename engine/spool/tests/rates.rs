//! The speeds of links, from one spool to the next.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{restore, save};
use unspool::{DiskSettings, Settings, Spool};

const MIB: usize = 1 << 20;

fn open(dir: &Path, rates: Option<PathBuf>) -> Spool {
    let disk = Some(DiskSettings::new(dir));
    Spool::open(Settings { host: Some(8 << 20), disk, rates, ..Settings::default() })
        .expect("sound settings")
}

/// The rates that the spool has for its link now: towards the disk and back.
fn rates_of(spool: &Spool) -> (f64, f64) {
    let link = &spool.stats().expect("this process").links[0];
    (link.flush.rate, link.prefetch.rate)
}

#[test]
fn the_next_spool_begins_with_what_the_last_one_has_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cache/unspool/rates");
    let disk = dir.path().join("disk");
    let first = open(&disk, Some(file.clone()));
    let constants = rates_of(&first);
    (0..80).for_each(|version| save(&first, version, MIB).unwrap());
    first.flush(&common::wait()).unwrap();
    first.close().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let kept: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(kept.len(), 1, "little was read back: {text}");
    let (rate, name) = kept[0].split_once('\t').unwrap();
    assert!(name.starts_with("memory > disk "), "{name}");
    let second = open(&disk, Some(file.clone()));
    assert_eq!(rates_of(&second), (rate.parse().unwrap(), constants.1));
    // Nothing was moved: what is known stays.
    second.close().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(rates_of(&open(&disk, None)), constants);
}

#[test]
fn a_record_of_decisions_has_the_rates_that_it_began_with() {
    let dir = tempfile::tempdir().unwrap();
    let (file, record) = (dir.path().join("rates"), dir.path().join("record"));
    let disk = dir.path().join("disk");
    drop(open(&disk, None));
    let number = std::os::unix::fs::MetadataExt::dev(&fs::metadata(&disk).unwrap());
    fs::write(&file, format!("unspool-rates 1\n3000000000\tdisk {number} > memory\n")).unwrap();
    let disk = Some(DiskSettings::new(&disk));
    let (rates, path) = (Some(file), Some(record.clone()));
    let settings =
        Settings { host: Some(8 << 20), disk, rates, record: path, ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    save(&spool, 1, MIB).unwrap();
    restore(&spool, 1, MIB).unwrap();
    spool.close().unwrap();
    let text = fs::read_to_string(record).unwrap();
    assert!(text.contains(" prefetch_rate=3000000000.0 "), "{text}");
}

#[test]
fn junk_and_a_folder_that_cannot_be_written_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let constants = rates_of(&open(&disk, None));
    let junk = dir.path().join("junk");
    fs::write(&junk, [0xff; 1000]).unwrap();
    for file in [junk.clone(), junk.join("rates"), disk.clone()] {
        let spool = open(&disk, Some(file));
        assert_eq!(rates_of(&spool), constants);
        (0..70).for_each(|version| save(&spool, version, MIB).unwrap());
        spool.close().unwrap();
    }
}
