//! A restore in progress.

mod chunks;
mod decoded;
mod decoded_there;
mod on_gpu;
mod stored;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use unspool_codec::{Head, memory};
use unspool_core::{CheckpointId, Event, Failure, Nanos, Place, RequestId, Version};
use unspool_cuda::{DeviceSpan, Fence, Stream};
use unspool_transfer::{Buffer, Frame, TransferError, read_frame, staging};

use crate::coding::Given;
use crate::error::Error;
use crate::gpu::{self, Data, DeviceArray, Gpu, InPlace, Leave, Part, drop_when_idle, part};

use crate::runtime::counters::Call;
use crate::runtime::shared::{Shared, check_open};
use crate::runtime::state::Answer;
use crate::runtime::waiting::{Answered, Asked, Until};
use crate::wait::Wait;
use decoded::Decoded;

pub use stored::{MadeBy, StoredFrame};

/// The bytes of one checkpoint, verified: copy them out, then
/// [`finish`](RestoreTicket::finish). Dropping the ticket gives the restore up: it does not count
/// as restored.
#[must_use = "a restore that is not finished does not count"]
pub struct RestoreTicket {
    served: Served,
    state: RestoreState,
}

/// A checkpoint that the core serves to one restore: whose it is, and where.
#[derive(Clone)]
struct Served {
    shared: Arc<Shared>,
    frame: Arc<Frame>,
    request: RequestId,
    checkpoint: CheckpointId,
    place: Place,
    began: Nanos,
}

/// How far a restore has come. Each state owns what it needs.
enum RestoreState {
    /// All regions are kept as they are, and may be read in place.
    Plain { data: Data, used: InPlace },
    /// Some regions are encoded.
    Coded { data: Data, decoded: Box<Decoded> },
    /// It was reported.
    Over,
}

/// Waits for the bytes of a checkpoint and borrows them.
///
/// # Errors
/// As [`Spool::restore`](crate::Spool::restore).
pub(crate) fn restore(
    shared: &Arc<Shared>,
    version: i64,
    wait: &Wait<'_>,
) -> Result<RestoreTicket, Error> {
    loop {
        // A device is found lost once at most.
        if let Some(ticket) = restore_once(shared, version, wait)? {
            return Ok(ticket);
        }
    }
}

/// Waits for the bytes and borrows them; `None` when their device is found lost only then.
fn restore_once(
    shared: &Arc<Shared>,
    version: i64,
    wait: &Wait<'_>,
) -> Result<Option<RestoreTicket>, Error> {
    shared.decoding.look()?;
    let began = shared.time_of_call();
    let asked = Asked::Restore { version: Version(version) };
    let mut state = shared.enter()?;
    shared.report_deferred(&mut state)?;
    let mut answered = shared.ask(state, asked, wait, Until::Closing)?;
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
    shared.span_of_stall(&frame, place.tier, waited);
    let shared = Arc::clone(shared);
    let served = Served { shared, frame, request, checkpoint, place, began };
    served.enter(decoded)
}

impl Served {
    fn version(&self) -> i64 {
        self.frame.head().version
    }

    /// Borrows or reads the bytes; `None` when they are a device's that is found lost.
    fn enter(self, decoded: Option<Box<Decoded>>) -> Result<Option<RestoreTicket>, Error> {
        let data = match self.borrow() {
            Ok(data) if data.is_on_device() && self.shared.finds_device_lost() => {
                drop(data);
                self.abort();
                return Ok(None);
            }
            Ok(data) => data,
            Err(cause) => {
                self.abort();
                return Err(self.shared.direct_failed("restored", self.version(), cause));
            }
        };
        let state = match decoded {
            Some(decoded) => RestoreState::Coded { data, decoded },
            None => RestoreState::Plain { data, used: InPlace::No },
        };
        Ok(Some(RestoreTicket { served: self, state }))
    }

    fn borrow(&self) -> Result<Data, TransferError> {
        match self.shared.arena(self.place) {
            Some(arena) => Ok(Data::Arena(arena.read(self.checkpoint)?)),
            None => Ok(Data::Staged(self.read_store()?)),
        }
    }

    /// Reads the checkpoint from its store. The application waits meanwhile.
    fn read_store(&self) -> Result<Buffer, TransferError> {
        let start = self.shared.clock.now();
        let mut buffer = staging(&self.shared.buffers, self.frame.head().payload_bytes)?;
        let mut done = self.read_payload(&mut buffer);
        if done.as_ref().is_err_and(|error| error.kind() == Failure::Io) {
            done = self.read_payload(&mut buffer);
        }
        let took = self.shared.clock.now().since(start);
        let kind = self.shared.kind(self.place.tier);
        let awaited = || format!("its direct read from the {kind} tier");
        self.shared.state().counters.stalled(Call::Restore, self.version(), took, awaited);
        self.shared.span_of_stall(&self.frame, self.place.tier, took);
        done.map(|()| buffer)
    }

