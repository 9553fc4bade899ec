//! Copies between the application's memory and the arenas, in the caller's thread.
//!
//! Between an array of a GPU and a device's arena everything is enqueued on the application's own
//! stream, and so is what it does next: no other order is needed, and the host does not wait.
//! The bytes of the arena are kept for it by the fences that stay with them.

use std::sync::Arc;

use unspool_codec::Region;
use unspool_cuda::{
    DeviceError, DeviceMemory, DeviceSpan, Fence, PinnedArena, Stream, Unregistered, copy as raw,
};
use unspool_tiers::{Gpu as Device, ReadGuard, WriteGuard};
use unspool_transfer::{Buffer, Pool, TransferError, staging};

use super::{DeviceArray, Gpu, ScratchLease};
use crate::error::{Error, ErrorKind};

/// The most bytes of small arrays that a link copies together, and the largest of them: it copies
/// larger ones one by one as fast.
const TOGETHER: u64 = 16 << 20;
const SMALL: u64 = 1 << 20;

/// The alignment of regions in a payload.
pub(crate) const UNIT: u64 = 64;

/// Which way the items of an array go: to memory in which they are dense, or from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Gather,
    Scatter,
}

/// The bytes `[offset, offset + len)` of a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Part {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Whether `next` comes right after it, with nothing but padding between them.
    pub(crate) fn meets(self, next: Part) -> bool {
        self.end().next_multiple_of(UNIT) == next.offset
    }

    /// From the first of some parts to the end of the last one.
    pub(crate) fn whole(first: Part, last: Part) -> Part {
        Part { offset: first.offset, len: last.end() - first.offset }
    }

    /// As indices: what is in memory has places that fit `usize`.
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }
}

/// The memory that the caller reads, or that decoders do.
pub(crate) enum Data {
    /// It lies in the arena where the checkpoint is.
    Arena(ReadGuard),
    /// It was read from a store.
    Staged(Buffer),
}

impl Data {
    /// The device whose memory it is, if it is one's.
    pub(crate) fn gpu(&self) -> Option<&Arc<Device>> {
        match self {
            Data::Arena(guard) => guard.gpu(),
            Data::Staged(_) => None,
        }
    }

    /// Whether the bytes are in a device's memory.
    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self, Data::Arena(guard) if guard.device().is_some())
    }
}

/// Where a region lies in the payload.
pub(crate) fn part(region: &Region) -> Part {
    Part { offset: region.offset, len: region.stored }
}

/// Refuses a stream that is being captured into a graph: a copy would be recorded and not made.
pub(crate) fn check_stream(stream: &Stream) -> Result<(), Error> {
    if stream.is_capturing()? { Err(captured()) } else { Ok(()) }
}

pub(crate) fn captured() -> Error {
    let message = "The stream is being captured into a CUDA graph. A checkpoint has to be copied \
                   when it is saved or restored: call this outside of the capture.";
    Error::new(ErrorKind::Device, message)
}

