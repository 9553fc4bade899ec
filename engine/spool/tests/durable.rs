//! What a durable spool keeps beyond its own life, and what it refuses when it comes back.

mod common;

use std::path::{Path, PathBuf};

use common::{bytes_spec, content, region, restore, save, wait};
use unspool::{DiskMode, DiskSettings, ErrorKind, Settings, Spool};

/// Long enough for files of their own.
const LEN: usize = 70_000;

fn settings(dir: &Path) -> Settings {
    let disk = DiskSettings { durable: true, ..DiskSettings::new(dir) };
    Settings { host: Some(4 * 73_728), disk: Some(disk), ..Settings::default() }
}

fn open(dir: &Path) -> Spool {
    Spool::open(settings(dir)).expect("a durable directory")
}

/// The files of frames in `dir`, by name.
fn frames(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("the directory").map(|entry| entry.expect("entry"));
    let mut frames: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"frame-"))
        })
        .collect();
    frames.sort();
    frames
}

#[test]
fn a_history_comes_back_after_close_and_open() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (0..20).for_each(|version| save(&spool, version, LEN).unwrap());
    spool.discard(5).unwrap();
    spool.close().unwrap();
    drop(spool);
    let spool = open(dir.path());
    let expected: Vec<i64> = (0..20).filter(|&v| v != 5).collect();
    assert_eq!(spool.versions().unwrap(), expected);
    assert_eq!(spool.restore(5, &wait()).unwrap_err().kind(), ErrorKind::Unknown);
    spool.expect(expected.iter().rev().copied()).unwrap();
    expected.iter().rev().for_each(|&version| restore(&spool, version, LEN).unwrap());
    assert_eq!(spool.regions(7).unwrap().regions[0].name, "u");
    assert!(expected.iter().all(|&version| spool.durable(version).unwrap()));
}

#[test]
fn a_reopened_history_can_be_continued() {
    let dir = tempfile::tempdir().unwrap();
    for run in 0..4 {
        let spool = open(dir.path());
        let before = i64::from(run) * 10;
        assert_eq!(spool.versions().unwrap(), (0..before).collect::<Vec<_>>());
        (before..before + 10).for_each(|version| save(&spool, version, LEN).unwrap());
        (0..before + 10).for_each(|version| restore(&spool, version, LEN).unwrap());
        let again = spool.save(0, bytes_spec(LEN), &wait()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Duplicate);
        spool.close().unwrap();
    }
}

#[test]
fn what_was_flushed_is_durable_and_what_came_later_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    save(&spool, 1, LEN).unwrap();
    spool.flush(&wait()).unwrap();
    assert!(spool.durable(1).unwrap());
    save(&spool, 2, LEN).unwrap();
    assert!(!spool.durable(2).unwrap());
    spool.flush(&wait()).unwrap();
    assert!(spool.durable(2).unwrap());
}

#[test]
fn an_ephemeral_spool_is_never_durable_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Some(DiskSettings::new(dir.path()));
    let spool = Spool::open(Settings { host: Some(1 << 18), disk, ..Settings::default() }).unwrap();
    (0..20).for_each(|version| save(&spool, version, LEN).unwrap());
    spool.flush(&wait()).unwrap();
    assert!(!spool.durable(1).unwrap());
    assert!(std::fs::read_dir(dir.path()).unwrap().count() > 0);
    spool.close().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_version_that_was_saved_anew_comes_back_in_its_new_form() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    save(&spool, 1, LEN).unwrap();
    spool.flush(&wait()).unwrap();
    spool.discard(1).unwrap();
    save(&spool, 1, LEN + 7).unwrap();
    spool.close().unwrap();
    drop(spool);
    let spool = open(dir.path());
    restore(&spool, 1, LEN + 7).unwrap();
    assert_eq!(spool.versions().unwrap(), [1]);
}

#[test]
fn torn_and_changed_frames_are_left_out_and_named_with_their_versions() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (0..6).for_each(|version| save(&spool, version, LEN).unwrap());
    spool.close().unwrap();
    drop(spool);
    let files = frames(dir.path());
    assert_eq!(files.len(), 6);
    let damage = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    };
    damage(&files[1], &|bytes| bytes[70] ^= 4);
    damage(&files[3], &|bytes| bytes.truncate(6000));
    damage(&files[5], &|bytes| bytes[..8].copy_from_slice(b"whatever"));
    let spool = open(dir.path());
    assert_eq!(spool.versions().unwrap(), [0, 2, 4]);
    let stats = spool.stats().unwrap();
    let disk = stats.tiers.last().unwrap();
    let notes = [stats.application.notes.clone(), disk.notes.clone()].concat().join("\n");
    for (version, part) in [(1, "the checksum of the head"), (3, "cut off"), (5, "like a frame")] {
        let file = files[version].display();
        let named = format!("Version {version} is left out: {file}");
        assert!(notes.contains(&named) && notes.contains(part), "{version}, {part:?}: {notes}");
        let error = spool.restore(version as i64, &wait()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&file.to_string()), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    (10..16).for_each(|version| save(&spool, version, LEN).unwrap());
    spool.close().unwrap();
    drop(spool);
    assert_eq!(frames(dir.path()).len(), 12, "refused files are kept");
    let spool = open(dir.path());
    (10..16).for_each(|version| restore(&spool, version, LEN).unwrap());
}

