//! A save in progress.

mod in_flight;
mod many;
mod together;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use unspool_codec::{Head, Region, RegionSpec};
use unspool_core::{CheckpointId, Event, Kept, Nanos, Place, RequestId, Size, Version};
use unspool_cuda::{DeviceSpan, Stream};
use unspool_tiers::{Gpu, WriteGuard};
use unspool_transfer::{Buffer, Frame, TransferError, staging, write_frame};

use crate::coding::{Chain, Codecs, Encoded, Encoding, Launched, Plan};
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Begun, DeviceArray, Leave, Part};
use crate::hub::{Hub, check_open};
use crate::spool::Spool;
use crate::state::{Answer, State};
use crate::tally::Call;
use crate::wait::Wait;
use crate::waiting::{Answered, Asked, Until};

pub(crate) use in_flight::{InFlight, Outcome};
pub use many::Checkpoint;
pub(crate) use together::MOST_REGIONS;

/// Room for one checkpoint: fill its regions, then [`commit`](SaveTicket::commit). Dropping the
/// ticket gives the save up: nothing was saved and the version is free again.
#[must_use = "a save that is not committed is given up"]
pub struct SaveTicket {
    pub(crate) hub: Arc<Hub>,
    pub(crate) frame: Arc<Frame>,
    /// `None` once the save was reported.
    pub(crate) room: Option<Room>,
    pub(crate) request: RequestId,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) place: Place,
    pub(crate) began: Nanos,
    begun: Begun,
    /// Its encoders, where a region is encoded.
    pub(crate) encoded: Option<Box<Encoded>>,
    /// The save after which it is placed where a GPU encodes it.
    pub(crate) chain: Option<Chain>,
    /// Its end on the device, once its encoder is enqueued.
    pub(crate) launched: Launched,
}

/// The memory that the caller fills, or that encoders do.
pub(crate) enum Room {
    /// It lies in the arena where the checkpoint will be.
    Arena(WriteGuard),
    /// No arena can hold it: it is written to the store at commit.
    Staged(Buffer),
    /// A GPU is encoding into it.
    Encoding(Encoding),
}

impl Room {
    /// The device whose memory it is, if it is one's.
    fn gpu(&self) -> Option<&Arc<Gpu>> {
        match self {
            Room::Arena(guard) => guard.gpu(),
            Room::Staged(_) | Room::Encoding(_) => None,
        }
    }

    /// Its bytes, where they are in main memory.
    pub(crate) fn bytes(&mut self) -> Option<&mut [u8]> {
        match self {
            Room::Arena(guard) => guard.bytes(),
            Room::Staged(buffer) => Some(buffer),
            Room::Encoding(_) => None,
        }
    }
}

impl Spool {
    /// Waits until there is room for a checkpoint of these regions, and lends that room. Its
    /// regions are encoded as the settings say.
    ///
    /// # Errors
    /// `Duplicate`, `NotYetSaved` (another call is saving this version), `TooLarge`, `Full`,
    /// `Timeout`, `Interrupted`, `Closed`, `Forked`, and `Invalid` when the regions make no sense.
    pub fn save(
        &self,
        version: i64,
        regions: Vec<RegionSpec>,
        wait: &Wait<'_>,
    ) -> Result<SaveTicket, Error> {
        self.save_as(version, regions, &self.hub().settings.codec, wait)
    }

    /// As [`save`](Self::save), with these codecs.
    ///
    /// # Errors
    /// Those of `save`; `Invalid` also when a codec cannot take its region.
    pub fn save_as(
        &self,
        version: i64,
        regions: Vec<RegionSpec>,
        codecs: &Codecs,
        wait: &Wait<'_>,
    ) -> Result<SaveTicket, Error> {
        let hub = self.hub();
        let prepared = hub.prepare(version, regions, codecs)?;
        let began = hub.time_of_call();
        let mut state = hub.enter()?;
        hub.tell_failure(&mut state)?;
        let mut answered = hub.ask(state, prepared.asked(), wait, Until::Closing)?;
        count_stall(&mut answered, version);
        let Answered { request, answer, mut state, waited, .. } = answered;
        let Answer::Granted(checkpoint, place) = answer else {
            unreachable!("a save is granted or refused")
        };
        let ticket = prepared.granted(hub, &mut state, (request, checkpoint, place), began);
        drop(state);
        hub.span_of_stall(&ticket.frame, place.tier, waited);
        ticket.enter()
    }
}

