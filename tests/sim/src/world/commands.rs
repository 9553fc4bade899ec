//! Execution of the core's commands.

use unspool_core::{CheckpointId, Command, Place, Refusal, RequestId, TierId, TransferKind};

use super::{Checked, Work, World};
use crate::canary::Canary;
use crate::check::ledger::Movement;
use crate::check::refusals::Court;
use crate::check::requests::{Call, Progress};
use crate::check::{Rule, Violation, ensure};
use crate::world::replies::Reply;

impl World {
    /// Enters a command into the ledger and executes it. A command that the ledger rejects is
    /// executed too, in case the checker in question is switched off.
    pub(crate) fn execute(&mut self, command: Command) -> Checked {
        match command {
            Command::Grant { request, checkpoint, place } => self.grant(request, checkpoint, place),
            Command::Serve { request, checkpoint, place } => self.serve(request, checkpoint, place),
            Command::FlushDone { request } => self.flush_done(request),
            Command::Refuse { request, refusal } => self.refuse(request, refusal),
            Command::Transfer { transfer, checkpoint, bytes, kind, from, to, .. } => {
                let movement = Movement { checkpoint, bytes, from, to, cancelled: false };
                let entered = self.ledger.transfer(transfer, kind, movement);
                self.enforce(entered.and(self.retries.started(checkpoint, self.now)))?;
                let held = self.prefetch_held && kind == TransferKind::Prefetch;
                self.enforce(ensure(!held, Rule::Transfer, || {
                    format!("{transfer:?} fetches {checkpoint:?} while prefetching is held back")
                }))?;
                self.enqueue_transfer(transfer, movement);
                Ok(())
            }
            Command::Cancel { transfer } => {
                let entered = self.ledger.cancel(transfer);
                self.cancel_transfer(transfer);
                entered
            }
            Command::Delete { checkpoint, tier } => self.delete(checkpoint, tier),
            Command::Evict { checkpoint, place } => self.evict(checkpoint, place),
        }
    }

    fn grant(&mut self, request: RequestId, id: CheckpointId, place: Place) -> Checked {
        let call = self.requests.answer(request, Progress::Open(id, place.tier))?;
        let Call::Save { version, bytes, size } = call else {
            return Err(Violation::new(Rule::Answer, format!("{call:?} is granted")));
        };
        self.ever.insert(id, (version, bytes));
        let entered = self.ledger.grant((id, version), (bytes, size), place);
        self.enforce(entered)?;
        if !self.strikes(Canary::LostGrant) {
            self.reply(request, Reply::Granted { id, version, bytes, place });
        }
        Ok(())
    }

    fn serve(&mut self, request: RequestId, id: CheckpointId, place: Place) -> Checked {
        let call = self.requests.answer(request, Progress::Open(id, place.tier))?;
        let Call::Restore { version } = call else {
            return Err(Violation::new(Rule::Answer, format!("{call:?} is served")));
        };
        let named = self.ledger.named(version).map(|books| books.id);
        ensure(named == Some(id), Rule::Known, || {
            format!("{version:?} names {named:?} and is served from {id:?}")
        })?;
        let fastest = self.ledger.fastest(id);
        ensure(fastest == Some(place.tier), Rule::Known, || {
            format!("{id:?} is served from {place:?} and is or arrives in {fastest:?}")
        })?;
        self.hints.served(version);
        let bytes = self.ledger.get(id).map_or(0, |books| books.bytes);
        let entered = self.ledger.serve(id, place);
        self.enforce(entered)?;
        self.reply(request, Reply::Served { id, version, bytes, place });
        Ok(())
    }

    fn flush_done(&mut self, request: RequestId) -> Checked {
        let call = self.requests.answer(request, Progress::Over)?;
        let Call::Flush { before } = call else {
            return Err(Violation::new(Rule::Answer, format!("{call:?} is flushed")));
        };
        self.check_flushed(before)?;
        self.reply(request, Reply::Flushed { before });
        Ok(())
    }

