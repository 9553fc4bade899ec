//! Deletions in stores: they take time, and may fail.

use unspool_core::{CheckpointId, Event, Nanos, Place, TierId};

use super::World;
use crate::check::Violation;
use crate::device::streams::{Fence, OpId, StreamId};
use crate::random::{Random, Topic};
use crate::world::order::Touched;

impl World {
    pub(crate) fn take_up_delete(
        &mut self,
        stream: StreamId,
        id: CheckpointId,
        tier: TierId,
    ) -> Result<Vec<Fence>, Violation> {
        let what = format!("the deletion of checkpoint {}", id.0);
        let place = Place { tier, offset: 0 };
        self.enqueue(stream, &[], &[Touched { id, place, bytes: 0, write: true }], &what)?;
        Ok(Vec::new())
    }

    pub(crate) fn begin_delete(&self) -> Nanos {
        let slowest = self.plan.machine.links.iter().map(|link| link.latency).max();
        slowest.unwrap_or(Nanos(1000))
    }

    pub(crate) fn end_delete(&mut self, op: OpId, checkpoint: CheckpointId, tier: TierId) {
        let mut random = Random::of(self.plan.seed, Topic::Delete, checkpoint.0);
        let fails = !self.calm && random.chance(self.plan.faults.delete);
        if let Some(store) = self.hardware.store(tier).filter(|_| !fails) {
            store.remove(checkpoint);
        }
        self.complete_and_report(op, Event::Deleted { checkpoint, tier });
    }
}