/// A checkpoint before there is room for it: its regions, and how they are encoded.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// With the largest streams, where a region is encoded.
    frame: Arc<Frame>,
    /// `None` where all regions are kept as they are.
    plan: Option<Plan>,
}

impl Hub {
    /// Plans a checkpoint of these regions.
    ///
    /// # Errors
    /// `Invalid` when the regions make no sense, or a codec cannot take its region.
    pub(crate) fn prepare(
        &self,
        version: i64,
        regions: Vec<RegionSpec>,
        codecs: &Codecs,
    ) -> Result<Prepared, Error> {
        let head = Head::layout(version, regions).map_err(|cause| {
            let message = format!("Version {version} cannot be saved: {cause}");
            Error::new(ErrorKind::Invalid, message).caused_by(cause)
        })?;
        let plan = self.plan(&head, codecs)?;
        let (head, plan) = plan.map_or((head, None), |(worst, plan)| (worst, Some(plan)));
        Ok(Prepared { frame: Arc::new(Frame::new(head)), plan })
    }
}

impl Prepared {
    /// The regions and where they lie in the payload; those of an encoded checkpoint where they lie
    /// at most.
    pub(crate) fn head(&self) -> &Arc<Head> {
        self.frame.head()
    }

    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The request for its room.
    pub(crate) fn asked(&self) -> Asked {
        let head = self.head();
        let size = if self.plan.is_some() { Size::AtMost } else { Size::Exact };
        Asked::Save { version: Version(head.version), bytes: head.payload_bytes, size }
    }

    /// The save for which room was granted. `state` is the lock under which that was. The ticket
    /// has no room yet: [`SaveTicket::enter`] borrows it, with the lock released.
    fn granted(
        &self,
        hub: &Arc<Hub>,
        state: &mut State,
        (request, checkpoint, place): (RequestId, CheckpointId, Place),
        began: Nanos,
    ) -> SaveTicket {
        let frame = Arc::clone(&self.frame);
        state.catalogue.insert(checkpoint, Arc::clone(&frame), false);
        if let Some(plan) = &self.plan {
            state.catalogue.set_codecs(checkpoint, plan.untold());
        }
        let chain = self.plan.as_ref().and_then(|_| hub.chain(state, place));
        SaveTicket {
            hub: Arc::clone(hub),
            room: None,
            request,
            checkpoint,
            place,
            began,
            begun: Begun::No,
            encoded: self.plan.clone().map(|plan| hub.encoded(plan, &frame)),
            frame,
            chain,
            launched: Launched::default(),
        }
    }
}

fn count_stall(answered: &mut Answered<'_>, version: i64) {
    if let Some(awaited) = answered.awaited.take() {
        let waited = answered.waited;
        answered.state.tally.stalled(Call::Save, version, waited, || awaited);
    }
}

impl SaveTicket {
    /// Borrows the room that was granted.
    fn enter(mut self) -> Result<Self, Error> {
        match self.room_at(self.place) {
            Ok(room) => self.room = Some(room),
            Err(cause) => {
                self.abort();
                return Err(self.hub.direct_failed("saved", self.version(), cause));
            }
        }
        if self.encoded.is_none() {
            // An error drops the ticket, which gives the save up.
            self.clear_gaps()?;
        }
        Ok(self)
    }

    fn room_at(&self, place: Place) -> Result<Room, TransferError> {
        let bytes = self.frame.head().payload_bytes;
        match self.hub.arena(place) {
            Some(arena) => Ok(Room::Arena(arena.create(self.checkpoint, place.offset, bytes)?)),
            None => Ok(Room::Staged(staging(&self.hub.buffers, bytes)?)),
        }
    }