    fn read_payload(&self, payload: &mut [u8]) -> Result<(), TransferError> {
        let (store, verify) = (self.shared.tier(self.place.tier), self.shared.settings.verify);
        read_frame(store, self.checkpoint, &self.frame, verify, payload, &self.shared.buffers)
    }

    /// Reports to the core how the restore ended.
    ///
    /// # Errors
    /// `Closed` when the spool was closed meanwhile.
    fn report(&self, event: Event) -> Result<(), Error> {
        let mut state = self.shared.state();
        let open = check_open(&state);
        self.shared.feed(&mut state, event);
        state.forget_if_gone(Version(self.version()), self.checkpoint);
        drop(state);
        self.shared.let_go();
        open
    }

    /// The checkpoint counts as not restored.
    fn abort(&self) {
        self.shared.finds_device_lost();
        // A spool that was closed meanwhile needs no report.
        let _ = self.report(Event::RestoreAborted { request: self.request });
    }

    /// Puts the call on the timeline.
    fn end_span(&self, outcome: &'static str) {
        let begin = (self.place.tier, self.began);
        self.shared.span_of_call(Call::Restore, &self.frame, begin, outcome);
    }
}

impl RestoreState {
    /// The bytes of the checkpoint; `None` once the restore was reported.
    fn data(&self) -> Option<&Data> {
        match self {
            RestoreState::Plain { data, .. } | RestoreState::Coded { data, .. } => Some(data),
            RestoreState::Over => None,
        }
    }

    fn data_mut(&mut self) -> Option<&mut Data> {
        match self {
            RestoreState::Plain { data, .. } | RestoreState::Coded { data, .. } => Some(data),
            RestoreState::Over => None,
        }
    }
}

impl RestoreTicket {
    /// The decoders, where a region is encoded.
    fn decoded(&self) -> Option<&Decoded> {
        match &self.state {
            RestoreState::Coded { decoded, .. } => Some(decoded),
            RestoreState::Plain { .. } | RestoreState::Over => None,
        }
    }

