//! Programs on memory of which a part is there at a time, against plain memory.
//!
//! Where the kernel does not give faults to this process, each test says so and passes.

use std::io::Write;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use unspool_codec::{Bound, Dtype};
use unspool_paging::{Coding, OrderSource, Paged, PagingErrorKind, PagingOptions};
use unspool_testkit::{Fault, Faulty, Gated, Operation, Random, Scratch};
use unspool_tiers::Failure;
use unspool_tiers::{Disk, DiskOptions, Tier};

const CHUNK: usize = 16 << 10;

/// So many chunks of an array in memory.
fn options(room: usize) -> PagingOptions {
    let mut options = PagingOptions::new((room * CHUNK) as u64, Dtype::UInt32);
    options.chunk = Some(CHUNK as u64);
    options.threads = Some(3);
    options
}

/// An array of so many chunks; `None`, and said, where the kernel does not allow it.
fn paged(chunks: usize, options: &PagingOptions) -> Option<Paged> {
    match Paged::new(chunks * CHUNK, options) {
        Ok(paged) => Some(paged),
        Err(error) if error.kind() == PagingErrorKind::Refused => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What does not fit is on the disk alone.
fn on_disk(room: usize, disk: Arc<dyn Tier>) -> PagingOptions {
    let mut options = options(room);
    (options.host, options.disk) = (Some(0), Some(disk));
    options
}

fn faulty_disk(scratch: &Scratch) -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(Disk::open(DiskOptions::new(scratch.path())).expect("a disk"))))
}

/// The items, which threads may use at once.
fn words(paged: &Paged) -> &[AtomicU32] {
    // SAFETY: the memory is aligned, lives as long as the borrow, and is used by atomics only.
    unsafe { std::slice::from_raw_parts(paged.start().cast(), paged.len() / 4) }
}

/// Each of four threads reads and writes its own items, all over the array, and holds them against
/// plain memory.
fn compare_with_plain_memory(paged: &Paged, steps: usize) {
    const THREADS: usize = 4;
    let words = words(paged);
    let run = |thread: usize| {
        let mut random = Random::new(thread as u64 + 11);
        let own = words.len() / THREADS;
        let mut plain = vec![0_u32; own];
        for step in 0..steps {
            let run = random.below(64) as usize + 1;
            let first = random.below((own - run) as u64) as usize;
            let writes = random.below(2) == 0;
            for i in first..first + run {
                let word = &words[i * THREADS + thread];
                assert_eq!(word.load(Ordering::Relaxed), plain[i], "thread {thread}, item {i}");
                if writes {
                    plain[i] = (step * 1000 + i) as u32;
                    word.store(plain[i], Ordering::Relaxed);
                }
            }
        }
        for (i, &value) in plain.iter().enumerate() {
            assert_eq!(words[i * THREADS + thread].load(Ordering::Relaxed), value);
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || run(thread))));
    });
}

#[test]
fn many_threads_read_what_they_wrote() {
    let Some(paged) = paged(64, &options(8)) else { return };
    compare_with_plain_memory(&paged, 1500);
    let stats = paged.stats().unwrap();
    assert!(stats.evictions > 100 && stats.dropped_clean > 0 && stats.lost == 0, "{stats:?}");
    assert!(stats.bytes_stored < stats.bytes_encoded, "{stats:?}");
}

#[test]
fn many_threads_read_what_they_wrote_by_way_of_the_disk_with_an_order_they_do_not_keep() {
    let scratch = Scratch::new();
    let disk = faulty_disk(&scratch);
    let mut options = options(6);
    options.host = Some(40_000);
    options.disk = Some(disk.clone());
    (options.user_mode_only, options.coding) = (true, Coding::Raw);
    let Some(paged) = paged(40, &options) else { return };
    let all = 0..paged.len();
    paged.expect(Some(&[all])).unwrap();
    // Every fiftieth write or read of the disk fails, which nobody notices.
    for nth in 1..20 {
        disk.on_nth(Operation::Get, nth * 50, Fault::Fail(Failure::Io));
        disk.on_nth(Operation::Get, nth * 50 + 7, Fault::FlipBit { at: 99 });
        disk.on_nth(Operation::Put, nth * 50, Fault::Fail(Failure::NoSpace));
    }
    compare_with_plain_memory(&paged, 400);
    let stats = paged.stats().unwrap();
    assert!(stats.stored_on_disk > 0 && stats.refusals > 0 && stats.lost == 0, "{stats:?}");
    assert!(!stats.kernel_faults && !stats.last_refusal.is_empty());
}