    /// The regions and where they lie in the payload; those of an encoded checkpoint where they lie
    /// at most.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.frame.head()
    }

    /// The bytes of region `index`, to be filled by the caller; what they hold before is
    /// unspecified.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`, and when it lies in a GPU's memory:
    /// [`fill`](Self::fill) is for both.
    #[must_use]
    pub fn region_mut(&mut self, index: usize) -> &mut [u8] {
        match self.host_region(index) {
            Some(bytes) => bytes,
            None => panic!("region {index} lies in a GPU's memory: fill it with `fill` or `put`"),
        }
    }

    /// The bytes of region `index` where they are in main memory, to be filled by the caller. In a
    /// checkpoint with encoded regions it is memory that is encoded at commit.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    #[must_use]
    pub fn host_region(&mut self, index: usize) -> Option<&mut [u8]> {
        if let Some(encoded) = &mut self.encoded {
            return encoded.memory(index).ok();
        }
        let range = part(&self.frame.head().regions[index]).range();
        match &mut self.room {
            Some(Room::Arena(guard)) => guard.bytes().map(|bytes| &mut bytes[range]),
            Some(Room::Staged(buffer)) => Some(&mut buffer[range]),
            Some(Room::Encoding(_)) | None => None,
        }
    }

    /// The memory of region `index` where it is a GPU's, to be written on the GPU: first call
    /// [`begin`](Self::begin) for the stream that writes it, in the end
    /// [`commit_on`](Self::commit_on). `None` also in a checkpoint with encoded regions, whose
    /// arrays are [`put`](Self::put).
    ///
    /// # Errors
    /// `Device` when the memory is gone.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn device_region(&self, index: usize) -> Result<Option<DeviceSpan>, Error> {
        if self.encoded.is_some() {
            return Ok(None);
        }
        let part = part(&self.frame.head().regions[index]);
        let Some(Room::Arena(guard)) = &self.room else { return Ok(None) };
        Ok(guard.device().map(|span| span.slice(part.offset, part.len)).transpose()?)
    }

    /// Lets `write` fill region `index` from the host, wherever it lies: `write` gets as many bytes
    /// as the region has, and what it wrote is in place when this returns.
    ///
    /// # Errors
    /// `Io` when there is no memory to stage the bytes, `Device` when CUDA refuses.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill(&mut self, index: usize, write: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        if let Some(encoded) = &mut self.encoded {
            return encoded.memory(index).map(write);
        }
        let part = part(&self.frame.head().regions[index]);
        match &mut self.room {
            Some(Room::Arena(guard)) => gpu::store_host(&self.hub, guard, part, write)?,
            Some(Room::Staged(buffer)) => write(&mut buffer[part.range()]),
            Some(Room::Encoding(_)) | None => {}
        }
        Ok(())
    }

    /// Takes the values of region `index` from `values`, the bytes of a dense array in C order. An
    /// encoded region is encoded from there at once when all regions before it are there.
    ///
    /// # Errors
    /// `Invalid` when it has another size, or was encoded already; those of
    /// [`fill`](Self::fill) and of the codec.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill_from(&mut self, index: usize, values: &[u8]) -> Result<(), Error> {
        gpu::check_size(values.len() as u64, self.frame.head().regions[index].bytes)?;
        let Some(encoded) = &mut self.encoded else {
            return self.fill(index, |room| room.copy_from_slice(values));
        };
        self.room.as_mut().map_or(Ok(()), |room| encoded.take(index, values, room))
    }

    /// Copies an array of a GPU into region `index`, behind what is on `stream`. Where the region
    /// lies in that GPU's memory, or in main memory that is registered with it, the copy is only
    /// enqueued: the host does not wait, and work that is enqueued on `stream` later may change the
    /// array.
    ///
    /// # Errors
    /// `WrongDevice` when the array lies on another GPU than the spool, `Invalid` when it has
    /// another size, `Device` when CUDA refuses or the stream is being captured.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn put(&mut self, index: usize, from: &DeviceArray, on: &Stream) -> Result<(), Error> {
        let gpu = self.hub.gpu_of(from.ordinal())?;
        if self.encoded.is_some() {
            return self.put_encoded(&gpu, &[(index, from, on)]);
        }
        let part = part(&self.frame.head().regions[index]);
        match &mut self.room {
            Some(Room::Arena(guard)) => gpu::put(&gpu, guard, part, from, on),
            Some(Room::Staged(buffer)) => gpu::download(&gpu, &mut buffer[part.range()], from, on),
            Some(Room::Encoding(_)) | None => Ok(()),
        }
    }

    /// As [`put`](Self::put), for several regions, each with its array and stream. Encoded regions
    /// are then encoded by one launch, which reads dense arrays where they are; arrays that are put
    /// one by one are copied aside first, all but the last.
    ///
    /// # Errors
    /// Those of `put`; `Invalid` also when the arrays are on several GPUs.
    ///
    /// # Panics
    /// When the checkpoint has no such region.
    pub fn put_all(&mut self, arrays: &[(usize, &DeviceArray, &Stream)]) -> Result<(), Error> {
        let Some((_, first, _)) = arrays.first() else { return Ok(()) };
        if self.encoded.is_none() {
            let mut arrays = arrays.iter();
            return arrays.try_for_each(|(index, array, stream)| self.put(*index, array, stream));
        }
        if arrays.iter().any(|(_, array, _)| array.ordinal() != first.ordinal()) {
            let message = "The arrays of one save lie on several GPUs. Save them in parts.";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let gpu = self.hub.gpu_of(first.ordinal())?;
        self.put_encoded(&gpu, arrays)
    }

    /// What keeps the memory of the checkpoint in place after the ticket is gone, for those who
    /// show it to others; `None` when it does not lie in an arena, and when a region is encoded.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &self.room {
            Some(Room::Arena(guard)) if self.encoded.is_none() => Some(guard.memory()),
            _ => None,
        }
    }

    /// Makes `stream` wait until the memory of the checkpoint may be written.
    ///
    /// End the ticket with [`commit_on`](Self::commit_on) or [`give_up_on`](Self::give_up_on):
    /// dropping it instead waits for everything on the device, because it does not know where work
    /// was enqueued.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), Error> {
        self.begun = Begun::Yes;
        match &self.room {
            Some(Room::Arena(guard)) => Ok(guard.order(stream)?),
            _ => Ok(()),
        }
    }

    /// As [`commit`](Self::commit), for a checkpoint that is complete when what is on `stream` so
    /// far is done.
    ///
    /// # Errors
    /// Those of `commit`, and `Device` when CUDA refuses; nothing was saved then.
    pub fn commit_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.leave(stream)?;
        self.commit()
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
        match &mut self.room {
            Some(Room::Arena(guard)) => Ok(guard.leave(stream)?),
            _ => Ok(()),
        }
    }

    /// Zeros between the regions, so that nothing that was in memory before leaves with a frame.
    fn clear_gaps(&mut self) -> Result<(), Error> {
        let head = Arc::clone(self.frame.head());
        for gap in head.gaps() {
            let part = Part { offset: gap.start, len: gap.end - gap.start };
            match &mut self.room {
                Some(Room::Arena(guard)) => gpu::clear(guard, part)?,
                Some(Room::Staged(buffer)) => buffer[part.range()].fill(0),
                Some(Room::Encoding(_)) | None => {}
            }
        }
        Ok(())
    }

    fn version(&self) -> i64 {
        self.frame.head().version
    }

    /// The checkpoint is complete: from now on it can be restored.
    ///
    /// # Errors
    /// `Io` or `Full` when it had to be written to a store at once and that failed; `Closed` when
    /// the spool was closed meanwhile. Nothing was saved then.
    pub fn commit(mut self) -> Result<(), Error> {
        let hub = Arc::clone(&self.hub);
        hub.check_process()?;
        self.launch_rest()?;
        hub.count_kernels(Call::Save, self.version());
        self.check_passed()?;
        if matches!(self.room, Some(Room::Encoding(_))) {
            return self.hand_over(false);
        }
        let sealed = self.seal()?;
        if let Some(Room::Staged(buffer)) = &self.room {
            self.write(&buffer[..self.frame.head().payload_bytes as usize])?;
        }
        let mut state = hub.state();
        if let Err(closed) = check_open(&state) {
            drop(state);
            self.unwrite();
            return Err(closed);
        }
        let kept = sealed.as_ref().map(|sealed| sealed.kept(self.place.offset));
        if let Some(Room::Arena(guard)) = self.room.take()
            && let Err(cause) = complete(guard, kept)
        {
            drop(state);
            self.abort();
            return Err(hub.direct_failed("saved", self.version(), cause));
        }
        if let Some(sealed) = sealed {
            state.sealed(self.checkpoint, sealed);
        }
        hub.feed(&mut state, Event::Saved { request: self.request, kept });
        drop(state);
        hub.span_of_call(Call::Save, &self.frame, (self.place.tier, self.began), "done");
        Ok(())
    }

    /// Refuses a checkpoint that was found to break its bound.
    fn check_passed(&self) -> Result<(), Error> {
        if !self.encoded.as_ref().is_some_and(|encoded| encoded.is_violated) {
            return Ok(());
        }
        let message = format!(
            "Version {} was not saved: it did not pass its check, as an earlier call has said.",
            self.version()
        );
        Err(Error::new(ErrorKind::BoundViolated, message))
    }

    /// Writes the checkpoint to the store that was granted. The application waits meanwhile.
    fn write(&self, payload: &[u8]) -> Result<(), Error> {
        let (store, start) = (self.hub.tier(self.place.tier), self.hub.clock.now());
        let outer = self.hub.settings.disk.as_ref().and_then(|disk| disk.compress);
        let written =
            write_frame(store, self.checkpoint, &self.frame, payload, outer, &self.hub.buffers);
        let took = self.hub.clock.now().since(start);
        let awaited = || "its direct write to a store, because no arena had room".to_owned();
        self.hub.state().tally.stalled(Call::Save, self.version(), took, awaited);
        self.hub.span_of_stall(&self.frame, self.place.tier, took);
        written.map_err(|cause| self.hub.direct_failed("saved", self.version(), cause))
    }

    /// Takes back what [`SaveTicket::write`] wrote, so that no later opener finds it.
    fn unwrite(&self) {
        if matches!(self.room, Some(Room::Staged(_))) {
            // The store may be closed by now, and an ephemeral one has nothing left to delete.
            let _ = self.hub.tier(self.place.tier).delete(self.checkpoint);
        }
    }

    /// The same ticket, to be dropped later by somebody else.
    fn leaving(&self, room: Room) -> SaveTicket {
        SaveTicket {
            hub: Arc::clone(&self.hub),
            frame: Arc::clone(&self.frame),
            room: Some(room),
            request: self.request,
            checkpoint: self.checkpoint,
            place: self.place,
            began: self.began,
            begun: Begun::Leaving,
            encoded: None,
            chain: None,
            launched: Launched::default(),
        }
    }

    fn abort(&self) {
        let mut state = self.hub.state();
        self.hub.feed(&mut state, Event::SaveAborted { request: self.request });
        state.catalogue.remove(self.checkpoint);
    }
}

