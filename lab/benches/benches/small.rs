//! Many small frames on a disk tier: in packs, and each in a file of its own. Frames are as a spool
//! puts them: a head of 4096 bytes that is mostly padding, and a payload of 32 bytes or `--bytes`.
//!
//! `cargo bench -p unspool-benches --bench small -- [--dir DIRECTORY] [--count N] [--bytes N]`

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use unspool_core::CheckpointId;
use unspool_tiers::{Disk, DiskOptions, Tier};

/// Bytes of a head before its padding, as of a checkpoint with one array.
const TABLE: usize = 64 + 56;

/// A head and a payload that differ with `id` in every byte that is not padding.
fn frame(id: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let byte = |at: usize| (id as usize).wrapping_mul(31).wrapping_add(at * 7) as u8 | 1;
    let mut head: Vec<u8> = (0..TABLE).map(byte).collect();
    head.resize(4096, 0);
    (head, (5..bytes + 5).map(byte).collect())
}

/// Files under a directory, and the bytes of their blocks.
fn taken(dir: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        let (more, held) = if entry.path().is_dir() { taken(&entry.path()) } else { (1, 0) };
        files += more;
        bytes += held + entry.metadata().unwrap().blocks() * 512;
    }
    (files, bytes)
}

fn read_all(disk: &Disk, count: u64, bytes: usize) {
    let (mut head, mut payload) = (vec![0; 4096], vec![0; bytes]);
    for id in (0..count).rev() {
        disk.get(CheckpointId(id), 0, &mut [&mut head, &mut payload]).unwrap();
        let last = frame(id, bytes).1.last().copied();
        assert_eq!(payload.last().copied(), last, "frame {id}");
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Puts, syncs, opens again, reads, deletes and closes; prints a line.
fn measure(dir: &Path, durable: bool, packed_up_to: u64, (count, payload): (u64, usize)) {
    fs::create_dir(dir).unwrap();
    let mut options = DiskOptions::new(dir);
    (options.durable, options.packed_up_to) = (durable, packed_up_to);
    let mut disk = Disk::open(options.clone()).unwrap();
    let put = timed(|| {
        for id in 0..count {
            let (head, payload) = frame(id, payload);
            disk.put(CheckpointId(id), 0, &[&head, &payload]).unwrap();
        }
    });
    let sync = timed(|| disk.sync().unwrap());
    let (files, bytes) = taken(dir);
    let reopen = timed(|| {
        if durable {
            disk.close().unwrap();
            disk = Disk::open(options).unwrap();
        }
    });
    let read = timed(|| read_all(&disk, count, payload));
    let end = timed(|| {
        (0..count).for_each(|id| disk.delete(CheckpointId(id)).unwrap());
        disk.close().unwrap();
    });
    let way = if packed_up_to > 0 { "packs" } else { "files" };
    let kind = if durable { "durable" } else { "ephemeral" };
    let times = [put, sync, reopen, read, end].map(|time| format!("{time:8.3}"));
    println!(
        "{kind:9}  {way}  {count:7}  {files:7}  {:9.1}  {}",
        bytes as f64 / 1e6,
        times.join(" ")
    );
    fs::remove_dir_all(dir).unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name| args.iter().position(|arg| arg == name).map(|at| args[at + 1].clone());
    let parent = value("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    let count = value("--count").map_or(10_000, |count| count.parse().unwrap());
    let bytes = value("--bytes").map_or(32, |bytes| bytes.parse().unwrap());
    let dir = parent.join(format!("small-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    println!("                                           MB                      seconds");
    println!(
        "tier       way     frames    files    on disk       put     sync   reopen     read      \
         end"
    );
    for durable in [false, true] {
        for packed_up_to in [0, 65_535] {
            measure(&dir.join("tier"), durable, packed_up_to, (count, bytes));
        }
    }
    fs::remove_dir_all(&dir).unwrap();
}