#[test]
fn memory_stays_within_the_limit_while_the_program_runs() {
    let Some(paged) = paged(64, &options(8)) else { return };
    let ends = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !ends.load(Ordering::Relaxed) {
                most = most.max(paged.resident_bytes().unwrap());
            }
            most
        });
        compare_with_plain_memory(&paged, 500);
        ends.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    assert!(most > 4 * CHUNK as u64 && most <= 8 * CHUNK as u64, "{most} bytes");
}

/// The first item of each of the first eight chunks is written while one of them is on its way out.
#[test]
fn a_write_to_a_chunk_that_is_being_evicted_waits_and_is_not_lost() {
    let scratch = Scratch::new();
    let disk = Arc::new(Gated::new(faulty_disk(&scratch)));
    let mut options = on_disk(8, disk.clone());
    options.threads = Some(4);
    let Some(paged) = paged(16, &options).map(Arc::new) else { return };
    // In no order: of a sweep, the rest would be loaded and evicted before the gate is closed.
    for chunk in [3, 0, 6, 1, 5, 2, 7, 4] {
        words(&paged)[chunk * CHUNK / 4].store(1, Ordering::Relaxed);
    }
    let gate = disk.gate(Operation::Put);
    gate.close();
    let (done, ends) = mpsc::channel();
    let touch = |chunk: usize| {
        let (paged, done) = (Arc::clone(&paged), done.clone());
        std::thread::spawn(move || {
            words(&paged)[chunk * CHUNK / 4].fetch_add(1, Ordering::Relaxed);
            done.send(()).unwrap();
        });
    };
    touch(12);
    assert!(gate.wait_until_waiting(1));
    let before = paged.stats().unwrap().faults;
    (0..8).for_each(touch);
    let begin = Instant::now();
    while paged.stats().unwrap().faults == before {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    }
    gate.open();
    for _ in 0..9 {
        ends.recv_timeout(Duration::from_secs(20)).expect("nobody waits for ever");
    }
    let item = |chunk: usize| words(&paged)[chunk * CHUNK / 4].load(Ordering::Relaxed);
    assert_eq!((0..8).map(item).collect::<Vec<_>>(), [2; 8]);
    assert_eq!(item(12), 1);
}

