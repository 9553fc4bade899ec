//! Transfers: starting them, and what follows when they end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Core;
use super::room::RoomIn;
use crate::command::{Command, TransferKind};
use crate::event::Failure;
use crate::lifecycle::state::CopyState;
use crate::lifecycle::table::{Copy, Row};
use crate::lifecycle::turn::FlushTurn;
use crate::stats::DirectionStats;
use crate::time_model::LinkModel;
use crate::types::{CheckpointId, Nanos, Place, TierId, TransferId};

/// One direction of a link.
pub(super) struct LinkLane {
    pub model: LinkModel,
    pub in_flight: u32,
    pub in_flight_bytes: u64,
    /// Copies that wait for their flush.
    pub queue: BTreeMap<FlushTurn, Row>,
    /// Turns that were given so far.
    pub turns: u64,
    /// The copy that found no room in its target, and the generation of the target then: not asked
    /// again until that changes.
    pub blocked: Option<(CheckpointId, u64)>,
    pub stats: DirectionStats,
}

/// A transfer in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub row: Row,
    pub kind: TransferKind,
    pub from: TierId,
    pub to: TierId,
    pub bytes: u64,
    pub cancelled: bool,
}

impl LinkLane {
    pub fn new(model: LinkModel) -> LinkLane {
        LinkLane {
            model,
            in_flight: 0,
            in_flight_bytes: 0,
            queue: BTreeMap::new(),
            turns: 0,
            blocked: None,
            stats: DirectionStats::default(),
        }
    }

    /// The copy whose flush is next.
    pub fn front(&self) -> Option<Row> {
        self.queue.first_key_value().map(|(_, row)| *row)
    }
}

impl Core {
    pub(super) fn flush_lane(&self, from: TierId) -> &LinkLane {
        &self.flush_lanes[usize::from(from.0)]
    }

    pub(super) fn flush_lane_mut(&mut self, from: TierId) -> &mut LinkLane {
        &mut self.flush_lanes[usize::from(from.0)]
    }

    fn lane_of(&mut self, transfer: &Transfer) -> &mut LinkLane {
        match transfer.kind {
            TransferKind::Flush => &mut self.flush_lanes[usize::from(transfer.from.0)],
            TransferKind::Prefetch => &mut self.prefetch_lanes[usize::from(transfer.to.0)],
        }
    }

    /// Whether a lane may take `bytes` more. One transfer may always be in flight.
    pub(super) fn has_space(&self, kind: TransferKind, faster: TierId, bytes: u64) -> bool {
        let index = usize::from(faster.0);
        let link = &self.config.links[index];
        let lane = match kind {
            TransferKind::Flush => &self.flush_lanes[index],
            TransferKind::Prefetch => &self.prefetch_lanes[index],
        };
        let fits = lane.in_flight_bytes.saturating_add(bytes) <= link.max_in_flight_bytes;
        lane.in_flight == 0 || (lane.in_flight < link.max_in_flight && fits)
    }

    /// Starts a transfer into room that was found.
    pub(super) fn start(
        &mut self,
        kind: TransferKind,
        row: Row,
        from: TierId,
        to: TierId,
        room: RoomIn,
        out: &mut Vec<Command>,
    ) {
        debug_assert_eq!(to > from, kind == TransferKind::Flush, "flushes go to slower tiers");
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let state = match kind {
            TransferKind::Flush => CopyState::WriteInProgress,
            TransferKind::Prefetch => CopyState::ReadInProgress,
        };
        self.hold_source(kind, row, from, id);
        let make = |offset| Copy { inbound: Some(id), ..Copy::new(state, offset) };
        let target = self.take_room(to, row, room, make, out);
        let ckpt = self.table.get(row);
        let bytes = ckpt.bytes;
        let source = Place { tier: from, offset: ckpt.copy(from).expect("a source").offset };
        out.push(Command::Transfer {
            transfer: id,
            checkpoint: ckpt.id,
            version: ckpt.version,
            bytes,
            kind,
            from: source,
            to: target,
        });
        let retried = ckpt.attempts > 0;
        if kind == TransferKind::Flush {
            self.note_flush(to);
        }
        let transfer = Transfer { row, kind, from, to, bytes, cancelled: false };
        let lane = self.lane_of(&transfer);
        lane.in_flight += 1;
        lane.in_flight_bytes += bytes;
        lane.stats.retried += u64::from(retried);
        self.transfers.insert(id, transfer);
        self.rest(row);
    }

