//! Room for a save: asked for, waited for, and borrowed.

use std::sync::Arc;

use unspool_codec::RegionSpec;
use unspool_core::{CheckpointId, Failure, Nanos, Place, RequestId, Size, Version};
use unspool_tiers::GivenArray;
use unspool_transfer::{TransferError, staging};

use super::ticket::SaveState;
use super::{Prepared, SaveTicket};
use crate::coding::{Codecs, Encoded, Launched, Predecessor, Room};
use crate::error::Error;
use crate::gpu::{self, InPlace, Part};
use crate::runtime::counters::Call;
use crate::runtime::shared::Shared;
use crate::runtime::state::{Answer, Grant, State};
use crate::runtime::waiting::{Answered, Asked, Until};
use crate::wait::Wait;

/// Waits until there is room for a checkpoint of these regions, and borrows it.
///
/// # Errors
/// As [`Spool::save`](crate::Spool::save).
pub(crate) fn save(
    shared: &Arc<Shared>,
    version: i64,
    regions: Vec<RegionSpec>,
    codecs: &Codecs,
    wait: &Wait<'_>,
) -> Result<SaveTicket, Error> {
    save_prepared(shared, &Prepared::of(shared, version, regions, codecs)?, wait)
}

/// As [`save`], for a checkpoint that is planned.
///
/// # Errors
/// Those of `save`.
pub(super) fn save_prepared(
    shared: &Arc<Shared>,
    prepared: &Prepared,
    wait: &Wait<'_>,
) -> Result<SaveTicket, Error> {
    loop {
        // An arena loses room once at most.
        if let Some(ticket) = wait_for_room(shared, prepared, wait)?.enter()? {
            return Ok(ticket);
        }
    }
}

/// Waits until there is room, which is not borrowed yet.
///
/// # Errors
/// Those of [`save`].
pub(super) fn wait_for_room(
    shared: &Arc<Shared>,
    prepared: &Prepared,
    wait: &Wait<'_>,
) -> Result<SaveTicket, Error> {
    let began = shared.time_of_call();
    let mut state = shared.enter()?;
    shared.report_deferred(&mut state)?;
    let room = prepared.most();
    let answered = shared.ask(state, prepared.asked(room), wait, Until::Closing)?;
    Ok(prepared.answered(shared, (answered, room), began))
}

/// What the core has granted: to which request, under which name, where, and how many bytes.
pub(super) type Granted = (RequestId, CheckpointId, Place, u64);

/// The `room` bytes that an answer grants.
pub(super) fn granted(request: RequestId, answer: &Answer, room: u64) -> Granted {
    let Answer::Granted(checkpoint, place) = *answer else {
        unreachable!("a save is granted or refused")
    };
    (request, checkpoint, place, room)
}

impl Prepared {
    /// The most bytes that it can have.
    pub(super) fn most(&self) -> u64 {
        self.head().payload_bytes
    }

    /// The request for `bytes` bytes of room.
    pub(super) fn asked(&self, bytes: u64) -> Asked {
        let version = Version(self.head().version);
        let size = if self.plan().is_some() { Size::AtMost } else { Size::Exact };
        Asked::Save { version, bytes, size }
    }

    /// The save whose room is there, after a wait if there had to be one.
    pub(super) fn answered(
        &self,
        shared: &Arc<Shared>,
        (answered, room): (Answered<'_>, u64),
        began: Nanos,
    ) -> SaveTicket {
        let Answered { request, answer, mut state, waited, awaited } = answered;
        if let Some(awaited) = awaited {
            let version = self.head().version;
            state.counters.stalled(Call::Save, version, waited, || awaited);
        }
        let (granted, batch) = (granted(request, &answer, room), std::iter::empty());
        let ticket = self.granted(shared, &mut state, granted, began, batch);
        drop(state);
        shared.span_of_stall(&ticket.grant.frame, ticket.grant.place.tier, waited);
        // What made room may have been given.
        shared.let_go();
        ticket
    }

    /// The save for which room was granted under the lock `state`, as was that of `batch`, the last
    /// of which comes first.
    pub(super) fn granted<'b>(
        &self,
        shared: &Arc<Shared>,
        state: &mut State,
        (request, checkpoint, place, room): Granted,
        began: Nanos,
        batch: impl Iterator<Item = &'b Grant>,
    ) -> SaveTicket {
        let (shared, frame) = (Arc::clone(shared), Arc::clone(self.frame()));
        state.frames.insert(checkpoint, Arc::clone(&frame), false);
        let coded = self.plan().cloned().map(|plan| {
            state.frames.set_codecs(checkpoint, plan.codecs_in_no_stream());
            let check = shared.settings.check_codec;
            let encoded = Encoded::of(plan, &frame, check, &shared.buffers);
            (encoded, predecessor(&shared, state, place, batch))
        });
        let launched = Launched::default();
        let grant = Grant { frame, request, checkpoint, place, room, began, launched };
        SaveTicket { shared, grant, state: SaveState::Granted { coded } }
    }
}

