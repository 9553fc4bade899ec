//! The end of a save: it is reported, left to the completion thread, or given up.

use std::sync::Arc;

use unspool_core::{Event, Kept};
use unspool_tiers::WriteGuard;
use unspool_transfer::{TransferError, write_frame};

use super::SaveTicket;
use super::ticket::SaveState;
use crate::coding::{Encoding, Room};
use crate::error::Error;
use crate::gpu::{InPlace, Leave, drop_when_idle};
use crate::runtime::completion::InFlight;
use crate::runtime::counters::Call;
use crate::runtime::reasons;
use crate::runtime::shared::{Shared, check_open};
use crate::runtime::state::{Grant, State};

impl SaveTicket {
    /// The checkpoint is complete: from now on it can be restored.
    ///
    /// # Errors
    /// `Io` or `Full` when it had to be written to a store at once and that failed; `Closed` when
    /// the spool was closed meanwhile. Nothing was saved then.
    pub fn commit(mut self) -> Result<(), Error> {
        self.complete()?;
        let shared = Arc::clone(&self.shared);
        let reported = self.report(&mut shared.state());
        self.ended(reported)
    }

    /// Encodes what is not encoded yet, and writes what has no arena.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit) and of the codecs, and `BoundViolated` when the settings
    /// ask for a check.
    fn complete(&mut self) -> Result<(), Error> {
        self.shared.check_process()?;
        self.launch_rest()?;
        self.shared.count_kernels(Call::Save, self.version());
        self.check_passed()?;
        self.seal()?;
        let bytes = self.head().payload_bytes as usize;
        match self.state.room() {
            Some(Room::Staged(buffer)) => write(&self.shared, &self.grant, &buffer[..bytes]),
            _ => Ok(()),
        }
    }

    /// Encodes the rest on the host: from now on the checkpoint has its true size.
    fn seal(&mut self) -> Result<(), Error> {
        let SaveState::Coded { room, coded: (encoded, _) } = &mut self.state else {
            return Ok(());
        };
        let sealed = encoded.seal(room)?;
        self.grant.frame = Arc::clone(&sealed.frame);
        if let SaveState::Coded { room, .. } = self.state.take() {
            self.state = SaveState::Sealed { room, sealed };
        }
        Ok(())
    }

    /// Reports a checkpoint whose bytes are all in place, or will be before the fences of its room,
    /// or leaves its encoder to the completion thread. `state` is the lock of the spool.
    ///
    /// # Errors
    /// `Closed`, and `Io` when no thread can be started. Neither saves the checkpoint.
    pub(super) fn report(&mut self, state: &mut State) -> Result<(), Error> {
        check_open(state)?;
        let (room, sealed) = match self.state.take() {
            SaveState::Plain { room, .. } => (room, None),
            SaveState::Sealed { room, sealed } => (room, Some(sealed)),
            SaveState::InFlight(encoding) => {
                let save = self.in_flight(encoding, false);
                return self.shared.complete_later(state, save);
            }
            _ => unreachable!("a save is complete when it is reported"),
        };
        let kept = sealed.as_ref().map(|sealed| sealed.kept(self.grant.place.offset));
        if let Room::Arena(guard) = room
            && let Err(cause) = complete(guard, kept)
        {
            // Without its room; dropped, it is given up.
            self.state = SaveState::Granted { coded: None };
            return Err(reasons::direct_failed("saved", self.version(), cause));
        }
        if let Some(sealed) = sealed {
            state.sealed(self.grant.checkpoint, sealed);
        }
        self.shared.feed(state, Event::Saved { request: self.grant.request, kept });
        Ok(())
    }

    /// Ends a save that was `reported`, with no lock held.
    ///
    /// # Errors
    /// That of the report.
    pub(super) fn ended(&mut self, reported: Result<(), Error>) -> Result<(), Error> {
        match reported {
            Ok(()) => self.end_span("done"),
            Err(_) => self.unwrite(),
        }
        reported
    }

