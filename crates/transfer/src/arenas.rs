//! Copies between arenas, in main memory and over the links of a device.
//!
//! Each worker copies on a stream of its own, so that both directions and several checkpoints are in
//! flight at once. It first waits until the application's work on the bytes is done, which does not
//! count as time of the link, and at the end for the fence after its copy: only complete copies are
//! reported as done. Small ones whose bytes are ready are copied together, with one fence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_core::Failure;
use unspool_cuda::{
    DeviceError, DeviceSpan, Fence, Punctual, StagingRing, Stream, Unregistered, copy as raw,
};
use unspool_tiers::{Gpu, ReadGuard, WriteGuard};

use crate::error::TransferError;
use crate::lane::has_cores_to_spare;
use crate::sync::{Mutex, lock};

/// Bytes between two checks for a cancellation, in main memory and over a link: about a
/// millisecond.
const CHUNK: usize = 4 << 20;
const PIECE: u64 = 64 << 20;

/// Copies that are long enough to learn the rate of a link from, and what they take besides.
const LONG: u64 = 1 << 20;
const LATENCY: Duration = Duration::from_micros(10);

/// A wait of at least this long sleeps, and a shorter one does not: a sleep may end late by half of
/// it.
const SLEEPS_FROM: Duration = Duration::from_micros(200);

/// The pinned buffers of a link, for memory that is not registered yet.
const SLOT: u64 = 2 << 20;
const SLOTS: usize = 4;

/// The stream and the buffers of copies over a link.
#[derive(Debug)]
struct LinkStream {
    gpu: Arc<Gpu>,
    stream: Stream,
    /// Created when it is first needed.
    ring: Option<StagingRing>,
    /// The seconds that a byte took in the fastest of the longer copies, once there were some.
    fastest: Option<f64>,
}

impl LinkStream {
    fn new(gpu: &Arc<Gpu>) -> Result<LinkStream, DeviceError> {
        let stream = Stream::new(gpu.context())?;
        Ok(LinkStream { gpu: Arc::clone(gpu), stream, ring: None, fastest: None })
    }
}

/// The idle streams.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Vec<LinkStream>>);

impl Links {
    /// Runs `body` with a stream of `gpu`, which is reused only if `body` succeeds.
    fn with<T>(
        &self,
        gpu: &Arc<Gpu>,
        body: impl FnOnce(&mut LinkStream) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let idle = {
            let mut idle = lock(&self.0);
            let found = idle.iter().position(|link| Arc::ptr_eq(&link.gpu, gpu));
            found.map(|index| idle.swap_remove(index))
        };
        let mut link = idle.map_or_else(|| LinkStream::new(gpu), Ok)?;
        let done = body(&mut link)?;
        lock(&self.0).push(link);
        Ok(done)
    }

    /// Copies a range of a device's arena to `to`.
    pub(crate) fn download(&self, from: &ReadGuard, to: &mut [u8]) -> Result<(), DeviceError> {
        let Some((span, gpu)) = from.device().zip(from.gpu()) else { return Ok(()) };
        self.with(gpu, |link| {
            from.order(&link.stream)?;
            raw::device_to_host(&link.stream, to, span, gpu.limit())
        })
    }

    /// Copies `from` into a device's arena.
    pub(crate) fn upload(&self, from: &[u8], to: &mut WriteGuard) -> Result<(), DeviceError> {
        let Some((span, gpu)) = to.device().cloned().zip(to.gpu().cloned()) else { return Ok(()) };
        self.with(&gpu, |link| {
            to.order(&link.stream)?;
            let copied = raw::host_to_device(&link.stream, &span, from, gpu.limit());
            if copied.is_err() {
                // The copy may still be in flight: the guard keeps the bytes until it is done.
                to.leave(&link.stream)?;
            }
            copied
        })
    }
}

/// The bytes of a checkpoint in one arena, and their room in another.
pub(crate) struct Copying {
    source: ReadGuard,
    target: WriteGuard,
}

