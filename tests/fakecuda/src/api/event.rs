//! Events.

use std::ffi::c_uint;
use std::sync::Arc;
use std::time::Instant;

use crate::call::{Held, Out, driver_calls};
use crate::codes::{Code, Outcome};
use crate::stream::Event;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;
/// Blocking synchronisation, no timing, between processes.
const FLAGS: c_uint = 7;

driver_calls! {
    /// Makes an event of the current context.
    fn cuEventCreate(world, event: Out<u64>, flags: c_uint) {
        let device = world.current()?;
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = world.handle();
        let timed = flags & DISABLE_TIMING == 0;
        world.events.insert(handle, Event { device, timed, latest: None });
        event.give(handle)
    }

    /// Destroys an event. Enqueued waits for it remain.
    fn cuEventDestroy_v2(world, event: u64) {
        world.event(event)?;
        world.events.remove(&event);
        Ok(())
    }

    /// Records an event after everything enqueued on the stream.
    fn cuEventRecord(world, event: u64, stream: u64) {
        let stream = world.stream(stream)?;
        world.record(event, stream)?;
        world.changed();
        Ok(())
    }

    /// Whether everything before the latest recording is done.
    fn cuEventQuery(world, event: u64) {
        let latest = world.event(event)?.latest.as_ref();
        if latest.is_none_or(|latest| latest.is_over()) { Ok(()) } else { Err(Code::NOT_READY) }
    }

    /// Waits until everything before the latest recording is done.
    fn cuEventSynchronize(world, event: u64) {
        let entry = world.event(event)?;
        let (device, latest) = (entry.device, entry.latest.clone());
        let Some(latest) = latest else { return Ok(()) };
        let latest = Arc::clone(&latest);
        world.wait_until(device, move |_| latest.is_over())
    }

    /// The milliseconds between two events.
    fn cuEventElapsedTime(world, milliseconds: Out<f32>, start: u64, end: u64) {
        let (start, end) = (reached(world, start)?, reached(world, end)?);
        let forth = end.saturating_duration_since(start).as_secs_f32();
        let back = start.saturating_duration_since(end).as_secs_f32();
        milliseconds.give((forth - back) * 1e3)
    }
}

/// The time at which an event was reached.
fn reached(world: &mut Held, event: u64) -> Outcome<Instant> {
    let event = world.event(event)?;
    let latest = event.latest.as_ref().filter(|_| event.timed).ok_or(Code::INVALID_HANDLE)?;
    latest.at().ok_or(Code::NOT_READY)
}
