//! The end of a call that saves what a GPU encodes: the rest is left to the thread that settles.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use unspool_core::{CheckpointId, Place, RequestId};
use unspool_cuda::DeviceError;
use unspool_gpu_codec::EncodeError;
use unspool_tiers::WriteGuard;

use crate::coding::{Encoded, Encoding, Held, Launch, Launched, Placed, Sealed, Taken};
use crate::error::Error;
use crate::hub::check_open;
use crate::save::{Room, SaveTicket};
use crate::tally::Call;

/// What came of a save: where the GPU has put it, and `None` where it lies as the host knows.
pub(crate) type Outcome = Result<Option<Placed>, EncodeError>;

/// A save whose call has returned.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) work: Work,
    /// Its end on the device, once it was launched.
    pub(crate) launched: Launched,
    pub(crate) request: RequestId,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) place: Place,
    /// Bytes of its room.
    pub(crate) most: u64,
    pub(crate) version: i64,
    /// It was given up after it was launched.
    pub(crate) is_abandoned: bool,
}

/// How far a handed save has come.
#[derive(Debug)]
pub(crate) enum Work {
    /// It waits for others. Launched -> `Launching`.
    Held(Box<Held>),
    /// Somebody is enqueueing its encoder, or encodes it. Done -> `Encoding`, `Refused`, `Sealed`
    /// or `Failed`.
    Launching,
    /// The GPU encodes it. Done -> reported.
    Encoding(Encoding, Box<Encoded>),
    /// The host has encoded it, in the room. Its turn comes -> reported.
    Sealed(WriteGuard, Box<Sealed>),
    /// The GPU did not take it, for this reason. Its turn comes -> `Launching`, and the host
    /// encodes it.
    Refused(Box<Held>, DeviceError),
    /// It could not be encoded, for this reason and that of the host. Its turn comes -> reported.
    Failed(DeviceError, Option<String>),
}

impl Work {
    /// Gives it up. What the GPU may still write to is never lent again.
    pub(crate) fn forget(self) {
        if let Work::Encoding(encoding, _) = self {
            encoding.forget();
        }
    }

    /// The result, or `None` while there is none.
    pub(crate) fn try_result(&self) -> Option<Outcome> {
        match self {
            Work::Held(_) | Work::Launching | Work::Refused(..) => None,
            Work::Encoding(encoding, _) => encoding.try_result().map(|result| result.map(Some)),
            Work::Sealed(..) => Some(Ok(None)),
            Work::Failed(cause, _) => Some(Err(cause.clone().into())),
        }
    }
}

impl Handed {
    /// What has to be launched, if it is held.
    pub(crate) fn take_held(&mut self) -> Option<Taken> {
        let work = std::mem::replace(&mut self.work, Work::Launching);
        let Work::Held(held) = work else {
            self.work = work;
            return None;
        };
        Some(self.taken(*held))
    }

    /// What the host has to encode, if the GPU did not take it, and why it did not.
    pub(crate) fn take_refused(&mut self) -> Option<(Taken, DeviceError)> {
        let work = std::mem::replace(&mut self.work, Work::Launching);
        let Work::Refused(held, cause) = work else {
            self.work = work;
            return None;
        };
        Some((self.taken(*held), cause))
    }

    fn taken(&self, held: Held) -> Taken {
        Taken { request: self.request, offset: self.place.offset, held }
    }
}

impl SaveTicket {
    /// Leaves the rest to the thread that settles: the GPU encodes it now, or it is held.
    ///
    /// # Errors
    /// `Closed`, and those of [`Hub::hand`](crate::hub::Hub::hand); nothing was saved then.
    pub(crate) fn hand(&mut self, is_abandoned: bool) -> Result<(), Error> {
        let Some((work, launched)) = self.take_work() else { return Ok(()) };
        let is_held = matches!(work, Work::Held(_));
        let (place, hub) = (self.place, Arc::clone(&self.hub));
        let mut state = hub.state();
        if let Err(closed) = check_open(&state) {
            drop(state);
            work.forget();
            return Err(closed);
        }
        let handed = Handed {
            work,
            launched,
            request: self.request,
            checkpoint: self.checkpoint,
            place,
            most: self.frame.head().payload_bytes,
            version: self.frame.head().version,
            is_abandoned,
        };
        let is_full = hub.hand(&mut state, handed)?;
        let is_awaited = state.waiting() > 0;
        drop(state);
        if is_held && (is_full || is_awaited || self.launch == Launch::WithHeld) {
            hub.launch_held();
        }
        let outcome = if is_abandoned { "given up" } else { "done" };
        hub.span_of_call(Call::Save, &self.frame, (place.tier, self.began), outcome);
        Ok(())
    }

    /// What a GPU does, or will do, and where its end is known once it was launched.
    fn take_work(&mut self) -> Option<(Work, Launched)> {
        let (room, encoded) = (self.room.take()?, self.encoded.take()?);
        Some(match room {
            Room::Encoding(encoding) => {
                let last = encoding.parts().last().clone();
                (Work::Encoding(encoding, encoded), Arc::new(OnceLock::from(last)))
            }
            Room::Held(guard) => {
                let (chain, since) = (self.chain.take(), Instant::now());
                (
                    Work::Held(Box::new(Held { guard: Some(guard), encoded, chain, since })),
                    Launched::default(),
                )
            }
            Room::Arena(_) | Room::Staged(_) => return None,
        })
    }
}