/// A spool with versions 0 to 2 that was closed, and opened again after a bit in the payload of
/// version 1 was changed.
fn reopened_with_one_bit_changed(dir: &Path) -> Spool {
    let spool = open(dir);
    (0..3).for_each(|version| save(&spool, version, LEN).expect("room"));
    spool.close().expect("a durable close");
    drop(spool);
    let file = &frames(dir)[1];
    let mut bytes = std::fs::read(file).expect("a frame");
    bytes[4096 + 11_000] ^= 1;
    std::fs::write(file, bytes).expect("a writable frame");
    open(dir)
}

#[test]
fn a_payload_that_was_changed_on_disk_is_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let spool = reopened_with_one_bit_changed(dir.path());
    let error = spool.restore(1, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for part in ["Version 1 cannot be restored", "checksum of its payload", "Check the storage"] {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    restore(&spool, 0, LEN).unwrap();
    restore(&spool, 2, LEN).unwrap();
}

#[test]
fn a_prefetch_that_finds_changed_bytes_makes_the_version_lost() {
    let dir = tempfile::tempdir().unwrap();
    let spool = reopened_with_one_bit_changed(dir.path());
    spool.expect([0, 1, 2]).unwrap();
    restore(&spool, 0, LEN).unwrap();
    let error = spool.restore(1, &wait()).unwrap_err();
    assert!([ErrorKind::Lost, ErrorKind::Corrupt].contains(&error.kind()), "{error}");
    assert!(error.to_string().contains("checksum of its payload"), "{error}");
    restore(&spool, 2, LEN).unwrap();
}

/// A directory with the durable versions 0 to 9, and the files of their frames.
fn ten(dir: &Path) -> Vec<PathBuf> {
    let spool = open(dir);
    (0..10).for_each(|version| save(&spool, version, LEN).expect("room"));
    spool.close().expect("a durable close");
    frames(dir)
}

#[test]
fn one_changed_byte_of_a_head_costs_one_version_and_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = &ten(dir.path())[4];
    let intact = std::fs::read(file).unwrap();
    // Magic, format version, length, checksum, version of the user, region table, padding.
    for at in [0, 8, 9, 17, 30, 50, 100, 4000] {
        let mut bytes = intact.clone();
        bytes[at] ^= 1;
        std::fs::write(file, &bytes).unwrap();
        let spool = open(dir.path());
        assert_eq!(spool.versions().unwrap(), [0, 1, 2, 3, 5, 6, 7, 8, 9], "byte {at}");
        let notes = spool.stats().unwrap().application.notes;
        let named = format!("Version 4 is left out: {}", file.display());
        assert!(notes.len() == 1 && notes[0].starts_with(&named), "byte {at}: {notes:?}");
        let error = spool.restore(4, &wait()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
        restore(&spool, 9, LEN).unwrap();
    }
    std::fs::write(file, &intact).unwrap();
    restore(&open(dir.path()), 4, LEN).unwrap();
}

#[test]
fn small_checkpoints_share_a_file_and_damage_costs_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (0..100).for_each(|version| save(&spool, version, 32).unwrap());
    spool.close().unwrap();
    drop(spool);
    assert!(frames(dir.path()).is_empty());
    let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let pack = entries.into_iter().find(|path| path.display().to_string().contains("/pack-"));
    let pack = pack.unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    assert!(bytes.len() < 300 * 100, "{} bytes", bytes.len());
    let place = bytes.windows(32).position(|window| window == content(40, 32)).unwrap();
    bytes[place] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    let spool = open(dir.path());
    let notes = spool.stats().unwrap().application.notes;
    assert!(notes.len() == 1 && notes[0].starts_with("Version 40 is left out: "), "{notes:?}");
    assert!(notes[0].contains(&pack.display().to_string()), "{notes:?}");
    assert_eq!(spool.restore(40, &wait()).unwrap_err().kind(), ErrorKind::Corrupt);
    (41..100).chain(0..40).for_each(|version| restore(&spool, version, 32).unwrap());
    drop(spool);
    std::fs::remove_file(&pack).unwrap();
    let spool = open(dir.path());
    assert_eq!(spool.restore(7, &wait()).unwrap_err().kind(), ErrorKind::Lost);
    assert!(spool.versions().unwrap().is_empty());
}

