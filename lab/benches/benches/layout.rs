//! Files per frame against packed segments, direct against buffered against io_uring: the
//! measurements behind `engine/decisions/`. It uses only the operating system, not the disk tier.
//!
//! `cargo bench -p unspool-benches --bench layout -- --dir /scratch`

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use io_uring::{IoUring, opcode, types};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const REPETITIONS: usize = 5;

/// Where frames are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// A new file for each.
    File,
    /// A new file for each, with blocks reserved before the write.
    FilePreallocated,
    /// An old file for each, overwritten.
    FileRecycled,
    /// One growing file for all.
    Segment,
    /// One file for all, with blocks reserved before; a delete punches a hole.
    SegmentPreallocated,
    /// One old file for all, overwritten; a delete does nothing.
    SegmentRecycled,
}

const LAYOUTS: [Layout; 6] = [
    Layout::File,
    Layout::FilePreallocated,
    Layout::FileRecycled,
    Layout::Segment,
    Layout::SegmentPreallocated,
    Layout::SegmentRecycled,
];

/// How bytes are transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Io {
    Direct,
    Uring,
    Buffered,
}

/// A page-aligned buffer.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes: Vec<u8> = (0..len + 4096).map(|i| (i * 31 % 251) as u8).collect();
        let start = bytes.as_ptr().align_offset(4096);
        Aligned { bytes, start, len }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

struct Bench {
    dir: PathBuf,
    io: Io,
    ring: IoUring,
}

impl Bench {
    fn open(&self, path: &Path, create: bool) -> File {
        let flags = if self.io == Io::Buffered { 0 } else { OFlags::DIRECT.bits() as i32 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).custom_flags(flags).open(path).unwrap()
    }

    fn write(&mut self, file: &File, offset: u64, bytes: &mut [u8]) {
        match self.io {
            Io::Direct => file.write_all_at(bytes, offset).unwrap(),
            Io::Uring => self.ring_move(file, offset, bytes, true),
            Io::Buffered => {
                file.write_all_at(bytes, offset).unwrap();
                file.sync_data().unwrap();
                drop_cached(file, offset, bytes.len());
            }
        }
    }

    fn read(&mut self, file: &File, offset: u64, bytes: &mut [u8]) {
        match self.io {
            Io::Direct => file.read_exact_at(bytes, offset).unwrap(),
            Io::Uring => self.ring_move(file, offset, bytes, false),
            Io::Buffered => {
                file.read_exact_at(bytes, offset).unwrap();
                drop_cached(file, offset, bytes.len());
            }
        }
    }

    /// Transfers all of `bytes` in requests of 1 MiB, all in flight at once.
    fn ring_move(&mut self, file: &File, offset: u64, bytes: &mut [u8], write: bool) {
        let fd = types::Fd(file.as_raw_fd());
        let mut count = 0;
        for (i, chunk) in bytes.chunks_mut(MIB).enumerate() {
            let at = offset + (i * MIB) as u64;
            let (start, len) = (chunk.as_mut_ptr(), chunk.len() as u32);
            let entry = if write {
                opcode::Write::new(fd, start, len).offset(at).build()
            } else {
                opcode::Read::new(fd, start, len).offset(at).build()
            };
            // SAFETY: the chunk lives until the completions have been waited for below.
            unsafe { self.ring.submission().push(&entry).unwrap() };
            count += 1;
        }
        self.ring.submit_and_wait(count).unwrap();
        let done: usize =
            self.ring.completion().map(|c| usize::try_from(c.result()).unwrap()).sum();
        assert_eq!(done, bytes.len());
    }
}

fn drop_cached(file: &File, offset: u64, len: usize) {
    let len = std::num::NonZeroU64::new(len as u64);
    fadvise(file.as_fd(), offset, len, Advice::DontNeed).unwrap();
}

fn file_of(bench: &Bench, i: usize) -> PathBuf {
    bench.dir.join(format!("{i:08}"))
}

