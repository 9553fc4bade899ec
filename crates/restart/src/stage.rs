//! The spool in memory that takes checkpoints in where increments are wanted, and their way from
//! there into the durable spool of the folder: each in full, or as what has changed.
//!
//! A checkpoint stays in the stage until its frame counts. What it is compared with is the last one
//! that does: one that could not be made durable has no children.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unspool::{Error, ErrorKind, RestoreTicket, Spool, TierKind, Wait};
use unspool_codec::increment::{Chunks, Draft};

use crate::committer::discard;
use crate::increments::{Chain, Fulls, failures};
use crate::manifest::Increment;

/// The stage of one Checkpointer.
#[derive(Debug)]
pub(crate) struct Stage {
    spool: Arc<Spool>,
    fulls: Fulls,
    mtbf: Duration,
    seed: u64,
    /// The bytes of main memory that it has.
    room: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last checkpoint that counts, if the next one may build on it.
    last: Option<Arc<Last>>,
    /// One whose frame is in the durable spool, and does not count yet.
    next: Option<Arc<Last>>,
    /// How often chains had to begin anew.
    anew: u64,
    /// The bytes of the last checkpoint that was saved.
    bytes: u64,
}

/// A checkpoint that others may build on.
#[derive(Debug)]
struct Last {
    step: u64,
    chunks: Chunks,
    chain: Chain,
    begun: Instant,
}

impl Stage {
    /// What is saved into `spool` comes out in full as often as `fulls` says.
    ///
    /// # Errors
    /// `Invalid` when it has no host tier, where checkpoints are compared.
    pub(crate) fn of(
        spool: Arc<Spool>,
        fulls: Fulls,
        mtbf: Duration,
        seed: u64,
    ) -> Result<Stage, Error> {
        let tiers = spool.stats()?.tiers;
        let host = tiers.iter().find(|tier| tier.kind == TierKind::Host);
        let room = host.map(|tier| tier.capacity).ok_or_else(|| {
            let message = "Increments need a host tier, where checkpoints are compared: give \
                           `host` a size that has room for three of them.";
            Error::new(ErrorKind::Invalid, message)
        })?;
        Ok(Stage { spool, fulls, mtbf, seed, room, state: Mutex::default() })
    }

    pub(crate) fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// A checkpoint of so many bytes was saved.
    pub(crate) fn took(&self, bytes: u64) {
        self.state().bytes = bytes;
    }

    /// How many checkpoints such as the last one there may be at once.
    pub(crate) fn slots(&self) -> usize {
        // What an arena needs for itself is less than a sixteenth. They come and go in order, so
        // that one of two free places is in one piece.
        let bytes = self.state().bytes;
        let fit = self.room / (bytes + bytes / 16 + 4096);
        fit.saturating_sub(1).max(1) as usize
    }

    /// Puts the checkpoint of `step`, which was begun at that time, into the durable spool. What it
    /// builds on is returned; nothing is durable yet.
    ///
    /// # Errors
    /// Those of [`Spool::restore`] and [`Spool::save`].
    pub(crate) fn take(
        &self,
        into: &Spool,
        (step, begun): (u64, Instant),
        wait: &Wait<'_>,
    ) -> Result<Option<Increment>, Error> {
        // What an earlier try has left.
        discard(into, |one| one == step)?;
        let ticket = self.spool.restore(step as i64, wait)?;
        // Nobody waits for the lock while a checkpoint is looked through and written.
        let (last, anew) = {
            let state = self.state();
            (state.last.clone(), state.anew)
        };
        let (next, increment, frame) = self.drafted(&ticket, last.as_deref(), (step, begun))?;
        ticket.finish()?;
        into.adopt(&frame, wait)?;
        let mut state = self.state();
        state.next = Some(Arc::new(next)).filter(|_| state.anew == anew);
        Ok(increment)
    }

    /// What the checkpoint after it builds on, what it builds on itself, and its frame.
    fn drafted(
        &self,
        ticket: &RestoreTicket,
        last: Option<&Last>,
        (step, begun): (u64, Instant),
    ) -> Result<(Last, Option<Increment>, Vec<u8>), Error> {
        let head = ticket.head();
        let most = last.map_or(0, |last| {
            let apart = begun.saturating_duration_since(last.begun);
            last.chain.room(self.fulls, failures(apart, self.mtbf))
        });
        let most = most.min(head.frame_bytes());
        let parent = last.filter(|_| most > 0);
        let mut draft = Draft::new(head, parent.map(|last| &last.chunks), self.seed);
        for index in 0..head.regions.len() {
            ticket.read_stored(index, |stored| draft.look(stored))?;
        }
        let wrong = |cause| Error::new(ErrorKind::Invalid, format!("{cause}"));
        let drafted = draft.finish(most).map_err(wrong)?;
        let (chain, increment, frame) = match parent.zip(drafted.increment) {
            Some((parent, mut changed)) => {
                for index in 0..head.regions.len() {
                    ticket.read_stored(index, |stored| changed.take(stored))?;
                }
                let frame = changed.into_frame();
                let bytes = frame.len() as u64;
                let increment = Increment { parent: parent.step, bytes };
                (parent.chain.and(bytes), Some(increment), frame)
            }
            None => (Chain::of(head.frame_bytes()), None, full(ticket, drafted.payload_sum)?),
        };
        let next = Last { step, chunks: drafted.chunks, chain, begun };
        Ok((next, increment, frame))
    }

    /// The checkpoint of `step` counts: the next one may build on it, and it leaves the stage.
    pub(crate) fn count(&self, step: u64) {
        let mut state = self.state();
        if let Some(next) = state.next.take_if(|next| next.step == step) {
            state.last = Some(next);
        }
        drop(state);
        self.forget(step);
    }

    /// The checkpoint of `step` leaves the stage.
    pub(crate) fn forget(&self, step: u64) {
        // It is not there as a rule, or the stage is closed.
        let _ = self.spool.discard(step as i64);
    }

    /// The next checkpoint is stored in full: what it would build on may be gone.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.state();
        (state.last, state.next) = (None, None);
        state.anew += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The whole frame of a checkpoint.
fn full(ticket: &RestoreTicket, payload_sum: u64) -> Result<Vec<u8>, Error> {
    let head = ticket.head();
    let mut frame = Vec::new();
    let bytes = head.frame_bytes();
    if usize::try_from(bytes).is_ok_and(|bytes| frame.try_reserve_exact(bytes).is_err()) {
        let message = format!("There is no memory for the {bytes} bytes of a full checkpoint.");
        return Err(Error::new(ErrorKind::Full, message));
    }
    frame.extend(head.encode(payload_sum));
    let begin = frame.len();
    for (index, region) in head.regions.iter().enumerate() {
        frame.resize(begin + region.offset as usize, 0);
        ticket.read_stored(index, |stored| frame.extend_from_slice(stored))?;
    }
    Ok(frame)
}