#[test]
fn a_frame_that_is_missing_is_noticed_until_its_version_is_saved_again() {
    let dir = tempfile::tempdir().unwrap();
    let files = ten(dir.path());
    std::fs::remove_file(&files[0]).unwrap();
    std::fs::remove_file(&files[9]).unwrap();
    for _ in 0..2 {
        let spool = open(dir.path());
        let notes = spool.stats().unwrap().application.notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("Version 0") && notes[0].contains("is missing"), "{notes:?}");
        for version in [0, 9] {
            let error = spool.restore(version, &wait()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            assert!(error.to_string().contains("is missing"), "{error}");
        }
        assert_eq!(spool.restore(77, &wait()).unwrap_err().kind(), ErrorKind::Unknown);
    }
    let spool = open(dir.path());
    save(&spool, 9, LEN + 1).unwrap();
    save(&spool, 10, LEN).unwrap();
    spool.flush(&wait()).unwrap();
    restore(&spool, 9, LEN + 1).unwrap();
    spool.discard(9).unwrap();
    assert_eq!(spool.restore(9, &wait()).unwrap_err().kind(), ErrorKind::Discarded);
    save(&spool, 9, LEN + 2).unwrap();
    spool.close().unwrap();
    drop(spool);
    let spool = open(dir.path());
    restore(&spool, 9, LEN + 2).unwrap();
    restore(&spool, 10, LEN).unwrap();
    assert_eq!(spool.restore(0, &wait()).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn an_older_frame_does_not_stand_for_a_newer_one_that_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    save(&spool, 1, LEN).unwrap();
    spool.flush(&wait()).unwrap();
    let old = frames(dir.path()).remove(0);
    let kept = std::fs::read(&old).unwrap();
    spool.discard(1).unwrap();
    save(&spool, 1, LEN + 4096).unwrap();
    spool.close().unwrap();
    drop(spool);
    let new = frames(dir.path()).remove(0);
    // As if the deletion of the old one had been cut short.
    std::fs::write(&old, &kept).unwrap();
    restore(&open(dir.path()), 1, LEN + 4096).unwrap();
    std::fs::write(&old, &kept).unwrap();
    let mut bytes = std::fs::read(&new).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&new, bytes).unwrap();
    let spool = open(dir.path());
    assert_eq!(spool.restore(1, &wait()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(spool.versions().unwrap().is_empty());
    drop(spool);
    assert_eq!(std::fs::read(&old).unwrap(), kept, "nothing is removed that may be of use");
}

#[test]
fn a_frame_of_unknown_version_is_not_denied_to_have_been_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = ten(dir.path()).remove(3);
    std::fs::remove_file(dir.path().join("unspool.manifest")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    std::fs::write(dir.path().join("frame-0000000000000042-3"), "not a frame").unwrap();
    std::fs::write(dir.path().join("frame-ffffffffffffffff-0"), "").unwrap();
    let spool = open(dir.path());
    assert_eq!(spool.versions().unwrap().len(), 9);
    let notes = spool.stats().unwrap().application.notes;
    assert!(notes.iter().any(|note| note.contains("left out") && note.contains("head is")));
    assert!(notes.iter().any(|note| note.contains("0042-3 is left alone")), "{notes:?}");
    let error = spool.restore(3, &wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    save(&spool, 3, LEN).unwrap();
    spool.close().unwrap();
    drop(spool);
    restore(&open(dir.path()), 3, LEN).unwrap();
    assert!(dir.path().join("frame-0000000000000042-3").exists());
}

#[test]
fn a_history_is_read_while_it_is_written_and_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path());
    (0..5).for_each(|version| save(&writer, version, LEN).unwrap());
    writer.flush(&wait()).unwrap();
    let disk = DiskSettings { mode: DiskMode::ReadOnly, ..DiskSettings::new(dir.path()) };
    let settings = Settings { host: Some(1 << 20), disk: Some(disk), ..Settings::default() };
    let reader = Spool::open(settings).unwrap();
    save(&writer, 5, LEN).unwrap();
    writer.flush(&wait()).unwrap();
    assert_eq!(reader.versions().unwrap(), [0, 1, 2, 3, 4]);
    (0..5).rev().for_each(|version| restore(&reader, version, LEN).unwrap());
    assert!(reader.durable(3).unwrap());
    for refused in [
        save(&reader, 9, LEN).unwrap_err(),
        reader.checkpoint(9, bytes_spec(LEN)).unwrap_err(),
        reader.discard(1).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
        assert!(refused.to_string().contains("was opened for reading"), "{refused}");
        assert!(!refused.is_retryable());
    }
    reader.flush(&wait()).unwrap();
    reader.close().unwrap();
    restore(&writer, 1, LEN).unwrap();
    writer.close().unwrap();
    assert_eq!(frames(dir.path()).len(), 6);
}

#[test]
fn a_closed_spool_has_no_file_of_its_directory_open() {
    let dir = tempfile::tempdir().unwrap();
    let open_files = || {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let named = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        named.filter(|path| path.starts_with(dir.path())).count()
    };
    let spool = open(dir.path());
    save(&spool, 0, LEN).unwrap();
    spool.flush(&wait()).unwrap();
    assert!(open_files() > 0);
    spool.close().unwrap();
    assert_eq!(open_files(), 0);
}

#[test]
fn permissions_that_no_file_of_ours_can_have_are_refused() {
    for permissions in [0, 0o200, 0o1600, 0o7777] {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        settings.disk.as_mut().unwrap().permissions = permissions;
        let error = Spool::open(settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("permissions"), "{error}");
    }
}

#[test]
fn a_frame_of_a_newer_unspool_is_a_reason_not_to_open() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    save(&spool, 0, LEN).unwrap();
    spool.close().unwrap();
    drop(spool);
    let file = &frames(dir.path())[0];
    let mut bytes = std::fs::read(file).unwrap();
    bytes[8..12].copy_from_slice(&99u32.to_le_bytes());
    bytes[24..32].fill(0);
    let sum = unspool_codec::checksum(&bytes[..4096]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(file, &bytes).unwrap();
    let error = Spool::open(settings(dir.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("format version 99"), "{error}");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    assert_eq!(std::fs::read(file).unwrap(), bytes, "the file is as it was");
}

#[test]
fn two_spools_cannot_share_a_durable_directory() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let error = Spool::open(settings(dir.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    save(&spool, 0, LEN).unwrap();
    assert_eq!(region(&spool.restore(0, &wait()).unwrap(), 0), content(0, LEN));
}

#[test]
fn a_closed_spool_leaves_its_directory_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    save(&first, 0, LEN).unwrap();
    first.close().unwrap();
    let second = open(dir.path());
    restore(&second, 0, LEN).unwrap();
    drop(first);
    save(&second, 1, LEN).unwrap();
    restore(&second, 1, LEN).unwrap();
}

#[test]
fn dropping_a_durable_spool_keeps_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (0..10).for_each(|version| save(&spool, version, LEN).unwrap());
    drop(spool);
    let spool = open(dir.path());
    (0..10).for_each(|version| restore(&spool, version, LEN).unwrap());
}

#[test]
fn a_checkpoint_larger_than_the_durable_disk_is_named_by_flush_and_close() {
    let dir = tempfile::tempdir().unwrap();
    let disk =
        DiskSettings { durable: true, capacity: Some(100 << 10), ..DiskSettings::new(dir.path()) };
    let settings = Settings { host: Some(1 << 20), disk: Some(disk), ..Settings::default() };
    let spool = Spool::open(settings).unwrap();
    save(&spool, 1, LEN).unwrap();
    save(&spool, 2, 4 * LEN).unwrap();
    for refused in [spool.flush(&wait()), spool.close()] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("Version 2"), "{error}");
    }
    drop(spool);
    assert_eq!(open(dir.path()).versions().unwrap(), [1], "what fits was made durable");
}

