//! Shared resources of all parts: a stream, the coders, and memory.

use std::time::{Duration, Instant};

use unspool_cuda::{Context, DeviceMemory, DeviceSpan, Event, Stream, copy};
use unspool_gpu_codec::{NvCompCoder, Slots, ZfpCoder};

pub const MIB: u64 = 1 << 20;
pub const LONG: Duration = Duration::from_secs(120);

pub struct Bench {
    pub context: Context,
    pub stream: Stream,
    pub zfp: ZfpCoder,
    pub nvcomp: NvCompCoder,
}

impl Bench {
    pub fn new(context: Context) -> Bench {
        let slots = Slots::new(&context);
        let path = std::env::var_os("PYTHONPATH").unwrap_or_default();
        let folders: Vec<_> = std::env::split_paths(&path).collect();
        let zfp = ZfpCoder::new(&context, &slots, folders.clone());
        let nvcomp = NvCompCoder::looking_in(&context, &slots, folders);
        Bench { stream: Stream::new(&context).unwrap(), zfp, nvcomp, context }
    }

    pub fn memory(&self, bytes: u64) -> DeviceMemory {
        DeviceMemory::new(&self.context, bytes).unwrap()
    }

    pub fn upload(&self, to: &DeviceSpan, bytes: &[u8]) {
        let to = to.slice(0, bytes.len() as u64).unwrap();
        copy::host_to_device(&self.stream, &to, bytes, LONG).unwrap();
    }

    pub fn download(&self, from: &DeviceSpan) -> Vec<u8> {
        let mut bytes = vec![0; from.len() as usize];
        copy::device_to_host(&self.stream, &mut bytes, from, LONG).unwrap();
        bytes
    }

    /// Device time and host time per run of `rounds` runs enqueued back to back; the smallest of
    /// five such series.
    pub fn time(&self, rounds: u32, run: impl Fn()) -> (Duration, Duration) {
        run();
        self.stream.sync(LONG).unwrap();
        let series = (0..5).map(|_| self.series(rounds, &run));
        series.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap()
    }

    fn series(&self, rounds: u32, run: &impl Fn()) -> (Duration, Duration) {
        let event = || Event::timed(&self.context).unwrap();
        let (start, end) = (event(), event());
        start.record(&self.stream).unwrap();
        let begin = Instant::now();
        (0..rounds).for_each(|_| run());
        let host = begin.elapsed();
        end.record(&self.stream).unwrap();
        end.wait(LONG).unwrap();
        (end.since(&start).unwrap() / rounds, host / rounds)
    }
}
