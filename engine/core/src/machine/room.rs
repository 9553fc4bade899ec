//! Room in the tiers: finding it, taking it, giving it back.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::Core;
use super::pauses::Pause;
use crate::command::Command;
use crate::config::TierConfig;
use crate::event::Failure;
use crate::lifecycle::table::{CheckpointRecord, Copy, Row, tier_id};
use crate::policy::fragments::{Fragments, Growth, Resident};
use crate::policy::{Choice, Need, choose};
use crate::types::{CheckpointId, Nanos, Place, TierId, TierKind};

/// One tier and what the planner knows about it.
pub(super) struct TierState {
    pub config: TierConfig,
    /// The allocation table of an arena; `None` for a store.
    pub arena: Option<Fragments>,
    /// Bytes held or reserved in a store, alignment included, until they are really deleted.
    pub store_used: u64,
    /// Bytes of `store_used` that deletions in flight will free.
    pub deleting_bytes: u64,
    /// Deletions in flight, with the bytes that each will free.
    pub deleting: BTreeMap<CheckpointId, u64>,
    pub copies: u64,
    /// The medium says that it is full, whatever the capacity is.
    pub full: bool,
    /// The device of this arena is lost: it takes nothing any more.
    pub lost: bool,
    /// The last failure of a transfer into this tier, until one succeeds.
    pub failure: Option<Failure>,
    /// The first hint that the planner has not yet dealt with: what is hinted before it is in this
    /// tier, in a faster one, or on its way.
    pub cursor: u64,
    /// The charges of the hints before the cursor.
    pub window: u64,
    /// Counts the changes that may have made room.
    pub generation: u64,
    /// The hint for which there was no room, and the generation then: not asked again until that
    /// changes.
    pub blocked: Option<(u64, u64)>,
    /// Where the room of the last save of unknown size ends, for the next one.
    pub chain: u64,
    /// When flushes into this store are held back.
    pub pause: Pause,
    /// Bytes flushed from this arena in vain since the last eviction.
    pub in_vain: u64,
}

/// Whether there is room in a tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RoomIn {
    /// There is room now: these fragments of an arena may be taken.
    Window(Range<usize>),
    /// There is room now without taking any fragments (a store, or a checkpoint of zero bytes).
    Free,
    /// There will be room when the copies in these fragments have been flushed.
    AfterFlush(Range<usize>),
    /// There will be room when the deletions in flight are done.
    AfterDelete,
    /// There is no room, and nothing in flight will make any.
    None,
}

/// Memory of a device is mapped as a whole; that of the host is prepared as it is needed.
fn growth(kind: TierKind) -> Growth {
    match kind {
        TierKind::Host => Growth::ByNeed { reached: 0 },
        _ => Growth::Free,
    }
}

impl TierState {
    pub fn new(config: &TierConfig) -> TierState {
        let whole = config.capacity & !(config.alignment - 1);
        TierState {
            config: *config,
            arena: config.kind.is_arena().then(|| Fragments::new(whole, growth(config.kind))),
            store_used: 0,
            deleting_bytes: 0,
            deleting: BTreeMap::new(),
            copies: 0,
            full: false,
            lost: false,
            failure: None,
            cursor: 0,
            window: 0,
            generation: 0,
            blocked: None,
            chain: 0,
            pause: Pause::default(),
            in_vain: 0,
        }
    }

    /// Bytes that a checkpoint of `bytes` takes here: aligned, and with its head in a store.
    pub fn size_of(&self, bytes: u64) -> u64 {
        let unit = self.config.alignment;
        let whole = bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        if self.arena.is_some() { whole } else { whole.saturating_add(unit) }
    }

    /// Whether a checkpoint of `bytes` fits when the tier is empty; none does in one that is lost.
    pub fn can_hold(&self, bytes: u64) -> bool {
        let capacity = self.arena.as_ref().map_or(self.config.capacity, Fragments::capacity);
        let size = self.size_of(bytes);
        size <= capacity && size < u64::MAX && !self.lost
    }

    /// Whether the allocation table has a fragment for this copy of `ckpt`. None has a copy of no
    /// bytes, one in a store, and one whose bytes the arena has lost while they were arriving.
    pub fn has_fragment(&self, ckpt: &CheckpointRecord, copy: &Copy) -> bool {
        let begins = |arena: &Fragments| copy.offset < arena.capacity();
        self.size_of(ckpt.bytes) > 0 && self.arena.as_ref().is_some_and(begins)
    }

