//! The end of a call that saves what a GPU encodes: the completion thread waits for the encoder.

use std::sync::Arc;

use unspool_core::{CheckpointId, Place, RequestId};
use unspool_gpu_codec::EncodeError;

use super::{Room, SaveTicket};
use crate::coding::{Chain, Encoded, Encoding, Launched, Placed};
use crate::error::Error;
use crate::hub::{Hub, check_open};
use crate::state::State;
use crate::tally::Call;

/// The result of an encoder on a GPU: where the checkpoint lies, or why there is none.
pub(crate) type Outcome = Result<Placed, EncodeError>;

/// A save whose call has returned while a GPU encodes it.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) encoding: Encoding,
    pub(crate) encoded: Box<Encoded>,
    /// Its end on the device.
    pub(crate) launched: Launched,
    pub(crate) request: RequestId,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) place: Place,
    /// Bytes of its room.
    pub(crate) most: u64,
    pub(crate) version: i64,
    /// Its ticket was dropped: nothing is saved, and only its memory is waited for.
    pub(crate) is_abandoned: bool,
}

impl SaveTicket {
    /// Leaves the encoder that is under way to the completion thread.
    ///
    /// # Errors
    /// `Closed`, and `Io` when there is no thread; nothing was saved then.
    pub(crate) fn hand_over(&mut self, is_abandoned: bool) -> Result<(), Error> {
        let Some(save) = self.in_flight(is_abandoned) else { return Ok(()) };
        hand_over_all(&Arc::clone(&self.hub), vec![save])?;
        self.end_span(if is_abandoned { "given up" } else { "done" });
        Ok(())
    }

    /// Takes out the encoder that is under way, if there is one.
    pub(super) fn in_flight(&mut self, is_abandoned: bool) -> Option<InFlight> {
        let encoding = match self.room.take()? {
            Room::Encoding(encoding) => encoding,
            other => {
                self.room = Some(other);
                return None;
            }
        };
        Some(InFlight {
            encoding,
            encoded: self.encoded.take()?,
            launched: Arc::clone(&self.launched),
            request: self.request,
            checkpoint: self.checkpoint,
            place: self.place,
            most: self.frame.head().payload_bytes,
            version: self.version(),
            is_abandoned,
        })
    }

    /// Where its encoder may place it after that of a save whose room ends where its own begins, and
    /// which is not reported yet. `state` is the lock under which its room was granted.
    pub(super) fn chain_to<'a>(
        &mut self,
        state: &State,
        mut earlier: impl Iterator<Item = &'a SaveTicket>,
    ) {
        let tier = &state.brain.core().config().tiers[usize::from(self.place.tier.0)];
        let is_before = |other: &&SaveTicket| {
            let most = other.frame.head().payload_bytes.next_multiple_of(tier.alignment);
            other.place.tier == self.place.tier && other.place.offset + most == self.place.offset
        };
        if let Some(before) = earlier.find(is_before).filter(|_| self.encoded.is_some()) {
            let behind = Arc::clone(&before.launched);
            let (request, alignment) = (before.request, tier.alignment);
            self.chain = Some(Chain { behind, request, alignment });
        }
    }

    /// Puts the call on the timeline.
    pub(super) fn end_span(&self, outcome: &'static str) {
        self.hub.span_of_call(Call::Save, &self.frame, (self.place.tier, self.began), outcome);
    }
}

/// Leaves saves to the completion thread, all under one lock.
///
/// # Errors
/// As [`SaveTicket::hand_over`]; none of them was saved then.
pub(super) fn hand_over_all(hub: &Arc<Hub>, saves: Vec<InFlight>) -> Result<(), Error> {
    let mut state = hub.state();
    if let Err(closed) = check_open(&state) {
        drop(state);
        saves.into_iter().for_each(|save| save.encoding.forget());
        return Err(closed);
    }
    saves.into_iter().try_for_each(|save| hub.take_over(&mut state, save))
}
