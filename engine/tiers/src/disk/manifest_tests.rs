//! What a manifest says after damage, crashes and failures, and what is not one.

use super::*;
use crate::disk::medium::System;
use crate::testing::{Random, Scratch};

const A: CheckpointId = CheckpointId(1);
const B: CheckpointId = CheckpointId(2);

fn start(byte: u8) -> FrameStart {
    [byte; START]
}

/// A frame of its own that begins with this byte.
fn frame(byte: u8) -> Listed {
    Listed { bytes: 70, start: start(byte), place: None }
}

fn no_packs() -> io::Result<BTreeSet<PackFile>> {
    Ok(BTreeSet::new())
}

fn open(scratch: &Scratch) -> (Manifest, Listing) {
    Manifest::open(&scratch.0, &System, 0o600, no_packs, |_| Ok(false)).unwrap()
}

fn flush(manifest: &mut Manifest) {
    manifest.settle(&System).unwrap();
}

/// A manifest that lists A and B.
fn two(scratch: &Scratch) -> Vec<u8> {
    let (mut manifest, _) = open(scratch);
    manifest.list(A, frame(1));
    manifest.list(B, frame(2));
    flush(&mut manifest);
    std::fs::read(scratch.0.join(MANIFEST)).unwrap()
}

fn parse(bytes: &[u8]) -> io::Result<Listing> {
    Listing::parse(bytes)
}

#[test]
fn what_is_listed_and_not_removed_is_read_again() {
    let scratch = Scratch::new();
    let (mut manifest, first) = open(&scratch);
    assert!(first.frames.is_empty() && first.records == 0);
    manifest.list(A, frame(1));
    manifest.list(B, frame(2));
    manifest.remove(A, None);
    flush(&mut manifest);
    drop(manifest);
    let (mut manifest, again) = open(&scratch);
    assert_eq!(again.tag, first.tag);
    assert_eq!(again.frames, [(B, frame(2))].into());
    manifest.list(A, frame(3));
    flush(&mut manifest);
    let (_, third) = open(&scratch);
    assert_eq!(third.frames[&A].start, start(3));
    assert_eq!((third.records, third.damaged), (5, 0));
}

#[test]
fn a_changed_byte_costs_one_record() {
    let scratch = Scratch::new();
    let bytes = two(&scratch);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        let listing = parse(&changed).unwrap();
        let left = listing.frames.len() + usize::from(listing.tag.is_some());
        assert_eq!(left, 2, "byte {at}");
        // The last record may be one that a crash cut off.
        assert_eq!(listing.damaged, u64::from(at < 2 * RECORD), "byte {at}");
    }
}

#[test]
fn a_manifest_that_was_cut_off_lists_what_comes_before() {
    let scratch = Scratch::new();
    let bytes = two(&scratch);
    for len in 0..bytes.len() {
        let listing = parse(&bytes[..len]).unwrap();
        assert_eq!(listing.frames.len(), (len / RECORD).saturating_sub(1), "{len} bytes");
        assert_eq!(listing.damaged, 0);
    }
    std::fs::write(scratch.0.join(MANIFEST), &bytes[..2 * RECORD + 50]).unwrap();
    let (mut manifest, _) = open(&scratch);
    manifest.list(B, frame(9));
    flush(&mut manifest);
    assert_eq!(open(&scratch).1.frames[&B].start, start(9));
}