    fn refuse(&mut self, request: RequestId, refusal: Refusal) -> Checked {
        let call = self.requests.answer(request, Progress::Over)?;
        let court = Court {
            ledger: &self.ledger,
            requests: &self.requests,
            failures: self.failures || self.plan.faults.can_fail(),
        };
        let judged = court.judge(call, refusal);
        self.enforce(judged)?;
        self.reply(request, Reply::Refused(refusal));
        Ok(())
    }

    fn delete(&mut self, checkpoint: CheckpointId, tier: TierId) -> Checked {
        let entered = self.ledger.delete(checkpoint, tier);
        let streams = self.plan.machine.streams;
        let stream = self.hardware.shortest_stream(tier, tier, streams);
        let op = self.hardware.streams.push_job(stream);
        self.ops.insert(op, Work::Delete { checkpoint, tier });
        entered
    }

    fn evict(&mut self, id: CheckpointId, place: Place) -> Checked {
        let size = self.ledger.get(id).and_then(|books| books.at(place.tier)).map_or(0, |h| h.size);
        let entered = self.ledger.evict(id, place);
        let unfinished = self.hardware.is_unfinished(id, place.tier);
        if entered.is_ok() && !unfinished {
            self.poison(place, size);
        }
        if unfinished && self.strikes(Canary::NoPendingRanges) {
            self.hardware.fences.forget_without_pending(id, place.tier);
        }
        self.hardware.fences.forget(id, place.tier);
        entered
    }

    pub(crate) fn poison(&mut self, place: Place, bytes: u64) {
        if let Some(memory) = self.hardware.memory(place.tier) {
            memory.poison(place.offset, bytes);
        }
    }

    /// Applies a planted bug to a command.
    pub(crate) fn spoil_command(&mut self, command: Command) -> Command {
        match command {
            Command::Grant { request, checkpoint, place } => {
                let place = self.spoil_grant(request, place);
                Command::Grant { request, checkpoint, place }
            }
            Command::Serve { request, checkpoint, place } => {
                if self.strikes(Canary::FalseLoss) {
                    let refusal = Refusal::Lost { failure: unspool_core::Failure::Corrupt };
                    return Command::Refuse { request, refusal };
                }
                let place = self.spoil_serve(checkpoint, place);
                Command::Serve { request, checkpoint, place }
            }
            other => other,
        }
    }

    fn spoil_grant(&mut self, request: RequestId, place: Place) -> Place {
        let asked = self.requests.waiting().find(|(id, _)| *id == request);
        let Some((_, Call::Save { bytes: 1.., .. })) = asked else { return place };
        let tier = self.plan.config.tiers[usize::from(place.tier.0)];
        if tier.kind.is_arena() && place.offset >= tier.alignment {
            let before = Place { offset: place.offset - tier.alignment, ..place };
            let neighbour = self.ledger.all().any(|books| {
                books
                    .at(place.tier)
                    .is_some_and(|h| h.size > 0 && h.offset + h.size == place.offset)
            });
            if neighbour && self.strikes(Canary::Overlap) {
                return before;
            }
        }
        self.place_under_flush(place).unwrap_or(place)
    }

    /// A place that a flush still reads, large enough to cause damage.
    fn place_under_flush(&mut self, place: Place) -> Option<Place> {
        let same_tier = |m: &&Movement| m.from.tier == place.tier && m.bytes > 0;
        let read = self.ledger.movements().map(|(_, m)| m).find(same_tier)?.from;
        let arena = self.plan.config.tiers[usize::from(place.tier.0)].kind.is_arena();
        (arena && self.strikes(Canary::EarlyFree)).then_some(read)
    }

    fn spoil_serve(&mut self, id: CheckpointId, place: Place) -> Place {
        let bytes = self.ledger.get(id).map_or(0, |books| books.bytes);
        let other = self.ledger.live().find_map(|books| {
            let held = books.at(place.tier)?;
            let usable = books.id != id && held.is_good() && books.bytes >= bytes.max(1);
            usable.then_some(held.offset)
        });
        let arena = self.plan.config.tiers[usize::from(place.tier.0)].kind.is_arena();
        match other {
            Some(offset) if arena && bytes > 0 && self.strikes(Canary::StaleData) => {
                Place { offset, ..place }
            }
            _ => place,
        }
    }
}
