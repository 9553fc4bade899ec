//! The spool: one history with its tiers and workers.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use unspool_codec::{Head, RegionSpec};
use unspool_core::{CheckpointId, Event, Then, TierId, TierKind, Version};
use unspool_tiers::{AnyTier, Arena};
use unspool_transfer::sync::{MutexGuard, lock};

use crate::close::{self, Unflushed};
use crate::coding::{Codecs, RegionCoding, codings};
use crate::error::{Error, ErrorKind};
use crate::gpu::{DeviceArray, GivenArray, Gpu};
use crate::restore::{RestoreTicket, StoredFrame};
use crate::runtime::deferred;
use crate::runtime::memory;
use crate::runtime::shared::{Shared, check_open};
use crate::runtime::stack::check_writable;
use crate::runtime::state::State;
use crate::runtime::timeline::write_chrome;
use crate::runtime::waiting::{Asked, Until};
use crate::save::{Checkpoint, Prepared, SaveTicket};
use crate::settings::Settings;
use crate::wait::Wait;
use crate::{durability, recover};

/// Hints are taken in pieces of this many, so that other calls get their turn in between.
const HINTS_AT_ONCE: usize = 1024;

/// One entry of the restore order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Use {
    /// The checkpoint that will be restored.
    pub version: i64,
    /// What becomes of it after that restore, where no other one is announced.
    pub then: Then,
}

/// The last entry of every version says what becomes of it.
pub fn mark_final_uses(uses: &mut [Use], then: Then) {
    let mut later = HashSet::new();
    for entry in uses.iter_mut().rev().filter(|entry| later.insert(entry.version)) {
        entry.then = then;
    }
}

/// One history of checkpoints with its tiers and workers.
///
/// All methods take `&self` and may be called from several threads at once. Dropping it closes
/// it; in a forked child everything is an error and dropping it does nothing.
pub struct Spool {
    shared: Arc<Shared>,
}

impl Spool {
    /// Opens a spool. A durable disk tier brings back what an earlier run left in its directory; a
    /// frame there that is damaged or missing is left out and named in [`stats`](Self::stats),
    /// among the notes of the application.
    ///
    /// # Errors
    /// `Invalid` when the settings make no sense, `Io` when a tier cannot be made.
    pub fn open(settings: Settings) -> Result<Spool, Error> {
        Spool::on(Shared::open(settings)?)
    }

