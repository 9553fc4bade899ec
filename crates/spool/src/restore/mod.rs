//! A restore in progress.

mod decoded;
mod on_gpu;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use unspool_codec::Head;
use unspool_core::{CheckpointId, Event, Failure, Nanos, Place, RequestId, Version};
use unspool_cuda::{DeviceSpan, Stream};
use unspool_transfer::{Buffer, Frame, TransferError, read_frame, staging};

use crate::error::Error;
use crate::gpu::{self, Begun, Data, DeviceArray, Leave, Part, part};

use crate::runtime::counters::Call;
use crate::runtime::shared::{Hub, check_open};
use crate::runtime::state::Answer;
use crate::runtime::waiting::{Answered, Asked, Until};
use crate::wait::Wait;
use decoded::Decoded;

/// The bytes of one checkpoint, verified: copy them out, then
/// [`finish`](RestoreTicket::finish). Dropping the ticket gives the restore up: it does not count
/// as restored.
#[must_use = "a restore that is not finished does not count"]
pub struct RestoreTicket {
    pub(crate) hub: Arc<Hub>,
    pub(crate) frame: Arc<Frame>,
    /// `None` once the restore was reported.
    pub(crate) data: Option<Data>,
    request: RequestId,
    checkpoint: CheckpointId,
    place: Place,
    began: Nanos,
    begun: Begun,
    /// Its decoders, where a region is encoded.
    pub(crate) decoded: Option<Box<Decoded>>,
}

/// Waits for the bytes of a checkpoint and lends them.
///
/// # Errors
/// As [`Spool::restore`](crate::Spool::restore).
pub(crate) fn restore(
    hub: &Arc<Hub>,
    version: i64,
    wait: &Wait<'_>,
) -> Result<RestoreTicket, Error> {
    hub.decoding.look()?;
    let began = hub.time_of_call();
    let asked = Asked::Restore { version: Version(version) };
    let mut state = hub.enter()?;
    hub.report_deferred(&mut state)?;
    let mut answered = hub.ask(state, asked, wait, Until::Closing)?;
    if let Some(awaited) = answered.awaited.take() {
        let waited = answered.waited;
        answered.state.counters.stalled(Call::Restore, version, waited, || awaited);
    }
    let Answered { request, answer, state, waited, .. } = answered;
    let Answer::Served(checkpoint, place, frame) = answer else {
        unreachable!("a restore is served or refused")
    };
    let decoded = Decoded::of(frame.head(), state.frames.codecs(checkpoint));
    drop(state);
    hub.span_of_stall(&frame, place.tier, waited);
    let (hub, begun, data) = (Arc::clone(hub), Begun::No, None);
    let ticket =
        RestoreTicket { hub, frame, data, request, checkpoint, place, began, begun, decoded };
    ticket.enter()
}

impl RestoreTicket {
    /// Borrows or reads the bytes.
    fn enter(mut self) -> Result<Self, Error> {
        match self.borrow() {
            Ok(data) => self.data = Some(data),
            Err(cause) => {
                self.abort();
                return Err(self.hub.direct_failed("restored", self.version(), cause));
            }
        }
        Ok(self)
    }

    fn borrow(&self) -> Result<Data, TransferError> {
        match self.hub.arena(self.place) {
            Some(arena) => Ok(Data::Arena(arena.read(self.checkpoint)?)),
            None => Ok(Data::Staged(self.read_store()?)),
        }
    }

    /// Reads the checkpoint from its store. The application waits meanwhile.
    fn read_store(&self) -> Result<Buffer, TransferError> {
        let start = self.hub.clock.now();
        let mut buffer = staging(&self.hub.buffers, self.frame.head().payload_bytes)?;
        let mut done = self.read_payload(&mut buffer);
        if done.as_ref().is_err_and(|error| error.kind() == Failure::Io) {
            done = self.read_payload(&mut buffer);
        }
        let took = self.hub.clock.now().since(start);
        let kind = self.hub.kind(self.place.tier);
        let awaited = || format!("its direct read from the {kind} tier");
        self.hub.state().counters.stalled(Call::Restore, self.version(), took, awaited);
        self.hub.span_of_stall(&self.frame, self.place.tier, took);
        done.map(|()| buffer)
    }

    fn read_payload(&self, payload: &mut [u8]) -> Result<(), TransferError> {
        let (store, verify) = (self.hub.tier(self.place.tier), self.hub.settings.verify);
        read_frame(store, self.checkpoint, &self.frame, verify, payload, &self.hub.buffers)
    }

