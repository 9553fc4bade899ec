//! The disk tier against plain reads and writes of the same bytes in the same directory, and an
//! arena against `memcpy`. Only ratios within one run are compared: the variants take turns at
//! every frame, and the medians of several turns are compared.
//!
//! `cargo bench -p unspool-tiers --bench disk -- [--dir DIRECTORY] [--quick] [--mib N]`

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::OFlags;
use unspool_core::{CheckpointId, TierKind};
use unspool_tiers::{Arena, Disk, DiskIo, DiskOptions, Tier};

const MIB: usize = 1 << 20;
/// Bytes moved by each variant in one repetition, and number of repetitions.
const FULL: (usize, usize) = (512 * MIB, 9);
const QUICK: (usize, usize) = (256 * MIB, 3);
/// Bytes of the head of a frame, which the tier gets as a separate part.
const HEAD: usize = 4096;

/// Measured seconds for all frames.
#[derive(Clone, Copy)]
struct Times {
    write: f64,
    read: f64,
    delete: f64,
}

/// A variant: one way to store frames.
trait Way {
    fn name(&self) -> String;
    /// Prepares a repetition; not measured.
    fn begin(&mut self) {}
    fn write(&mut self, n: usize, frame: &[u8]);
    fn read(&mut self, n: usize, frame: &mut [u8]);
    fn delete(&mut self, n: usize);
}

/// One large file that bypasses the page cache: written before, or new in a new directory each
/// time, as the tier's files are, because file systems place new directories in different parts of
/// the disk.
///
/// New files stay until all is measured, here and in the tier: a file system that is removing files
/// is slower at creating others, and that would affect a variant by chance.
struct Plain {
    parent: PathBuf,
    files: Vec<File>,
    old: bool,
}

impl Plain {
    fn new(parent: &Path, old: bool) -> Plain {
        Plain { parent: parent.to_owned(), files: Vec::new(), old }
    }

    fn create(&mut self) {
        let name = format!("plain-{}-{}", self.old, self.files.len());
        let dir = self.parent.join(name);
        fs::create_dir(&dir).unwrap();
        let direct = OFlags::DIRECT.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(direct);
        self.files.push(options.open(dir.join("frames")).unwrap());
    }

    fn file(&self) -> &File {
        self.files.last().unwrap()
    }
}

impl Way for Plain {
    fn name(&self) -> String {
        if self.old { "plain, written before" } else { "plain, new file" }.to_owned()
    }

    fn begin(&mut self) {
        if !self.old || self.files.is_empty() {
            self.create();
        }
    }

    fn write(&mut self, n: usize, frame: &[u8]) {
        self.file().write_all_at(frame, (n * frame.len()) as u64).unwrap();
    }

    fn read(&mut self, n: usize, frame: &mut [u8]) {
        self.file().read_exact_at(frame, (n * frame.len()) as u64).unwrap();
    }

    fn delete(&mut self, _n: usize) {}
}

/// The disk tier; new for every repetition, or with recyclable files of deleted frames.
struct Tiered {
    options: DiskOptions,
    disks: Vec<Disk>,
    old: bool,
}

impl Tiered {
    fn new(dir: &Path, io: DiskIo, old: bool) -> Tiered {
        let mut options = DiskOptions::new(dir);
        options.io = io;
        Tiered { options, disks: Vec::new(), old }
    }

    fn disk(&self) -> &Disk {
        self.disks.last().unwrap()
    }
}

impl Way for Tiered {
    fn name(&self) -> String {
        let io = format!("{:?}", self.options.io).to_lowercase();
        format!("tier, {io}, {}", if self.old { "reused files" } else { "new files" })
    }

    fn begin(&mut self) {
        if !self.old || self.disks.is_empty() {
            self.disks.push(Disk::open(self.options.clone()).unwrap());
        }
    }

    fn write(&mut self, n: usize, frame: &[u8]) {
        let (head, payload) = frame.split_at(HEAD);
        self.disk().put(CheckpointId(n as u64), 0, &[head, payload]).unwrap();
    }

    fn read(&mut self, n: usize, frame: &mut [u8]) {
        let (head, payload) = frame.split_at_mut(HEAD);
        self.disk().get(CheckpointId(n as u64), 0, &mut [head, payload]).unwrap();
    }

    fn delete(&mut self, n: usize) {
        self.disk().delete(CheckpointId(n as u64)).unwrap();
    }
}

/// The disk tier with bytes at an unaligned address, so that all go through staging memory.
struct Odd(Tiered, Vec<u8>);

impl Odd {
    /// The tier, and bytes of this length at an unaligned address.
    fn parts(&mut self, len: usize) -> (&Disk, &mut [u8]) {
        self.1.resize(len + 2, 1);
        let start = self.1.as_ptr().align_offset(2) + 1;
        (self.0.disk(), &mut self.1[start..start + len])
    }
}

impl Way for Odd {
    fn name(&self) -> String {
        format!("{}, odd", self.0.name())
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn write(&mut self, n: usize, frame: &[u8]) {
        let (disk, odd) = self.parts(frame.len());
        disk.put(CheckpointId(n as u64), 0, &[odd]).unwrap();
    }

    fn read(&mut self, n: usize, frame: &mut [u8]) {
        let (disk, odd) = self.parts(frame.len());
        disk.get(CheckpointId(n as u64), 0, &mut [odd]).unwrap();
    }

    fn delete(&mut self, n: usize) {
        self.0.delete(n);
    }
}

struct Memcpy(Vec<u8>);

impl Way for Memcpy {
    fn name(&self) -> String {
        "memcpy".to_owned()
    }

