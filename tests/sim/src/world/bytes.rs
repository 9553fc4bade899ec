//! Bytes of checkpoints: read, verified and written as the transfer engine does it.

use unspool_core::{CheckpointId, Failure, Place, TierId, TransferId};

use super::{Checked, World};
use crate::canary::Canary;
use crate::check::ledger::Movement;
use crate::check::{Rule, Violation, ensure};
use crate::content::{difference, frame, open_frame, payload};

impl World {
    /// Executes a copy: bytes are read, verified if they come from a store, and written.
    pub(crate) fn move_bytes(
        &mut self,
        transfer: TransferId,
        movement: &Movement,
    ) -> Result<Result<(), Failure>, Violation> {
        let Movement { checkpoint, bytes, from, to, .. } = *movement;
        let what = format!("transfer {}", transfer.0);
        self.check_memory(checkpoint, from, bytes, &what)?;
        if self.strikes(Canary::LostWrite) {
            return Ok(Ok(()));
        }
        if !self.plan.content {
            return Ok(self.put_nothing(checkpoint, to.tier));
        }
        let bytes = match self.read_bytes(checkpoint, from, bytes)? {
            Ok(bytes) => bytes,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(self.write_bytes(checkpoint, to, &bytes))
    }

    fn put_nothing(&mut self, id: CheckpointId, tier: TierId) -> Result<(), Failure> {
        self.hardware.store(tier).map_or(Ok(()), |store| store.put(id, Vec::new()))
    }

    /// The payload of a checkpoint from a place, verified as the engine verifies it.
    pub(crate) fn read_bytes(
        &mut self,
        id: CheckpointId,
        place: Place,
        bytes: u64,
    ) -> Result<Result<Vec<u8>, Failure>, Violation> {
        let (version, seed) = (self.ever[&id].0, self.plan.seed);
        if let Some(memory) = self.hardware.memory(place.tier) {
            return Ok(Ok(memory.read(place.offset, bytes).to_vec()));
        }
        let store = self.hardware.store(place.tier).expect("a tier is an arena or a store");
        let Some(frame) = store.get(id) else { return Ok(Err(Failure::Missing)) };
        let Ok((named, found)) = open_frame(frame) else { return Ok(Err(Failure::Corrupt)) };
        let wrong = difference(&payload(seed, id, bytes), found);
        ensure(named == version && wrong.is_none(), Rule::Bytes, || {
            format!("the frame of {id:?} opens and holds {named:?} with {wrong:?}")
        })?;
        Ok(Ok(found.to_vec()))
    }

    /// Writes a payload to an arena, or a frame to a store.
    pub(crate) fn write_bytes(
        &mut self,
        id: CheckpointId,
        place: Place,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let (version, sync) = (self.ever[&id].0, self.plan.machine.sync_each_put);
        if let Some(memory) = self.hardware.memory(place.tier) {
            memory.write(place.offset, bytes);
            return Ok(());
        }
        let store = self.hardware.store(place.tier).expect("a tier is an arena or a store");
        store.put(id, frame(version, bytes))?;
        if sync {
            store.sync();
        }
        Ok(())
    }

    /// Checks the bytes of a checkpoint in an arena.
    pub(crate) fn check_memory(
        &mut self,
        id: CheckpointId,
        place: Place,
        bytes: u64,
        what: &str,
    ) -> Checked {
        let Some(memory) = self.hardware.memory(place.tier) else { return Ok(()) };
        let wrong = memory.difference(id, place.offset, bytes);
        self.enforce(ensure(wrong.is_none(), Rule::Bytes, || {
            format!("{what} reads {id:?} at {place:?}: {}", wrong.unwrap_or_default())
        }))
    }
}
