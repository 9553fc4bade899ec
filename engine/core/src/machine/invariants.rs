//! What must hold after every step. Checked by tests and the simulator, not in production.

use super::{Core, Open};
use crate::command::TransferKind;
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{CheckpointRecord, Row};
use crate::types::{Nanos, TierId};

impl Core {
    /// Panics with a reason when the table contradicts itself. O(n log n).
    pub fn assert_invariants(&self) {
        for row in self.table.rows() {
            self.assert_checkpoint(row);
        }
        for tier in self.tier_ids() {
            self.assert_tier(tier);
        }
        self.assert_transfers();
        self.assert_open();
    }

    fn assert_checkpoint(&self, row: Row) {
        let ckpt = self.table.get(row);
        if ckpt.saved && !ckpt.doomed && ckpt.lost.is_none() {
            assert!(ckpt.fastest_complete().is_some(), "a saved checkpoint has a complete copy");
        }
        let kept = !ckpt.doomed || ckpt.tiers().next().is_some();
        assert!(kept, "a discarded checkpoint goes with its last copy");
        for tier in ckpt.tiers() {
            let copy = ckpt.copy(tier).expect("listed");
            assert!(copy.state != CopyState::Init, "room is granted at once");
            assert_eq!(
                copy.inbound.is_some() || (copy.state == CopyState::WriteInProgress && !ckpt.saved),
                !copy.state.is_complete(),
                "a copy is incomplete exactly while its bytes arrive"
            );
            if copy.state == CopyState::Flushed && copy.is_usable() && !ckpt.doomed {
                assert!(ckpt.slower_complete(tier).is_some(), "a flushed copy has a slower one");
            }
        }
    }

    fn assert_tier(&self, tier: TierId) {
        let state = self.tier(tier);
        let copies = self.table.rows().filter(|&r| self.table.get(r).copy(tier).is_some());
        assert_eq!(copies.count() as u64, state.copies, "copies are counted");
        let charges = (self.hints.head()..state.cursor).filter_map(|p| self.hints.live_charge(p));
        assert_eq!(charges.sum::<u64>(), state.window, "the window is the sum of its charges");
        match &state.arena {
            Some(arena) => {
                arena.assert_invariants();
                for fragment in arena.as_slice() {
                    let Some(resident) = fragment.resident else { continue };
                    self.assert_resident(resident.row, tier, fragment.offset, resident.ready_at);
                }
            }
            None => self.assert_store(tier),
        }
    }

    fn assert_resident(&self, row: Row, tier: TierId, offset: u64, ready_at: Nanos) {
        let ckpt = self.table.get(row);
        let copy = ckpt.copy(tier).expect("a resident has a copy");
        assert_eq!(copy.offset, offset, "the table and the arena agree");
        if ready_at == Nanos(0) {
            assert!(copy.state.is_evictable() && !copy.is_busy(), "only idle copies are evictable");
        }
    }

    fn assert_store(&self, tier: TierId) {
        let state = self.tier(tier);
        let held = |c: &CheckpointRecord| c.copy(tier).map_or(0, |_| state.size_of(c.bytes));
        let live: u64 = self.table.rows().map(|r| held(self.table.get(r))).sum();
        assert_eq!(live + state.deleting_bytes, state.store_used, "store bytes are counted");
        assert_eq!(state.deleting.values().sum::<u64>(), state.deleting_bytes);
    }

    fn assert_transfers(&self) {
        for (id, transfer) in &self.transfers {
            let ckpt = self.table.get(transfer.row);
            let target = ckpt.copy(transfer.to).expect("a target");
            assert_eq!(target.inbound, Some(*id), "the target knows its transfer");
            let source = ckpt.copy(transfer.from).expect("a source");
            let named = match transfer.kind {
                TransferKind::Flush => source.flush,
                TransferKind::Prefetch => source.prefetch,
            };
            assert_eq!(named, Some(*id), "the source knows its transfer");
            assert!(source.state.is_complete(), "only complete copies are read");
        }
        for lanes in [&self.flush_lanes, &self.prefetch_lanes] {
            assert!(
                lanes
                    .iter()
                    .all(|l| (l.in_flight == 0) == (l.in_flight_bytes == 0)
                        || l.in_flight_bytes == 0)
            );
        }
    }

    fn assert_granted(&self, row: Row, tier: TierId, offset: u64) {
        let (ckpt, state) = (self.table.get(row), self.tier(tier));
        let copy = ckpt.copy(tier).expect("a granted save has a copy");
        assert!(copy.is_being_saved(), "a granted save is in progress");
        assert!(copy.offset <= offset, "its room begins where it was granted or earlier");
        let size = state.size_of(ckpt.bytes);
        if let Some(arena) = state.arena.as_ref().filter(|_| state.has_fragment(ckpt, copy)) {
            let room = arena.as_slice()[arena.index_of(copy.offset)];
            let end = arena.capacity().min(offset + size);
            assert_eq!(room.offset + room.bytes, end, "and ends where it was granted");
        }
    }

    fn assert_open(&self) {
        let in_flight = |open: &&Open| match open {
            Open::Granted { row, .. } => self.table.get(*row).in_flight,
            Open::Served { .. } => false,
        };
        assert_eq!(self.open.values().filter(in_flight).count() as u64, self.saves_in_flight);
        for open in self.open.values() {
            match *open {
                Open::Granted { row, tier, offset } => self.assert_granted(row, tier, offset),
                Open::Served { row, tier, .. } => {
                    assert!(self.table.get(row).copy(tier).is_some_and(|c| c.readers > 0));
                }
            }
        }
    }
}
