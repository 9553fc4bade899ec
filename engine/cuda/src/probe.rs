//! Measured speeds of the links of a device, in a few tens of milliseconds, as plain data.

use std::time::Duration;

use crate::context::Context;
use crate::copy;
use crate::error::DeviceError;
use crate::event::Event;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::span::DeviceSpan;
use crate::stream::Stream;

pub use crate::host::baseline::{Registered, register_at_once};

/// Settings of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeOptions {
    /// Bytes of one copy; default 16 MiB. Pinning them takes the longest, at about 2 GB/s, twice.
    pub bytes: u64,
    /// Copies of each kind; default 8.
    pub rounds: u32,
    /// Limit of each wait; default 10 s.
    pub limit: Duration,
}

impl Default for ProbeOptions {
    fn default() -> ProbeOptions {
        ProbeOptions { bytes: 16 << 20, rounds: 8, limit: Duration::from_secs(10) }
    }
}

/// Bytes per second of each kind of copy.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkSpeeds {
    /// Device to pinned host memory, alone.
    pub device_to_host: f64,
    /// Pinned host memory to the device, alone.
    pub host_to_device: f64,
    /// Each direction while the other runs too: the slower one.
    pub both_each: f64,
    /// Within the device: bytes copied (each is read once and written once).
    pub device_to_device: f64,
}

struct Bench<'a> {
    options: &'a ProbeOptions,
    down: Stream,
    up: Stream,
    device: [DeviceSpan; 2],
    host: [PinnedMemory; 2],
}

/// Measures the links of the device of `context`. Other work on the device lowers the result.
///
/// # Errors
/// When memory is missing, or a copy fails or hangs.
pub fn links(context: &Context, options: &ProbeOptions) -> Result<LinkSpeeds, DeviceError> {
    let device = [0, 1].map(|_| DeviceMemory::new(context, options.bytes).map(|m| m.span()));
    let host = [0, 1].map(|_| PinnedMemory::new(context, options.bytes));
    let ([a, b], [c, d]) = (device, host);
    let bench = Bench {
        options,
        down: Stream::new(context)?,
        up: Stream::new(context)?,
        device: [a?, b?],
        host: [c?, d?],
    };
    bench.warm_up()?;
    let [both, _] = bench.both()?;
    Ok(LinkSpeeds {
        device_to_host: bench.alone(&bench.down, |bench| bench.copy_down())?,
        host_to_device: bench.alone(&bench.up, |bench| bench.copy_up())?,
        both_each: both,
        device_to_device: bench.alone(&bench.down, |bench| bench.copy_within())?,
    })
}

impl Bench<'_> {
    fn copy_down(&self) -> Result<(), DeviceError> {
        copy::device_to_pinned(&self.down, &self.host[0], 0, &self.device[0])
    }

    fn copy_up(&self) -> Result<(), DeviceError> {
        copy::pinned_to_device(&self.up, &self.device[1], &self.host[1], 0)
    }

    fn copy_within(&self) -> Result<(), DeviceError> {
        copy::device_to_device(&self.down, &self.device[1], &self.device[0])
    }

    fn warm_up(&self) -> Result<(), DeviceError> {
        self.copy_down()?;
        self.copy_up()?;
        self.down.wait_for(&self.up.record()?)?;
        self.copy_within()?;
        self.down.record()?.wait(self.options.limit)
    }

    /// Bytes per second of `copy` on `stream`.
    fn alone(
        &self,
        stream: &Stream,
        copy: impl Fn(&Self) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let (start, end) = (Event::timed(stream.context())?, Event::timed(stream.context())?);
        start.record(stream)?;
        for _ in 0..self.options.rounds {
            copy(self)?;
        }
        end.record(stream)?;
        self.rate(&start, &end)
    }

    /// Both directions at once: the slower and the faster rate.
    fn both(&self) -> Result<[f64; 2], DeviceError> {
        let context = self.down.context();
        let event = || Event::timed(context);
        let (start, down, up) = (event()?, event()?, event()?);
        start.record(&self.down)?;
        self.up.wait_for(&start)?;
        for _ in 0..self.options.rounds {
            self.copy_down()?;
            self.copy_up()?;
        }
        down.record(&self.down)?;
        up.record(&self.up)?;
        let (down, up) = (self.rate(&start, &down)?, self.rate(&start, &up)?);
        Ok([down.min(up), down.max(up)])
    }

    fn rate(&self, start: &Event, end: &Event) -> Result<f64, DeviceError> {
        end.wait(self.options.limit)?;
        let seconds = end.since(start)?.as_secs_f64().max(1e-9);
        Ok(self.options.bytes as f64 * f64::from(self.options.rounds) / seconds)
    }
}
