//! Copies between the device and any memory of the host, complete when they return.
//!
//! They go through pinned buffers of this crate, never through the driver's own method for pageable
//! memory, for two reasons. That method waits inside the driver for earlier work on the stream,
//! without a limit. And when the memory happens to be pinned, or the device can read pageable
//! memory itself, the driver only enqueues the copy: after a time-out it would still use memory
//! that the caller has back. Here the device accesses only the pinned buffers: after a time-out
//! they are kept until the device is done with them, and the caller may reuse its memory at once.
//!
//! The buffers are kept for later copies until the end of the process, and with them the device's
//! context, as in other CUDA libraries.

use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::ends::{enter, same_length};
use crate::error::DeviceError;
use crate::event::Event;
use crate::host::StagingRing;
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// Four buffers of 4 MiB: the device copies one while the processor fills or empties others.
/// Pinning them takes about 8 ms, once for each concurrent copy.
const SLOT: u64 = 4 << 20;
const SLOTS: usize = 4;

/// Maximum number of idle rings.
const KEPT: usize = 8;

static RINGS: Mutex<Vec<StagingRing>> = Mutex::new(Vec::new());

/// The least bytes that each of several threads copies into buffers, and the most threads: one
/// copies 6 to 10 GB/s, and a link takes 55.
const SHARE: usize = 16 << 20;
const MOST_SHARES: usize = 4;

/// Copies `from` to `to`, of the same length, after what was enqueued on `stream` before; the bytes
/// are on the device when this returns. `from` may be any memory of the host. Several threads share
/// many bytes.
///
/// # Errors
/// When lengths or devices differ, pinned memory for the buffers is not available, the driver
/// refuses, or the copy and earlier work on the stream take longer than `limit`. After an error the
/// content of `to` is unspecified; `from` is not used any more.
pub fn host_to_device(
    stream: &Stream,
    to: &DeviceSpan,
    from: &[u8],
    limit: Duration,
) -> Result<(), DeviceError> {
    same_length(to.len(), from.len() as u64)?;
    let _scope = enter(stream, &[to])?;
    if from.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + limit;
    if from.len() < 2 * SHARE {
        return fill(stream, to, from, deadline);
    }
    fill_together(stream, to, from, deadline)
}

/// As [`fill`], by several threads. The others have streams of their own, which begin after what
/// was enqueued on `stream` before.
fn fill_together(
    stream: &Stream,
    to: &DeviceSpan,
    from: &[u8],
    deadline: Instant,
) -> Result<(), DeviceError> {
    let len = from.len().div_ceil((from.len() / SHARE).min(shares())).next_multiple_of(4096);
    let before = &stream.record()?;
    scope(|scope| {
        let mut others = Vec::new();
        for (index, share) in from.chunks(len).enumerate().skip(1) {
            let to = to.slice((index * len) as u64, share.len() as u64)?;
            let copy = move || fill_beside(stream.context(), before, &to, share, deadline);
            match Builder::new().name("unspool-fill".to_owned()).spawn_scoped(scope, copy.clone()) {
                Ok(thread) => others.push(thread),
                Err(_) => copy()?,
            }
        }
        let first = &from[..len.min(from.len())];
        let done = fill(stream, &to.slice(0, first.len() as u64)?, first, deadline);
        let joined = others
            .into_iter()
            .map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.fold(done, Result::and)
    })
}

/// How many threads share a copy at most. The system is asked once: it reads files for its answer.
fn shares() -> usize {
    static SHARES: OnceLock<usize> = OnceLock::new();
    *SHARES.get_or_init(|| available_parallelism().map_or(1, usize::from).min(MOST_SHARES))
}

/// As [`fill`], on a stream of its own behind `before`.
fn fill_beside(
    context: &Context,
    before: &Event,
    to: &DeviceSpan,
    from: &[u8],
    deadline: Instant,
) -> Result<(), DeviceError> {
    let stream = Stream::new(context)?;
    stream.wait_for(before)?;
    let _scope = enter(&stream, &[to])?;
    fill(&stream, to, from, deadline)
}

/// Copies `from` to `to`; it is there when this returns.
fn fill(
    stream: &Stream,
    to: &DeviceSpan,
    from: &[u8],
    deadline: Instant,
) -> Result<(), DeviceError> {
    with_ring(stream.context(), deadline, |ring| {
        // SAFETY: both have this length; the span keeps the memory in place, and `from` is borrowed
        // for the call, which ends all use of it.
        unsafe { ring.copy_out(stream, to.address(), from.as_ptr(), to.len()) }?;
        stream.sync(deadline.saturating_duration_since(Instant::now()))
    })
}

/// Copies `from` to `to`, of the same length, after what was enqueued on `stream` before; the bytes
/// are on the host when this returns. `to` may be any memory of the host.
///
/// # Errors
/// As [`host_to_device`]. After an error the content of `to` is unspecified, and nothing writes to
/// it any more.
pub fn device_to_host(
    stream: &Stream,
    to: &mut [u8],
    from: &DeviceSpan,
    limit: Duration,
) -> Result<(), DeviceError> {
    same_length(to.len() as u64, from.len())?;
    let _scope = enter(stream, &[from])?;
    if to.is_empty() {
        return Ok(());
    }
    with_ring(stream.context(), Instant::now() + limit, |ring| {
        // SAFETY: both have this length; the span keeps the memory in place, and `to` is borrowed
        // for the call alone, in which the ring writes it by the processor.
        unsafe { ring.copy_in(stream, to.as_mut_ptr(), from.address(), from.len()) }
    })
}

/// Runs `copy` with exclusive use of a ring. After an error the ring is dropped: its memory is
/// freed once everything on the device is done.
fn with_ring(
    context: &Context,
    deadline: Instant,
    copy: impl FnOnce(&mut StagingRing) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let new = || StagingRing::new(&context.without_watch()?, SLOT, SLOTS, left);
    let mut ring = take(context).map_or_else(new, Ok)?;
    ring.attach(context)?;
    ring.end_waits_at(deadline);
    copy(&mut ring)?;
    ring.detach();
    let mut rings = rings();
    if rings.len() < KEPT {
        rings.push(ring);
    }
    Ok(())
}

fn take(context: &Context) -> Option<StagingRing> {
    let mut rings = rings();
    let index = rings.iter().position(|ring| ring.context() == context)?;
    Some(rings.swap_remove(index))
}

fn rings() -> MutexGuard<'static, Vec<StagingRing>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}