    /// Bytes held or reserved.
    pub fn used(&self) -> u64 {
        self.arena.as_ref().map_or(self.store_used, |a| a.capacity() - a.free())
    }
}

impl Core {
    pub(super) fn tier(&self, tier: TierId) -> &TierState {
        &self.tiers[usize::from(tier.0)]
    }

    pub(super) fn tier_mut(&mut self, tier: TierId) -> &mut TierState {
        &mut self.tiers[usize::from(tier.0)]
    }

    pub(super) fn tier_ids(&self) -> impl DoubleEndedIterator<Item = TierId> + use<> {
        (0..self.tiers.len()).map(tier_id)
    }

    /// The next tier slower than `tier` that can hold `bytes`.
    pub(super) fn next_slower(&self, tier: TierId, bytes: u64) -> Option<TierId> {
        self.tier_ids().find(|&t| t > tier && self.tier(t).can_hold(bytes))
    }

    /// The slowest tier that can hold `bytes`.
    pub(super) fn bottom(&self, bytes: u64) -> Option<TierId> {
        self.tier_ids().rev().find(|&t| self.tier(t).can_hold(bytes))
    }

    /// Looks for room for `bytes` in `tier`, evicting only what is used after `later_than`.
    pub(super) fn find_room(&self, tier: TierId, bytes: u64, later_than: Option<u64>) -> RoomIn {
        let state = self.tier(tier);
        let size = state.size_of(bytes);
        match &state.arena {
            Some(_) if size == 0 => RoomIn::Free,
            Some(arena) => {
                let need = Need { bytes: size, now: self.now, later_than };
                match choose(self.policy, arena, &need) {
                    Choice::Take(window) => RoomIn::Window(window),
                    Choice::Wait(window, _) => RoomIn::AfterFlush(window),
                    Choice::Nothing => RoomIn::None,
                }
            }
            None if state.full => RoomIn::None,
            None => store_room(state, size),
        }
    }

    /// Takes the room that [`Core::find_room`] found, and puts a copy of `row` there.
    pub(super) fn take_room(
        &mut self,
        tier: TierId,
        row: Row,
        room: RoomIn,
        make: impl FnOnce(u64) -> Copy,
        out: &mut Vec<Command>,
    ) -> Place {
        let offset = match room {
            RoomIn::Window(window) => self.occupy(tier, row, window, out),
            RoomIn::Free => 0,
            other => unreachable!("no room was found: {other:?}"),
        };
        let size = self.tier(tier).size_of(self.table.get(row).bytes);
        let state = self.tier_mut(tier);
        state.copies += 1;
        if state.arena.is_none() {
            state.store_used += size;
            assert!(state.store_used <= state.config.capacity, "a store never overflows");
        }
        let used = state.used();
        let counters = self.stats.tier(tier);
        counters.peak = counters.peak.max(used);
        let slot = &mut self.table.get_mut(row).copies[usize::from(tier.0)];
        assert!(slot.is_none(), "one copy a tier");
        *slot = Some(make(offset));
        Place { tier, offset }
    }

    fn occupy(
        &mut self,
        tier: TierId,
        row: Row,
        window: Range<usize>,
        out: &mut Vec<Command>,
    ) -> u64 {
        let window = self.arena_mut(tier).begin_clearing(window);
        let victims: Vec<Row> = self.arena(tier).as_slice()[window.clone()]
            .iter()
            .filter_map(|f| f.resident.map(|r| r.row))
            .collect();
        for victim in victims {
            self.evict(victim, tier, out);
        }
        let size = self.tier(tier).size_of(self.table.get(row).bytes);
        (self.touches, self.arrivals) = (self.touches + 1, self.arrivals + 1);
        let resident = Resident {
            row,
            ready_at: Nanos::NEVER,
            next_use: self.hints.next_use(self.table.get(row).version),
            last_use: self.touches,
            arrived: self.arrivals,
        };
        let chained = self.table.get(row).will_shrink();
        let state = self.tier_mut(tier);
        let arena = state.arena.as_mut().expect("an arena");
        let offset = arena.place(window, size, chained, resident);
        debug_assert!(offset.is_multiple_of(state.config.alignment), "copies are aligned");
        if chained {
            state.chain = offset + size;
        }
        offset
    }

