//! The one table of all checkpoints and their copies.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::config::MAX_TIERS;
use crate::event::{Failure, Size};
use crate::hints::Then;
use crate::lifecycle::ranges::Ranges;
use crate::lifecycle::state::CopyState;
use crate::lifecycle::trend::Trend;
use crate::lifecycle::turn::FlushTurn;
use crate::types::{CheckpointId, Nanos, TierId, TransferId, Version};

/// The row of a checkpoint in the table. Rows are reused, ids are not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Row(pub u32);

/// The presence of one checkpoint in one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub state: CopyState,
    /// First byte in an arena; 0 in a store.
    pub offset: u64,
    /// Restores of the application that read this copy now.
    pub readers: u32,
    /// The transfer that brings this copy.
    pub inbound: Option<TransferId>,
    /// The transfer that reads this copy for a slower tier.
    pub flush: Option<TransferId>,
    /// The transfer that reads this copy for a faster tier.
    pub prefetch: Option<TransferId>,
    /// The turn of the copy in the queue of its flush link, while it waits there.
    pub queued: Option<FlushTurn>,
    /// The copy is flushed even if it would be consumed before long, since its room is needed.
    pub urgent: bool,
    /// When the flush that is queued or in flight will probably be done.
    pub ready_guess: Nanos,
    /// The bytes are not what was written: no new reader gets them, and the copy is dropped after
    /// the last one.
    pub damaged: bool,
}

impl Copy {
    pub fn new(state: CopyState, offset: u64) -> Copy {
        Copy {
            state,
            offset,
            readers: 0,
            inbound: None,
            flush: None,
            prefetch: None,
            queued: None,
            urgent: false,
            ready_guess: Nanos(0),
            damaged: false,
        }
    }

    /// Whether the bytes are completely here and worth reading.
    pub fn is_usable(&self) -> bool {
        self.state.is_complete() && !self.damaged
    }

    /// Whether a save is writing these bytes.
    pub fn is_being_saved(&self) -> bool {
        self.state == CopyState::WriteInProgress && self.inbound.is_none()
    }

    /// Whether any operation that has not finished names this copy.
    pub fn is_busy(&self) -> bool {
        self.readers > 0
            || self.inbound.is_some()
            || self.flush.is_some()
            || self.prefetch.is_some()
            || !self.state.is_complete()
    }
}

/// One saved state, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointRecord {
    pub id: CheckpointId,
    pub version: Version,
    /// Bytes of the payload; while it is being saved, those that were asked for.
    pub bytes: u64,
    /// What is known of `bytes` while it is being saved.
    pub size: Size,
    pub copies: [Option<Copy>; MAX_TIERS],
    /// The application has written all bytes: the checkpoint exists.
    pub saved: bool,
    /// The save is in flight: over for the application, while its bytes still arrive. The
    /// checkpoint exists, and calls that want its bytes wait for them.
    pub in_flight: bool,
    /// It was restored at least once.
    pub restored: bool,
    /// The application prefers it in this tier or a slower one while no hint is near.
    pub rest: TierId,
    /// What the hint that the last restore took has said of it.
    pub then: Then,
    /// Discarded: every copy goes as soon as nothing names it.
    pub doomed: bool,
    /// Set when the last copy was lost.
    pub lost: Option<Failure>,
    /// Failed transfers in a row.
    pub attempts: u32,
    /// No transfer of this checkpoint starts before this time.
    pub not_before: Nanos,
    /// The failure that made the core give up moving this checkpoint.
    pub stuck: Option<Failure>,
}

impl CheckpointRecord {
    /// Whether the checkpoint is there for the application, perhaps not with all its bytes yet.
    pub fn exists(&self) -> bool {
        self.saved || self.in_flight
    }

    /// Whether it is being saved and will probably take less than was asked for.
    pub fn will_shrink(&self) -> bool {
        !self.saved && self.size == Size::AtMost
    }

    /// The fastest tier that holds all the bytes.
    pub fn fastest_complete(&self) -> Option<TierId> {
        self.complete_tiers().next()
    }

    /// The fastest tier slower than `tier` that holds all the bytes.
    pub fn slower_complete(&self, tier: TierId) -> Option<TierId> {
        self.complete_tiers().find(|&t| t > tier)
    }