/// Refuses an array of `found` bytes for a region of `bytes`.
pub(crate) fn check_size(found: u64, bytes: u64) -> Result<(), Error> {
    if found == bytes {
        return Ok(());
    }
    let message = format!("The array has {found} bytes, its region {bytes}.");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// An array of a GPU, ready on its stream, and its place in a payload.
type OnItsWay<'a> = (Part, (&'a DeviceArray, &'a Stream));

/// Copies arrays to their parts of an arena, after what is on their streams. Returns a fence after
/// the copies, unless they are done.
pub(crate) fn put(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    arrays: &[OnItsWay<'_>],
) -> Result<Option<Fence>, Error> {
    check_sizes(arrays)?;
    let joined = Joined::of(arrays.iter().map(|(_, (_, stream))| *stream));
    joined.check()?;
    let Some(stream) = joined.begin(gpu)? else { return Ok(None) };
    guard.order(stream)?;
    let done = match guard.device() {
        Some(span) => {
            placed(span, 0, arrays).and_then(|all| copy_all(gpu, stream, &all, Direction::Gather))
        }
        None => runs(arrays).try_for_each(|run| put_run(gpu, guard, run, stream)),
    };
    // Also a copy that failed half way may have enqueued work.
    let fence = guard.leave(stream)?;
    joined.end(gpu, fence.as_ref()).inspect_err(|why| guard.lose(why))?;
    done?;
    Ok(fence)
}

fn check_sizes(arrays: &[OnItsWay<'_>]) -> Result<(), Error> {
    arrays.iter().try_for_each(|(part, (array, _))| check_size(array.bytes(), part.len))
}

/// The streams of several arrays, each once. The last one is the one that does the work.
pub(crate) struct Joined<'a>(Vec<&'a Stream>);

impl<'a> Joined<'a> {
    pub(crate) fn of(streams: impl Iterator<Item = &'a Stream>) -> Joined<'a> {
        let mut found: Vec<&Stream> = Vec::new();
        for stream in streams {
            if found.last().is_some_and(|last| last.handle() == stream.handle()) {
                continue;
            }
            found.retain(|known| known.handle() != stream.handle());
            found.push(stream);
        }
        Joined(found)
    }

    /// Refuses streams that are being captured into a graph.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(|stream| check_stream(stream))
    }

    /// Whether one is being captured into a graph. A stream that cannot be asked counts as not
    /// captured: its launch fails then, if something is wrong with it.
    pub(crate) fn is_captured(&self) -> bool {
        self.0.iter().any(|stream| stream.is_capturing().unwrap_or(false))
    }

    /// The one that does the work, which waits for what is on the others now; `None` where there is
    /// no stream.
    ///
    /// # Errors
    /// When CUDA refuses.
    pub(crate) fn begin(&self, gpu: &Gpu) -> Result<Option<&'a Stream>, DeviceError> {
        let Some((stream, others)) = self.0.split_last() else { return Ok(None) };
        for other in others {
            let ready = gpu.device().fence(other)?;
            stream.wait_for(&ready)?;
        }
        Ok(Some(stream))
    }

    /// As [`end`](Self::end), for work that ends with what is on `stream` now.
    ///
    /// # Errors
    /// When one of the others may go on before that.
    pub(crate) fn end_of(&self, gpu: &Gpu, stream: &Stream) -> Result<(), DeviceError> {
        if self.0.len() < 2 {
            return Ok(());
        }
        self.end(gpu, gpu.device().fence_or_wait(stream)?.as_ref())
    }

    /// Lets the others go on only after `fence`, the end of the work: what is enqueued there later
    /// may change the arrays. `None` is what is done already.
    ///
    /// # Errors
    /// When one may go on before that.
    pub(crate) fn end(&self, gpu: &Gpu, fence: Option<&Fence>) -> Result<(), DeviceError> {
        let (Some(fence), Some((_, others))) = (fence, self.0.split_last()) else { return Ok(()) };
        let limit = gpu.device().limit();
        let mut others = others.iter();
        others.try_for_each(|other| other.wait_for(fence).or_else(|_| fence.wait(limit)))
    }
}

/// An array, and the memory of a device with its items one after the other.
pub(crate) type PlacedArray<'a> = (DeviceSpan, &'a DeviceArray);

/// The places of arrays in memory that begins at `begin` of their payload.
fn placed<'a>(
    span: &DeviceSpan,
    begin: u64,
    arrays: &[OnItsWay<'a>],
) -> Result<Vec<PlacedArray<'a>>, DeviceError> {
    let at = |(part, (array, _)): &OnItsWay<'a>| {
        Ok((span.slice(part.offset - begin, part.len)?, *array))
    };
    arrays.iter().map(at).collect()
}