impl Copying {
    /// # Errors
    /// When the room has another size.
    pub(crate) fn new(source: ReadGuard, target: WriteGuard) -> Result<Copying, TransferError> {
        if source.len() != target.len() {
            let message = format!("{} bytes cannot become {} bytes.", source.len(), target.len());
            return Err(TransferError::new(Failure::Permanent, message));
        }
        Ok(Copying { source, target })
    }

    /// Whether one of both is a device's.
    pub(crate) fn is_over_link(&self) -> bool {
        self.source.device().is_some() || self.target.device().is_some()
    }

    fn gpu(&self) -> Option<&Arc<Gpu>> {
        self.source.gpu().or(self.target.gpu())
    }

    /// Whether earlier work on the bytes of both is done.
    pub(crate) fn is_ready(&self) -> bool {
        self.source.is_ready() && self.target.is_ready()
    }

    /// Waits until earlier work on the bytes of both is done.
    pub(crate) fn wait(&self) -> Result<(), TransferError> {
        if let Some(gpu) = self.source.gpu() {
            self.source.wait(gpu.limit())?;
        }
        if let Some(gpu) = self.target.gpu() {
            self.target.wait(gpu.limit())?;
        }
        Ok(())
    }

    /// Gives both a fence after the work on their bytes.
    fn leave(&mut self, fence: &Fence) {
        self.source.leave_fence(fence.clone());
        self.target.leave_fence(fence.clone());
    }

    /// Work on the bytes may be under way, and when it is done cannot be known.
    fn stick(&mut self) {
        self.source.stick();
        self.target.stick();
    }
}