/// Changes every item in each lap, and finds those of the lap before; all are zero before lap 0.
fn sweep(paged: &Paged, laps: Range<usize>) {
    for lap in laps {
        for (i, word) in words(paged).iter().enumerate().step_by(256) {
            assert_eq!(word.load(Ordering::Relaxed), if lap == 0 { 0 } else { (lap + i) as u32 });
            word.store((lap + 1 + i) as u32, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_sweep_that_is_given_or_found_out_keeps_what_it_can() {
    for given in [true, false] {
        let Some(paged) = paged(64, &options(32)) else { return };
        let parts: Vec<Range<usize>> = (0..64).map(|i| i * CHUNK..(i + 1) * CHUNK).collect();
        if given {
            paged.expect(Some(&parts)).unwrap();
        }
        sweep(&paged, 0..2);
        let before = paged.stats().unwrap();
        sweep(&paged, 2..12);
        let stats = paged.stats().unwrap();
        let source = if given { OrderSource::Given } else { OrderSource::Detected };
        assert_eq!(stats.order, source);
        // 32 do not fit, and 8 stream past; LRU would load all 64.
        let loads = stats.loads - before.loads;
        assert!(loads <= 10 * 44, "{loads} loads in 10 laps, given: {given}");
        assert!(stats.loads_ahead > before.loads_ahead && stats.ahead_hits > 0);
    }
}

#[test]
fn what_is_only_read_is_dropped_and_not_encoded_again_where_its_copy_is_on_the_disk() {
    let scratch = Scratch::new();
    let Some(paged) = paged(32, &on_disk(8, faulty_disk(&scratch))) else { return };
    sweep(&paged, 0..1);
    for _ in 0..3 {
        assert!(words(&paged).iter().step_by(256).all(|word| word.load(Ordering::Relaxed) > 0));
    }
    let before = paged.stats().unwrap().bytes_encoded;
    for _ in 0..3 {
        assert!(words(&paged).iter().step_by(256).all(|word| word.load(Ordering::Relaxed) > 0));
    }
    let stats = paged.stats().unwrap();
    // Those that had stayed since they were written.
    assert!(stats.bytes_encoded - before <= 8 * CHUNK as u64, "{stats:?}");
    assert!(stats.dropped_clean > 20);
}

#[test]
fn nothing_is_in_memory_twice() {
    let (mut raw, room) = (options(8), 8 * CHUNK as u64);
    raw.coding = Coding::Raw;
    let Some(paged) = paged(32, &raw) else { return };
    sweep(&paged, 0..1);
    for _ in 0..3 {
        assert!(words(&paged).iter().step_by(256).all(|word| word.load(Ordering::Relaxed) > 0));
        let stats = paged.stats().unwrap();
        // A chunk that comes or goes is counted in both places, for as many threads as there are.
        let most = paged.len() as u64 - room + 4 * (CHUNK as u64 + 1024);
        assert!(stats.stored_in_memory <= most, "{stats:?}");
    }
}

#[test]
fn what_passes_in_an_order_is_not_encoded_again_and_its_encoded_bytes_count_as_resident() {
    let (chunks, room) = (64, 16);
    let Some(paged) = paged(chunks, &options(room)) else { return };
    let mut random = Random::new(3);
    // Half of their bits are random: they get half as long.
    words(&paged)
        .iter()
        .for_each(|word| word.store(random.below(1 << 16) as u32, Ordering::Relaxed));
    let sweep = 0..paged.len();
    paged.expect(Some(std::slice::from_ref(&sweep))).unwrap();
    let read = || words(&paged).iter().map(|word| u64::from(word.load(Ordering::Relaxed))).sum();
    let sum: u64 = read();
    read();
    let before = paged.stats().unwrap();
    for _ in 0..4 {
        assert_eq!(sum, read());
        let stats = paged.stats().unwrap();
        // A chunk that comes or goes is counted in both places, for as many threads as there are.
        let out = (chunks - room) * CHUNK / 20 * 11;
        let most = room * CHUNK + out + 4 * CHUNK;
        let there = paged.resident_bytes().unwrap() + stats.stored_in_memory;
        assert!(there <= most as u64, "{there} of {most}: {stats:?}");
    }
    let stats = paged.stats().unwrap();
    let loaded = stats.bytes_decoded - before.bytes_decoded;
    assert!(loaded > 4 * (chunks - room) as u64 * CHUNK as u64);
    assert!((stats.bytes_encoded - before.bytes_encoded) * 4 < loaded, "{before:?} {stats:?}");
}

#[test]
fn what_cannot_be_put_aside_stays_and_goes_when_there_is_room_again() {
    let scratch = Scratch::new();
    let disk = faulty_disk(&scratch);
    let Some(paged) = paged(32, &on_disk(8, disk.clone())) else { return };
    disk.always(Operation::Put, Fault::Fail(Failure::NoSpace));
    sweep(&paged, 0..2);
    let over = paged.resident_bytes().unwrap();
    assert!(over > 24 * CHUNK as u64, "{over}");
    assert!(paged.stats().unwrap().refusals > 0);
    disk.heal();
    sweep(&paged, 2..6);
    let begin = Instant::now();
    while paged.resident_bytes().unwrap() > 8 * CHUNK as u64 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", paged.stats());
        std::thread::yield_now();
    }
    assert_eq!(paged.stats().unwrap().lost, 0);
    sweep(&paged, 6..8);
}

/// Runs a test of this file again in a process of its own, with a word that it finds.
fn in_a_child(test: &str) -> std::process::Output {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env("UNSPOOL_PAGING_CHILD", "1");
    command.output().expect("it runs")
}

fn is_child() -> bool {
    std::env::var_os("UNSPOOL_PAGING_CHILD").is_some()
}

#[test]
fn bytes_that_are_lost_end_the_program_and_are_never_handed_out() {
    let scratch = Scratch::new();
    let disk = faulty_disk(&scratch);
    let Some(paged) = paged(32, &on_disk(8, disk.clone())) else { return };
    sweep(&paged, 0..1);
    disk.always(Operation::Get, Fault::FlipBit { at: 20 });
    if is_child() {
        let sum: u32 = words(&paged).iter().fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed));
        panic!("all was read: {sum}");
    }
    let pin = |i| paged.pin(i * CHUNK..(i + 1) * CHUNK, false).map(|pinned| paged.unpin(pinned));
    let refused = (0..32).find_map(|i| pin(i).err());
    assert_eq!(refused.unwrap().kind(), PagingErrorKind::Corrupt);
    disk.heal();
    sweep(&paged, 1..2);
    let output = in_a_child("bytes_that_are_lost_end_the_program_and_are_never_handed_out");
    let text = String::from_utf8_lossy(&output.stderr);
    let signal = output.status.signal();
    assert!(matches!(signal, Some(libc::SIGBUS | libc::SIGABRT)), "{signal:?}\n{text}");
    assert!(text.contains("unspool.paged: bytes ") && text.contains("checksum"), "{text}");
}

#[test]
fn system_calls_work_on_what_is_pinned() {
    let mut options = options(8);
    options.user_mode_only = true;
    let Some(paged) = paged(32, &options) else { return };
    let part = 5 * CHUNK + 10..7 * CHUNK;
    let read = |paged: &Paged| {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        // SAFETY: the range is within the memory, and nobody else uses it.
        unsafe {
            let place = paged.start().add(part.start).cast();
            libc::read(std::os::fd::AsRawFd::as_raw_fd(&file), place, part.len())
        }
    };
    assert_eq!(read(&paged), -1, "the kernel may not fault on it");
    let pinned = paged.pin(part.clone(), true).unwrap();
    sweep_reads(&paged);
    assert_eq!(read(&paged), part.len() as isize);
    paged.unpin(pinned);
    sweep_reads(&paged);
    let text = std::fs::read("/proc/self/exe").unwrap();
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(paged.start().add(part.start), part.len()) };
    assert!(bytes == &text[..part.len()]);
    assert_eq!(paged.pin(0..32 * CHUNK, false).unwrap_err().kind(), PagingErrorKind::Invalid);
    assert!(paged.pin(31 * CHUNK..32 * CHUNK + 1, false).is_err());
}