/// Copies the items of arrays to their places or back, with few launches. Only enqueued.
pub(crate) fn copy_all(
    gpu: &Gpu,
    stream: &Stream,
    arrays: &[PlacedArray<'_>],
    direction: Direction,
) -> Result<(), DeviceError> {
    let is_dense = |array: &&PlacedArray<'_>| array.1.is_dense();
    let dense = arrays.iter().filter(is_dense).map(|(place, array)| {
        let (place, array) = (place.clone(), array.span(gpu.context()));
        if direction == Direction::Gather { (place, array) } else { (array, place) }
    });
    gpu.strided.copy_many(stream, &dense.collect::<Vec<_>>())?;
    let mut others = arrays.iter().filter(|array| !is_dense(array));
    others.try_for_each(|(place, array)| match direction {
        Direction::Gather => array.gather(&gpu.strided, stream, place),
        Direction::Scatter => array.scatter(&gpu.strided, stream, place),
    })
}

/// Small arrays whose parts lie side by side, which a link copies together, and each other one by
/// itself.
fn runs<'r, 'a>(arrays: &'r [OnItsWay<'a>]) -> impl Iterator<Item = &'r [OnItsWay<'a>]> {
    let mut bytes = 0;
    arrays.chunk_by(move |(one, _), (next, _)| {
        bytes += one.len;
        let is_small = one.len.max(next.len) <= SMALL && bytes + next.len <= TOGETHER;
        let goes_on = is_small && one.meets(*next);
        bytes = if goes_on { bytes } else { 0 };
        goes_on
    })
}