    /// The regions and where they lie in the payload.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.served.frame.head()
    }

    /// The bytes of region `index` where they are in main memory. An encoded region is decoded once
    /// for that; `None` also when that fails, and [`read`](Self::read) then says why.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    #[must_use]
    pub fn host_region(&self, index: usize) -> Option<&[u8]> {
        if self.is_encoded(index) {
            return self.decoded_region(index);
        }
        let range = part(&self.served.frame.head().regions[index]).range();
        match self.state.data()? {
            Data::Arena(guard) => guard.bytes().map(|bytes| &bytes[range]),
            Data::Staged(buffer) => Some(&buffer[range]),
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
        let part = part(&self.served.frame.head().regions[index]);
        let RestoreState::Plain { data: Data::Arena(guard), .. } = &self.state else {
            return Ok(None);
        };
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
        gpu::check_size(to.len() as u64, self.served.frame.head().regions[index].bytes)?;
        if self.is_encoded(index) {
            return self.decode(index, to);
        }
        self.read_stored(index, |bytes| memory::copy(bytes, to))
    }

    /// As [`read`](Self::read), for the bytes as they are stored: where the region is encoded, the
    /// stream of its codec.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn read_stored(&self, index: usize, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        self.read_part(part(&self.served.frame.head().regions[index]), look)
    }

    /// As [`read_stored`](Self::read_stored), for its first `len` bytes, or fewer where it has not
    /// so many.
    pub(crate) fn read_front(
        &self,
        index: usize,
        len: u64,
        look: impl FnOnce(&[u8]),
    ) -> Result<(), Error> {
        let part = part(&self.served.frame.head().regions[index]);
        self.read_part(Part { len: part.len.min(len), ..part }, look)
    }

    fn read_part(&self, part: Part, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        match self.state.data() {
            Some(Data::Arena(guard)) => {
                gpu::load_host(&self.served.shared.buffers, guard, part, look)?;
            }
            Some(Data::Staged(buffer)) => look(&buffer[part.range()]),
            None => {}
        }
        Ok(())
    }

    /// Copies region `index` into an array of a GPU, after what is on `stream`. Where the region
    /// lies in that GPU's memory, or in main memory that is registered with it, the copy is only
    /// enqueued: the host does not wait, and work that is enqueued on `stream` later sees the data.
    /// Returns a fence after the copy where there is one of its own.
    ///
    /// # Errors
    /// `WrongDevice` when the array lies on another GPU than the spool, `Invalid` when it has
    /// another size, `Device` when CUDA refuses or the stream is being captured.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn get(
        &mut self,
        index: usize,
        to: &DeviceArray,
        on: &Stream,
    ) -> Result<Option<Fence>, Error> {
        let gpu = self.served.shared.gpu_of(to.ordinal())?;
        let array = [(index, to, on)];
        let done = if self.is_encoded(index) {
            self.get_decoded(&gpu, &array).map(|()| None)
        } else {
            self.get_stored(&gpu, &array)
        };
        self.served.shared.count_kernels(Call::Restore, self.version());
        done
    }

    /// As [`get`](Self::get), for several regions, each with its array and stream: few launches
    /// copy or decode all of them. No two of the arrays share memory.
    ///
    /// # Errors
    /// Those of `get`.
    ///
    /// # Panics
    /// When the checkpoint has no such region.
    pub fn get_all(&mut self, arrays: &[Given<'_>]) -> Result<(), Error> {
        let mut by_gpu = arrays.chunk_by(|one, next| one.1.ordinal() == next.1.ordinal());
        let done = by_gpu.try_for_each(|arrays| {
            let gpu = self.served.shared.gpu_of(arrays[0].1.ordinal())?;
            let (encoded, stored): (Vec<_>, Vec<_>) =
                arrays.iter().partition(|(index, ..)| self.is_encoded(*index));
            self.get_stored(&gpu, &stored)?;
            self.get_decoded(&gpu, &encoded)
        });
        self.served.shared.count_kernels(Call::Restore, self.version());
        done
    }

    /// As [`get`](Self::get), for regions that are kept as they are.
    fn get_stored(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<Option<Fence>, Error> {
        let head = Arc::clone(self.head());
        let part = |index: usize| part(&head.regions[index]);
        match self.state.data_mut() {
            Some(Data::Arena(guard)) => {
                let placed = arrays.iter().map(|&(index, array, on)| (part(index), (array, on)));
                gpu::get(gpu, guard, &placed.collect::<Vec<_>>())
            }
            Some(Data::Staged(buffer)) => {
                for &(index, array, on) in arrays {
                    gpu::upload(gpu, &buffer[part(index).range()], array, on)?;
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// What keeps the memory of the checkpoint in place after the ticket is gone, for those who
    /// show it to others; `None` when it does not lie in an arena, and when a region is encoded.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &self.state {
            RestoreState::Plain { data: Data::Arena(guard), .. } => Some(guard.memory()),
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
        let RestoreState::Plain { data, used } = &mut self.state else { return Ok(()) };
        *used = InPlace::Yes;
        match data {
            Data::Arena(guard) => Ok(guard.order(stream)?),
            Data::Staged(_) => Ok(()),
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

    /// Work on the memory was enqueued on `stream`: what uses the memory next comes after that.
    fn leave(&mut self, stream: &Stream) -> Result<(), Error> {
        let RestoreState::Plain { data, used } = &mut self.state else { return Ok(()) };
        *used = InPlace::No;
        match data {
            Data::Arena(guard) => Ok(guard.leave(stream).map(drop)?),
            Data::Staged(_) => Ok(()),
        }
    }

    pub(crate) fn version(&self) -> i64 {
        self.served.version()
    }

    /// The bytes were copied out: the restore counts, and the checkpoint may be discarded when
    /// the settings say so.
    ///
    /// # Errors
    /// `Closed` when the spool was closed meanwhile; the bytes that were copied are right.
    pub fn finish(mut self) -> Result<(), Error> {
        self.served.shared.check_process()?;
        // The memory is given back before the core hears that it may be used again.
        self.state = RestoreState::Over;
        let open = self.served.report(Event::Restored { request: self.served.request });
        self.served.end_span("done");
        open
    }
}

impl Leave for RestoreTicket {
    fn device_is_idle(&mut self) {
        if let RestoreState::Plain { used, .. } = &mut self.state {
            *used = InPlace::No;
        }
    }
}

impl Drop for RestoreTicket {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, RestoreState::Over);
        if self.served.shared.is_forked() {
            // The locks that its end takes may be held for ever in this process.
            std::mem::forget(state);
            return;
        }
        match state {
            RestoreState::Over => return,
            RestoreState::Plain { data, used: InPlace::Yes }
                if let Some(context) = data.gpu().map(|gpu| gpu.context().clone()) =>
            {
                let state = RestoreState::Plain { data, used: InPlace::Leaving };
                let ticket = RestoreTicket { served: self.served.clone(), state };
                return drop_when_idle(context, ticket);
            }
            RestoreState::Plain { data: Data::Arena(mut guard), used: InPlace::Leaving } => {
                guard.stick();
            }
            // The memory is given back before the core hears that it may be used again.
            read => drop(read),
        }
        self.served.abort();
        self.served.end_span("given up");
    }
}

impl fmt::Debug for RestoreTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        f.debug_struct("RestoreTicket").field("version", &version).finish_non_exhaustive()
    }
}
