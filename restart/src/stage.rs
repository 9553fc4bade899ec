//! The spool in memory that takes checkpoints in where increments are wanted, and their way from
//! there into the durable spool of the folder: each in full, or as what has changed.
//!
//! Where the stage has a tier on a GPU, a checkpoint lies there, and what has changed of it is
//! found there: its hashes and changed chunks are all that comes, but for full ones. A checkpoint
//! for which that tier has no room moves on to main memory, and is looked through there.
//!
//! A checkpoint stays in the stage until its frame counts. What it is compared with is the last one
//! that does: one that could not be made durable has no children.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unspool::{Error, ErrorKind, RestoreTicket, Spool, Then, TierKind, Use, Wait};
use unspool_codec::increment::{Chunks, Draft, Drafted, least_bytes};
use unspool_codec::{CodecId, FrameError, Head, Region};

use crate::frames::discard;
use crate::increments::{Chain, Fulls, failures};
use crate::manifest::Increment;
use crate::worker::lock;

/// The stage of one Checkpointer.
#[derive(Debug)]
pub(crate) struct Stage {
    spool: Arc<Spool>,
    fulls: Fulls,
    mtbf: Duration,
    seed: u64,
    /// The bytes of main memory that it has.
    room: u64,
    /// Whether it has a tier on a GPU.
    on_gpu: bool,
    /// The checkpoints of which a GPU has found what has changed.
    hashed: AtomicU64,
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
        let on_gpu = tiers.iter().any(|tier| tier.kind == TierKind::Device);
        // What waits in main memory is not brought back to a GPU: it is read where it is.
        spool.hold_prefetch()?;
        let (hashed, state) = (AtomicU64::new(0), Mutex::default());
        Ok(Stage { spool, fulls, mtbf, seed, room, on_gpu, hashed, state })
    }

    pub(crate) fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// The checkpoint of `step` will be saved: it stays on a GPU until it counts, while there is
    /// room.
    ///
    /// # Errors
    /// Those of [`Spool::expect_uses`].
    pub(crate) fn expect(&self, step: u64) -> Result<(), Error> {
        let version = step as i64;
        let then = Then::Ends;
        if self.on_gpu { self.spool.expect_uses([Use { version, then }]) } else { Ok(()) }
    }

    /// The checkpoint that was expected does not come.
    pub(crate) fn expect_nothing(&self) {
        // Others that wait move on to main memory, as without having been expected.
        let _ = self.spool.forget_hints();
    }

    /// The checkpoints of which a GPU has found what has changed.
    pub(crate) fn hashed(&self) -> u64 {
        self.hashed.load(Ordering::Relaxed)
    }

    /// A checkpoint of so many bytes was saved.
    pub(crate) fn took(&self, bytes: u64) {
        lock(&self.state).bytes = bytes;
    }

    /// How many checkpoints such as the last one there may be at once.
    pub(crate) fn slots(&self) -> usize {
        // What an arena needs for itself is less than a sixteenth. They come and go in order, so
        // that one of two free places is in one piece.
        let bytes = lock(&self.state).bytes;
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
        let mut ticket = self.spool.restore(step as i64, wait)?;
        // Nobody waits for the lock while a checkpoint is looked through and written.
        let (last, anew) = {
            let state = lock(&self.state);
            (state.last.clone(), state.anew)
        };
        let (next, increment, frame) = self.drafted(&mut ticket, last.as_deref(), (step, begun))?;
        ticket.finish()?;
        into.adopt(&frame, wait)?;
        let mut state = lock(&self.state);
        state.next = Some(Arc::new(next)).filter(|_| state.anew == anew);
        Ok(increment)
    }

    /// What the checkpoint after it builds on, what it builds on itself, and its frame.
    fn drafted(
        &self,
        ticket: &mut RestoreTicket,
        last: Option<&Last>,
        (step, begun): (u64, Instant),
    ) -> Result<(Last, Option<Increment>, Vec<u8>), Error> {
        let head = Arc::clone(ticket.head());
        let most = last.map_or(0, |last| {
            let apart = begun.saturating_duration_since(last.begun);
            last.chain.room(self.fulls, failures(apart, self.mtbf))
        });
        let most = most.min(head.frame_bytes());
        let mut parent = last.filter(|_| most > 0);
        // What fails on a GPU is done on the host, or fails there for the same reason.
        let hashes = parent.and_then(|_| Hashes::of(ticket, self.seed).ok().flatten());
        let too_much =
            |last: &Last| hashes.as_ref().is_some_and(|found| found.least(&last.chunks) > most);
        parent = parent.filter(|last| !too_much(last));
        let draft = || Draft::new(&head, parent.map(|last| &last.chunks), self.seed, most);
        let found = hashes.as_ref().filter(|_| parent.is_some());
        let by_hashes = found.and_then(|hashes| hashes.drafted(ticket, draft()).ok());
        self.hashed.fetch_add(u64::from(by_hashes.is_some()), Ordering::Relaxed);
        let (drafted, whole) = match by_hashes {
            Some(drafted) => (drafted, None),
            None => by_bytes(ticket, draft(), parent.is_none())?,
        };
        let (chain, increment, frame) = match parent.zip(drafted.increment) {
            Some((parent, frame)) => {
                let bytes = frame.len() as u64;
                let increment = Increment { parent: parent.step, bytes };
                (parent.chain.and(bytes), Some(increment), frame)
            }
            None => {
                let mut frame = whole.map_or_else(|| unsummed(ticket), Ok)?;
                let front = head.encode(drafted.payload_sum);
                frame[..front.len()].copy_from_slice(&front);
                (Chain::of(head.frame_bytes()), None, frame)
            }
        };
        let next = Last { step, chunks: drafted.chunks, chain, begun };
        Ok((next, increment, frame))
    }

    /// The checkpoint of `step` counts: the next one may build on it, and it leaves the stage.
    pub(crate) fn count(&self, step: u64) {
        let mut state = lock(&self.state);
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
        let mut state = lock(&self.state);
        (state.last, state.next) = (None, None);
        state.anew += 1;
    }
}

