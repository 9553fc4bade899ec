//! The cost of saving and restoring memory of a GPU, against a raw copy on the device.
//!
//! `cargo run --release --bin gpu_overhead`, on a machine with a CUDA device. For each size: the
//! host's time per call (median), and the device time of a series of calls (by events) relative to
//! that of plain copies of the same bytes. Every byte is compared once.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use unspool::gpu::{DeviceArray, DeviceMemory, Gpu, Stream};
use unspool::{Dtype, On, RegionSpec, Settings, Spool, Wait};
use unspool_cuda::{Event, copy};

const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
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
        let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![self.bytes] };
        let mut ticket = spool.save(version, vec![spec], &Wait::default())?;
        // SAFETY: the array lives longer than the spool.
        let array = unsafe {
            DeviceArray::dense(self.array.span().ordinal(), self.array.span().address(), self.bytes)
        };
        ticket.put(0, &array, &self.stream)?;
        Ok(ticket.commit()?)
    }

    fn restore(&self, spool: &Spool, version: i64) -> Outcome<()> {
        let mut ticket = spool.restore(version, &Wait::default())?;
        // SAFETY: as above.
        let array = unsafe {
            DeviceArray::dense(self.other.span().ordinal(), self.other.span().address(), self.bytes)
        };
        ticket.get(0, &array, &self.stream)?;
        Ok(ticket.finish()?)
    }

    /// Compares the last restored array with the saved one.
    fn compare(&self) -> Outcome<()> {
        let mut bytes = vec![0; self.bytes as usize];
        copy::device_to_host(&self.stream, &mut bytes, &self.other.span(), LIMIT)?;
        let wrong = bytes.iter().filter(|byte| **byte != 0x5A).count();
        if wrong == 0 { Ok(()) } else { Err(format!("{wrong} bytes differ").into()) }
    }
}
