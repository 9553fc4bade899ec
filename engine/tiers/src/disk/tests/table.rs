//! The books of the disk tier: who owns which file, and when it may be used again.

use super::super::names::FrameName;
use super::super::table::{File, FrameRefusal, FrameRoom, FrameTable, Lost, Removal};
use unspool_core::CheckpointId;

const A: CheckpointId = CheckpointId(1);
const B: CheckpointId = CheckpointId(2);
const C: CheckpointId = CheckpointId(3);

/// A complete frame; says in which room it lies.
fn store(table: &mut FrameTable, id: CheckpointId, bytes: u64) -> FrameRoom {
    let room = table.reserve(id, bytes).unwrap();
    table.stored(id, [0; 64]);
    room
}

/// Makes every frame durable.
fn publish(table: &mut FrameTable) {
    for pending in table.pending() {
        assert!(table.may_publish(&pending));
        table.published(&pending);
    }
}

#[test]
fn the_file_of_a_deleted_frame_is_used_by_the_next_one() {
    let mut table = FrameTable::new(u64::MAX, 0);
    let first = store(&mut table, A, 5000);
    assert_eq!((first.old_size, first.size), (None, 8192));
    assert_eq!(table.remove(A), Ok(Removal::Kept));
    let second = store(&mut table, B, 8192);
    assert_eq!((second.slot, second.old_size), (first.slot, Some(8192)));
}

#[test]
fn the_smallest_file_that_is_large_enough_is_used_else_the_largest() {
    let mut table = FrameTable::new(u64::MAX, 0);
    let rooms: Vec<FrameRoom> =
        (0..3).map(|i| store(&mut table, CheckpointId(i), 4096 * (2 * i + 1))).collect();
    (0..3).for_each(|i| assert_eq!(table.remove(CheckpointId(i)), Ok(Removal::Kept)));
    assert_eq!(store(&mut table, A, 4097).slot, rooms[1].slot);
    assert_eq!(store(&mut table, B, 9 * 4096).slot, rooms[2].slot);
}

#[test]
fn files_kept_for_reuse_take_no_more_than_frames_ever_did() {
    let mut table = FrameTable::new(u64::MAX, 0);
    let small: Vec<FrameRoom> = (0..4).map(|i| store(&mut table, CheckpointId(i), 4096)).collect();
    (0..4).for_each(|i| assert_eq!(table.remove(CheckpointId(i)), Ok(Removal::Kept)));
    // 16 KiB were in use at once. The new frame takes 12 of them, one file is reused for it.
    let large = store(&mut table, CheckpointId(9), 3 * 4096);
    assert_eq!(large.surplus.len(), 2);
    assert!(large.surplus.iter().all(|slot| small.iter().any(|room| room.slot == *slot)));
    assert!(!large.surplus.contains(&large.slot));
}

#[test]
fn the_file_of_a_durable_frame_rests_until_the_directory_was_synced() {
    let mut table = FrameTable::new(u64::MAX, 0);
    store(&mut table, A, 4096);
    store(&mut table, B, 8192);
    publish(&mut table);
    let Ok(Removal::Rest(name, slot)) = table.remove(A) else { panic!("it is not kept at once") };
    assert_eq!(name, FrameName { id: A, bytes: 4096 });
    let running = table.begin_directory_sync();
    table.rested(A, slot);
    table.wake(running);
    let other = store(&mut table, C, 1);
    assert_ne!(other.slot, slot, "it was renamed after that sync began");
    assert_eq!(other.surplus, [slot], "and has to go, as both do not fit");

    let Ok(Removal::Rest(_, slot)) = table.remove(B) else { panic!("it is not kept at once") };
    table.rested(B, slot);
    let next = table.begin_directory_sync();
    table.wake(next);
    assert_eq!(store(&mut table, A, 8192).slot, slot);
}