/// The hashes of what lies in the memory of a GPU: of each region that is no stream of a codec.
struct Hashes {
    head: Arc<Head>,
    regions: Vec<Option<Vec<u128>>>,
}

impl Hashes {
    /// Those of a checkpoint; `None` where it is in main memory, or all of it are streams.
    fn of(ticket: &mut RestoreTicket, seed: u64) -> Result<Option<Hashes>, Error> {
        let head = Arc::clone(ticket.head());
        let is_plain = |index: &usize| head.regions[*index].codec == CodecId::Raw;
        let plain: Vec<usize> = (0..head.regions.len()).filter(is_plain).collect();
        let found = if plain.is_empty() { None } else { ticket.hash_chunks(&plain, seed)? };
        let Some(found) = found else { return Ok(None) };
        let mut regions = vec![None; head.regions.len()];
        plain.into_iter().zip(found).for_each(|(index, hashes)| regions[index] = Some(hashes));
        Ok(Some(Hashes { head, regions }))
    }

    /// The bytes that an increment has at least, by them.
    fn least(&self, since: &Chunks) -> u64 {
        let regions = self.head.regions.iter().zip(&self.regions);
        let changed = |(region, found): (_, &Option<Vec<_>>)| {
            found.as_ref().map_or(0, |hashes| since.changed(region, hashes))
        };
        least_bytes(&self.head, regions.map(changed).sum())
    }

    /// What has changed, of which alone the bytes are fetched; of streams all of them.
    fn drafted(&self, ticket: &mut RestoreTicket, mut draft: Draft<'_>) -> Result<Drafted, Error> {
        for (index, hashes) in self.regions.iter().enumerate() {
            match hashes {
                Some(hashes) => {
                    draft.look_hashed(hashes, |places, to| ticket.read_parts(index, places, to))?
                }
                None => ticket.read_stored(index, |stored| draft.look(stored))?,
            }
        }
        draft.finish().map_err(wrong)
    }
}

/// What has changed by all bytes, and, where those are needed in any case, the frame of them but
/// for its head.
fn by_bytes(
    ticket: &mut RestoreTicket,
    mut draft: Draft<'_>,
    in_full: bool,
) -> Result<(Drafted, Option<Vec<u8>>), Error> {
    let head = Arc::clone(ticket.head());
    // From a GPU they come once.
    let whole = in_full.then(|| unsummed(ticket)).transpose()?;
    for (index, region) in head.regions.iter().enumerate() {
        match &whole {
            Some(frame) => draft.look(&frame[place(&head, region)]),
            None => ticket.read_stored(index, |stored| draft.look(stored))?,
        }
    }
    Ok((draft.finish().map_err(wrong)?, whole))
}

/// The whole frame of a checkpoint, but for its head.
fn unsummed(ticket: &mut RestoreTicket) -> Result<Vec<u8>, Error> {
    let head = Arc::clone(ticket.head());
    let mut frame = Vec::new();
    let bytes = head.frame_bytes();
    if usize::try_from(bytes).is_ok_and(|bytes| frame.try_reserve_exact(bytes).is_err()) {
        let message = format!("There is no memory for the {bytes} bytes of a full checkpoint.");
        return Err(Error::new(ErrorKind::Full, message));
    }
    for (index, region) in head.regions.iter().enumerate() {
        frame.resize(place(&head, region).start, 0);
        ticket.append_stored(index, &mut frame)?;
    }
    frame.resize(bytes as usize, 0);
    Ok(frame)
}

/// Where the stored bytes of a region are in a frame.
fn place(head: &Head, region: &Region) -> Range<usize> {
    let begin = (head.encoded_len() + region.offset) as usize;
    begin..begin + region.stored as usize
}

fn wrong(cause: FrameError) -> Error {
    Error::new(ErrorKind::Invalid, cause.to_string()).caused_by(cause)
}
