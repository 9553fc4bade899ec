//! Asking the core for something, and waiting for its answer.

use std::sync::Arc;
use std::time::Duration;

use unspool_core::{Event, Nanos, RequestId, Size, Version};
use unspool_transfer::sync::{Condvar, MutexGuard, wait_timeout};

use crate::error::Error;
use crate::gpu::Idle;
use crate::runtime::reasons;
use crate::runtime::shared::{Shared, check_open};
use crate::runtime::state::{Answer, State};
use crate::time::nanos;
use crate::wait::Wait;

/// The longest that a waiting thread sleeps before it asks whether it was interrupted.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// What a call wants of the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// Room.
    Save { version: Version, bytes: u64, size: Size },
    /// Bytes.
    Restore { version: Version },
    /// Everything in its slowest tier.
    Flush,
}

impl Asked {
    fn event(self, request: RequestId) -> Event {
        match self {
            Asked::Save { version, bytes, size } => Event::Save { request, version, bytes, size },
            Asked::Restore { version } => Event::Restore { request, version },
            Asked::Flush => Event::Flush { request },
        }
    }
}

/// Who else may end a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// The wait ends with `Closed` when the spool closes.
    Closing,
    /// The wait is part of closing.
    Answered,
}

/// An answer that is not a refusal, with the lock still held.
pub(crate) struct Answered<'a> {
    pub(crate) request: RequestId,
    pub(crate) answer: Answer,
    /// How long the call waited, less the time for which its stream had work; zero when it was
    /// answered at once.
    pub(crate) waited: Nanos,
    /// What it waited for, when it waited.
    pub(crate) awaited: Option<String>,
    pub(crate) state: MutexGuard<'a, State>,
}

/// What the core said to a call at once.
pub(crate) enum Offered {
    /// Its answer, which is not a refusal.
    Now(RequestId, Answer),
    /// It has to wait, or to withdraw.
    Later(RequestId),
}

/// One wait: for what, for how long.
struct Waiting<'a, 'w> {
    shared: &'a Shared,
    request: RequestId,
    wait: &'w Wait<'w>,
    until: Until,
}

impl Shared {
    /// Puts a call to the core and waits for its answer. `state` is the lock of this shared.
    ///
    /// # Errors
    /// The core's refusal as an error, `Timeout`, `Interrupted`, `Closed`.
    pub(crate) fn ask<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        asked: Asked,
        wait: &Wait<'_>,
        until: Until,
    ) -> Result<Answered<'a>, Error> {
        match self.ask_now(&mut state, asked)? {
            Offered::Now(request, answer) => {
                let (waited, awaited) = (Nanos(0), None);
                Ok(Answered { request, answer, waited, awaited, state })
            }
            Offered::Later(request) => self.wait_for(state, (asked, request), wait, until),
        }
    }

    /// Puts a call to the core, without waiting for its answer.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn ask_now(&self, state: &mut State, asked: Asked) -> Result<Offered, Error> {
        let request = state.open_request();
        self.feed(state, asked.event(request));
        match state.take_answer(request) {
            Some(Answer::Refused(refusal)) => Err(reasons::refused(state, asked, refusal)),
            Some(answer) => Ok(Offered::Now(request, answer)),
            None => Ok(Offered::Later(request)),
        }
    }

    /// Waits for the answer to a call that was put to the core.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) fn wait_for<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        (asked, request): (Asked, RequestId),
        wait: &Wait<'_>,
        until: Until,
    ) -> Result<Answered<'a>, Error> {
        let what = reasons::awaited(&state, asked);
        let start = self.clock.now();
        let idle = wait.stream.and_then(Idle::begin);
        let waiting = Waiting { shared: self, request, wait, until };
        let (mut state, answer) = waiting.run(state, &what)?;
        let mut waited = self.clock.now().since(start);
        if let Some(idle) = idle {
            // The GPU is asked without the lock.
            drop(state);
            waited = idle.end(waited);
            state = self.state();
        }
        match answer {
            Answer::Refused(refusal) => Err(reasons::refused(&state, asked, refusal)),
            answer => Ok(Answered { request, answer, waited, awaited: Some(what), state }),
        }
    }

    /// Gives up a call: withdraws it, or returns what it was given meanwhile.
    fn give_up(&self, state: &mut State, request: RequestId) {
        match state.take_answer(request) {
            None => self.feed(state, Event::Withdraw { request }),
            Some(Answer::Granted(..)) => self.feed(state, Event::SaveAborted { request }),
            Some(Answer::Served(..)) => self.feed(state, Event::RestoreAborted { request }),
            Some(Answer::Flushed | Answer::Refused(_)) => {}
        }
        state.forget_request(request);
    }
}

impl<'a> Waiting<'a, '_> {
    /// Waits until there is an answer, or a reason not to wait any longer.
    fn run(
        &self,
        mut state: MutexGuard<'a, State>,
        what: &str,
    ) -> Result<(MutexGuard<'a, State>, Answer), Error> {
        let timeout = self.wait.timeout.unwrap_or(self.shared.settings.timeout);
        let deadline = self.shared.clock.now().plus(nanos(timeout));
        let sleeper = Arc::new(Condvar::new());
        state.sleep(self.request, Arc::clone(&sleeper));
        loop {
            if let Some(answer) = state.take_answer(self.request) {
                return Ok((state, answer));
            }
            let left = deadline.since(self.shared.clock.now());
            if let Err(error) =
                self.may_wait(&state, left, || reasons::timed_out(&state, what, timeout))
            {
                self.shared.give_up(&mut state, self.request);
                return Err(error);
            }
            state = wait_timeout(&sleeper, state, self.shared.clock.nap(left).min(POLL));
            if state.has_answer(self.request) {
                continue;
            }
            drop(state);
            let interrupted = self.is_interrupted();
            state = self.shared.state();
            if interrupted && !state.has_answer(self.request) {
                self.shared.give_up(&mut state, self.request);
                return Err(reasons::interrupted(what));
            }
        }
    }

    /// Whether there is a reason to wait on.
    fn may_wait(
        &self,
        state: &State,
        left: Nanos,
        timed_out: impl FnOnce() -> Error,
    ) -> Result<(), Error> {
        if self.until == Until::Closing || state.stepping {
            check_open(state)?;
        }
        if left == Nanos(0) { Err(timed_out()) } else { Ok(()) }
    }

    /// Asks the caller, with no lock held. Should his code panic, the call is given up.
    fn is_interrupted(&self) -> bool {
        struct OnPanic<'a>(&'a Shared, RequestId);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                self.0.give_up(&mut self.0.state(), self.1);
            }
        }
        let on_panic = OnPanic(self.shared, self.request);
        let interrupted = (self.wait.interrupted)();
        std::mem::forget(on_panic);
        interrupted
    }
}