/// Copies bytes whose earlier work is done, and completes their targets. All of `copies` are made
/// together, so several go over one link and are small. Returns `false` if `is_cancelled` became
/// true on the way; the targets then hold nothing.
pub(crate) fn copy(
    mut copies: Vec<Copying>,
    links: &Links,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<bool, TransferError> {
    let over_link = copies.iter().find(|copy| copy.is_over_link());
    let done = match over_link.and_then(Copying::gpu).cloned() {
        Some(gpu) => links.with(&gpu, |link| over_link_of(&mut copies, link, is_cancelled))?,
        None => copies.iter_mut().all(|copy| in_memory(copy, is_cancelled)),
    };
    if done {
        copies.into_iter().for_each(|copy| copy.target.commit());
    }
    Ok(done)
}

fn in_memory(copy: &mut Copying, is_cancelled: &dyn Fn() -> bool) -> bool {
    let (Some(from), Some(to)) = (copy.source.bytes(), copy.target.bytes()) else { return false };
    for (from, to) in from.chunks(CHUNK).zip(to.chunks_mut(CHUNK)) {
        if is_cancelled() {
            return false;
        }
        to.copy_from_slice(from);
    }
    true
}

/// Copies piece by piece, enqueueing the next one before the last one is done.
fn over_link_of(
    copies: &mut [Copying],
    link: &mut LinkStream,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<bool, DeviceError> {
    // Registrations of the host arena leave gaps while copies are in flight.
    let pinned = copies.first().and_then(|copy| copy.source.pinned().or(copy.target.pinned()));
    let _busy = pinned.map(|(pinned, _)| pinned.busy());
    let longest = copies.iter().map(|copy| copy.source.len()).max().unwrap_or(0);
    let mut last = None;
    for offset in (0..longest).step_by(PIECE as usize) {
        if is_cancelled() {
            return link.wait(last).map(|()| false);
        }
        let begun = Instant::now();
        let mut bytes = 0;
        let enqueued = copies.iter_mut().try_for_each(|copy| {
            let len = PIECE.min(copy.source.len().saturating_sub(offset));
            bytes += len;
            enqueue(copy, offset, len, link)
        });
        // Recorded also after an error, because a part of a piece may be in flight.
        let fence = after(copies, link)?;
        enqueued?;
        let piece = fence.map(|fence| Piece { fence, begun, bytes });
        link.wait(std::mem::replace(&mut last, piece))?;
    }
    link.wait(last).map(|()| true)
}

/// A fence after the work on `link`, which all guards keep; `None` when nothing is left to do
/// there.
fn after(copies: &mut [Copying], link: &LinkStream) -> Result<Option<Fence>, DeviceError> {
    let recorded = link.gpu.fence_or_wait(&link.stream);
    let fence = recorded.inspect_err(|_| copies.iter_mut().for_each(Copying::stick))?;
    if let Some(fence) = &fence {
        copies.iter_mut().for_each(|copy| copy.leave(fence));
    }
    Ok(fence)
}

/// Bytes on their way over a link, and the fence after them.
struct Piece {
    fence: Fence,
    begun: Instant,
    bytes: u64,
}

impl LinkStream {
    /// Waits until `piece` is there. The driver is not asked before the fastest copies so far would
    /// have been done: each question takes a lock that the calls of the application need.
    fn wait(&mut self, piece: Option<Piece>) -> Result<(), DeviceError> {
        let Some(Piece { fence, begun, bytes }) = piece else { return Ok(()) };
        let soonest = Duration::from_secs_f64(0.9 * self.fastest.unwrap_or(0.0) * bytes as f64);
        sleep_until(begun, soonest);
        fence.wait(self.gpu.limit())?;
        if bytes >= LONG {
            let took = begun.elapsed().saturating_sub(LATENCY).as_secs_f64() / bytes as f64;
            self.fastest = Some(self.fastest.map_or(took, |fastest| fastest.min(took)));
        }
        Ok(())
    }
}

/// Returns `span` after `begun`, or a little earlier.
fn sleep_until(begun: Instant, span: Duration) {
    let left = span.saturating_sub(begun.elapsed());
    if left > SLEEPS_FROM {
        let _punctual = Punctual::begin();
        std::thread::sleep(left - SLEEPS_FROM / 2);
    } else if has_cores_to_spare() {
        while begun.elapsed() < span {
            std::hint::spin_loop();
        }
    }
}

fn enqueue(
    Copying { source, target }: &mut Copying,
    offset: u64,
    len: u64,
    link: &mut LinkStream,
) -> Result<(), DeviceError> {
    if len == 0 {
        return Ok(());
    }
    let piece = |span: &DeviceSpan| span.slice(offset, len);
    let (from, to) = (source.device().map(piece), target.device().map(piece));
    let LinkStream { gpu, stream, ring, .. } = link;
    match (from.transpose()?, to.transpose()?) {
        (Some(from), Some(to)) => raw::device_to_device(stream, &to, &from),
        (Some(from), None) => match target.pinned() {
            Some((pinned, start)) => {
                let at = start + offset;
                let ring = unregistered(ring, gpu, at + len <= pinned.registered());
                pinned.copy_in(stream, at, &from, ring)
            }
            None => {
                let bytes = target.bytes().unwrap_or_default();
                raw::device_to_host(stream, &mut bytes[range(offset, len)], &from, gpu.limit())
            }
        },
        (None, Some(to)) => match source.pinned() {
            Some((pinned, start)) => {
                let at = start + offset;
                let ring = unregistered(ring, gpu, at + len <= pinned.registered());
                pinned.copy_out(stream, &to, at, ring)
            }
            None => {
                let bytes = source.bytes().unwrap_or_default();
                raw::host_to_device(stream, &to, &bytes[range(offset, len)], gpu.limit())
            }
        },
        (None, None) => Ok(()),
    }
}

/// The method for memory that is not registered yet: through pinned buffers, or the driver's own
/// method when those are not available.
fn unregistered<'a>(
    ring: &'a mut Option<StagingRing>,
    gpu: &Gpu,
    is_registered: bool,
) -> Unregistered<'a> {
    if ring.is_none() && !is_registered {
        *ring = StagingRing::new(gpu.context(), SLOT, SLOTS, gpu.limit()).ok();
    }
    ring.as_mut().map_or(Unregistered::Pageable, Unregistered::Staged)
}

fn range(offset: u64, len: u64) -> std::ops::Range<usize> {
    offset as usize..(offset + len) as usize
}