    /// A spool on a new shared.
    pub(crate) fn on(shared: Arc<Shared>) -> Result<Spool, Error> {
        let spool = Spool { shared };
        recover::recover(&spool.shared)?;
        Ok(spool)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The GPU under its tiers; `None` when they are in main memory.
    #[must_use]
    pub fn gpu(&self) -> Option<&Gpu> {
        self.shared.gpu.as_ref()
    }

    /// The GPU `ordinal`, for arrays on it: that of the spool, or another one for a spool that has
    /// none.
    ///
    /// # Errors
    /// `WrongDevice` when the spool is on another one, `NoDevice` when there is no such device.
    pub fn gpu_of(&self, ordinal: u32) -> Result<Gpu, Error> {
        self.shared.gpu_of(ordinal)
    }

    /// Waits until there is room for a checkpoint of these regions, and lends that room. Its
    /// regions are encoded as the settings say.
    ///
    /// # Errors
    /// `Duplicate`, `NotYetSaved` (another call is saving this version), `TooLarge`, `Full`,
    /// `Timeout`, `Interrupted`, `ReadOnly`, `Closed`, `Forked`, and `Invalid` when the regions
    /// make no sense.
    pub fn save(
        &self,
        version: i64,
        regions: Vec<RegionSpec>,
        wait: &Wait<'_>,
    ) -> Result<SaveTicket, Error> {
        self.save_as(version, regions, self.codecs(), wait)
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
        crate::save::save(self.shared(), version, regions, codecs, wait)
    }

    /// The codecs of the settings.
    #[must_use]
    pub fn codecs(&self) -> &Codecs {
        &self.shared.settings.codec
    }

    /// Whether each encoded checkpoint is decoded and compared as it is saved.
    #[must_use]
    pub fn checks_codecs(&self) -> bool {
        self.shared.settings.check_codec
    }

    /// Whether the memory of `array` can be its copy in the device tier, as
    /// [`save_given`](Self::save_given) has it: a dense array on the GPU of that tier, which
    /// `codecs`, or else those of the settings, keep as it is.
    #[must_use]
    pub fn takes(&self, array: &DeviceArray, codecs: Option<&Codecs>) -> bool {
        crate::save::takes(&self.shared, array, codecs.unwrap_or_else(|| self.codecs()))
    }

    /// Saves one array that the spool [`takes`](Self::takes), and whose memory is `given`: no copy
    /// within the device is made. The array counts as its copy would, and is read where it lies.
    /// When nothing needs the copy there any more, the array is let go of in the order of its
    /// stream, by a call of the spool. Where the device tier cannot have it, it is copied elsewhere
    /// at once.
    ///
    /// # Errors
    /// Those of [`save`](Self::save) and [`SaveTicket::put`]; `Invalid` also when the sizes of
    /// array and region differ.
    pub fn save_given(
        &self,
        version: i64,
        region: RegionSpec,
        given: (&DeviceArray, GivenArray),
        wait: &Wait<'_>,
    ) -> Result<(), Error> {
        crate::save::save_given(self.shared(), version, region, given, wait)
    }

    /// A checkpoint for [`save_many`](Self::save_many), encoded as the settings say. Nothing is
    /// saved yet.
    ///
    /// # Errors
    /// `Invalid` when the regions make no sense, `ReadOnly`, `Forked`.
    pub fn checkpoint<'a>(
        &self,
        version: i64,
        regions: Vec<RegionSpec>,
    ) -> Result<Checkpoint<'a>, Error> {
        self.checkpoint_as(version, regions, self.codecs())
    }

    /// As [`checkpoint`](Self::checkpoint), with these codecs.
    ///
    /// # Errors
    /// Those of `checkpoint`; `Invalid` also when a codec cannot take its region.
    pub fn checkpoint_as<'a>(
        &self,
        version: i64,
        regions: Vec<RegionSpec>,
        codecs: &Codecs,
    ) -> Result<Checkpoint<'a>, Error> {
        Ok(Checkpoint::of(Arc::new(Prepared::of(self.shared(), version, regions, codecs)?)))
    }

    /// Saves several checkpoints, in their order: arrays of a GPU are encoded by one launch where
    /// one encoder takes them, so that many small checkpoints cost little more than one.
    ///
    /// Those that are saved are taken out of `checkpoints`. Each one is saved as a whole or not at
    /// all; one that is not stays in `checkpoints` and can be tried again. After one for which
    /// there is no room now, those that follow are not tried. The arrays may be changed by what is
    /// enqueued on their streams later. Where the tier of the GPU has room for few encoded
    /// checkpoints of the largest size, the call waits until the GPU has encoded them.
    ///
    /// # Errors
    /// Those of [`save`](Self::save) and [`SaveTicket::put`]: that of the first checkpoint
    /// which was not saved. [`Error::unsaved`] names all that were not. A failure of an earlier
    /// save that is reported first leaves all of them as they are, and `unsaved` is empty then.
    pub fn save_many(
        &self,
        checkpoints: &mut Vec<Checkpoint<'_>>,
        wait: &Wait<'_>,
    ) -> Result<(), Error> {
        crate::save::save_many(self.shared(), checkpoints, wait)
    }

    /// Waits for the bytes of a checkpoint and lends them.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Io`, `Corrupt`, `Lost`, `Timeout`, `Interrupted`,
    /// `Closed`, `Forked`.
    pub fn restore(&self, version: i64, wait: &Wait<'_>) -> Result<RestoreTicket, Error> {
        memory::check()?;
        crate::restore::restore(self.shared(), version, wait)
    }

    /// The bytes of a durable checkpoint as they are stored, for a copy of it elsewhere.
    ///
    /// # Errors
    /// `Unknown` when there is no such version, or the spool has no durable tier; `Forked`,
    /// `Closed`. A version that the tier does not have yet is an error when its bytes are read.
    pub fn stored(&self, version: i64) -> Result<StoredFrame, Error> {
        StoredFrame::of(&self.shared, version)
    }

    /// Saves a checkpoint that is encoded already: `frame` has the bytes that
    /// [`stored`](Self::stored) gave, of this version or of another spool. Returns its version.
    ///
    /// # Errors
    /// `Corrupt` when they are not a whole frame; those of [`save`](Self::save).
    pub fn adopt(&self, frame: &[u8], wait: &Wait<'_>) -> Result<i64, Error> {
        memory::check_for_save(&self.shared)?;
        crate::save::adopt(&self.shared, frame, wait)
    }

    /// The regions of a saved checkpoint, without any I/O.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Forked`, `Closed`.
    pub fn regions(&self, version: i64) -> Result<Arc<Head>, Error> {
        let (state, id) = self.find(version)?;
        let head = state.frames.frame(id).map(|frame| Arc::clone(frame.head()));
        head.ok_or_else(|| unreachable!("a saved checkpoint is in the frame index"))
    }

    /// What became of the regions of a saved checkpoint: their codecs, sizes and errors. Known for
    /// as long as the version is; the errors of frames of an earlier run are not. Waits for what a
    /// GPU still encodes, at most as long as the settings let a call wait.
    ///
    /// # Errors
    /// Those of [`regions`](Self::regions), and `Timeout`.
    pub fn achieved(&self, version: i64) -> Result<Vec<RegionCoding>, Error> {
        self.shared.check_process()?;
        let timeout = self.shared.settings.timeout;
        let pending = self.shared.drain(timeout);
        if !pending.is_empty() {
            return Err(deferred::late(&pending, timeout));
        }
        let (state, id) = self.find(version)?;
        let frame = state.frames.frame(id).map(Arc::clone);
        let frame =
            frame.unwrap_or_else(|| unreachable!("a saved checkpoint is in the frame index"));
        Ok(codings(frame.head(), Some(state.frames.achieved(id))))
    }

    /// The checkpoint that is saved under `version`, with the lock held.
    fn find(&self, version: i64) -> Result<(MutexGuard<'_, State>, CheckpointId), Error> {
        self.find_in(self.shared.enter()?, version)
    }

    fn find_in<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        version: i64,
    ) -> Result<(MutexGuard<'a, State>, CheckpointId), Error> {
        if let Some(id) = state.driver.core().checkpoint(Version(version)) {
            return Ok((state, id));
        }
        // The core refuses this restore at once, and knows why.
        let asked = Asked::Restore { version: Version(version) };
        match self.shared.ask(state, asked, &Wait::default(), Until::Closing) {
            Err(refused) => Err(refused),
            Ok(_) => unreachable!("the core serves only what is saved"),
        }
    }

    /// Adds entries to the end of the restore order.
    ///
    /// # Errors
    /// `Full` when there is no memory for more of them; those before are there then. `Closed`,
    /// `Forked`.
    pub fn expect(&self, versions: impl IntoIterator<Item = i64>) -> Result<(), Error> {
        self.expect_uses(versions.into_iter().map(|version| Use { version, then: Then::Stays }))
    }

    /// Adds versions to the end of the restore order, each of which is discarded when the last
    /// restore of it that is named here is done. Until the first restore, nothing is brought back
    /// while one of them is not saved: the forward pass needs the room.
    ///
    /// # Errors
    /// Those of [`expect`](Self::expect).
    pub fn expect_once(&self, versions: &[i64]) -> Result<(), Error> {
        let mut uses: Vec<Use> =
            versions.iter().map(|&version| Use { version, then: Then::Stays }).collect();
        mark_final_uses(&mut uses, Then::Goes);
        self.expect_uses(uses)
    }

    /// Adds entries to the end of the restore order, each with what becomes of its version then.
    /// Where the caller discards it, its bytes are not moved to slower tiers while they need not
    /// be. Advice: nothing is lost when that discard does not come.
    ///
    /// # Errors
    /// Those of [`expect`](Self::expect).
    pub fn expect_uses(&self, uses: impl IntoIterator<Item = Use>) -> Result<(), Error> {
        self.shared.check_process()?;
        let mut uses = uses.into_iter();
        loop {
            // The iterator is the caller's code: it runs without the lock.
            let piece: Vec<Use> = uses.by_ref().take(HINTS_AT_ONCE).collect();
            let mut state = self.shared.enter()?;
            memory::check_for_hints(&state)?;
            for Use { version, then } in &piece {
                let version = Version(*version);
                let hint = match then {
                    Then::Stays => Event::Expect { version },
                    Then::Ends => Event::ExpectLast { version },
                    Then::Goes => Event::ExpectOnce { version },
                };
                self.shared.feed(&mut state, hint);
            }
            if piece.len() < HINTS_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Forgets the whole restore order.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn forget_hints(&self) -> Result<(), Error> {
        self.feed(Event::ForgetHints)
    }

    /// Prefetching may start (the default).
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn start_prefetch(&self) -> Result<(), Error> {
        self.feed(Event::StartPrefetch)
    }

    /// No prefetch is started until [`start_prefetch`](Spool::start_prefetch).
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn hold_prefetch(&self) -> Result<(), Error> {
        self.feed(Event::HoldPrefetch)
    }

    /// Lets a host tier whose size was picked (`Settings::picked`) be no larger than `count`
    /// checkpoints of the largest size that was to be saved so far, or 64 MiB if that is more: for
    /// an application whose checkpoints are not to stay in memory.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn limit_picked_host(&self, count: u32) -> Result<(), Error> {
        let mut state = self.shared.enter()?;
        let is_picked = self.shared.settings.picked.iter().any(|(kind, _)| *kind == TierKind::Host);
        state.host_checkpoints = is_picked.then_some(count);
        Ok(())
    }

    /// Takes all main memory of the tiers now, and returns when it is there; host memory that a GPU
    /// copies to and from is registered in the background. Without this, memory is taken when it is
    /// first used, and registered ahead of what is used by as much again.
    ///
    /// # Errors
    /// `Full` when the machine has less left; what there was stays with the tiers. `Closed`,
    /// `Forked`.
    pub fn prepare(&self) -> Result<(), Error> {
        // The core hears of memory that is free again.
        self.feed(Event::Tick)?;
        let mut arenas = self.shared.tiers.iter().filter_map(AnyTier::arena);
        let taken = arenas.try_for_each(Arena::prepare);
        self.feed(Event::Tick)?;
        taken.map_err(|cause| {
            let message = format!("The tiers cannot be prepared: {cause}");
            Error::new(ErrorKind::Full, message).caused_by(cause)
        })
    }

    /// Says that the first `bytes` of the host tier will be used soon. Memory that a GPU copies to
    /// and from is made ready in the background, so that no save has to wait for that.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn expect_bytes(&self, bytes: u64) -> Result<(), Error> {
        drop(self.shared.enter()?);
        self.shared.tiers.iter().filter_map(AnyTier::arena).for_each(|arena| arena.expect(bytes));
        Ok(())
    }

    fn feed(&self, event: Event) -> Result<(), Error> {
        let mut state = self.shared.enter()?;
        self.shared.feed(&mut state, event);
        Ok(())
    }

    /// `version` should rest in `tier`, or a slower one, until its hint is near: it is flushed
    /// there without delay, and from faster tiers it is evicted first.
    ///
    /// # Errors
    /// `Invalid` when there is no such tier; `Unknown`, `Discarded`, `NotYetSaved`, `Closed`,
    /// `Forked`.
    pub fn prefer(&self, version: i64, tier: TierKind) -> Result<(), Error> {
        let (mut state, _) = self.find(version)?;
        let tiers = &state.driver.core().config().tiers;
        let Some(place) = tiers.iter().position(|t| t.kind == tier) else {
            let message =
                format!("This spool has no {tier} tier. Open it with one, or name another.");
            return Err(Error::new(ErrorKind::Invalid, message));
        };
        let (version, tier) = (Version(version), TierId(place as u8));
        self.shared.feed(&mut state, Event::Prefer { version, tier });
        Ok(())
    }

    /// The application will never read `version` again: it is freed in every tier. Restores of it
    /// that are under way still end well. Of a version that is [lost](Self::lost), what is left is
    /// removed, and later openings do not miss it.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `ReadOnly`, `Io`, `Closed`, `Forked`.
    pub fn discard(&self, version: i64) -> Result<(), Error> {
        check_writable(&self.shared.settings, version, "discarded")?;
        let mut state = self.shared.enter()?;
        if let Some(lost) = state.frames.take_unrecovered(version) {
            drop(state);
            return recover::discard(&self.shared, version, lost);
        }
        let (mut state, id) = self.find_in(state, version)?;
        let version = Version(version);
        self.shared.feed(&mut state, Event::Discard { version });
        state.forget_if_gone(version, id);
        drop(state);
        self.shared.let_go();
        Ok(())
    }

    /// Waits until every checkpoint is in the slowest tier that can hold it; on a durable disk
    /// they survive a crash of the machine from then on.
    ///
    /// # Errors
    /// `TooLarge` when the disk is durable and a checkpoint is larger than it; `Full`, `Io`,
    /// `Timeout`, `Interrupted`, `Closed`, `Forked`.
    pub fn flush(&self, wait: &Wait<'_>) -> Result<(), Error> {
        durability::flush(&self.shared, self.shared.enter()?, wait)
    }

    /// The saved versions, in ascending order.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn versions(&self) -> Result<Vec<i64>, Error> {
        let versions = self.shared.enter()?.driver.core().versions();
        Ok(versions.into_iter().map(|version| version.0).collect())
    }

    /// The versions that an earlier run made durable and that are damaged or missing, each with the
    /// file and what is wrong with it. A version is none of them any more when it is saved again
    /// or discarded.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn lost(&self) -> Result<BTreeMap<i64, String>, Error> {
        let state = self.shared.enter()?;
        let lost = state.frames.all_unrecovered();
        Ok(lost.into_iter().map(|(version, why)| (version, why.reason.clone())).collect())
    }

    /// Whether `version` is saved and not discarded.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn contains(&self, version: i64) -> Result<bool, Error> {
        Ok(self.shared.enter()?.driver.core().contains(Version(version)))
    }

    /// Whether `version` survives a crash of the machine.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Closed`, `Forked`.
    pub fn durable(&self, version: i64) -> Result<bool, Error> {
        let (state, id) = self.find(version)?;
        Ok(state.frames.is_durable(id))
    }

    /// The place, fastest first, of the fastest tier that has all bytes of `version` now: 0 when a
    /// restore has nothing to wait for. `None` while they are still being saved.
    ///
    /// # Errors
    /// `Unknown`, `Discarded`, `NotYetSaved`, `Closed`, `Forked`.
    pub fn fastest(&self, version: i64) -> Result<Option<usize>, Error> {
        let (state, _) = self.find(version)?;
        Ok(state.driver.core().fastest(Version(version)).map(|tier| usize::from(tier.0)))
    }

    /// Writes the spans so far as a Chrome trace, which <https://ui.perfetto.dev> opens. Also
    /// answered when the spool is closed.
    ///
    /// # Errors
    /// `Invalid` when the settings did not ask for a trace, `Io`, `Forked`.
    pub fn write_trace(&self, path: &Path) -> Result<(), Error> {
        self.shared.check_process()?;
        let timeline = self.shared.timeline.as_ref().ok_or_else(|| {
            let message = "This spool keeps no trace. Open it with `trace`.";
            Error::new(ErrorKind::Invalid, message)
        })?;
        let (spans, dropped) = {
            let timeline = lock(timeline);
            (timeline.spans().ok_or_else(memory::exhausted)?, timeline.dropped())
        };
        let write = || {
            let mut out = BufWriter::new(File::create(path)?);
            write_chrome(&mut out, &spans, dropped)?;
            out.flush()
        };
        write().map_err(|cause| {
            let path = path.display();
            let message = format!(
                "The trace cannot be written to {path}: {cause}. Choose a path in a directory \
                 that exists and is writable."
            );
            Error::new(ErrorKind::Io, message).caused_by(cause)
        })
    }

    /// Whether the spool takes no calls any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_forked() || check_open(&self.shared.state()).is_err()
    }

    /// Ends the work: a durable spool first writes everything to its disk and syncs it, any other
    /// one cancels what is under way. Calls that wait meanwhile get `Closed`. A second close does
    /// nothing.
    ///
    /// # Errors
    /// `Full`, `TooLarge`, `Io` or `Timeout` when something could not be made durable; the spool is
    /// open then as before, and can be closed again. `Timeout` when a worker did not end in time;
    /// the spool is closed then. `Forked`.
    pub fn close(&self) -> Result<(), Error> {
        self.close_as(Unflushed::Keep, &Wait::default())
    }

    /// As [`close`](Self::close); `unflushed` says what becomes of what cannot be made durable.
    ///
    /// # Errors
    /// Those of `close`, and `Interrupted`. [`Error::unsaved`] names what is not durable. The spool
    /// is closed in each case but `Forked` when that is discarded.
    pub fn close_as(&self, unflushed: Unflushed, wait: &Wait<'_>) -> Result<(), Error> {
        self.shared.check_process()?;
        close::close(&self.shared, unflushed, wait)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // The tiers belong to the parent: dropping them here would remove its files.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // Nobody is there to hear of an error; `close` tells it.
        let wait = Wait::at_most(self.shared.drop_timeout());
        let _ = close::close(&self.shared, Unflushed::Discard, &wait);
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}