    /// Takes an evictable copy out of its tier. Another complete copy exists.
    pub(super) fn evict(&mut self, row: Row, tier: TierId, out: &mut Vec<Command>) {
        let ckpt = self.table.get(row);
        let copy = ckpt.copy(tier).expect("an evicted copy exists");
        assert!(copy.state.is_evictable() && !copy.is_busy(), "the life cycle allows to evict");
        assert!(ckpt.complete_tiers().count() > 1, "the last copy is never evicted");
        self.stats.tier(tier).evictions += 1;
        self.tier_mut(tier).in_vain = 0;
        self.drop_copy(row, tier, out);
        self.rest(row);
    }

    /// Removes an idle copy from the table and has its bytes removed from the tier.
    pub(super) fn drop_copy(&mut self, row: Row, tier: TierId, out: &mut Vec<Command>) {
        let (id, copy, size) = self.remove_copy(row, tier);
        debug_assert!(copy.state.is_complete(), "an incomplete copy is undone, not dropped");
        let state = self.tier_mut(tier);
        if state.arena.is_some() {
            out.push(Command::Evict { checkpoint: id, place: Place { tier, offset: copy.offset } });
        } else {
            state.deleting_bytes += size;
            state.deleting.insert(id, size);
            out.push(Command::Delete { checkpoint: id, tier });
        }
    }

    /// Removes a copy whose bytes never arrived: its room is free at once, no tier has anything to
    /// remove.
    pub(super) fn undo_copy(&mut self, row: Row, tier: TierId) {
        let (_, copy, size) = self.remove_copy(row, tier);
        assert!(!copy.state.is_complete(), "a complete copy is dropped, not undone");
        let state = self.tier_mut(tier);
        if state.arena.is_none() {
            state.store_used -= size;
        }
    }

    /// Takes a copy out of the table and, in an arena, its fragment out of the allocation table.
    fn remove_copy(&mut self, row: Row, tier: TierId) -> (CheckpointId, Copy, u64) {
        self.leave_queue(row, tier);
        let ckpt = self.table.get_mut(row);
        let copy = ckpt.copies[usize::from(tier.0)].take().expect("the copy exists");
        assert!(copy.readers == 0 && copy.inbound.is_none(), "nothing names the copy");
        assert!(copy.flush.is_none() && copy.prefetch.is_none(), "nothing reads the copy");
        let (id, bytes, version) = (ckpt.id, ckpt.bytes, ckpt.version);
        if ckpt.saved && !ckpt.doomed && ckpt.lost.is_none() && self.bottom(bytes) == Some(tier) {
            self.unflushed.insert(id, row);
        }
        if tier == TierId(0) {
            self.ready_until = self.ready_until.min(self.hints.next_use(version));
        }
        let is_in_table = self.tier(tier).has_fragment(self.table.get(row), &copy);
        let state = self.tier_mut(tier);
        state.copies -= 1;
        state.generation += 1;
        let size = state.size_of(bytes);
        if let Some(arena) = state.arena.as_mut().filter(|_| is_in_table) {
            arena.release(copy.offset);
        }
        (id, copy, size)
    }

    pub(super) fn on_deleted(&mut self, checkpoint: CheckpointId, tier: TierId) {
        let Some(state) = self.tiers.get_mut(usize::from(tier.0)) else { return };
        let Some(size) = state.deleting.remove(&checkpoint) else { return };
        debug_assert!(state.arena.is_none(), "only stores delete");
        state.deleting_bytes -= size;
        state.store_used -= size;
        state.generation += 1;
        state.full = false;
    }

    /// Notes that a copy in `tier` has arrived or is not in use any more. Even if it may not be
    /// evicted, its flush may be demanded, so calls that wait for room have to look again.
    pub(super) fn may_move_now(&mut self, tier: TierId) {
        self.tier_mut(tier).generation += 1;
    }

    pub(super) fn arena(&self, tier: TierId) -> &Fragments {
        self.tier(tier).arena.as_ref().expect("an arena")
    }

    pub(super) fn arena_mut(&mut self, tier: TierId) -> &mut Fragments {
        self.tier_mut(tier).arena.as_mut().expect("an arena")
    }
}

fn store_room(state: &TierState, size: u64) -> RoomIn {
    debug_assert!(state.deleting_bytes <= state.store_used, "what is deleted is still held");
    let capacity = state.config.capacity;
    if state.store_used.checked_add(size).is_some_and(|used| used <= capacity) {
        RoomIn::Free
    } else if (state.store_used - state.deleting_bytes).saturating_add(size) <= capacity {
        RoomIn::AfterDelete
    } else {
        RoomIn::None
    }
}
