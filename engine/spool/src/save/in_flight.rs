//! The end of a call that saves what a GPU encodes: the completion thread waits for the encoder.

use std::sync::Arc;

use super::SaveTicket;
use super::state::{Grant, Granted, SaveState};
use crate::coding::{Encoded, Encoding, Predecessor};
use crate::error::Error;
use crate::runtime::completion::InFlight;
use crate::runtime::shared::{Shared, check_open};
use crate::runtime::state::State;

impl SaveTicket {
    /// Leaves the encoder that is under way to the completion thread.
    ///
    /// # Errors
    /// `Closed`, and `Io` when there is no thread; nothing was saved then.
    pub(super) fn leave_to_completion(&mut self, is_abandoned: bool) -> Result<(), Error> {
        let Some((encoding, encoded)) = self.take_in_flight() else { return Ok(()) };
        self.grant.leave_to_completion(encoding, encoded, is_abandoned)
    }

    /// Takes out the encoder that is under way, if there is one: the ticket is over.
    fn take_in_flight(&mut self) -> Option<(Encoding, Box<Encoded>)> {
        match std::mem::replace(&mut self.state, SaveState::Over) {
            SaveState::InFlight { encoding, encoded } => Some((encoding, encoded)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Takes it out as the completion thread wants it.
    pub(super) fn in_flight(&mut self) -> Option<InFlight> {
        let (encoding, encoded) = self.take_in_flight()?;
        Some(self.grant.in_flight(encoding, encoded, false))
    }
}

impl Grant {
    fn in_flight(&self, encoding: Encoding, encoded: Box<Encoded>, is_abandoned: bool) -> InFlight {
        InFlight {
            encoding,
            encoded,
            launched: Arc::clone(&self.launched),
            request: self.request,
            checkpoint: self.checkpoint,
            place: self.place,
            most: self.frame.head().payload_bytes,
            version: self.version(),
            is_abandoned,
        }
    }

    /// Leaves an encoder that is under way to the completion thread.
    ///
    /// # Errors
    /// As [`SaveTicket::leave_to_completion`].
    pub(super) fn leave_to_completion(
        &self,
        encoding: Encoding,
        encoded: Box<Encoded>,
        is_abandoned: bool,
    ) -> Result<(), Error> {
        let save = self.in_flight(encoding, encoded, is_abandoned);
        leave_all_to_completion(&self.shared, vec![save])?;
        self.end_span(if is_abandoned { "given up" } else { "done" });
        Ok(())
    }
}

impl Granted {
    /// Lets its encoder place it after that of a save whose room ends where its own begins, and
    /// which is not reported yet. `state` is the lock under which its room was granted.
    pub(super) fn follow_one_of<'a>(
        &mut self,
        state: &State,
        mut earlier: impl Iterator<Item = &'a Granted>,
    ) {
        let Some((_, after)) = &mut self.coded else { return };
        let place = self.grant.place;
        let tier = &state.driver.core().config().tiers[usize::from(place.tier.0)];
        let is_before = |other: &&Granted| {
            let other = &other.grant;
            let most = other.frame.head().payload_bytes.next_multiple_of(tier.alignment);
            other.place.tier == place.tier && other.place.offset + most == place.offset
        };
        if let Some(before) = earlier.find(is_before) {
            let end = Arc::clone(&before.grant.launched);
            let (request, alignment) = (before.grant.request, tier.alignment);
            *after = Some(Predecessor { end, request, alignment });
        }
    }
}

/// Leaves saves to the completion thread, all under one lock.
///
/// # Errors
/// As [`SaveTicket::leave_to_completion`]; none of them was saved then.
pub(super) fn leave_all_to_completion(
    shared: &Arc<Shared>,
    saves: Vec<InFlight>,
) -> Result<(), Error> {
    let mut state = shared.state();
    if let Err(closed) = check_open(&state) {
        drop(state);
        saves.into_iter().for_each(|save| save.encoding.forget());
        return Err(closed);
    }
    saves.into_iter().try_for_each(|save| shared.complete_later(&mut state, save))
}