#[test]
fn a_file_that_is_being_read_is_not_used_again() {
    let mut table = FrameTable::new(u64::MAX, 0);
    let room = store(&mut table, A, 4096);
    let read = table.borrow(A, 0, 4096).unwrap();
    assert_eq!(table.remove(A), Ok(Removal::Remove(File::Slot(room.slot))));
    assert_eq!(table.borrow(A, 0, 1).unwrap_err(), FrameRefusal::Unknown);
    table.left(A);
    drop(read);
    assert_ne!(store(&mut table, B, 4096).slot, room.slot);
}

#[test]
fn a_frame_that_was_replaced_meanwhile_is_not_published() {
    let mut table = FrameTable::new(u64::MAX, 0);
    store(&mut table, A, 4096);
    let pending = table.pending();
    assert_eq!(table.remove(A), Ok(Removal::Kept));
    assert!(!table.may_publish(&pending[0]));
    store(&mut table, A, 4096);
    assert!(!table.may_publish(&pending[0]), "the file is the same, the frame is not");
    table.suspect(&pending[0]);
    assert!(!table.pending()[0].suspect);
}

#[test]
fn capacity_counts_whole_blocks_of_frames_and_not_what_is_kept_for_reuse() {
    let mut table = FrameTable::new(3 * 4096, 0);
    store(&mut table, A, 1);
    store(&mut table, B, 4097);
    let full = FrameRefusal::Full { capacity: 3 * 4096, used: 3 * 4096 };
    assert_eq!(table.reserve(C, 1), Err(full));
    assert_eq!(table.remove(B), Ok(Removal::Kept));
    assert_eq!(table.used(), 4096);
    store(&mut table, C, 8192);
    assert_eq!(
        table.reserve(B, u64::MAX),
        Err(FrameRefusal::Full { capacity: 12_288, used: 12_288 })
    );
}

#[test]
fn a_frame_that_is_being_written_is_neither_read_nor_deleted_nor_listed() {
    let mut table = FrameTable::new(u64::MAX, 0);
    table.reserve(A, 10).unwrap();
    assert_eq!(table.borrow(A, 0, 1).unwrap_err(), FrameRefusal::StillWritten);
    assert_eq!(table.remove(A), Err(FrameRefusal::StillWritten));
    assert!(table.list().is_empty());
    table.abandon(A);
    assert_eq!((table.used(), table.borrow(A, 0, 1).unwrap_err()), (0, FrameRefusal::Unknown));
}

#[test]
fn a_failed_delete_leaves_the_frame_as_it_was() {
    let mut table = FrameTable::new(u64::MAX, 0);
    store(&mut table, A, 10);
    let pending = table.pending();
    table.suspect(&pending[0]);
    let read = table.borrow(A, 0, 10).unwrap();
    assert!(matches!(table.remove(A), Ok(Removal::Remove(_))));
    table.stays(A);
    drop(read);
    assert_eq!(table.list().len(), 1);
    assert!(table.pending()[0].suspect);
}

#[test]
fn an_id_is_adopted_once() {
    let mut table = FrameTable::new(u64::MAX, 0);
    assert!(table.recover(FrameName { id: A, bytes: 10 }, true));
    assert!(!table.recover(FrameName { id: A, bytes: 11 }, true));
    assert!(!table.recover(FrameName { id: B, bytes: u64::MAX }, true));
    assert_eq!(table.used(), 4096);
}

#[test]
fn the_file_of_a_lost_frame_is_named_until_nothing_is_left_of_it() {
    let mut table = FrameTable::new(u64::MAX, 0);
    let name = FrameName { id: A, bytes: 10 };
    table.lose(name, None);
    assert_eq!((table.lost(A), table.lost(B)), (Some(Lost::File(name)), None));
    assert_eq!(table.borrow(A, 0, 1).unwrap_err(), FrameRefusal::Unknown);
    assert!(table.list().is_empty() && table.used() == 0);
    table.forget_lost(A);
    assert_eq!(table.lost(A), None);
}
