//! Carrying out what the core decides: every command becomes an action of somebody else, at once.

use unspool_core::{CheckpointId, Command, Event, Failure, Place, RequestId, TierId, TransferId};
use unspool_transfer::{Job, Submitted as Taken};

use crate::runtime::counters::Route;
use crate::runtime::shared::Shared;
use crate::runtime::state::{Answer, Phase, State};

impl Shared {
    /// Steps the core with `event`, and then with what follows from its commands at once.
    pub(crate) fn feed(&self, state: &mut State, event: Event) {
        if state.phase == Phase::Closed || state.stepping {
            return;
        }
        state.stepping = true;
        let growing = self.notice_memory(state, &event);
        state.announce_before(&event);
        state.pending.push_back(event);
        let mut commands = std::mem::take(&mut state.commands);
        while let Some(event) = state.pending.pop_front() {
            state.driver.step(event, self.clock.now(), &mut commands);
            for command in commands.drain(..) {
                self.execute(state, command);
            }
        }
        state.commands = commands;
        self.let_grow(state, &growing);
        self.set_alarm(state);
        state.stepping = false;
    }

    fn set_alarm(&self, state: &mut State) {
        let deadline = state.driver.core().next_deadline();
        if deadline != state.alarm {
            state.alarm = deadline;
            self.engine.wake_at(deadline);
        }
    }

    fn execute(&self, state: &mut State, command: Command) {
        match command {
            Command::Grant { request, checkpoint, place } => {
                state.answer(request, Answer::Granted(checkpoint, place));
            }
            Command::Serve { request, checkpoint, place } => {
                self.serve(state, request, checkpoint, place);
            }
            Command::FlushDone { request } => state.answer(request, Answer::Flushed),
            Command::Refuse { request, refusal } => {
                state.answer(request, Answer::Refused(refusal));
            }
            Command::Transfer { .. } => self.move_copy(state, command),
            Command::Cancel { transfer } => {
                if self.engine.cancel(transfer) == Taken::NeverRuns {
                    report_cancelled(state, transfer);
                }
            }
            Command::Delete { checkpoint, tier } => self.delete(state, checkpoint, tier),
            Command::Evict { checkpoint, place } => self.evict(state, checkpoint, place),
        }
    }

    fn serve(&self, state: &mut State, request: RequestId, id: CheckpointId, place: Place) {
        let frame = state.frames.frame(id).cloned();
        debug_assert!(frame.is_some(), "a saved checkpoint is in the frame index");
        if let Some(frame) = frame {
            state.answer(request, Answer::Served(id, place, frame));
        }
    }

    fn move_copy(&self, state: &mut State, command: Command) {
        let Command::Transfer { transfer, checkpoint, version, bytes, kind, from, to } = command
        else {
            return;
        };
        let Some(frame) = state.frames.frame(checkpoint).cloned() else {
            debug_assert!(false, "a checkpoint that moves is in the frame index");
            let failure = Failure::Permanent;
            return state.pending.push_back(Event::TransferFailed { transfer, failure });
        };
        let route = Route { kind, from: from.tier, to: to.tier };
        state.moving.insert(transfer, (checkpoint, route));
        let job = Job { transfer, checkpoint, version, bytes, kind, from, to, frame };
        if self.engine.submit(job) == Taken::NeverRuns {
            report_cancelled(state, transfer);
        }
    }

    fn delete(&self, state: &mut State, checkpoint: CheckpointId, tier: TierId) {
        let kept = state.refused_frames.contains(&checkpoint);
        if kept || self.engine.delete(checkpoint, tier) == Taken::NeverRuns {
            state.pending.push_back(Event::Deleted { checkpoint, tier });
        }
    }

    fn evict(&self, state: &mut State, checkpoint: CheckpointId, place: Place) {
        let forgotten = self.arena(place).map(|arena| arena.forget(checkpoint));
        if let Some(Err(cause)) = forgotten {
            // The room stays taken, so a later use of it is an error and not corruption.
            debug_assert!(false, "{cause}");
            state.notes.push(format!("A copy could not be evicted: {cause}"));
        }
    }
}

fn report_cancelled(state: &mut State, transfer: TransferId) {
    state.moving.remove(&transfer);
    state.pending.push_back(Event::TransferCancelled { transfer });
}