fn sweep_reads(paged: &Paged) {
    let sum = words(paged).iter().step_by(64).map(|word| word.load(Ordering::Relaxed) & 1);
    assert!(sum.sum::<u32>() < u32::MAX);
}

#[test]
fn a_bound_holds_as_often_as_it_is_counted() {
    const BOUND: f32 = 1e-3;
    let mut options = options(8);
    options.dtype = Dtype::Float32;
    options.coding = Coding::Bounded(Bound::Absolute(BOUND.into()));
    let Some(paged) = paged(32, &options) else { return };
    let words = words(&paged);
    let value = |i: usize| (i as f32 * 1e-3).sin();
    for (i, word) in words.iter().enumerate() {
        word.store(value(i).to_bits(), Ordering::Relaxed);
    }
    // One item of a chunk is written again and again, so that the others are encoded again too.
    for _ in 0..4 {
        for word in words.iter().step_by(CHUNK / 4) {
            word.store(0, Ordering::Relaxed);
        }
    }
    let most = paged.stats().unwrap().lossy_most;
    assert!(most >= 3, "{most}");
    for (i, word) in words.iter().enumerate().filter(|(i, _)| i % (CHUNK / 4) != 0) {
        let error = (f32::from_bits(word.load(Ordering::Relaxed)) - value(i)).abs();
        assert!(error <= BOUND * (most as f32 + 1.0), "item {i}: {error}, {most} times");
    }
}

#[test]
fn a_child_is_told_that_it_has_no_such_memory() {
    let Some(paged) = paged(32, &options(8)) else { return };
    sweep(&paged, 0..1);
    // SAFETY: the child only asks for what takes no lock, and leaves without cleaning up.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = paged.stats().is_err_and(|error| error.kind() == PagingErrorKind::Forked);
        drop(paged);
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!told)) };
    }
    let mut status = 0;
    // SAFETY: the status lives for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    sweep(&paged, 1..2);
}

#[test]
fn what_fits_is_ordinary_memory_and_nothing_is_memory_too() {
    for bytes in [0, 1, 8 * CHUNK] {
        let paged = Paged::new(bytes, &options(8)).unwrap();
        assert!(!paged.is_paged() && paged.len() == bytes && paged.is_empty() == (bytes == 0));
        words(&paged).iter().for_each(|word| word.store(3, Ordering::Relaxed));
        let pinned = paged.pin(0..bytes, true).unwrap();
        paged.unpin(pinned);
        assert_eq!(paged.stats().unwrap().faults, 0);
    }
}

#[test]
fn options_and_orders_that_do_not_fit_are_refused() {
    let mut odd = options(8);
    odd.chunk = Some(5000);
    let mut crowd = options(8);
    crowd.threads = Some(0);
    for wrong in [odd, options(3), crowd] {
        let error = Paged::new(64 * CHUNK, &wrong).unwrap_err();
        assert_eq!(error.kind(), PagingErrorKind::Invalid, "{error}");
    }
    let Some(paged) = paged(16, &options(8)) else { return };
    let parts = [0..0, 0..16 * CHUNK + 1];
    for wrong in [&parts[..0], &parts[..1], &parts[1..]] {
        assert_eq!(paged.expect(Some(wrong)).unwrap_err().kind(), PagingErrorKind::Invalid);
    }
    assert_eq!(paged.expect(None), Ok(()));
}

#[test]
fn memory_and_threads_are_gone_when_it_is_dropped() {
    let Some(paged) = paged(64, &options(8)) else { return };
    sweep(&paged, 0..2);
    let start = paged.start() as usize;
    drop(paged);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = format!("{start:x}-");
    assert!(!maps.lines().any(|line| line.starts_with(&ours)));
}
