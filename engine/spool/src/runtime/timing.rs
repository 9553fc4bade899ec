//! Taking the time of encoders and decoders on a GPU.

use std::time::Instant;

use unspool_cuda::Event;

use super::shared::Shared;
use crate::coding::{Reading, Watched};
use crate::gpu::{Gpu, Stream};

/// The most readings that are under way; further ones are not taken.
const MOST: usize = 16;

impl Shared {
    /// Does `work`, which enqueues a codec on `stream`, and takes its time if that is wanted.
    pub(crate) fn timed<T, E>(
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
            if state.counters.experience.readings.len() < MOST {
                state.counters.experience.readings.push(reading);
            }
        }
        Ok(done)
    }

    /// Looks at the readings. No call of the driver is made under the lock.
    pub(crate) fn collect_readings(&self) {
        let readings = std::mem::take(&mut self.state().counters.experience.readings);
        if readings.is_empty() {
            return;
        }
        let looked: Vec<_> = readings.into_iter().map(|one| (one.time(), one)).collect();
        let mut over = Vec::new();
        let mut state = self.state();
        let experience = &mut state.counters.experience;
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

/// Records an event after the work that is on `stream` now; `None` where the driver refuses, and
/// that time is then not measured.
fn event(gpu: &Gpu, stream: &Stream) -> Option<Event> {
    let event = Event::timed(gpu.context()).ok()?;
    event.record(stream).ok()?;
    Some(event)
}
