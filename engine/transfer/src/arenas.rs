//! Copies between arenas, in main memory and over the links of a device.
//!
//! Each copy over a link uses a stream of its own, so that both directions and several checkpoints
//! are in flight at once. The worker first waits until the application's work on the bytes is done,
//! which does not count as time of the link, and at the end for the fence after its copy: only
//! complete copies are reported as done.

use std::sync::Arc;

use unspool_core::Failure;
use unspool_cuda::{
    DeviceError, DeviceSpan, Fence, StagingRing, Stream, Unregistered, copy as raw,
};
use unspool_tiers::{Gpu, ReadGuard, WriteGuard};

use crate::error::TransferError;
use crate::sync::{Mutex, lock};

/// Bytes between two checks for a cancellation, in main memory and over a link: about a
/// millisecond.
const CHUNK: usize = 4 << 20;
const PIECE: u64 = 64 << 20;

/// The pinned buffers of a link, for memory that is not registered yet.
const SLOT: u64 = 2 << 20;
const SLOTS: usize = 4;

/// The stream and the buffers of a copy over a link.
#[derive(Debug)]
struct LinkStream {
    gpu: Arc<Gpu>,
    stream: Stream,
    /// Created when it is first needed.
    ring: Option<StagingRing>,
}

impl LinkStream {
    fn new(gpu: &Arc<Gpu>) -> Result<LinkStream, DeviceError> {
        let stream = Stream::new(gpu.context())?;
        Ok(LinkStream { gpu: Arc::clone(gpu), stream, ring: None })
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

/// Waits until earlier work on the bytes of both is done.
pub(crate) fn wait_for_both(source: &ReadGuard, target: &WriteGuard) -> Result<(), TransferError> {
    if let Some(gpu) = source.gpu() {
        source.wait(gpu.limit())?;
    }
    if let Some(gpu) = target.gpu() {
        target.wait(gpu.limit())?;
    }
    Ok(())
}

/// Copies the bytes of `source`, whose earlier work is done, to `target` and completes it. Returns
/// `false` if `is_cancelled` became true on the way; the target then holds nothing.
pub(crate) fn copy(
    mut source: ReadGuard,
    mut target: WriteGuard,
    links: &Links,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<bool, TransferError> {
    if source.len() != target.len() {
        let message = format!("{} bytes cannot become {} bytes.", source.len(), target.len());
        return Err(TransferError::new(Failure::Permanent, message));
    }
    let gpu = source.gpu().or(target.gpu()).cloned();
    let done = match gpu {
        Some(gpu) if source.device().is_some() || target.device().is_some() => {
            links.with(&gpu, |link| over_link(&mut source, &mut target, link, is_cancelled))?
        }
        _ => in_memory(&source, &mut target, is_cancelled),
    };
    if done {
        target.commit();
    }
    Ok(done)
}

fn in_memory(source: &ReadGuard, target: &mut WriteGuard, is_cancelled: &dyn Fn() -> bool) -> bool {
    let (Some(from), Some(to)) = (source.bytes(), target.bytes()) else { return false };
    for (from, to) in from.chunks(CHUNK).zip(to.chunks_mut(CHUNK)) {
        if is_cancelled() {
            return false;
        }
        to.copy_from_slice(from);
    }
    true
}

/// Copies piece by piece, enqueueing the next one before the last one is done.
fn over_link(
    source: &mut ReadGuard,
    target: &mut WriteGuard,
    link: &mut LinkStream,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<bool, DeviceError> {
    // Registrations of the host arena leave gaps while copies are in flight.
    let pinned = source.pinned().or(target.pinned());
    let _busy = pinned.map(|(pinned, _)| pinned.busy());
    let mut last: Option<Fence> = None;
    for offset in (0..source.len()).step_by(PIECE as usize) {
        if is_cancelled() {
            return wait(last, &link.gpu).map(|()| false);
        }
        let len = PIECE.min(source.len() - offset);
        let enqueued = enqueue(source, target, offset, len, link);
        // Recorded also after an error, because a part of a piece may be in flight.
        let fence = after(source, target, link)?;
        enqueued?;
        wait(std::mem::replace(&mut last, fence), &link.gpu)?;
    }
    wait(last, &link.gpu).map(|()| true)
}

/// A fence after the work on `link`, which both guards keep; `None` when nothing is left to do
/// there.
fn after(
    source: &mut ReadGuard,
    target: &mut WriteGuard,
    link: &LinkStream,
) -> Result<Option<Fence>, DeviceError> {
    let recorded = link.gpu.fence_or_wait(&link.stream).inspect_err(|_| {
        source.stick();
        target.stick();
    });
    let fence = recorded?;
    fence.iter().for_each(|fence| source.leave_fence(fence.clone()));
    fence.iter().for_each(|fence| target.leave_fence(fence.clone()));
    Ok(fence)
}

fn wait(fence: Option<Fence>, gpu: &Gpu) -> Result<(), DeviceError> {
    fence.map_or(Ok(()), |fence| fence.wait(gpu.limit()))
}

fn enqueue(
    source: &ReadGuard,
    target: &mut WriteGuard,
    offset: u64,
    len: u64,
    link: &mut LinkStream,
) -> Result<(), DeviceError> {
    let piece = |span: &DeviceSpan| span.slice(offset, len);
    let (from, to) = (source.device().map(piece), target.device().map(piece));
    let LinkStream { gpu, stream, ring } = link;
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