    fn hold_source(&mut self, kind: TransferKind, row: Row, from: TierId, id: TransferId) {
        let copy = self.table.get_mut(row).copy_mut(from).expect("a source");
        assert!(copy.state.is_complete(), "only complete copies are read");
        match kind {
            TransferKind::Flush => copy.flush = Some(id),
            TransferKind::Prefetch => copy.prefetch = Some(id),
        }
    }

    pub(super) fn on_done(&mut self, id: TransferId, took: Nanos, out: &mut Vec<Command>) {
        let Some(transfer) = self.end_transfer(id) else { return };
        let Transfer { row, to, bytes, .. } = transfer;
        let lane = self.lane_of(&transfer);
        lane.model.learn(bytes, took);
        lane.stats.transfers += 1;
        lane.stats.bytes += bytes;
        lane.stats.cancelled += u64::from(transfer.cancelled);
        self.tier_mut(to).failure = None;
        let arrived = match transfer.kind {
            TransferKind::Flush => CopyState::WriteComplete,
            TransferKind::Prefetch => CopyState::ReadComplete,
        };
        self.set_state(row, to, arrived);
        let inbound = self.table.get_mut(row).copy_mut(to).expect("the target").inbound.take();
        debug_assert_eq!(inbound, Some(id), "the target names its transfer");
        if self.table.get(row).doomed {
            return self.clear_doomed(row, out);
        }
        let ckpt = self.table.get_mut(row);
        ckpt.attempts = 0;
        // The source may have been found damaged meanwhile, and the checkpoint counted as lost:
        // this copy is whole.
        let found_again = ckpt.lost.take().is_some();
        let id = ckpt.id;
        if self.bottom(bytes) == Some(to) {
            self.unflushed.remove(&id);
        } else if found_again {
            self.unflushed.insert(id, row);
        }
        self.drop_damaged(row, out);
        self.leave_lost_tiers(row, out);
        self.rest(row);
    }

    pub(super) fn on_cancelled(&mut self, id: TransferId, out: &mut Vec<Command>) {
        let Some(transfer) = self.end_transfer(id) else { return };
        self.lane_of(&transfer).stats.cancelled += 1;
        self.undo_target(&transfer);
        self.after_nothing_came(&transfer, out);
    }

    pub(super) fn on_failed(&mut self, id: TransferId, failure: Failure, out: &mut Vec<Command>) {
        let Some(transfer) = self.end_transfer(id) else { return };
        self.lane_of(&transfer).stats.failed += 1;
        let gone = self.has_lost_target(&transfer) && failure.is_of_target();
        self.undo_target(&transfer);
        if !self.table.get(transfer.row).doomed && !gone {
            self.learn_failure(&transfer, failure, out);
        }
        self.after_nothing_came(&transfer, out);
    }

    fn after_nothing_came(&mut self, transfer: &Transfer, out: &mut Vec<Command>) {
        let Some(ckpt) = self.table.row(transfer.row) else { return };
        if ckpt.doomed {
            return self.clear_doomed(transfer.row, out);
        }
        self.drop_damaged(transfer.row, out);
        let ckpt = self.table.get(transfer.row);
        if transfer.kind == TransferKind::Prefetch {
            let position = self.hints.next_use(ckpt.version);
            self.retreat(transfer.to, position);
        }
        self.rest(transfer.row);
    }

    /// Takes the transfer off its lane and lets go of its source.
    fn end_transfer(&mut self, id: TransferId) -> Option<Transfer> {
        let transfer = self.transfers.remove(&id)?;
        let now = self.now;
        let lane = self.lane_of(&transfer);
        lane.in_flight -= 1;
        lane.in_flight_bytes -= transfer.bytes;
        if lane.in_flight == 0 && lane.front().is_none() {
            lane.model.idle(now);
        }
        let source = self.table.get_mut(transfer.row).copy_mut(transfer.from).expect("a source");
        let named = match transfer.kind {
            TransferKind::Flush => source.flush.take(),
            TransferKind::Prefetch => source.prefetch.take(),
        };
        debug_assert_eq!(named, Some(id), "the source names its transfer");
        self.may_move_now(transfer.from);
        self.may_move_now(transfer.to);
        Some(transfer)
    }

    fn undo_target(&mut self, transfer: &Transfer) {
        let Transfer { row, to, .. } = *transfer;
        self.table.get_mut(row).copy_mut(to).expect("the target").inbound = None;
        self.undo_copy(row, to);
    }

    pub(super) fn cancel_transfers(&mut self, row: Row, out: &mut Vec<Command>) {
        debug_assert!(self.table.get(row).doomed, "only a discard cancels transfers");
        for (id, transfer) in &mut self.transfers {
            if transfer.row == row && !transfer.cancelled {
                transfer.cancelled = true;
                out.push(Command::Cancel { transfer: *id });
            }
        }
    }
}