    fn write(&mut self, n: usize, frame: &[u8]) {
        self.0[n * frame.len()..][..frame.len()].copy_from_slice(frame);
    }

    fn read(&mut self, n: usize, frame: &mut [u8]) {
        frame.copy_from_slice(&self.0[n * frame.len()..][..frame.len()]);
    }

    fn delete(&mut self, _n: usize) {}
}

struct InArena(Arena);

impl Way for InArena {
    fn name(&self) -> String {
        "arena".to_owned()
    }

    fn write(&mut self, n: usize, frame: &[u8]) {
        let offset = (n * frame.len()) as u64;
        self.0.put(CheckpointId(n as u64), offset, &[frame]).unwrap();
    }

    fn read(&mut self, n: usize, frame: &mut [u8]) {
        self.0.get(CheckpointId(n as u64), 0, &mut [frame]).unwrap();
    }

    fn delete(&mut self, n: usize) {
        self.0.delete(CheckpointId(n as u64)).unwrap();
    }
}

/// Page-aligned memory, like an arena's.
struct Pages {
    bytes: Vec<u8>,
    start: usize,
}

impl Pages {
    fn new(len: usize) -> Pages {
        let bytes: Vec<u8> = (0..len + 4096).map(|i| (i % 251) as u8).collect();
        let start = bytes.as_ptr().align_offset(4096);
        Pages { bytes, start }
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

/// Writes, reads (last first, as an adjoint does) and deletes `count` frames with every variant.
/// The variants take turns at every frame, so that a slow moment of the machine affects all of
/// them.
fn round(ways: &mut [Box<dyn Way>], count: usize, frame: &mut [u8]) -> Vec<Times> {
    let mut times = vec![Times { write: 0.0, read: 0.0, delete: 0.0 }; ways.len()];
    ways.iter_mut().for_each(|way| way.begin());
    for n in 0..count {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.write += timed(|| way.write(n, frame));
        }
    }
    for n in (0..count).rev() {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.read += timed(|| way.read(n, frame));
        }
    }
    for n in (0..count).rev() {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.delete += timed(|| way.delete(n));
        }
    }
    times
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures variants for frames of `size` bytes and prints a line for each. `base[i]` is the
/// variant that variant `i` is compared with.
fn compare(
    ways: &mut [Box<dyn Way>],
    base: &[usize],
    size: usize,
    (total, rounds): (usize, usize),
) {
    let count = total.div_ceil(size);
    let mut pages = Pages::new(HEAD + size);
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); ways.len()];
    for repetition in 0..=rounds {
        let took = round(ways, count, pages.get(HEAD + size));
        // The first repetition fills files and pages that later ones use again.
        if repetition > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let ratio = |way: usize, what: fn(&Times) -> f64| {
        // Times of the same turn, so that a slow moment of the machine affects both.
        let pairs = times[base[way]].iter().zip(&times[way]);
        median(pairs.map(|(base, own)| what(base) / what(own)))
    };
    let rate = |way: usize, what: fn(&Times) -> f64| {
        (count * size) as f64 / 1e9 / median(times[way].iter().map(what))
    };
    for (i, way) in ways.iter().enumerate() {
        println!(
            "{:4} MiB  {:33} {:7.2} {:7.2}   {:5.0} % {:5.0} %  {:10.1}",
            size / MIB,
            way.name(),
            rate(i, |times| times.write),
            rate(i, |times| times.read),
            100.0 * ratio(i, |times| times.write),
            100.0 * ratio(i, |times| times.read),
            median(times[i].iter().map(|times| times.delete)) / count as f64 * 1e6,
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = args.iter().position(|arg| arg == "--dir").map(|at| PathBuf::from(&args[at + 1]));
    let parent = dir.unwrap_or_else(std::env::temp_dir);
    let only = args.iter().position(|arg| arg == "--mib").map(|at| args[at + 1].parse().unwrap());
    let sizes: Vec<usize> = only.map_or_else(|| vec![1, 16, 64, 256], |size| vec![size]);
    let amount = if args.iter().any(|arg| arg == "--quick") { QUICK } else { FULL };
    let dir = parent.join(format!("disk-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    println!(
        "                                             GB/s            of the base       delete"
    );
    println!(
        "   frame  way                                 write    read    write    read   us/frame"
    );
    for &size in &sizes {
        let dir = dir.join(format!("{size}-mib"));
        fs::create_dir(&dir).unwrap();
        let mut ways: Vec<Box<dyn Way>> = vec![
            Box::new(Plain::new(&dir, false)),
            Box::new(Plain::new(&dir, true)),
            Box::new(Tiered::new(&dir, DiskIo::Direct, false)),
            Box::new(Tiered::new(&dir, DiskIo::Direct, true)),
            Box::new(Tiered::new(&dir, DiskIo::Uring, true)),
            Box::new(Tiered::new(&dir, DiskIo::Buffered, true)),
            Box::new(Odd(Tiered::new(&dir, DiskIo::Direct, true), Vec::new())),
            Box::new(Odd(Tiered::new(&dir, DiskIo::Uring, true), Vec::new())),
        ];
        compare(&mut ways, &[0, 1, 0, 1, 1, 1, 1, 1], size * MIB, amount);
        drop(ways);
        fs::remove_dir_all(&dir).unwrap();
    }
    for &size in &sizes {
        let arena = Arena::new(TierKind::Host, 2 * amount.0 as u64).unwrap();
        let mut ways: Vec<Box<dyn Way>> =
            vec![Box::new(Memcpy(vec![1; 2 * amount.0])), Box::new(InArena(arena))];
        compare(&mut ways, &[0, 0], size * MIB, amount);
    }
    fs::remove_dir_all(&dir).unwrap();
}
