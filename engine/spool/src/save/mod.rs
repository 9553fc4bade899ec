//! A save in progress.

mod adopt;
mod given;
mod in_flight;
mod launch;
mod many;
mod plain;
mod planning;
mod state;
mod together;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use unspool_codec::{Head, RegionSpec, memory};
use unspool_core::{CheckpointId, Event, Kept, Nanos, Place, RequestId, Size, Version};
use unspool_cuda::{DeviceSpan, Fence, Stream};
use unspool_tiers::WriteGuard;
use unspool_transfer::{Frame, TransferError, write_frame};

use crate::coding::{Codecs, Encoded, EncodingPlan, Launched, Room, Sealed};
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, DeviceArray, InPlace, Leave, Part, drop_when_idle};
use crate::runtime::counters::Call;
use crate::runtime::shared::{Shared, check_open};
use crate::runtime::state::{Answer, State};
use crate::runtime::waiting::{Answered, Asked, Until};
use crate::wait::Wait;

pub(crate) use adopt::adopt;
pub(crate) use given::{save_given, takes};
pub use many::Checkpoint;
pub(crate) use many::save_many;
use state::{Grant, Granted, SaveState};
pub(crate) use together::MOST_REGIONS;

/// Room for one checkpoint: fill its regions, then [`commit`](SaveTicket::commit). Dropping the
/// ticket gives the save up: nothing was saved and the version is free again.
#[must_use = "a save that is not committed is given up"]
pub struct SaveTicket {
    grant: Grant,
    state: SaveState,
}

/// Waits until there is room for a checkpoint of these regions, and borrows it.
///
/// # Errors
/// As [`Spool::save`](crate::Spool::save).
pub(crate) fn save_as(
    shared: &Arc<Shared>,
    version: i64,
    regions: Vec<RegionSpec>,
    codecs: &Codecs,
    wait: &Wait<'_>,
) -> Result<SaveTicket, Error> {
    let prepared = shared.prepare(version, regions, codecs)?;
    loop {
        // An arena loses room once at most.
        if let Some(ticket) = save_prepared(shared, version, &prepared, wait)? {
            return Ok(ticket);
        }
    }
}

/// Waits until there is room, and borrows it; `None` when it was lost in between.
fn save_prepared(
    shared: &Arc<Shared>,
    version: i64,
    prepared: &Prepared,
    wait: &Wait<'_>,
) -> Result<Option<SaveTicket>, Error> {
    wait_for_room(shared, version, prepared, wait)?.enter()
}

/// Waits until there is room, which is not borrowed yet.
fn wait_for_room(
    shared: &Arc<Shared>,
    version: i64,
    prepared: &Prepared,
    wait: &Wait<'_>,
) -> Result<Granted, Error> {
    let began = shared.time_of_call();
    let mut state = shared.enter()?;
    shared.report_deferred(&mut state)?;
    let mut answered = shared.ask(state, prepared.asked(), wait, Until::Closing)?;
    count_stall(&mut answered, version);
    let Answered { request, answer, mut state, waited, .. } = answered;
    let Answer::Granted(checkpoint, place) = answer else {
        unreachable!("a save is granted or refused")
    };
    let granted = prepared.granted(shared, &mut state, (request, checkpoint, place), began);
    drop(state);
    shared.span_of_stall(&granted.grant.frame, place.tier, waited);
    // What made room may have been given.
    shared.let_go();
    Ok(granted)
}

/// A checkpoint before there is room for it: its regions, and how they are encoded.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// With the largest streams, where a region is encoded.
    frame: Arc<Frame>,
    /// `None` where all regions are kept as they are.
    plan: Option<EncodingPlan>,
}

impl Shared {
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

    pub(crate) fn plan(&self) -> Option<&EncodingPlan> {
        self.plan.as_ref()
    }

    /// The request for its room.
    pub(crate) fn asked(&self) -> Asked {
        let head = self.head();
        let size = if self.plan.is_some() { Size::AtMost } else { Size::Exact };
        Asked::Save { version: Version(head.version), bytes: head.payload_bytes, size }
    }

    /// The save for which room was granted. `state` is the lock under which that was.
    fn granted(
        &self,
        shared: &Arc<Shared>,
        state: &mut State,
        (request, checkpoint, place): (RequestId, CheckpointId, Place),
        began: Nanos,
    ) -> Granted {
        let frame = Arc::clone(&self.frame);
        state.frames.insert(checkpoint, Arc::clone(&frame), false);
        let coded = self.plan.clone().map(|plan| {
            state.frames.set_codecs(checkpoint, plan.codecs_in_no_stream());
            let check = shared.settings.check_codec;
            let encoded = Encoded::of(plan, &frame, check, &shared.buffers);
            (encoded, shared.earlier_save(state, place))
        });
        let (shared, launched) = (Arc::clone(shared), Launched::default());
        let grant = Grant { shared, frame, request, checkpoint, place, began, launched };
        Granted { grant, coded }
    }
}

fn count_stall(answered: &mut Answered<'_>, version: i64) {
    if let Some(awaited) = answered.awaited.take() {
        let waited = answered.waited;
        answered.state.counters.stalled(Call::Save, version, waited, || awaited);
    }
}

