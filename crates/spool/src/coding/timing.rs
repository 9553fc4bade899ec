//! How long encoders and decoders take on a GPU: two events around what is enqueued, which are
//! looked at when a codec is chosen next. Nobody waits for them.

use std::time::{Duration, Instant};

use unspool_cuda::{Event, Poll};

use crate::gpu::{Gpu, Stream};
use crate::hub::Hub;

/// The most readings that are under way; further ones are not taken.
const MOST: usize = 16;

/// Whose time is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// Bytes of the values.
    pub(super) bytes: u64,
    pub(super) is_decoder: bool,
}

/// A codec whose time is not known yet.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) bytes: u64,
    pub(super) is_decoder: bool,
    ends: [Event; 2],
    /// For how long the host was busy with it.
    host: Duration,
}

impl Reading {
    /// The time of the device or of the host, whichever is longer: that is what the application
    /// can lose. `None` while the device is not done.
    fn time(&self) -> Option<Result<Duration, ()>> {
        match self.ends[1].poll() {
            Poll::NotYet => None,
            Poll::Done => {
                let device = self.ends[1].since(&self.ends[0]);
                Some(device.map(|device| device.max(self.host)).map_err(drop))
            }
            Poll::Failed(_) => Some(Err(())),
        }
    }
}

impl Hub {
    /// Does `work`, which enqueues a codec on `stream`, and takes its time if that is wanted.
    pub(super) fn timed<T, E>(
        &self,
        watched: Option<Watched>,
        (gpu, stream): (&Gpu, &Stream),
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(Watched { bytes, is_decoder }) = watched else { return work() };
        let start = event(gpu, stream);
        let began = Instant::now();
        let done = work()?;
        let host = began.elapsed();
        if let (Some(start), Some(end)) = (start, event(gpu, stream)) {
            let reading = Reading { bytes, is_decoder, ends: [start, end], host };
            let mut state = self.state();
            if state.tally.experience.readings.len() < MOST {
                state.tally.experience.readings.push(reading);
            }
        }
        Ok(done)
    }

    /// Looks at the readings. No call of the driver is made under the lock.
    pub(super) fn collect_readings(&self) {
        let readings = std::mem::take(&mut self.state().tally.experience.readings);
        if readings.is_empty() {
            return;
        }
        let looked: Vec<_> = readings.into_iter().map(|one| (one.time(), one)).collect();
        let mut over = Vec::new();
        let mut state = self.state();
        let experience = &mut state.tally.experience;
        for (time, reading) in looked {
            match time {
                None => experience.readings.push(reading),
                Some(time) => {
                    time.into_iter().for_each(|time| experience.read(&reading, time));
                    over.push(reading);
                }
            }
        }
        drop(state);
    }
}

/// An event behind what is on `stream`. Without one there is no reading.
fn event(gpu: &Gpu, stream: &Stream) -> Option<Event> {
    let event = Event::timed(gpu.context()).ok()?;
    event.record(stream).ok()?;
    Some(event)
}