impl Leave for SaveTicket {
    fn settled(&mut self) {
        self.begun = Begun::No;
    }
}

impl Drop for SaveTicket {
    fn drop(&mut self) {
        if !self.hub.is_forked() && matches!(self.room, Some(Room::Encoding(_))) {
            // The encoder is on its way: its memory is free when it is done. Nobody is there to
            // hear of an error.
            let _ = self.hand_over(true);
            return;
        }
        let Some(mut room) = self.room.take() else { return };
        if self.hub.is_forked() {
            // The locks behind it may be held for ever in this process.
            std::mem::forget((room, self.encoded.take(), self.chain.take()));
            return;
        }
        if self.begun == Begun::Yes
            && let Some(gpu) = room.gpu()
        {
            return gpu::drop_behind(gpu.context().clone(), self.leaving(room));
        }
        if self.begun == Begun::Leaving
            && let Room::Arena(guard) = &mut room
        {
            guard.stick();
        }
        drop(room);
        self.abort();
        self.hub.span_of_call(Call::Save, &self.frame, (self.place.tier, self.began), "given up");
    }
}

impl fmt::Debug for SaveTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        f.debug_struct("SaveTicket").field("version", &version).finish_non_exhaustive()
    }
}

/// The entry of `guard` can be read from now on: all of it, or the part that is kept.
fn complete(guard: WriteGuard, kept: Option<Kept>) -> Result<(), TransferError> {
    match kept {
        None => guard.commit(),
        Some(kept) => guard.commit_at(kept.offset, kept.bytes)?,
    }
    Ok(())
}

/// Where a region lies in the payload.
pub(crate) fn part(region: &Region) -> Part {
    Part { offset: region.offset, len: region.stored }
}
