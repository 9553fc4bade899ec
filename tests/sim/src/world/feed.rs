//! One step of the core: the event is entered into the ledger, the core decides, and its commands
//! are checked and executed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unspool_core::{Command, Event, Failure, Kept, Nanos, RequestId};

use super::{Checked, World};
use crate::canary::Canary;
use crate::check::requests::Call;
use crate::check::{Rule, Violation};
use crate::device::streams::Fence;
use crate::panics;
use crate::world::agenda::Action;

impl World {
    /// Passes an event to the core, after the hints that are learned.
    pub(crate) fn feed(&mut self, event: Event) -> Checked {
        let mut hints = Vec::new();
        if let Some(learner) = &mut self.learner {
            learner.before(&event, self.core.hints(), &mut hints);
        }
        hints.into_iter().chain([event]).try_for_each(|event| self.pass(event))
    }

    fn pass(&mut self, event: Event) -> Checked {
        self.events += 1;
        let restored = match event {
            Event::Restored { request } => self.requests.works_on(request),
            _ => None,
        };
        let counted = self.count_retries(&event);
        let entered = self.enter(&event).and(counted);
        let commands = self.step_core(event);
        let (now, commands) = match commands {
            Ok(commands) => (self.now, commands),
            Err(violation) => {
                self.history.step(self.now, event, Vec::new());
                return Err(violation);
            }
        };
        self.history.step(now, event, commands.clone());
        self.enforce(entered)?;
        let discarded = self.expect_discard(restored);
        self.enforce(discarded)?;
        for command in &commands {
            let command = self.spoil_command(*command);
            let done = self.execute(command);
            self.enforce(done)?;
        }
        let checked = self.check_step(&commands);
        self.enforce(checked)?;
        self.enforce(self.check_books())?;
        self.enforce(self.check_waiting())?;
        self.plan_tick();
        Ok(())
    }

    fn step_core(&mut self, event: Event) -> Result<Vec<Command>, Violation> {
        let (core, now) = (&mut self.core, self.now);
        let step = || {
            let mut commands = Vec::new();
            core.step(event, now, &mut commands);
            core.assert_invariants();
            commands
        };
        panics::silenced(|| catch_unwind(AssertUnwindSafe(step)))
            .map_err(|_| Violation::new(Rule::Assertion, panics::last_message()))
    }

    /// Enters the event into the ledger.
    fn enter(&mut self, event: &Event) -> Checked {
        match *event {
            Event::Save { request, version, bytes, size } => {
                self.requests.open(request, Call::Save { version, bytes, size });
            }
            Event::Restore { request, version } => {
                self.requests.open(request, Call::Restore { version });
            }
            Event::Flush { request } => {
                let before = self.ledger.next_checkpoint();
                self.requests.open(request, Call::Flush { before });
            }
            Event::Withdraw { request } => self.requests.withdraw(request),
            Event::SaveInFlight { request } => self.enter_in_flight(request),
            Event::Saved { request, kept } => return self.enter_saved(request, kept, true),
            Event::SaveAborted { request } => return self.enter_saved(request, None, false),
            Event::Restored { request } | Event::RestoreAborted { request } => {
                if let Some((id, tier)) = self.requests.close(request) {
                    return self.ledger.released(id, tier);
                }
            }
            Event::Expect { version } | Event::ExpectLast { version } => self.hints.expect(version),
            Event::ForgetHints => self.hints.forget(),
            Event::StartPrefetch => self.prefetch_held = false,
            Event::HoldPrefetch => self.prefetch_held = true,
            Event::Discard { version } => self.enter_discard(version),
            Event::Prefer { .. } | Event::TakenByNeed { .. } | Event::Tick => {}
            _ => return self.enter_report(event),
        }
        Ok(())
    }

    fn enter_report(&mut self, event: &Event) -> Checked {
        match *event {
            Event::TransferDone { transfer, .. } => {
                self.promise_arrival(transfer);
                self.ledger.reported(transfer, true, None)
            }
            Event::TransferFailed { transfer, failure } => {
                self.failures = true;
                self.ledger.reported(transfer, false, Some(failure))
            }
            Event::TransferCancelled { transfer } => self.ledger.reported(transfer, false, None),
            Event::Deleted { checkpoint, tier } => {
                self.ledger.deleted(checkpoint, tier);
                Ok(())
            }
            Event::Shrunk { tier, capacity } => {
                self.ledger.shrink(tier, capacity);
                Ok(())
            }
            Event::Grown { tier, capacity } => {
                self.ledger.grow(tier, capacity);
                Ok(())
            }
            Event::TierFailed { tier } => {
                self.ledger.lose(tier);
                Ok(())
            }
            Event::Recover { checkpoint, version, bytes, tier } => {
                self.ledger.adopt(checkpoint, version, bytes, tier);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn enter_in_flight(&mut self, request: RequestId) {
        if let Some(id) = self.requests.works_on(request) {
            self.ledger.set_in_flight(id);
        }
    }

    fn enter_saved(&mut self, request: RequestId, kept: Option<Kept>, complete: bool) -> Checked {
        let Some((id, tier)) = self.requests.close(request) else { return Ok(()) };
        self.ledger.saved(id, tier, complete.then_some(kept))?;
        if complete && self.plan.machine.sync_each_put {
            self.promise_frame(id, tier);
        }
        Ok(())
    }

    fn enter_discard(&mut self, version: unspool_core::Version) {
        self.ledger.discard(version);
        if self.ledger.named(version).is_none() {
            self.promises.release(version);
        }
    }

    /// Reports an event from the background, after a wait for `fence`; a planted bug may lose or
    /// repeat the report.
    pub(crate) fn report(&mut self, event: Event, fence: Option<Fence>) -> Checked {
        fence.map_or(Ok(()), |fence| self.host_learns(fence))?;
        let done = matches!(event, Event::TransferDone { .. });
        if done && self.strikes(Canary::LostReport) {
            return Ok(());
        }
        self.feed(event)?;
        if done && self.strikes(Canary::DoubleReport) {
            return self.feed(event);
        }
        Ok(())
    }

    /// Whether this planted bug takes effect now: once, not necessarily at the first opportunity.
    pub(crate) fn strikes(&mut self, canary: Canary) -> bool {
        let planted = self.plan.canary == Some(canary) && !self.canary_struck;
        self.canary_struck |= planted && self.happens(0.2);
        planted && self.canary_struck
    }

    fn plan_tick(&mut self) {
        let Some(deadline) = self.core.next_deadline() else {
            self.next_tick = Nanos::NEVER;
            return;
        };
        if deadline != self.next_tick {
            self.next_tick = deadline;
            let late = self.delay(self.plan.machine.tick_delay);
            self.agenda.plan(deadline.max(self.now).plus(late), Action::Tick);
        }
    }

    pub(crate) fn tick(&mut self) -> Checked {
        if self.core.next_deadline().is_none() && !self.happens(0.1) {
            return Ok(());
        }
        self.next_tick = Nanos::NEVER;
        self.feed(Event::Tick)
    }

    /// Sends a tick that the core did not request, now and then.
    pub(crate) fn stray_tick(&mut self) -> Checked {
        if self.happens(self.plan.faults.tick) {
            return self.feed(Event::Tick);
        }
        Ok(())
    }

    pub(crate) fn failed(&mut self, failure: Failure, what: impl FnOnce() -> String) {
        self.failures = true;
        self.history.note(self.now, || format!("{failure:?}: {}", what()));
    }
}