    /// The regions and where they lie in the payload.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.frame.head()
    }

    /// The bytes of region `index`.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`, and when it lies in a GPU's memory:
    /// [`read`](Self::read) is for both.
    #[must_use]
    pub fn region(&self, index: usize) -> &[u8] {
        match self.host_region(index) {
            Some(bytes) => bytes,
            None => panic!("region {index} lies in a GPU's memory: use `read` or `get`"),
        }
    }

    /// The bytes of region `index` where they are in main memory. An encoded region is decoded once
    /// for that; `None` also when that fails, and [`read`](Self::read) then tells why.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    #[must_use]
    pub fn host_region(&self, index: usize) -> Option<&[u8]> {
        if self.is_encoded(index) {
            return self.decoded_region(index);
        }
        let range = part(&self.frame.head().regions[index]).range();
        match &self.data {
            Some(Data::Arena(guard)) => guard.bytes().map(|bytes| &bytes[range]),
            Some(Data::Staged(buffer)) => Some(&buffer[range]),
            None => None,
        }
    }

    /// The memory of region `index` where it is a GPU's, to be read on the GPU: first call
    /// [`begin`](Self::begin) for the stream that reads it, in the end
    /// [`finish_on`](Self::finish_on). `None` also in a checkpoint with encoded
    /// regions, which are taken with [`get`](Self::get).
    ///
    /// # Errors
    /// `Device` when the memory is gone.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn device_region(&self, index: usize) -> Result<Option<DeviceSpan>, Error> {
        if self.decoded.is_some() {
            return Ok(None);
        }
        let part = part(&self.frame.head().regions[index]);
        let Some(Data::Arena(guard)) = &self.data else { return Ok(None) };
        Ok(guard.device().map(|span| span.slice(part.offset, part.len)).transpose()?)
    }

    /// Lets `look` see the bytes of region `index` on the host, wherever it lies.
    ///
    /// # Errors
    /// `Io` when there is no memory to stage the bytes, `Device` when CUDA refuses, `Corrupt` when
    /// the bytes of an encoded region cannot be decoded.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn read(&self, index: usize, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        if self.is_encoded(index) {
            return self.with_decoded(index, look);
        }
        self.read_stored(index, look)
    }

    /// Copies region `index` to `to`, which has as many bytes; an encoded region is decoded there.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and `Invalid` when `to` has another size.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn read_into(&self, index: usize, to: &mut [u8]) -> Result<(), Error> {
        gpu::check_size(to.len() as u64, self.frame.head().regions[index].bytes)?;
        if self.is_encoded(index) {
            return self.decode(index, to);
        }
        self.read_stored(index, |bytes| to.copy_from_slice(bytes))
    }

    /// As [`read`](Self::read), for the bytes as they are stored.
    pub(crate) fn read_stored(&self, index: usize, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        self.read_part(part(&self.frame.head().regions[index]), look)
    }

    /// As [`read_stored`](Self::read_stored), for its first `len` bytes, or fewer where it has not
    /// so many.
    pub(crate) fn read_front(
        &self,
        index: usize,
        len: u64,
        look: impl FnOnce(&[u8]),
    ) -> Result<(), Error> {
        let part = part(&self.frame.head().regions[index]);
        self.read_part(Part { len: part.len.min(len), ..part }, look)
    }

    fn read_part(&self, part: Part, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        match &self.data {
            Some(Data::Arena(guard)) => gpu::load_host(&self.hub.buffers, guard, part, look)?,
            Some(Data::Staged(buffer)) => look(&buffer[part.range()]),
            None => {}
        }
        Ok(())
    }

    /// Copies region `index` into an array of a GPU, behind what is on `stream`. Where the region
    /// lies in that GPU's memory, or in main memory that is registered with it, the copy is only
    /// enqueued: the host does not wait, and work that is enqueued on `stream` later sees the data.
    ///
    /// # Errors
    /// `WrongDevice` when the array lies on another GPU than the spool, `Invalid` when it has
    /// another size, `Device` when CUDA refuses or the stream is being captured.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn get(&mut self, index: usize, to: &DeviceArray, on: &Stream) -> Result<(), Error> {
        let gpu = self.hub.gpu_of(to.ordinal())?;
        let done = if self.is_encoded(index) {
            self.get_decoded(index, &gpu, to, on)
        } else {
            self.get_stored(index, &gpu, to, on)
        };
        self.hub.count_kernels(Call::Restore, self.version());
        done
    }

    /// As [`get`](Self::get), for a region that is kept as it is.
    fn get_stored(
        &mut self,
        index: usize,
        gpu: &gpu::Gpu,
        to: &DeviceArray,
        on: &Stream,
    ) -> Result<(), Error> {
        let part = part(&self.frame.head().regions[index]);
        match &mut self.data {
            Some(Data::Arena(guard)) => gpu::get(gpu, guard, part, to, on),
            Some(Data::Staged(buffer)) => gpu::upload(gpu, &buffer[part.range()], to, on),
            None => Ok(()),
        }
    }

    /// What keeps the memory of the checkpoint in place after the ticket is gone, for those who
    /// show it to others; `None` when it does not lie in an arena, and when a region is encoded.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &self.data {
            Some(Data::Arena(guard)) if self.decoded.is_none() => Some(guard.memory()),
            _ => None,
        }
    }

    /// Makes `stream` wait until the memory of the checkpoint may be read.
    ///
    /// End the ticket with [`finish_on`](Self::finish_on) or [`give_up_on`](Self::give_up_on):
    /// dropping it instead waits for everything on the device, because it does not know where work
    /// was enqueued.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), Error> {
        self.begun = Begun::Yes;
        match &self.data {
            Some(Data::Arena(guard)) => Ok(guard.order(stream)?),
            _ => Ok(()),
        }
    }

    /// As [`finish`](Self::finish), for bytes that are still read by what is on `stream` so far.
    ///
    /// # Errors
    /// Those of `finish`, and `Device` when CUDA refuses.
    pub fn finish_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.leave(stream)?;
        self.finish()
    }

    /// Gives the ticket up, as dropping it does, after work on its memory was enqueued on `stream`.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn give_up_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.leave(stream)
    }

    /// Work on the memory was enqueued on `stream`: whoever gets it next comes after that.
    fn leave(&mut self, stream: &Stream) -> Result<(), Error> {
        self.begun = Begun::No;
        match &mut self.data {
            Some(Data::Arena(guard)) => Ok(guard.leave(stream)?),
            _ => Ok(()),
        }
    }

    pub(crate) fn version(&self) -> i64 {
        self.frame.head().version
    }

    /// The bytes were copied out: the restore counts, and the checkpoint may be discarded when
    /// the settings say so.
    ///
    /// # Errors
    /// `Closed` when the spool was closed meanwhile; the bytes that were copied are right.
    pub fn finish(mut self) -> Result<(), Error> {
        self.hub.check_process()?;
        // The memory is lent no more before the core hears that it may be used again.
        self.data = None;
        let open = self.report(Event::Restored { request: self.request });
        self.hub.span_of_call(Call::Restore, &self.frame, (self.place.tier, self.began), "done");
        open
    }

    /// Tells the core how the restore ended.
    ///
    /// # Errors
    /// `Closed` when nobody listens any more.
    fn report(&self, event: Event) -> Result<(), Error> {
        let mut state = self.hub.state();
        let open = check_open(&state);
        self.hub.feed(&mut state, event);
        state.forget_if_gone(Version(self.version()), self.checkpoint);
        open
    }

    /// The same ticket, to be dropped later by somebody else.
    fn leaving(&self, data: Data) -> RestoreTicket {
        RestoreTicket {
            hub: Arc::clone(&self.hub),
            frame: Arc::clone(&self.frame),
            data: Some(data),
            request: self.request,
            checkpoint: self.checkpoint,
            place: self.place,
            began: self.began,
            begun: Begun::Leaving,
            decoded: None,
        }
    }

    /// The checkpoint counts as not restored.
    fn abort(&self) {
        // A spool that was closed meanwhile needs no report.
        let _ = self.report(Event::RestoreAborted { request: self.request });
    }
}

impl Leave for RestoreTicket {
    fn settled(&mut self) {
        self.begun = Begun::No;
    }
}

impl Drop for RestoreTicket {
    fn drop(&mut self) {
        let Some(mut data) = self.data.take() else { return };
        if self.hub.is_forked() {
            // The locks behind it may be held for ever in this process.
            std::mem::forget(data);
            return;
        }
        if self.begun == Begun::Yes
            && let Some(gpu) = data.gpu()
        {
            return gpu::drop_behind(gpu.context().clone(), self.leaving(data));
        }
        if self.begun == Begun::Leaving
            && let Data::Arena(guard) = &mut data
        {
            guard.stick();
        }
        drop(data);
        self.abort();
        self.hub.span_of_call(
            Call::Restore,
            &self.frame,
            (self.place.tier, self.began),
            "given up",
        );
    }
}

impl fmt::Debug for RestoreTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        f.debug_struct("RestoreTicket").field("version", &version).finish_non_exhaustive()
    }
}
