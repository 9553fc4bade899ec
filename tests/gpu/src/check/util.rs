//! Helpers of the checks.

use std::time::{Duration, Instant};

use unspool_cuda::{DeviceError, Stream, releasing};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const LONG: Duration = Duration::from_secs(120);

/// A random number generator (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// Waits for everything on `stream`.
pub fn finish(stream: &Stream) {
    stream.record().unwrap().wait(LONG).unwrap();
}

/// Waits until all dropped resources are released.
pub fn wait_for_releases() {
    let begin = Instant::now();
    while releasing() > 0 && begin.elapsed() < LONG {
        std::thread::yield_now();
    }
    assert_eq!(releasing(), 0, "something is not released");
}

pub fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    (run(), begin.elapsed())
}

/// Bytes per second in GB/s.
pub fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median time of `rounds` runs.
pub fn median(rounds: usize, mut run: impl FnMut() -> Result<(), DeviceError>) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let begin = Instant::now();
            run().unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