#[test]
fn files_that_are_not_manifests_are_refused_and_left_as_they_are() {
    let scratch = Scratch::new();
    let path = scratch.0.join(MANIFEST);
    let mut random = Random(5);
    let noise: Vec<u8> = (0..100 * RECORD).map(|_| random.below(256) as u8).collect();
    for content in [b"step, energy\n0, 1.0\n".to_vec(), vec![1; 5000], noise] {
        std::fs::write(&path, &content).unwrap();
        let error =
            Manifest::open(&scratch.0, &System, 0o600, no_packs, |_| Ok(false)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_manifest_of_a_newer_version_is_refused() {
    let header = Record::Header { version: VERSION + 1, tag: Tag(7) };
    let error = parse(&header.encode()).unwrap_err();
    assert!(error.to_string().contains("version 3"), "{error}");
}

#[test]
fn a_damaged_header_is_written_anew_with_all_that_is_listed() {
    let scratch = Scratch::new();
    let mut bytes = two(&scratch);
    bytes[20] ^= 1;
    std::fs::write(scratch.0.join(MANIFEST), &bytes).unwrap();
    let (_, listing) = open(&scratch);
    assert!(listing.tag.is_some() && listing.frames.len() == 2);
    let (_, again) = open(&scratch);
    assert_eq!((again.tag, again.damaged), (listing.tag, 0));
    assert_eq!(scratch.names(), [MANIFEST]);
}

#[test]
fn a_manifest_does_not_grow_with_what_was_removed() {
    let scratch = Scratch::new();
    let (mut manifest, _) = open(&scratch);
    for id in 0..2000 {
        manifest.list(CheckpointId(id), frame(0));
        if id > 0 {
            manifest.remove(CheckpointId(id - 1), None);
        }
    }
    flush(&mut manifest);
    drop(manifest);
    let (manifest, listing) = open(&scratch);
    assert_eq!(listing.frames.len(), 1);
    assert_eq!(manifest.synced, 2 * RECORD as u64);
    assert_eq!(open(&scratch).1.frames, listing.frames);
    assert_eq!(scratch.names(), [MANIFEST]);
}

#[test]
fn a_manifest_that_is_written_anew_keeps_the_removals_of_frames_that_are_still_in_packs() {
    let scratch = Scratch::new();
    let (mut manifest, _) = open(&scratch);
    let place = |pack| Some(Place { pack: PackFile(pack), offset: 0, length: 64 });
    manifest.list(CheckpointId(1), Listed { place: place(5), ..frame(0) });
    // The second was never listed.
    manifest.remove(CheckpointId(1), None);
    manifest.remove(CheckpointId(2), Some(PackFile(6)));
    for id in 10..2000 {
        manifest.list(CheckpointId(id), frame(0));
        manifest.remove(CheckpointId(id), None);
    }
    flush(&mut manifest);
    drop(manifest);
    let listing = |packs: &[u32]| {
        let packs = || Ok(packs.iter().copied().map(PackFile).collect());
        drop(Manifest::open(&scratch.0, &System, 0o600, packs, |_| Ok(false)).unwrap());
        Listing::read(&scratch.0, &System).unwrap().unwrap()
    };
    let anew = listing(&[5, 6]);
    assert_eq!(anew.records, 3);
    assert!(anew.knows(CheckpointId(1)) && anew.knows(CheckpointId(2)));
    assert_eq!(anew.removed[&CheckpointId(1)], Some(PackFile(5)), "and in which");
}

#[test]
fn records_of_a_sync_that_failed_are_written_again() {
    let scratch = Scratch::new();
    let (mut manifest, _) = open(&scratch);
    manifest.list(A, frame(1));
    manifest.write(&System).unwrap();
    manifest.suspect();
    assert!(manifest.unsynced().is_none());
    // What the medium did not keep.
    manifest.file.set_len(RECORD as u64).unwrap();
    manifest.list(B, frame(2));
    flush(&mut manifest);
    assert_eq!(open(&scratch).1.frames.len(), 2);
}

/// The bytes of both versions, whose checksums were computed by another program: what was written
/// with them is read for ever.
#[test]
fn the_bytes_of_records_are_those_of_the_page() {
    let padded = |content: &[u8], sum: u64| {
        let mut bytes = [0; RECORD];
        bytes[..content.len()].copy_from_slice(content);
        bytes[CONTENT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let mut header = b"\x89UNSM\r\n\x1a\x01\0\0\0\0\0\0\0".to_vec();
    header.extend([0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
    let mut listed = vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x10, 0, 0];
    listed.extend([0; 4]);
    listed.extend(0..64);
    let removed = [2, 0, 0, 0, 0, 0, 0, 0, 7];
    let from_pack = [2, 0, 0, 0, 4, 0, 0, 0, 7];
    let mut packed = vec![3, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0];
    packed.extend([0x20, 0x10, 26, 0]);
    packed.extend(0..64);
    let place = Some(Place { pack: PackFile(3), offset: 4096, length: 208 });
    let start: FrameStart = std::array::from_fn(|i| i as u8);
    let (id, tag) = (CheckpointId(7), Tag(0x0123_4567_89ab_cdef));
    for (record, bytes) in [
        (Record::Header { version: 1, tag }, padded(&header, 0x2cc3_b2dd_0be3_0249)),
        (
            Record::Listed(id, Listed { bytes: 4168, start, place: None }),
            padded(&listed, 0xa8e9_891a_76db_b96c),
        ),
        (Record::Removed(id, None), padded(&removed, 0xf952_7b2f_7e36_ae94)),
        (Record::Removed(id, Some(PackFile(3))), padded(&from_pack, 0xb06d_5e99_e9be_4c96)),
        (
            Record::Listed(id, Listed { bytes: 4128, start, place }),
            padded(&packed, 0xf0d4_9772_9a26_3640),
        ),
    ] {
        assert_eq!(record.encode(), bytes, "{record:?}");
        assert_eq!(Record::parse(&bytes), Some(record));
    }
}

#[test]
fn a_manifest_is_written_anew_when_most_of_it_is_superfluous_and_not_before() {
    let scratch = Scratch::new();
    let (mut manifest, _) = open(&scratch);
    let mut list = |ids: std::ops::Range<u64>| {
        ids.for_each(|id| manifest.list(CheckpointId(id), frame(0)));
        flush(&mut manifest);
        open(&scratch).0.synced / RECORD as u64
    };
    // Of twice 1001 records and 1024 more none is too many.
    assert_eq!(list(0..1000), 1001);
    assert_eq!(list(0..1000), 2001);
    assert_eq!(list(0..1000), 3001);
    assert_eq!(list(0..26), 1001, "with one more it is");
}

#[test]
fn a_manifest_that_cannot_be_written_anew_is_refused_and_left() {
    let scratch = Scratch::new();
    let (mut manifest, listing) = open(&scratch);
    (0..2000).for_each(|id| manifest.remove(CheckpointId(id), None));
    flush(&mut manifest);
    let before = std::fs::read(scratch.0.join(MANIFEST)).unwrap();
    let in_the_way = scratch.0.join(listing.tag.unwrap().new_manifest());
    std::fs::create_dir(&in_the_way).unwrap();
    Manifest::open(&scratch.0, &System, 0o600, no_packs, |_| Ok(false)).unwrap_err();
    assert_eq!(std::fs::read(scratch.0.join(MANIFEST)).unwrap(), before);
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(open(&scratch).0.synced, RECORD as u64);
}
