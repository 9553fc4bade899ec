//! The states of a save, from the room that was granted to its report.

use std::sync::Arc;

use unspool_core::{CheckpointId, Event, Failure, Nanos, Place, RequestId};
use unspool_tiers::GivenArray;
use unspool_transfer::{Frame, TransferError, staging};

use super::SaveTicket;
use crate::coding::{Encoded, Encoding, Launched, Predecessor, Room};
use crate::error::Error;
use crate::gpu::InPlace;
use crate::runtime::counters::Call;
use crate::runtime::shared::Shared;

/// Room that the core has granted to one save: whose it is, and where.
#[derive(Clone)]
pub(crate) struct Grant {
    pub(crate) shared: Arc<Shared>,
    /// With the largest streams, until the checkpoint is encoded.
    pub(crate) frame: Arc<Frame>,
    pub(crate) request: RequestId,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) place: Place,
    pub(crate) began: Nanos,
    /// Its end on the device, once its encoder is enqueued.
    pub(crate) launched: Launched,
}

/// How far a save has come. Each state owns what it needs, and only the first two have room.
pub(super) enum SaveState {
    /// The caller fills the room with the bytes as they are.
    Plain { room: Room, used: InPlace },
    /// Values are gathered, and encoded into the room: by the host, or by a GPU that has done so
    /// aside.
    Coded { room: Room, encoded: Box<Encoded>, after: Option<Predecessor> },
    /// A GPU encodes it into its arena.
    InFlight { encoding: Encoding, encoded: Box<Encoded> },
    /// It was given up, because its codec broke its bound.
    Violated,
    /// It was reported, given up, or left to another thread.
    Over,
}

/// Room that was granted and is not borrowed yet: granting is done under the lock of the spool,
/// borrowing without.
pub(super) struct Granted {
    pub(super) grant: Grant,
    /// The encoders, and the save after which the GPU may place it, where a region is encoded.
    pub(super) coded: Option<(Box<Encoded>, Option<Predecessor>)>,
}

impl Granted {
    /// Borrows the room. `None` when the arena has lost it meanwhile: the core knows that by now,
    /// and has room elsewhere.
    ///
    /// # Errors
    /// `Io` when there is no memory, `Device` when CUDA refuses; the save is given up then, as it
    /// is without room.
    pub(super) fn enter(self) -> Result<Option<SaveTicket>, Error> {
        let Granted { grant, coded } = self;
        let Some(room) = grant.entered(grant.room())? else { return Ok(None) };
        let state = match coded {
            Some((encoded, after)) => SaveState::Coded { room, encoded, after },
            None => SaveState::Plain { room, used: InPlace::No },
        };
        let mut ticket = SaveTicket { grant, state };
        // An error drops the ticket, which gives the save up.
        ticket.clear_gaps()?;
        Ok(Some(ticket))
    }

    /// As [`enter`](Self::enter), for room in the memory of a device: an array that was given takes
    /// its place.
    ///
    /// # Errors
    /// Those of `enter`.
    pub(super) fn adopt(self, given: &GivenArray) -> Result<Option<SaveTicket>, Error> {
        let Granted { grant, .. } = self;
        let Some(arena) = grant.shared.arena(grant.place) else {
            unreachable!("the memory of a device is an arena")
        };
        let room = arena.adopt(grant.checkpoint, grant.place.offset, given.clone());
        let room = room.map(Room::Arena).map_err(TransferError::from);
        let Some(room) = grant.entered(room)? else { return Ok(None) };
        Ok(Some(SaveTicket { grant, state: SaveState::Plain { room, used: InPlace::No } }))
    }
}

impl Grant {
    pub(super) fn version(&self) -> i64 {
        self.frame.head().version
    }

    fn room(&self) -> Result<Room, TransferError> {
        let bytes = self.frame.head().payload_bytes;
        match self.shared.arena(self.place) {
            Some(arena) => {
                Ok(Room::Arena(arena.create(self.checkpoint, self.place.offset, bytes)?))
            }
            None => Ok(Room::Staged(staging(&self.shared.buffers, bytes)?)),
        }
    }

    /// Room that was borrowed; `None` when the arena has lost it meanwhile.
    fn entered(&self, room: Result<Room, TransferError>) -> Result<Option<Room>, Error> {
        let cause = match room {
            Ok(room) => return Ok(Some(room)),
            Err(cause) => cause,
        };
        self.abort();
        if cause.kind() == Failure::NoSpace && self.shared.arena(self.place).is_some() {
            return Ok(None);
        }
        Err(self.shared.direct_failed("saved", self.version(), cause))
    }

    /// Reports that nothing was saved.
    pub(super) fn abort(&self) {
        self.shared.finds_device_lost();
        let mut state = self.shared.state();
        self.shared.feed(&mut state, Event::SaveAborted { request: self.request });
        state.frames.remove(self.checkpoint);
    }

    /// Puts the call on the timeline.
    pub(super) fn end_span(&self, outcome: &'static str) {
        let begin = (self.place.tier, self.began);
        self.shared.span_of_call(Call::Save, &self.frame, begin, outcome);
    }

    /// Gives the save up, whose room was `room`.
    pub(super) fn give_up(&self, room: Room) {
        drop(room);
        self.abort();
        self.end_span("given up");
    }
}

impl SaveState {
    /// The memory that is filled; `None` once it was left to others.
    pub(super) fn room(&mut self) -> Option<&mut Room> {
        match self {
            SaveState::Plain { room, .. } | SaveState::Coded { room, .. } => Some(room),
            SaveState::InFlight { .. } | SaveState::Violated | SaveState::Over => None,
        }
    }

    /// Takes it out: the save is over.
    pub(super) fn take_room(&mut self) -> Option<Room> {
        match std::mem::replace(self, SaveState::Over) {
            SaveState::Plain { room, .. } | SaveState::Coded { room, .. } => Some(room),
            other => {
                *self = other;
                None
            }
        }
    }
}