/// Seconds to write, to read and to delete `count` frames; each frame is opened and closed
/// separately, as in a tier.
fn round(bench: &mut Bench, layout: Layout, count: usize, frame: &mut [u8]) -> [f64; 3] {
    let size = frame.len() as u64;
    let segment = bench.dir.join("segment");
    prepare(bench, layout, count, frame);
    let packed = !matches!(layout, Layout::File | Layout::FilePreallocated | Layout::FileRecycled);
    let shared = packed.then(|| bench.open(&segment, true));
    let write = timed(|| {
        for i in 0..count {
            match &shared {
                Some(file) => bench.write(file, i as u64 * size, frame),
                None => {
                    let file = bench.open(&file_of(bench, i), true);
                    if layout == Layout::FilePreallocated {
                        fallocate(&file, FallocateFlags::empty(), 0, size).unwrap();
                    }
                    bench.write(&file, 0, frame);
                }
            }
        }
    });
    let read = timed(|| {
        for i in (0..count).rev() {
            match &shared {
                Some(file) => bench.read(file, i as u64 * size, frame),
                None => {
                    let file = bench.open(&file_of(bench, i), false);
                    bench.read(&file, 0, frame);
                }
            }
        }
    });
    let delete = timed(|| {
        for i in 0..count {
            match (&shared, layout) {
                (Some(_), Layout::SegmentRecycled) | (None, Layout::FileRecycled) => {}
                (Some(file), _) => {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(file, flags, i as u64 * size, size).unwrap();
                }
                (None, _) => fs::remove_file(file_of(bench, i)).unwrap(),
            }
        }
    });
    for entry in fs::read_dir(&bench.dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    [write, read, delete]
}

/// Creates the files that the layout starts from.
fn prepare(bench: &mut Bench, layout: Layout, count: usize, frame: &mut [u8]) {
    let total = (count * frame.len()) as u64;
    match layout {
        Layout::FileRecycled => {
            for i in 0..count {
                let file = bench.open(&file_of(bench, i), true);
                bench.write(&file, 0, frame);
            }
        }
        Layout::SegmentPreallocated => {
            let file = bench.open(&bench.dir.join("segment"), true);
            fallocate(&file, FallocateFlags::empty(), 0, total).unwrap();
        }
        Layout::SegmentRecycled => {
            let file = bench.open(&bench.dir.join("segment"), true);
            for i in 0..count {
                bench.write(&file, (i * frame.len()) as u64, frame);
            }
        }
        Layout::File | Layout::FilePreallocated | Layout::Segment => {}
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let root = args.iter().position(|arg| arg == "--dir").map(|at| args[at + 1].clone());
    let root = root.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = root.join(format!("layout-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    println!("frame     io        layout                write MB/s  read MB/s  delete us/frame");
    for (size, count) in [(64 * KIB, 1024), (MIB, 256), (16 * MIB, 32)] {
        let mut frame = Aligned::new(size);
        for io in [Io::Direct, Io::Uring, Io::Buffered] {
            let ring = IoUring::new(64).unwrap();
            let mut bench = Bench { dir: dir.clone(), io, ring };
            let mut times = vec![[const { Vec::new() }; 3]; LAYOUTS.len()];
            // Layouts take turns, so that a slow moment of the machine affects all of them.
            for _ in 0..REPETITIONS {
                for (at, &layout) in LAYOUTS.iter().enumerate() {
                    let took = round(&mut bench, layout, count, frame.as_mut());
                    (0..3).for_each(|i| times[at][i].push(took[i]));
                }
            }
            for (layout, times) in LAYOUTS.iter().zip(&mut times) {
                let rate = (size * count) as f64 / 1e6;
                let [write, read, delete] = times.each_mut().map(|times| median(times));
                println!(
                    "{:>6} K  {:8}  {:20}  {:10.0} {:10.0} {:16.1}",
                    size / KIB,
                    format!("{io:?}"),
                    format!("{layout:?}"),
                    rate / write,
                    rate / read,
                    delete / count as f64 * 1e6
                );
            }
        }
    }
    fs::remove_dir_all(&dir).unwrap();
}