impl SaveTicket {
    /// The regions and where they lie in the payload; those of an encoded checkpoint where they lie
    /// at most.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.grant.frame.head()
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
        let range = gpu::part(&self.grant.frame.head().regions[index]).range();
        match &mut self.state {
            SaveState::Coded { encoded, .. } => encoded.memory(index).ok(),
            SaveState::Plain { room, .. } => room.bytes().map(|bytes| &mut bytes[range]),
            _ => None,
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
        let part = gpu::part(&self.grant.frame.head().regions[index]);
        let SaveState::Plain { room: Room::Arena(guard), .. } = &self.state else {
            return Ok(None);
        };
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
        let part = gpu::part(&self.grant.frame.head().regions[index]);
        match &mut self.state {
            SaveState::Coded { encoded, .. } => encoded.memory(index).map(write)?,
            SaveState::Plain { room: Room::Arena(guard), .. } => {
                gpu::store_host(&self.grant.shared.buffers, guard, part, write)?;
            }
            SaveState::Plain { room: Room::Staged(buffer), .. } => write(&mut buffer[part.range()]),
            _ => self.check_nothing_is_missing(index)?,
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
        gpu::check_size(values.len() as u64, self.grant.frame.head().regions[index].bytes)?;
        match &mut self.state {
            SaveState::Coded { room, encoded, .. } => encoded.take(index, values, room),
            _ => self.fill(index, |room| memory::copy(values, room)),
        }
    }

    /// Refuses values for a checkpoint that a GPU encodes already, or that was given up.
    fn check_nothing_is_missing(&self, index: usize) -> Result<(), Error> {
        match &self.state {
            SaveState::InFlight { encoded, .. } => encoded.check_nothing(index),
            _ => self.check_passed(),
        }
    }

    /// Copies an array of a GPU into region `index`, after what is on `stream`. Where the region
    /// lies in that GPU's memory, or in main memory that is registered with it, the copy is only
    /// enqueued: the host does not wait, and work that is enqueued on `stream` later may change the
    /// array. Returns a fence after the copy where there is one of its own.
    ///
    /// # Errors
    /// `WrongDevice` when the array lies on another GPU than the spool, `Invalid` when it has
    /// another size, `Device` when CUDA refuses or the stream is being captured.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn put(
        &mut self,
        index: usize,
        from: &DeviceArray,
        on: &Stream,
    ) -> Result<Option<Fence>, Error> {
        let gpu = self.grant.shared.gpu_of(from.ordinal())?;
        let part = gpu::part(&self.grant.frame.head().regions[index]);
        match &mut self.state {
            SaveState::Plain { room: Room::Arena(guard), .. } => {
                gpu::put(&gpu, guard, part, from, on)
            }
            SaveState::Plain { room: Room::Staged(buffer), .. } => {
                gpu::download(&gpu, &mut buffer[part.range()], from, on).map(|()| None)
            }
            _ => self.put_encoded(&gpu, &[(index, from, on)]).map(|()| None),
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
        if matches!(self.state, SaveState::Plain { .. }) {
            let mut arrays = arrays.iter();
            return arrays
                .try_for_each(|(index, array, stream)| self.put(*index, array, stream).map(drop));
        }
        if arrays.iter().any(|(_, array, _)| array.ordinal() != first.ordinal()) {
            let message = "The arrays of one save lie on several GPUs. Save them in parts.";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let gpu = self.grant.shared.gpu_of(first.ordinal())?;
        self.put_encoded(&gpu, arrays)
    }

    /// What keeps the memory of the checkpoint in place after the ticket is gone, for those who
    /// show it to others; `None` when it does not lie in an arena, and when a region is encoded.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &self.state {
            SaveState::Plain { room: Room::Arena(guard), .. } => Some(guard.memory()),
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
        let SaveState::Plain { room, used } = &mut self.state else { return Ok(()) };
        *used = InPlace::Yes;
        match room {
            Room::Arena(guard) => Ok(guard.order(stream)?),
            Room::Staged(_) => Ok(()),
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

    /// Work on the memory was enqueued on `stream`: what uses the memory next comes after that.
    fn leave(&mut self, stream: &Stream) -> Result<(), Error> {
        let SaveState::Plain { room, used } = &mut self.state else { return Ok(()) };
        *used = InPlace::No;
        match room {
            Room::Arena(guard) => Ok(guard.leave(stream).map(drop)?),
            Room::Staged(_) => Ok(()),
        }
    }

    /// Zeros between the regions, so that nothing that was in memory before leaves with a frame.
    fn clear_gaps(&mut self) -> Result<(), Error> {
        let SaveState::Plain { room, .. } = &mut self.state else { return Ok(()) };
        for gap in self.grant.frame.head().gaps() {
            let part = Part { offset: gap.start, len: gap.end - gap.start };
            match room {
                Room::Arena(guard) => gpu::clear(guard, part)?,
                Room::Staged(buffer) => buffer[part.range()].fill(0),
            }
        }
        Ok(())
    }

    fn version(&self) -> i64 {
        self.grant.version()
    }

    /// The checkpoint is complete: from now on it can be restored.
    ///
    /// # Errors
    /// `Io` or `Full` when it had to be written to a store at once and that failed; `Closed` when
    /// the spool was closed meanwhile. Nothing was saved then.
    pub fn commit(mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.grant.shared);
        shared.check_process()?;
        self.launch_rest()?;
        shared.count_kernels(Call::Save, self.version());
        self.check_passed()?;
        if matches!(self.state, SaveState::InFlight { .. }) {
            return self.leave_to_completion(false);
        }
        let sealed = self.seal()?;
        if let Some(Room::Staged(buffer)) = self.state.room() {
            self.grant.write(&buffer[..self.grant.frame.head().payload_bytes as usize])?;
        }
        let mut state = shared.state();
        if let Err(closed) = check_open(&state) {
            drop(state);
            self.unwrite();
            return Err(closed);
        }
        let kept = sealed.as_ref().map(|sealed| sealed.kept(self.grant.place.offset));
        if let Some(Room::Arena(guard)) = self.state.take_room()
            && let Err(cause) = complete(guard, kept)
        {
            drop(state);
            self.grant.abort();
            return Err(shared.direct_failed("saved", self.version(), cause));
        }
        if let Some(sealed) = sealed {
            state.sealed(self.grant.checkpoint, sealed);
        }
        shared.feed(&mut state, Event::Saved { request: self.grant.request, kept });
        drop(state);
        self.grant.end_span("done");
        Ok(())
    }

    /// Encodes what is not encoded yet: from now on the checkpoint has its true size.
    ///
    /// # Errors
    /// Those of the codecs, and `BoundViolated` when the settings ask for a check.
    fn seal(&mut self) -> Result<Option<Sealed>, Error> {
        let SaveState::Coded { room, encoded, .. } = &mut self.state else { return Ok(None) };
        let sealed = encoded.seal(room)?;
        self.grant.frame = Arc::clone(&sealed.frame);
        Ok(Some(sealed))
    }

    /// Refuses a checkpoint that was found to break its bound.
    fn check_passed(&self) -> Result<(), Error> {
        if !matches!(self.state, SaveState::Violated) {
            return Ok(());
        }
        let message = format!(
            "Version {} was not saved: it did not pass its check, as an earlier call has said.",
            self.version()
        );
        Err(Error::new(ErrorKind::BoundViolated, message))
    }

    /// Takes back what was written to a store, so that no later opener finds it.
    fn unwrite(&mut self) {
        if matches!(self.state.room(), Some(Room::Staged(_))) {
            // The store may be closed by now, and an ephemeral one has nothing left to delete.
            let store = self.grant.shared.tier(self.grant.place.tier);
            let _ = store.delete(self.grant.checkpoint);
        }
    }
}

impl Grant {
    /// Writes the checkpoint to the store that was granted. The application waits meanwhile.
    fn write(&self, payload: &[u8]) -> Result<(), Error> {
        let (store, start) = (self.shared.tier(self.place.tier), self.shared.clock.now());
        let outer = self.shared.settings.disk.as_ref().and_then(|disk| disk.compress);
        let written =
            write_frame(store, self.checkpoint, &self.frame, payload, outer, &self.shared.buffers);
        let took = self.shared.clock.now().since(start);
        let awaited = || "its direct write to a store, because no arena had room".to_owned();
        self.shared.state().counters.stalled(Call::Save, self.version(), took, awaited);
        self.shared.span_of_stall(&self.frame, self.place.tier, took);
        written.map_err(|cause| self.shared.direct_failed("saved", self.version(), cause))
    }
}

impl Leave for SaveTicket {
    fn device_is_idle(&mut self) {
        if let SaveState::Plain { used, .. } = &mut self.state {
            *used = InPlace::No;
        }
    }
}

impl Drop for SaveTicket {
    fn drop(&mut self) {
        if self.grant.shared.is_forked() {
            // The locks that its end takes may be held for ever in this process.
            std::mem::forget(std::mem::replace(&mut self.state, SaveState::Over));
            return;
        }
        match std::mem::replace(&mut self.state, SaveState::Over) {
            SaveState::Over | SaveState::Violated => {}
            SaveState::InFlight { encoding, encoded } => {
                // The memory is free when the encoder is done. Nobody is there to hear of an error.
                let _ = self.grant.leave_to_completion(encoding, encoded, true);
            }
            SaveState::Plain { room, used: InPlace::Yes }
                if let Some(context) = room.gpu().map(|gpu| gpu.context().clone()) =>
            {
                let state = SaveState::Plain { room, used: InPlace::Leaving };
                drop_when_idle(context, SaveTicket { grant: self.grant.clone(), state });
            }
            SaveState::Plain { room: Room::Arena(mut guard), used: InPlace::Leaving } => {
                guard.stick();
                self.grant.give_up(Room::Arena(guard));
            }
            SaveState::Plain { room, .. } => self.grant.give_up(room),
            SaveState::Coded { room, encoded: _encoded, .. } => self.grant.give_up(room),
        }
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
