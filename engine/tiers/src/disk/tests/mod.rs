//! Tests that need the inside of the disk tier: its medium and its table. What can be seen from
//! outside is tested by the conformance suite.

mod crash;
mod faults;
mod homes;
mod intruders;
mod medium;
mod missing;
mod packs;
mod reading;
mod table;

use std::path::Path;
use std::sync::Arc;

use unspool_core::CheckpointId;

use crate::disk::manifest::Listing;
use crate::disk::medium::System;
use crate::disk::names::Tag;
use crate::disk::{Disk, DiskIo, DiskOptions};
use crate::error::TierError;
use crate::testing::bytes;
use crate::tier::Tier;

/// Every frame in a file of its own.
fn options(dir: &Path, io: DiskIo, durable: bool) -> DiskOptions {
    DiskOptions { io, durable, packed_up_to: 0, ..DiskOptions::new(dir) }
}

/// Small frames together. Packs have up to 64,000 bytes.
fn packed(dir: &Path, durable: bool) -> DiskOptions {
    DiskOptions { durable, packed_up_to: 1000, ..DiskOptions::new(dir) }
}

fn open_on(options: DiskOptions, medium: &Arc<medium::TestMedium>) -> Disk {
    Disk::open_on(options, Arc::<medium::TestMedium>::clone(medium)).unwrap()
}

/// The tag of the slots of a durable directory.
fn tag_of(dir: &Path) -> Tag {
    Listing::read(dir, &System).unwrap().unwrap().tag.unwrap()
}

/// Stores `len` bytes of the seed `id`, in three parts at odd places.
fn put(disk: &Disk, id: u64, len: usize) -> Result<(), TierError> {
    let bytes = bytes(id, len);
    let (head, tail) = bytes.split_at(len.min(100));
    let (middle, end) = tail.split_at(tail.len() / 2);
    disk.put(CheckpointId(id), 0, &[head, middle, end])
}

fn get(disk: &Disk, id: u64, len: usize) -> Result<Vec<u8>, TierError> {
    let mut out = vec![0; len];
    disk.get(CheckpointId(id), 0, &mut [&mut out]).map(|()| out)
}

#[track_caller]
fn assert_holds(disk: &Disk, id: u64, len: usize) {
    assert!(get(disk, id, len).unwrap() == bytes(id, len), "frame {id} is not what was put");
}
