//! Deletions in stores: they take time, and may leave the frame where it is.

use unspool_core::{CheckpointId, Event, Nanos, Place, TierId};

use super::World;
use crate::check::Violation;
use crate::device::streams::OpId;
use crate::random::{Random, Topic};

impl World {
    pub(crate) fn begin_delete(
        &mut self,
        op: OpId,
        id: CheckpointId,
        tier: TierId,
    ) -> Result<Nanos, Violation> {
        let place = Place { tier, offset: 0 };
        self.access(op, id, place, 0, true, &format!("the deletion of checkpoint {}", id.0))?;
        let slowest = self.plan.machine.links.iter().map(|link| link.latency).max();
        Ok(slowest.unwrap_or(Nanos(1000)))
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
