//! The cost of saving and restoring memory of a GPU, against a raw copy on the device.
//!
//! `cargo run --release --bin gpu_overhead`, on a machine with a CUDA device. For each size: the
//! host's time per call (median), and the device time of a series of calls (by events) relative to
//! that of plain copies of the same bytes. Every byte is compared once.
//!
//! `gpu_overhead parts` says where the host's time of small checkpoints goes: each part of a save
//! and of a restore, in a row, with and without flushes beside them, and the driver's own calls,
//! alone and beside threads that call it too. `gpu_overhead parts 20` sleeps for 20 ms before each
//! call, as a thread does that waits for a step of its application.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unspool::gpu::{DeviceArray, DeviceMemory, Gpu, Stream};
use unspool::{Dtype, On, RegionSpec, RestoreTicket, SaveTicket, Settings, Spool, Wait};
use unspool_cuda::{Event, copy, device_of};

const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["parts"] => return parts(Duration::ZERO),
        ["parts", pause] => return parts(Duration::from_millis(pause.parse()?)),
        _ => return Err("usage: gpu_overhead [parts [MILLISECONDS]]".into()),
    }
    println!(
        "{:>9} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "size", "save", "restore", "raw copy", "host save", "host restore"
    );
    for mib in [1, 8, 32, 128, 512] {
        measure(mib * MIB)?;
    }
    Ok(())
}

/// Measures one size and prints a line of the table.
fn measure(bytes: u64) -> Outcome<()> {
    let count = (4096 * MIB / bytes).clamp(4, 200) as i64;
    let settings = Settings {
        device: Some((count as u64 + 1) * (bytes + 4096)),
        on: On::Cuda(None),
        ..Settings::default()
    };
    let spool = Spool::open(settings)?;
    let gpu = spool.gpu().ok_or("no GPU")?.clone();
    let bench = Bench::new(&gpu, bytes)?;
    let raw = bench.timed(count, |_| {
        Ok(copy::device_to_device(&bench.stream, &bench.other.span(), &bench.array.span())?)
    })?;
    let save = bench.timed(count, |version| bench.save(&spool, version))?;
    spool.expect((0..count).rev())?;
    let restore = bench.timed(count, |version| bench.restore(&spool, count - 1 - version))?;
    let rate = |device: Duration| bytes as f64 * count as f64 / device.as_secs_f64() / 1e9;
    println!(
        "{:>5} MiB {:>8.0} GB/s {:>8.0} GB/s {:>8.0} GB/s {:>9.1} us {:>9.1} us",
        bytes / MIB,
        rate(save.device),
        rate(restore.device),
        rate(raw.device),
        save.host.as_secs_f64() * 1e6,
        restore.host.as_secs_f64() * 1e6
    );
    bench.compare()
}

/// Prints what the parts of calls cost, for checkpoints of some sizes.
fn parts(pause: Duration) -> Outcome<()> {
    println!("microseconds of the host, median and 99th percentile of a series");
    for kib in [64, 1024, 2048] {
        for host in [false, true] {
            let most = if pause.is_zero() { 2000 } else { 64 };
            let count = (512 * MIB / (kib << 10)).clamp(64, most) as i64;
            parts_of(kib << 10, count, host, pause)?;
        }
    }
    Ok(())
}

