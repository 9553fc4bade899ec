//! The cost of the first compressed save of a process, and the time that the process takes to end.
//!
//! `gpu_first [lossless|bounded|zfp]` on a machine with a CUDA device; to be run in an environment
//! without caches, and with `time`:
//!
//! `XDG_CACHE_HOME=$(mktemp -d) CUDA_CACHE_PATH=$(mktemp -d) bash -c 'time gpu_first bounded'`
//!
//! The arrays are 32 MiB of float32. Each save and restore is timed until its call returns and
//! until the device is done. The process sleeps for a second; the time that `time` reports beyond
//! that, and beyond the start of the device, is the wait at the end of the process.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use unspool::gpu::{DeviceArray, DeviceMemory, Stream};
use unspool::{Bound, Codecs, Dtype, On, RegionSpec, Settings, Spec, Spool, Wait, Zfp};
use unspool_cuda::copy;

const VALUES: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(30);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let began = Instant::now();
    println!("{}", unspool_gpu_tests::ship_kernels());
    let codec = match std::env::args().nth(1).as_deref() {
        None | Some("bounded") => Spec::Bounded(Bound::Absolute(1e-3)),
        Some("lossless") => Spec::Lossless,
        Some("zfp") => Spec::Zfp(Zfp::Rate(8.0)),
        Some(other) => return Err(format!("no codec is named {other}").into()),
    };
    let settings = Settings {
        device: Some(1 << 30),
        on: On::Cuda(None),
        codec: Codecs::all(codec),
        ..Settings::default()
    };
    let spool = Spool::open(settings)?;
    println!("{:>9.1} ms  the device and the spool", ms(began));
    let application = Application::new(&spool)?;
    for version in 0..3 {
        application.timed("save", version, || application.save(&spool, version))?;
    }
    for version in 0..3 {
        application.timed("restore", version, || application.restore(&spool, version))?;
    }
    println!("largest error {:e}", application.largest_error()?);
    let stats = spool.stats()?.application;
    println!("{:>9.1} ms  of the stalls were for kernels", 1e3 * stats.kernels.as_secs_f64());
    stats.notes.iter().for_each(|note| println!("note: {note}"));
    let closing = Instant::now();
    spool.close()?;
    println!("{:>9.1} ms  close", ms(closing));
    std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
    println!("{:>9.1} ms  main ends", ms(began));
    Ok(())
}

fn ms(since: Instant) -> f64 {
    1e3 * since.elapsed().as_secs_f64()
}

/// Two arrays on the device, and a stream.
struct Application {
    stream: Stream,
    array: DeviceMemory,
    other: DeviceMemory,
}

impl Application {
    fn new(spool: &Spool) -> Outcome<Application> {
        let context = spool.gpu().ok_or("no GPU")?.context().clone();
        let stream = Stream::new(&context)?;
        let memory = || DeviceMemory::new(&context, 4 * VALUES);
        let (array, other) = (memory()?, memory()?);
        let values: Vec<u8> = (0..VALUES).flat_map(|at| value(at).to_le_bytes()).collect();
        copy::host_to_device(&stream, &array.span(), &values, LIMIT)?;
        Ok(Application { stream, array, other })
    }

    fn timed(&self, what: &str, version: i64, body: impl FnOnce() -> Outcome) -> Outcome {
        let began = Instant::now();
        body()?;
        let returned = ms(began);
        self.stream.record()?.wait(LIMIT)?;
        println!("{returned:>9.2} ms, done after {:>8.2} ms  {what} {version}", ms(began));
        Ok(())
    }

    fn save(&self, spool: &Spool, version: i64) -> Outcome {
        let spec = RegionSpec { name: "u".into(), dtype: Dtype::Float32, shape: vec![VALUES] };
        let mut ticket = spool.save(version, vec![spec], &Wait::default())?;
        ticket.put(0, &array_of(&self.array), &self.stream)?;
        Ok(ticket.commit()?)
    }

    fn restore(&self, spool: &Spool, version: i64) -> Outcome {
        let mut ticket = spool.restore(version, &Wait::default())?;
        ticket.get(0, &array_of(&self.other), &self.stream)?;
        Ok(ticket.finish()?)
    }

    /// The largest error of the last restore.
    fn largest_error(&self) -> Outcome<f64> {
        let mut bytes = vec![0; 4 * VALUES as usize];
        copy::device_to_host(&self.stream, &mut bytes, &self.other.span(), LIMIT)?;
        let found = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        let errors = found.zip(0..).map(|(found, at)| f64::from((found - value(at)).abs()));
        Ok(errors.fold(0.0, f64::max))
    }
}

/// A wave without repeating chunks.
fn value(at: u64) -> f32 {
    ((at as f64 * 3e-3).sin() + 0.5 * (at as f64 * 1.7e-5).cos()) as f32
}

fn array_of(memory: &DeviceMemory) -> DeviceArray {
    let span = memory.span();
    // SAFETY: the memory is freed after all work on the device, and after the spool was closed.
    unsafe { DeviceArray::dense(span.ordinal(), span.address(), span.len()) }
}