/// The bytes of a run, and memory of the device for them; `None` for one array, and where there is
/// no memory.
fn aside(gpu: &Gpu, run: &[OnItsWay<'_>], stream: &Stream) -> Option<(Part, ScratchLease)> {
    let [(first, _), .., (last, _)] = run else { return None };
    let whole = Part::whole(*first, *last);
    Some((whole, gpu.scratch(whole.len, stream).ok()?))
}

fn put_run(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    run: &[OnItsWay<'_>],
    stream: &Stream,
) -> Result<(), DeviceError> {
    let Some((whole, lease)) = aside(gpu, run, stream) else {
        let mut run = run.iter();
        return run.try_for_each(|(to, (from, _))| put_in_memory(gpu, guard, *to, from, stream));
    };
    // What was there before is not for others.
    raw::fill(stream, &lease.span(), 0)?;
    let arrays = placed(&lease.span(), whole.offset, run)?;
    copy_all(gpu, stream, &arrays, Direction::Gather)?;
    put_in_memory(gpu, guard, whole, &DeviceArray::of(lease.span()), stream)?;
    lease.done(gpu, gpu.device().fence(stream)?);
    Ok(())
}

fn get_run(
    gpu: &Gpu,
    guard: &ReadGuard,
    run: &[OnItsWay<'_>],
    stream: &Stream,
) -> Result<(), DeviceError> {
    let Some((whole, lease)) = aside(gpu, run, stream) else {
        let mut run = run.iter();
        return run.try_for_each(|(from, (to, _))| get_from_memory(gpu, guard, *from, to, stream));
    };
    get_from_memory(gpu, guard, whole, &DeviceArray::of(lease.span()), stream)?;
    let arrays = placed(&lease.span(), whole.offset, run)?;
    copy_all(gpu, stream, &arrays, Direction::Scatter)?;
    lease.done(gpu, gpu.device().fence(stream)?);
    Ok(())
}

fn put_in_memory(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    to: Part,
    from: &DeviceArray,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let (span, _dense) = dense(gpu, from, stream, Direction::Gather)?;
    if let Some((pinned, start)) = guard.pinned() {
        let at = start + to.offset;
        wait_if_unregistered(gpu, pinned, at + to.len, stream)?;
        return pinned.copy_in(stream, at, &span, Unregistered::Pageable);
    }
    let limit = gpu.device().limit();
    let bytes = guard.bytes().unwrap_or_default();
    raw::device_to_host(stream, &mut bytes[to.range()], &span, limit)
}

/// Copies `from` to the beginning of an arena in main memory, after what is on `stream`; done when
/// it returns.
///
/// # Errors
/// When the driver refuses, or the copy is not done in time. Where it may still be under way, the
/// guard has lost its bytes.
pub(crate) fn bring(
    gpu: &Gpu,
    guard: &mut WriteGuard,
    from: &DeviceSpan,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let limit = gpu.device().limit();
    let Some((pinned, start)) = guard.pinned() else {
        let bytes = guard.bytes().unwrap_or_default();
        return raw::device_to_host(stream, &mut bytes[..from.len() as usize], from, limit);
    };
    wait_if_unregistered(gpu, pinned, start + from.len(), stream)?;
    let copied = pinned.copy_in(stream, start, from, Unregistered::Pageable);
    let done = copied.and_then(|()| stream.sync(limit));
    done.inspect_err(|why| {
        if stream.drain(limit).is_err() {
            guard.lose(why);
        }
    })
}

/// Waits for the application's work where the copy after it is made by the driver's own way for
/// memory that is not registered yet: that one waits as well, and without a limit.
fn wait_if_unregistered(
    gpu: &Gpu,
    pinned: &PinnedArena,
    end: u64,
    stream: &Stream,
) -> Result<(), DeviceError> {
    if end <= pinned.registered() { Ok(()) } else { stream.sync(gpu.device().limit()) }
}

/// Copies parts of an arena to their arrays, after what is on their streams. Returns a fence after
/// the copies, unless they are done.
pub(crate) fn get(
    gpu: &Gpu,
    guard: &mut ReadGuard,
    arrays: &[OnItsWay<'_>],
) -> Result<Option<Fence>, Error> {
    check_sizes(arrays)?;
    let joined = Joined::of(arrays.iter().map(|(_, (_, stream))| *stream));
    joined.check()?;
    let Some(stream) = joined.begin(gpu)? else { return Ok(None) };
    guard.order(stream)?;
    let done = match guard.device() {
        Some(span) => {
            placed(span, 0, arrays).and_then(|all| copy_all(gpu, stream, &all, Direction::Scatter))
        }
        None => runs(arrays).try_for_each(|run| get_run(gpu, guard, run, stream)),
    };
    let fence = guard.leave(stream)?;
    joined.end(gpu, fence.as_ref())?;
    done?;
    Ok(fence)
}

fn get_from_memory(
    gpu: &Gpu,
    guard: &ReadGuard,
    from: Part,
    to: &DeviceArray,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let (span, _dense) = dense(gpu, to, stream, Direction::Scatter)?;
    if let Some((pinned, start)) = guard.pinned() {
        let at = start + from.offset;
        wait_if_unregistered(gpu, pinned, at + from.len, stream)?;
        pinned.copy_out(stream, &span, at, Unregistered::Pageable)?;
    } else {
        let bytes = guard.bytes().unwrap_or_default();
        raw::host_to_device(stream, &span, &bytes[from.range()], gpu.device().limit())?;
    }
    if to.is_dense() { Ok(()) } else { to.scatter(&gpu.strided, stream, &span) }
}

/// Copies `part` of what a restore reads in main memory to `to`, after what is on `stream`.
pub(crate) fn send(
    gpu: &Gpu,
    data: Option<&Data>,
    part: Part,
    to: &DeviceSpan,
    stream: &Stream,
) -> Result<(), DeviceError> {
    let bytes = match data {
        Some(Data::Arena(guard)) => {
            if let Some((pinned, start)) = guard.pinned() {
                let at = start + part.offset;
                guard.order(stream)?;
                wait_if_unregistered(gpu, pinned, at + part.len, stream)?;
                return pinned.copy_out(stream, to, at, Unregistered::Pageable);
            }
            guard.bytes().unwrap_or_default()
        }
        Some(Data::Staged(buffer)) => buffer,
        None => return Ok(()),
    };
    raw::host_to_device(stream, to, &bytes[part.range()], gpu.device().limit())
}

/// Memory with the items of `array` one after the other: its own where it is dense, else memory of
/// the spool's own, which is freed after everything on the device.
fn dense(
    gpu: &Gpu,
    array: &DeviceArray,
    stream: &Stream,
    direction: Direction,
) -> Result<(DeviceSpan, Option<DeviceMemory>), DeviceError> {
    if array.is_dense() {
        return Ok((array.span(gpu.context()), None));
    }
    let memory = DeviceMemory::new(gpu.context(), array.bytes())?;
    let span = memory.span();
    if direction == Direction::Gather {
        array.gather(&gpu.strided, stream, &span)?;
    }
    Ok((span, Some(memory)))
}

/// Copies `from` to main memory; done when it returns.
pub(crate) fn download(
    gpu: &Gpu,
    to: &mut [u8],
    from: &DeviceArray,
    stream: &Stream,
) -> Result<(), Error> {
    check_size(from.bytes(), to.len() as u64)?;
    check_stream(stream)?;
    let (span, _dense) = dense(gpu, from, stream, Direction::Gather)?;
    Ok(raw::device_to_host(stream, to, &span, gpu.device().limit())?)
}

/// Copies main memory to `to`; done when it returns, a scatter only enqueued.
pub(crate) fn upload(
    gpu: &Gpu,
    from: &[u8],
    to: &DeviceArray,
    stream: &Stream,
) -> Result<(), Error> {
    check_size(to.bytes(), from.len() as u64)?;
    check_stream(stream)?;
    let (span, _dense) = dense(gpu, to, stream, Direction::Scatter)?;
    raw::host_to_device(stream, &span, from, gpu.device().limit())?;
    if to.is_dense() { Ok(()) } else { Ok(to.scatter(&gpu.strided, stream, &span)?) }
}

/// Zeros small parts of an arena. `gpu` is that of an arena on a device.
pub(crate) fn clear(
    gpu: Option<&Gpu>,
    guard: &mut WriteGuard,
    parts: &[Part],
) -> Result<(), Error> {
    if let Some(bytes) = guard.bytes() {
        parts.iter().for_each(|part| bytes[part.range()].fill(0));
        return Ok(());
    }
    let Some((span, gpu)) = guard.device().zip(gpu) else { return Ok(()) };
    let places = parts.iter().map(|part| span.slice(part.offset, part.len));
    let places: Vec<_> = places.collect::<Result<_, _>>()?;
    guard.order(gpu.stream())?;
    let cleared = gpu.strided.clear_many(gpu.stream(), &places);
    guard.leave(gpu.stream())?;
    Ok(cleared?)
}

/// Lets `write` fill `to` of an arena; the bytes are there when this returns.
pub(crate) fn store_host(
    buffers: &Arc<Pool>,
    guard: &mut WriteGuard,
    to: Part,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    if let Some(bytes) = guard.bytes() {
        write(&mut bytes[to.range()]);
        return Ok(());
    }
    let mut staged = staged(buffers, to.len)?;
    write(&mut staged);
    store(guard, to.offset, &staged)
}

/// Copies `bytes` to `offset` of a device's arena; they are there when this returns.
pub(crate) fn store(guard: &mut WriteGuard, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let Some(gpu) = guard.gpu().cloned() else { return Ok(()) };
    let span = guard.device().map(|span| span.slice(offset, bytes.len() as u64)).transpose()?;
    let Some(span) = span else { return Ok(()) };
    guard.order(gpu.stream())?;
    let copied = raw::host_to_device(gpu.stream(), &span, bytes, gpu.limit());
    guard.leave(gpu.stream())?;
    Ok(copied?)
}

/// Lets `read` look at `from` of an arena.
pub(crate) fn load_host(
    buffers: &Arc<Pool>,
    guard: &ReadGuard,
    from: Part,
    read: impl FnOnce(&[u8]),
) -> Result<(), Error> {
    if let Some(bytes) = guard.bytes() {
        read(&bytes[from.range()]);
        return Ok(());
    }
    let mut staged = staged(buffers, from.len)?;
    let (Some(span), Some(gpu)) = (guard.device(), guard.gpu()) else { return Ok(()) };
    guard.order(gpu.stream())?;
    let span = span.slice(from.offset, from.len)?;
    // A copy that is not done in time goes on into a buffer of the device crate, and what it reads
    // is thrown away.
    raw::device_to_host(gpu.stream(), &mut staged, &span, gpu.limit())?;
    read(&staged);
    Ok(())
}

/// Memory for `bytes` bytes on their way.
pub(crate) fn staged(buffers: &Arc<Pool>, bytes: u64) -> Result<Buffer, Error> {
    let failed =
        |cause: TransferError| Error::new(ErrorKind::Io, cause.to_string()).caused_by(cause);
    staging(buffers, bytes).map_err(failed)
}