fn parts_of(bytes: u64, count: i64, host: bool, pause: Duration) -> Outcome<()> {
    let all = (count as u64 + 1) * (bytes + 4096);
    let settings = Settings {
        device: Some(all),
        host: host.then_some(all),
        on: On::Cuda(None),
        ..Settings::default()
    };
    let spool = Spool::open(settings)?;
    spool.prepare()?;
    let gpu = spool.gpu().ok_or("no GPU")?.clone();
    let bench = Bench::new(&gpu, bytes)?;
    std::thread::sleep(Duration::from_millis(300));
    let mut rows: [Series; 6] = Default::default();
    let [ask, put, commit, serve, get, finish] = &mut rows;
    for version in 0..count {
        std::thread::sleep(pause);
        let mut ticket = ask.of(|| bench.ticket(&spool, version))?;
        put.of(|| bench.put(&mut ticket))?;
        commit.of(|| Ok(ticket.commit()?))?;
    }
    bench.stream.sync(LIMIT)?;
    for version in (0..count).rev() {
        std::thread::sleep(pause);
        let mut ticket = serve.of(|| Ok(spool.restore(version, &Wait::default())?))?;
        get.of(|| bench.get(&mut ticket))?;
        finish.of(|| Ok(ticket.finish()?))?;
    }
    bench.stream.sync(LIMIT)?;
    let tiers = if host { "device and host" } else { "device alone" };
    println!("\n{} KiB, {tiers}", bytes >> 10);
    let names = ["save: room", "put", "commit", "restore: wait", "get", "finish"];
    for (name, row) in names.into_iter().zip(rows) {
        row.print(name);
    }
    for threads in [0, 2] {
        bench.driver(threads, pause)?;
    }
    bench.small_calls()
}

/// The durations of a series of calls.
#[derive(Default)]
struct Series(Vec<Duration>);

impl Series {
    fn of<T>(&mut self, call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let began = Instant::now();
        let result = call();
        self.0.push(began.elapsed());
        result
    }

