//! Streams.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::call::{Held, Out, driver_calls};
use crate::capture::{Capture, exchange_mode};
use crate::codes::{Code, Outcome};
use crate::stream::Work;
use crate::world::World;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

fn create(world: &mut World, stream: Out<u64>, flags: c_uint) -> Outcome {
    let device = world.current()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    stream.give(world.add_stream(device, flags & NON_BLOCKING == 0))
}

/// The stream of a handle; unless it is a default stream, the current context does not matter.
fn any_stream(world: &mut World, handle: u64) -> Outcome<u64> {
    match world.streams.get(&handle).filter(|stream| !stream.destroyed) {
        Some(_) => Ok(handle),
        None => world.stream(handle),
    }
}

/// Waits until everything enqueued on a stream so far is done.
pub(crate) fn synchronize(world: &mut Held, stream: u64) -> Outcome {
    let entry = world.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?;
    let (device, place) = (entry.device, (stream, entry.enqueued));
    world.wait_until(device, |world| world.is_over(place))
}

driver_calls! {
    /// Creates a stream.
    fn cuStreamCreate(world, stream: Out<u64>, flags: c_uint) {
        create(world, stream, flags)
    }

    /// Creates a stream. The priority is ignored.
    fn cuStreamCreateWithPriority(world, stream: Out<u64>, flags: c_uint, _priority: c_int) {
        create(world, stream, flags)
    }

    /// Destroys a stream. Enqueued operations are still executed.
    fn cuStreamDestroy_v2(world, stream: u64) {
        let entry = world.streams.get_mut(&stream).filter(|entry| !entry.destroyed);
        let entry = entry.ok_or(Code::INVALID_HANDLE)?;
        entry.destroyed = true;
        if entry.queue.is_empty() {
            world.streams.remove(&stream);
        }
        Ok(())
    }

    /// The context of a stream.
    fn cuStreamGetCtx(world, stream: u64, context: Out<u64>) {
        let stream = any_stream(world, stream)?;
        context.give(World::context_of(world.streams[&stream].device))
    }

    /// A number that no other stream of the process has or had.
    fn cuStreamGetId(world, stream: u64, id: Out<u64>) {
        let stream = any_stream(world, stream)?;
        id.give(stream)
    }

    /// The state of a capture: 0 for none, 1 for an active one, 2 for an invalid one.
    fn cuStreamIsCapturing(world, stream: u64, status: Out<c_uint>) {
        let stream = any_stream(world, stream)?;
        let capture = world.streams[&stream].capture.as_ref();
        status.give(capture.map_or(0, |capture| 1 + c_uint::from(capture.spoilt)))
    }

    /// Begins a capture, during which the fake refuses operations on the stream.
    fn cuStreamBeginCapture_v2(world, stream: u64, mode: c_uint) {
        let (stream, capture) = (world.stream(stream)?, Capture::begin(mode)?);
        let entry = world.streams.get_mut(&stream).filter(|stream| stream.capture.is_none());
        entry.ok_or(Code::STREAM_CAPTURE_UNSUPPORTED)?.capture = Some(capture);
        Ok(())
    }

    /// Ends a capture without a graph.
    fn cuStreamEndCapture(world, stream: u64, graph: Out<u64>) {
        let stream = world.stream(stream)?;
        let entry = world.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)?;
        let capture = entry.capture.take().ok_or(Code::INVALID_VALUE)?;
        graph.give_if_wanted(0);
        if capture.spoilt { Err(Code::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    /// Exchanges the capture mode of this thread.
    fn cuThreadExchangeStreamCaptureMode(_world, mode: *mut c_uint) {
        if mode.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of the exported function guarantees the place.
        unsafe { mode.write(exchange_mode(mode.read())?) };
        Ok(())
    }

    /// Makes later operations wait for the event's latest recording. An event that was never
    /// recorded counts as done.
    fn cuStreamWaitEvent(world, stream: u64, event: u64, _flags: c_uint) {
        let stream = world.stream(stream)?;
        let Some(recording) = world.event(event)?.latest.clone() else { return Ok(()) };
        world.enqueue(stream, Work::Wait(Arc::clone(&recording)))?;
        world.changed();
        Ok(())
    }

    /// Whether everything enqueued on a stream is done.
    fn cuStreamQuery(world, stream: u64) {
        let stream = world.stream(stream)?;
        if world.streams[&stream].queue.is_empty() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    /// Waits until everything enqueued on a stream is done.
    fn cuStreamSynchronize(world, stream: u64) {
        let stream = world.stream(stream)?;
        synchronize(world, stream)
    }
}