    /// The tiers that hold all the bytes, fastest first.
    pub fn complete_tiers(&self) -> impl Iterator<Item = TierId> + '_ {
        self.tiers().filter(|&t| self.copy(t).is_some_and(Copy::is_usable))
    }

    /// The tiers that hold a copy in any state, fastest first.
    pub fn tiers(&self) -> impl Iterator<Item = TierId> + '_ {
        (0..MAX_TIERS).filter(|&t| self.copies[t].is_some()).map(tier_id)
    }

    /// Whether a copy in `tier` or a faster one waits for its restore.
    pub fn is_claimed(&self, tier: TierId) -> bool {
        let copies = &self.copies[..=usize::from(tier.0)];
        copies.iter().flatten().any(|c| c.state == CopyState::ReadComplete)
    }

    /// Whether the application is reading a copy.
    pub fn is_being_read(&self) -> bool {
        self.copies.iter().flatten().any(|c| c.readers > 0)
    }

    pub fn copy(&self, tier: TierId) -> Option<&Copy> {
        self.copies[usize::from(tier.0)].as_ref()
    }

    pub fn copy_mut(&mut self, tier: TierId) -> Option<&mut Copy> {
        self.copies[usize::from(tier.0)].as_mut()
    }
}

/// The id of the tier at place `index` of the stack.
pub(crate) fn tier_id(index: usize) -> TierId {
    debug_assert!(index < MAX_TIERS);
    TierId(index as u8)
}

/// All checkpoints, by row, by version and by id.
#[derive(Default, Debug)]
pub(crate) struct CheckpointTable {
    rows: Vec<Option<CheckpointRecord>>,
    free: Vec<Row>,
    by_version: BTreeMap<Version, Row>,
    discarded: Ranges,
    next_id: u64,
    /// All checkpoints that were ever saved and the sum of their payload bytes.
    saved: u64,
    saved_bytes: u64,
    /// Not all of them had the same bytes.
    varied: bool,
    /// How their bytes change from one to the next.
    trend: Trend,
    /// The sum of the bytes that were asked for them.
    asked_bytes: u64,
    shrunk: Shrunk,
}

/// What saves of unknown size asked for, and what they kept.
#[derive(Clone, Copy, Default, Debug)]
struct Shrunk {
    asked: u64,
    kept: u64,
}

impl CheckpointTable {
    /// Adds a checkpoint without any copy. Its version must be free.
    pub fn insert(&mut self, version: Version, bytes: u64) -> Row {
        let id = CheckpointId(self.next_id);
        self.insert_as(id, version, bytes)
    }