    fn print(mut self, name: &str) {
        self.0.sort_unstable();
        let at = |percent: usize| self.0[(self.0.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        println!("  {name:<40} {:>8.1} {:>8.1}", at(50), at(99));
    }
}

/// The cost of a series of calls.
struct Cost {
    device: Duration,
    /// The median duration of a call on the host.
    host: Duration,
}

/// Two arrays on the device, and a stream.
struct Bench {
    stream: Stream,
    array: DeviceMemory,
    other: DeviceMemory,
    bytes: u64,
}

impl Bench {
    fn new(gpu: &Gpu, bytes: u64) -> Outcome<Bench> {
        let stream = Stream::new(gpu.context())?;
        let (array, other) =
            (DeviceMemory::new(gpu.context(), bytes)?, DeviceMemory::new(gpu.context(), bytes)?);
        copy::fill(&stream, &array.span(), 0x5A)?;
        copy::fill(&stream, &other.span(), 0)?;
        Ok(Bench { stream, array, other, bytes })
    }

    /// Calls `body` for `0..count` and measures, after one unmeasured round.
    fn timed(&self, count: i64, mut body: impl FnMut(i64) -> Outcome<()>) -> Outcome<Cost> {
        let (start, end) =
            (Event::timed(self.stream.context())?, Event::timed(self.stream.context())?);
        let mut host = Vec::new();
        start.record(&self.stream)?;
        for number in 0..count {
            let began = Instant::now();
            body(number)?;
            host.push(began.elapsed());
        }
        end.record(&self.stream)?;
        end.wait(LIMIT)?;
        host.sort_unstable();
        Ok(Cost { device: end.since(&start)?, host: host[host.len() / 2] })
    }

    fn save(&self, spool: &Spool, version: i64) -> Outcome<()> {
        let mut ticket = self.ticket(spool, version)?;
        self.put(&mut ticket)?;
        Ok(ticket.commit()?)
    }

    fn ticket(&self, spool: &Spool, version: i64) -> Outcome<SaveTicket> {
        let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![self.bytes] };
        Ok(spool.save(version, vec![spec], &Wait::default())?)
    }

    fn put(&self, ticket: &mut SaveTicket) -> Outcome<()> {
        Ok(ticket.put(0, &self.dense(&self.array), &self.stream).map(drop)?)
    }

    fn get(&self, ticket: &mut RestoreTicket) -> Outcome<()> {
        Ok(ticket.get(0, &self.dense(&self.other), &self.stream).map(drop)?)
    }

    fn dense(&self, memory: &DeviceMemory) -> DeviceArray {
        let span = memory.span();
        // SAFETY: the array lives longer than the spool.
        unsafe { DeviceArray::dense(span.ordinal(), span.address(), self.bytes) }
    }

    fn restore(&self, spool: &Spool, version: i64) -> Outcome<()> {
        let mut ticket = spool.restore(version, &Wait::default())?;
        self.get(&mut ticket)?;
        Ok(ticket.finish()?)
    }

    /// Measures the driver's copy and the record of an event, each after a pause, while other
    /// threads, so many, call the driver too.
    fn driver(&self, threads: usize, pause: Duration) -> Outcome<()> {
        let calls = if pause.is_zero() { 500 } else { 64 };
        let stop = AtomicBool::new(false);
        let context = self.stream.context();
        let (mut copying, mut recording) = (Series::default(), Series::default());
        std::thread::scope(|scope| -> Outcome<()> {
            for _ in 0..threads {
                scope.spawn(|| -> Option<()> {
                    let stream = Stream::new(context).ok()?;
                    let (from, to) = (DeviceMemory::new(context, self.bytes).ok()?, &self.other);
                    while !stop.load(Ordering::Relaxed) {
                        copy::device_to_device(&stream, &from.span(), &to.span()).ok()?;
                        stream.record().ok()?.wait(LIMIT).ok()?;
                    }
                    Some(())
                });
            }
            for _ in 0..calls {
                std::thread::sleep(pause);
                let (to, from) = (self.other.span(), self.array.span());
                copying.of(|| Ok(copy::device_to_device(&self.stream, &to, &from)?))?;
                let event = recording.of(|| Ok(self.stream.record()?))?;
                event.wait(LIMIT)?;
            }
            stop.store(true, Ordering::Relaxed);
            Ok(())
        })?;
        copying.print(&format!("driver: copy, {threads} threads beside"));
        recording.print(&format!("driver: new event and record, {threads} threads"));
        Ok(())
    }

    /// The calls that cost a part of a microsecond each, of which a save makes several: nanoseconds
    /// a call, from a thousand in a row.
    fn small_calls(&self) -> Outcome<()> {
        const CALLS: u32 = 1000;
        let (context, stream) = (self.stream.context(), &self.stream);
        let (address, handle) = (self.array.span().address(), stream.handle());
        let done = stream.record()?;
        done.wait(LIMIT)?;
        let row = |name: &str, call: &dyn Fn() -> Outcome<()>| -> Outcome<()> {
            let began = Instant::now();
            for _ in 0..CALLS {
                call()?;
            }
            let each = began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS);
            println!("  {name:<40} {each:>8.0} ns");
            Ok(())
        };
        row("context: enter and leave", &|| context.enter().map(drop).map_err(Into::into))?;
        row("the same within another", &|| {
            let _outer = context.enter()?;
            context.enter().map(drop).map_err(Into::into)
        })?;
        row("stream: is it captured", &|| Ok(stream.is_capturing().map(|_| ())?))?;
        row("stream: borrowed by handle", &|| {
            // SAFETY: the stream lives.
            Ok(unsafe { Stream::borrow(context, handle) }.map(drop)?)
        })?;
        row("stream: wait for what is done", &|| Ok(stream.wait_for(&done)?))?;
        row("event: is it done", &|| {
            drop(done.poll());
            Ok(())
        })?;
        row("event: record again", &|| Ok(done.record(stream)?))?;
        row("memory: of which device", &|| Ok(device_of(address).map(|_| ())?))
    }

    /// Compares the last restored array with the saved one.
    fn compare(&self) -> Outcome<()> {
        let mut bytes = vec![0; self.bytes as usize];
        copy::device_to_host(&self.stream, &mut bytes, &self.other.span(), LIMIT)?;
        let wrong = bytes.iter().filter(|byte| **byte != 0x5A).count();
        if wrong == 0 { Ok(()) } else { Err(format!("{wrong} bytes differ").into()) }
    }
}