    /// Takes back what was written to a store, so that no later opener finds it.
    fn unwrite(&mut self) {
        if matches!(self.state.room(), Some(Room::Staged(_))) {
            // The store may be closed by now, and an ephemeral one has nothing left to delete.
            let store = self.shared.tier(self.grant.place.tier);
            let _ = store.delete(self.grant.checkpoint);
        }
    }

    /// An encoder that is under way, as the completion thread wants it.
    fn in_flight(&self, encoding: Encoding, is_abandoned: bool) -> InFlight {
        InFlight { encoding, grant: self.grant.clone(), is_abandoned }
    }

    /// Gives the save up, in whatever state it is.
    pub(super) fn give_up(&mut self) {
        match self.state.take() {
            SaveState::Over | SaveState::Violated => {}
            SaveState::Granted { .. } => self.abort(),
            SaveState::InFlight(encoding) => self.abandon(encoding),
            SaveState::Plain { room, .. }
            | SaveState::Coded { room, .. }
            | SaveState::Sealed { room, .. } => {
                drop(room);
                self.abort();
                self.end_span("given up");
            }
        }
    }

    /// Reports that nothing was saved.
    fn abort(&self) {
        self.shared.finds_device_lost();
        self.shared.give_up_save(&mut self.shared.state(), &self.grant);
    }

    /// The memory of an encoder that is under way is free when that is done. Nobody is there to
    /// hear of an error.
    fn abandon(&self, encoding: Encoding) {
        let mut state = self.shared.state();
        if check_open(&state).is_err() {
            drop(state);
            return encoding.forget();
        }
        let left = self.shared.complete_later(&mut state, self.in_flight(encoding, true));
        drop(state);
        if left.is_ok() {
            self.end_span("given up");
        }
    }

    /// Puts the call on the timeline.
    fn end_span(&self, outcome: &'static str) {
        let begin = (self.grant.place.tier, self.grant.began);
        self.shared.span_of_call(Call::Save, &self.grant.frame, begin, outcome);
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
        if self.shared.is_forked() {
            // The locks that its end takes may be held for ever in this process.
            return std::mem::forget(self.state.take());
        }
        match &mut self.state {
            SaveState::Plain { room, used: used @ InPlace::Yes }
                if let Some(context) = room.gpu().map(|gpu| gpu.context().clone()) =>
            {
                *used = InPlace::Leaving;
                let (shared, grant) = (Arc::clone(&self.shared), self.grant.clone());
                let ticket = SaveTicket { shared, grant, state: self.state.take() };
                drop_when_idle(context, ticket);
            }
            SaveState::Plain { room: Room::Arena(guard), used: InPlace::Leaving } => {
                guard.stick();
                self.give_up();
            }
            _ => self.give_up(),
        }
    }
}

/// Writes a checkpoint to the store that was granted. The application waits meanwhile.
fn write(shared: &Shared, grant: &Grant, payload: &[u8]) -> Result<(), Error> {
    let (tier, version) = (grant.place.tier, grant.version());
    let (store, start) = (shared.tier(tier), shared.clock.now());
    let outer = shared.settings.disk.as_ref().and_then(|disk| disk.compress);
    let written =
        write_frame(store, grant.checkpoint, &grant.frame, payload, outer, &shared.buffers);
    let took = shared.clock.now().since(start);
    let awaited = || "its direct write to a store, because no arena had room".to_owned();
    shared.state().counters.stalled(Call::Save, version, took, awaited);
    shared.span_of_stall(&grant.frame, tier, took);
    written.map_err(|cause| shared.direct_failed("saved", version, cause))
}

/// The entry of `guard` can be read from now on: all of it, or the part that is kept.
fn complete(guard: WriteGuard, kept: Option<Kept>) -> Result<(), TransferError> {
    match kept {
        None => guard.commit(),
        Some(kept) => guard.commit_at(kept.offset, kept.bytes)?,
    }
    Ok(())
}