    /// As [`CheckpointTable::insert`], with the id that an earlier run gave.
    pub fn insert_as(&mut self, id: CheckpointId, version: Version, bytes: u64) -> Row {
        assert!(id.0 >= self.next_id, "ids are never reused");
        assert!(!self.by_version.contains_key(&version), "the version is free");
        self.next_id = id.0 + 1;
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            Row(u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 checkpoints at a time"))
        });
        self.rows[row.0 as usize] = Some(CheckpointRecord {
            id,
            version,
            bytes,
            size: Size::Exact,
            copies: [None; MAX_TIERS],
            saved: false,
            in_flight: false,
            restored: false,
            rest: TierId(0),
            then: Then::Stays,
            doomed: false,
            lost: None,
            attempts: 0,
            not_before: Nanos(0),
            stuck: None,
        });
        self.by_version.insert(version, row);
        row
    }

    /// The id that the next checkpoint gets.
    pub fn next_id(&self) -> CheckpointId {
        CheckpointId(self.next_id)
    }

    /// Notes that the bytes have arrived; the save had asked for `asked`.
    pub fn mark_saved(&mut self, row: Row, asked: u64) {
        let ckpt = self.get_mut(row);
        assert!(!ckpt.saved && ckpt.bytes <= asked);
        ckpt.saved = true;
        let (bytes, size) = (ckpt.bytes, ckpt.size);
        self.varied |= bytes.saturating_mul(self.saved) != self.saved_bytes;
        self.trend.add(bytes);
        self.saved += 1;
        self.saved_bytes = self.saved_bytes.saturating_add(bytes);
        self.asked_bytes = self.asked_bytes.saturating_add(asked);
        if size == Size::AtMost {
            self.shrunk.asked = self.shrunk.asked.saturating_add(asked);
            self.shrunk.kept = self.shrunk.kept.saturating_add(bytes);
        }
        self.forget_discard(row);
    }

    /// Notes that the save is over for the application.
    pub fn mark_in_flight(&mut self, row: Row) {
        let ckpt = self.get_mut(row);
        debug_assert!(
            !ckpt.saved && !ckpt.in_flight,
            "a save is in flight once, before its report"
        );
        ckpt.in_flight = true;
        self.forget_discard(row);
    }

    /// Takes its version out of the discarded ones, unless the checkpoint is doomed.
    fn forget_discard(&mut self, row: Row) {
        let (version, doomed) = (self.get(row).version, self.get(row).doomed);
        if !doomed {
            self.discarded.remove(version.0);
        }
    }

    /// Takes the version away from the checkpoint; its copies go when nothing names them.
    pub fn doom(&mut self, row: Row) {
        let ckpt = self.rows[row.0 as usize].as_mut().expect("a living row");
        assert!(!ckpt.doomed);
        ckpt.doomed = true;
        let removed = self.by_version.remove(&ckpt.version);
        debug_assert_eq!(removed, Some(row));
        if ckpt.exists() {
            self.discarded.insert(ckpt.version.0);
        }
    }

    /// Removes a doomed checkpoint that has no copy left.
    pub fn remove(&mut self, row: Row) {
        let ckpt = self.rows[row.0 as usize].take().expect("a living row");
        assert!(ckpt.doomed && ckpt.copies.iter().all(Option::is_none));
        self.free.push(row);
    }

    pub fn get(&self, row: Row) -> &CheckpointRecord {
        self.rows[row.0 as usize].as_ref().expect("a living row")
    }

    /// The checkpoint in `row`, when the row is in use.
    pub fn row(&self, row: Row) -> Option<&CheckpointRecord> {
        self.rows.get(row.0 as usize).and_then(Option::as_ref)
    }

    pub fn get_mut(&mut self, row: Row) -> &mut CheckpointRecord {
        self.rows[row.0 as usize].as_mut().expect("a living row")
    }

    /// The row of `version`, unless it was discarded or never saved.
    pub fn find(&self, version: Version) -> Option<Row> {
        self.by_version.get(&version).copied()
    }

    pub fn was_discarded(&self, version: Version) -> bool {
        self.discarded.contains(version.0)
    }

    /// The versions that are there, in ascending order.
    pub fn versions(&self) -> impl Iterator<Item = Version> + '_ {
        self.by_version.iter().filter(|(_, row)| self.get(**row).exists()).map(|(v, _)| *v)
    }

    /// All rows in use, doomed ones too.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        (0..self.rows.len()).filter(|&i| self.rows[i].is_some()).map(|i| Row(i as u32))
    }

    /// The mean payload of all that was ever saved, in bytes: the guess for what is still to come.
    /// `None` before the first save.
    pub fn mean_bytes(&self) -> Option<u64> {
        self.saved_bytes.checked_div(self.saved)
    }

    /// The mean bytes that `count` checkpoints will have, those to come included: the mean so far,
    /// or more where sizes grow from save to save.
    pub fn mean_bytes_of(&self, count: u64) -> Option<u64> {
        let mean = self.mean_bytes()?;
        Some(self.trend.mean_of(count).map_or(mean, |grown| grown.max(mean)))
    }

    /// Whether all checkpoints so far had the same bytes.
    pub fn have_one_size(&self) -> bool {
        !self.varied
    }

    /// The mean of the bytes that were asked for saves: the guess for the next one.
    pub fn mean_asked(&self) -> Option<u64> {
        self.asked_bytes.checked_div(self.saved)
    }

    /// The bytes that a save of unknown size will probably keep of those that it asked for: the
    /// mean part that the saves before it kept, or 0 before the first one was reported.
    pub fn expected(&self, ckpt: &CheckpointRecord) -> u64 {
        let Shrunk { asked, kept } = self.shrunk;
        debug_assert!(kept <= asked, "a save keeps at most what it asked for");
        let part = match (ckpt.size, asked) {
            (Size::Exact, _) => 1.0,
            (Size::AtMost, 0) => 0.0,
            (Size::AtMost, asked) => kept as f64 / asked as f64,
        };
        ((ckpt.bytes as f64 * part) as u64).min(ckpt.bytes)
    }
}
