//! Copies between arenas, in main memory and over the links of a device.
//!
//! Each copy over a link has a stream of its own for as long as it lasts, so that both directions
//! and several checkpoints are under way at once. The worker first waits until the application's
//! work on the bytes is done, which is no part of the time that the link takes, and in the end for
//! the mark behind its copy: what is reported as done is done.

use std::sync::Arc;

use unspool_core::Failure;
use unspool_cuda::{DeviceError, DeviceSpan, Mark, StagingRing, Stream, Unregistered, copy as raw};
use unspool_tiers::{Gpu, ReadGuard, WriteGuard};

use crate::error::TransferError;
use crate::sync::{Mutex, lock};

/// A copy in main memory looks for its cancellation after so many bytes, one over a link while so
/// many are on their way: about a millisecond.
const CHUNK: usize = 4 << 20;
const PIECE: u64 = 64 << 20;

/// The pinned buffers of a link, for memory that is not registered yet.
const SLOT: u64 = 2 << 20;
const SLOTS: usize = 4;

/// What a copy over a link needs besides the bytes.
#[derive(Debug)]
struct Way {
    gpu: Arc<Gpu>,
    stream: Stream,
    /// Made when it is first needed.
    ring: Option<StagingRing>,
}

impl Way {
    fn new(gpu: &Arc<Gpu>) -> Result<Way, DeviceError> {
        let stream = Stream::new(gpu.context())?;
        Ok(Way { gpu: Arc::clone(gpu), stream, ring: None })
    }
}

/// The ways that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Vec<Way>>);

impl Links {
    /// Lends a way of `gpu` to `body`. One whose work has failed is not used again.
    fn with<T>(
        &self,
        gpu: &Arc<Gpu>,
        body: impl FnOnce(&mut Way) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let idle = {
            let mut ways = lock(&self.0);
            let found = ways.iter().position(|way| Arc::ptr_eq(&way.gpu, gpu));
            found.map(|index| ways.swap_remove(index))
        };
        let mut way = idle.map_or_else(|| Way::new(gpu), Ok)?;
        let done = body(&mut way)?;
        lock(&self.0).push(way);
        Ok(done)
    }

    /// Copies what a device's arena holds to `to`.
    pub(crate) fn download(&self, from: &ReadGuard, to: &mut [u8]) -> Result<(), DeviceError> {
        let Some((span, gpu)) = from.device().zip(from.gpu()) else { return Ok(()) };
        self.with(gpu, |way| {
            from.order(&way.stream)?;
            raw::device_to_host(&way.stream, to, span, gpu.limit())
        })
    }

    /// Copies `from` into a device's arena.
    pub(crate) fn upload(&self, from: &[u8], to: &mut WriteGuard) -> Result<(), DeviceError> {
        let Some((span, gpu)) = to.device().cloned().zip(to.gpu().cloned()) else { return Ok(()) };
        self.with(&gpu, |way| {
            to.order(&way.stream)?;
            let copied = raw::host_to_device(&way.stream, &span, from, gpu.limit());
            if copied.is_err() {
                // It may still be on its way: the bytes wait for it.
                to.leave(&way.stream)?;
            }
            copied
        })
    }
}

/// Waits until earlier work on the bytes of both is done.
pub(crate) fn settle(source: &ReadGuard, target: &WriteGuard) -> Result<(), TransferError> {
    if let Some(gpu) = source.gpu() {
        source.settle(gpu.limit())?;
    }
    if let Some(gpu) = target.gpu() {
        target.settle(gpu.limit())?;
    }
    Ok(())
}

/// Copies the bytes of `source`, which are settled, to `target` and completes it. `false` when
/// `is_cancelled` said so on the way; the target then holds nothing.
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
            links.with(&gpu, |way| over_link(&mut source, &mut target, way, is_cancelled))?
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

/// Copies piece by piece, with the next one enqueued before the last one is done.
fn over_link(
    source: &mut ReadGuard,
    target: &mut WriteGuard,
    way: &mut Way,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<bool, DeviceError> {
    // Registrations of the host arena leave gaps for copies that are under way.
    let pinned = source.pinned().or(target.pinned());
    let _busy = pinned.map(|(pinned, _)| pinned.busy());
    let mut last: Option<Mark> = None;
    for offset in (0..source.len()).step_by(PIECE as usize) {
        if is_cancelled() {
            return wait(last, &way.gpu).map(|()| false);
        }
        let len = PIECE.min(source.len() - offset);
        let enqueued = enqueue(source, target, offset, len, way);
        // Also a piece that failed half way may have left work behind.
        let mark = behind(source, target, way)?;
        enqueued?;
        wait(std::mem::replace(&mut last, mark), &way.gpu)?;
    }
    wait(last, &way.gpu).map(|()| true)
}

/// A mark behind what is on `way`, left with both; `None` when nothing is left to do there.
fn behind(
    source: &mut ReadGuard,
    target: &mut WriteGuard,
    way: &Way,
) -> Result<Option<Mark>, DeviceError> {
    let marked = way.gpu.mark_or_wait(&way.stream).inspect_err(|_| {
        source.stick();
        target.stick();
    });
    let mark = marked?;
    mark.iter().for_each(|mark| source.leave_mark(mark.clone()));
    mark.iter().for_each(|mark| target.leave_mark(mark.clone()));
    Ok(mark)
}

fn wait(mark: Option<Mark>, gpu: &Gpu) -> Result<(), DeviceError> {
    mark.map_or(Ok(()), |mark| mark.wait(gpu.limit()))
}

fn enqueue(
    source: &ReadGuard,
    target: &mut WriteGuard,
    offset: u64,
    len: u64,
    way: &mut Way,
) -> Result<(), DeviceError> {
    let piece = |span: &DeviceSpan| span.slice(offset, len);
    let (from, to) = (source.device().map(piece), target.device().map(piece));
    let Way { gpu, stream, ring } = way;
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

/// How bytes go to and from memory that is not registered yet: through pinned buffers, and by the
/// driver's own way when those cannot be had.
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