/// What a process that is killed now leaves: another directory with the same files.
fn killed(dir: &Path) -> std::io::Result<tempfile::TempDir> {
    let left = tempfile::tempdir()?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.path().is_file() {
            std::fs::copy(entry.path(), left.path().join(entry.file_name()))?;
        }
    }
    Ok(left)
}

#[test]
fn what_was_discarded_before_a_flush_stays_discarded_when_the_process_is_killed() {
    for len in [100, 200_000] {
        let dir = tempfile::tempdir().unwrap();
        let spool = open(dir.path());
        (0..40).for_each(|version| save(&spool, version, len).unwrap());
        spool.flush(&wait()).unwrap();
        // Some of these are still on their way when they go.
        (40..50).for_each(|version| save(&spool, version, len).unwrap());
        (0..50).filter(|v| v % 2 > 0).for_each(|version| spool.discard(version).unwrap());
        spool.flush(&wait()).unwrap();
        let left = killed(dir.path()).unwrap();
        // A record that was being written.
        let manifest =
            std::fs::OpenOptions::new().append(true).open(left.path().join("unspool.manifest"));
        std::io::Write::write_all(&mut manifest.unwrap(), &[7; 50]).unwrap();
        let again = open(left.path());
        let even: Vec<i64> = (0..50).filter(|v| v % 2 == 0).collect();
        assert_eq!(again.versions().unwrap(), even, "{len} bytes each");
    }
}