/// The save that is not reported yet and whose room ends where `place` begins: it is one of `batch`
/// or pending. `state` is the lock under which all of that is so.
fn predecessor<'b>(
    shared: &Shared,
    state: &State,
    place: Place,
    mut batch: impl Iterator<Item = &'b Grant>,
) -> Option<Predecessor> {
    let alignment = state.driver.core().config().tiers[usize::from(place.tier.0)].alignment;
    let in_batch = batch.find_map(|grant| grant.before(place, alignment));
    in_batch.or_else(|| shared.completions.before(place, alignment))
}

impl SaveTicket {
    /// Borrows the room. `None` when the arena has lost it meanwhile: the core knows that by now,
    /// and has room elsewhere.
    ///
    /// # Errors
    /// `Io` when memory cannot be allocated, `Device` when CUDA fails. The save is abandoned, as it
    /// is when no tier has room.
    pub(super) fn enter(mut self) -> Result<Option<SaveTicket>, Error> {
        let room = self.find_room();
        if !self.borrowed(room)? {
            return Ok(None);
        }
        self.clear_gaps()?;
        Ok(Some(self))
    }

    /// As [`enter`](Self::enter), for room in the memory of a device: an array that was given takes
    /// its place.
    ///
    /// # Errors
    /// Those of `enter`.
    pub(super) fn adopt(mut self, given: &GivenArray) -> Result<Option<SaveTicket>, Error> {
        let Grant { checkpoint, place, .. } = self.grant;
        let Some(arena) = self.shared.arena(place) else {
            unreachable!("the memory of a device is an arena")
        };
        let room = arena.adopt(checkpoint, place.offset, given.clone());
        let room = room.map(Room::Arena).map_err(TransferError::from);
        Ok(self.borrowed(room)?.then_some(self))
    }

    fn find_room(&self) -> Result<Room, TransferError> {
        let Grant { checkpoint, place, room, .. } = self.grant;
        match self.shared.arena(place) {
            Some(arena) => Ok(Room::Arena(arena.create(checkpoint, place.offset, room)?)),
            None => Ok(Room::Staged(staging(&self.shared.buffers, room)?)),
        }
    }

    /// Goes on with the room that was borrowed; `false` when the arena has lost it.
    fn borrowed(&mut self, room: Result<Room, TransferError>) -> Result<bool, Error> {
        let room = match room {
            Ok(room) => room,
            Err(cause) => {
                self.give_up();
                let is_arena = self.shared.arena(self.grant.place).is_some();
                if cause.kind() == Failure::NoSpace && is_arena {
                    return Ok(false);
                }
                return Err(self.shared.direct_failed("saved", self.version(), cause));
            }
        };
        self.state = match self.state.take() {
            SaveState::Granted { coded: Some(coded) } => SaveState::Coded { room, coded },
            _ => SaveState::Plain { room, used: InPlace::No },
        };
        Ok(true)
    }

    /// Zeros between the regions, so that nothing that was in memory before leaves with a frame.
    fn clear_gaps(&mut self) -> Result<(), Error> {
        let SaveState::Plain { room, .. } = &mut self.state else { return Ok(()) };
        let gaps = self.grant.frame.head().gaps();
        let gaps = gaps.map(|gap| Part { offset: gap.start, len: gap.end - gap.start });
        let gaps: Vec<Part> = gaps.collect();
        match room {
            _ if gaps.is_empty() => {}
            Room::Arena(guard) => gpu::clear(self.shared.gpu.as_ref(), guard, &gaps)?,
            Room::Staged(buffer) => gaps.iter().for_each(|gap| buffer[gap.range()].fill(0)),
        }
        Ok(())
    }
}
