//! Application threads: they run scripts, wait for answers, give up, and keep tickets open.

use unspool_core::{CheckpointId, Event, Kept, Nanos, Place, RequestId, Size, Version};

use super::{Checked, World};
use crate::device::streams::StreamId;
use crate::plan::script::{Care, Script, Step};
use crate::world::agenda::{Action, ThreadId};
use crate::world::figures::Reach;
use crate::world::replies::Reply;

/// Maximum wait of a thread that keeps a ticket open: it may wait for itself.
const PATIENCE: Nanos = Nanos(5_000_000);
/// Number of upcoming restores that are counted.
const FARTHEST: usize = 64;

/// A granted save or a served restore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub request: RequestId,
    pub id: CheckpointId,
    pub bytes: u64,
    pub place: Place,
    pub save: bool,
    /// The copy is aborted half-way.
    pub abort: bool,
    /// The step before which the bytes are copied.
    pub due: usize,
    /// Whether the requested size is exact or a maximum.
    pub size: Size,
    /// The part of its space that it takes, where that is reported.
    pub kept: Option<Kept>,
    /// The save is asynchronous.
    pub asynchronous: bool,
    /// The copy was reported when it was enqueued.
    pub reported: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Going,
    Waiting { request: RequestId, since: Nanos, care: Care },
    Copying,
    Finished,
}

/// An application thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    script: Script,
    at: usize,
    streams: Vec<StreamId>,
    pub state: State,
    tickets: Vec<Ticket>,
}

impl Thread {
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// The stream on which the copy of a ticket is enqueued.
    pub fn stream_of(&self, ticket: &Ticket) -> StreamId {
        self.streams[ticket.request.0 as usize % self.streams.len()]
    }

    /// The versions that this thread restores next.
    fn restores_ahead(&self) -> impl Iterator<Item = Version> + '_ {
        self.script.steps[self.at..].iter().filter_map(|step| match step {
            Step::Restore { version, .. } => Some(*version),
            _ => None,
        })
    }

    fn take_due_ticket(&mut self) -> Option<Ticket> {
        let over = self.at >= self.script.steps.len();
        let due = self.tickets.iter().position(|ticket| over || ticket.due <= self.at)?;
        Some(self.tickets.remove(due))
    }
}

impl World {
    pub(crate) fn start_thread(&mut self, script: Script) {
        let count = self.plan.machine.user_streams;
        let streams = (0..count).map(|_| self.hardware.streams.create()).collect();
        let thread = Thread { script, at: 0, streams, state: State::Going, tickets: Vec::new() };
        self.threads.push(thread);
        self.agenda.plan(self.now, Action::Wake(ThreadId(self.threads.len() - 1)));
    }

    pub(crate) fn thread(&mut self, thread: ThreadId) -> &mut Thread {
        &mut self.threads[thread.0]
    }

    /// Executes the next step of the thread.
    pub(crate) fn go_on(&mut self, thread: ThreadId) {
        self.thread(thread).state = State::Going;
        self.agenda.plan(self.now, Action::Wake(thread));
    }

    pub(crate) fn wake(&mut self, id: ThreadId) -> Checked {
        let thread = self.thread(id);
        if let Some(ticket) = thread.take_due_ticket() {
            return self.enqueue_copy(id, ticket);
        }
        let Some(step) = thread.script.steps.get(thread.at).copied() else {
            thread.state = State::Finished;
            return Ok(());
        };
        thread.at += 1;
        self.stray_tick()?;
        self.take_step(id, step)
    }

    fn take_step(&mut self, id: ThreadId, step: Step) -> Checked {
        let request = self.new_request();
        match step {
            Step::Compute(span) => {
                self.agenda.plan(self.now.plus(span), Action::Wake(id));
                Ok(())
            }
            Step::Save { version, bytes, care } => {
                let size = self.size_of_save(version);
                self.call(id, request, care, Event::Save { request, version, bytes, size })
            }
            Step::Restore { version, care } => {
                self.count_lead(id, version);
                self.call(id, request, care, Event::Restore { request, version })
            }
            Step::Flush(care) => self.call(id, request, care, Event::Flush { request }),
            Step::Expect(version) => self.send(id, Event::Expect { version }),
            Step::ExpectLast(version) => self.send(id, Event::ExpectLast { version }),
            Step::Prefer(version, tier) => self.send(id, Event::Prefer { version, tier }),
            Step::ForgetHints => self.send(id, Event::ForgetHints),
            Step::StartPrefetch => self.send(id, Event::StartPrefetch),
            Step::HoldPrefetch => self.send(id, Event::HoldPrefetch),
            Step::Discard(version) => self.send(id, Event::Discard { version }),
        }
    }

    /// Sends an event that needs no answer.
    fn send(&mut self, id: ThreadId, event: Event) -> Checked {
        self.feed(event)?;
        self.go_on(id);
        Ok(())
    }

    fn call(&mut self, id: ThreadId, request: RequestId, care: Care, event: Event) -> Checked {
        let since = self.now;
        let thread = self.thread(id);
        thread.state = State::Waiting { request, since, care };
        let open = !thread.tickets.is_empty();
        if let Some(span) = care.give_up.or(open.then_some(PATIENCE)) {
            self.agenda.plan(self.now.plus(span), Action::GiveUp(id, request));
        }
        self.replies.insert(request, (id, None));
        self.feed(event)
    }

    /// Counts how many of the restores after this one find their bytes in the fastest tier.
    fn count_lead(&mut self, id: ThreadId, version: Version) {
        let ready = |version: &Version| {
            let books = self.ledger.named(*version);
            books.and_then(|b| b.holdings[0]).is_some_and(|held| held.is_good())
        };
        let lead = self.threads[id.0].restores_ahead().take_while(ready).count();
        let mut others: Vec<Version> = Vec::new();
        for next in self.threads[id.0].restores_ahead() {
            if others.len() == FARTHEST {
                break;
            }
            if next != version && !others.contains(&next) {
                others.push(next);
            }
        }
        let provided =
            |version: &&Version| ready(version) || self.ledger.named(**version).is_none();
        let reach = others.iter().take_while(provided).count() as u64;
        self.counters.lead(self.now, lead as u64);
        self.counters.reaches.push(Reach { lead: reach, ahead: others.len() as u64 });
    }

    /// Delivers the answer to its call, unless the thread has withdrawn it before.
    pub(crate) fn see_answer(&mut self, id: ThreadId, request: RequestId) -> Checked {
        let State::Waiting { request: awaited, since, care } = self.thread(id).state else {
            return Ok(());
        };
        if awaited != request {
            return Ok(());
        }
        let Some((_, Some(reply))) = self.replies.remove(&request) else { return Ok(()) };
        let stall = self.now.since(since);
        match reply {
            Reply::Granted { id: checkpoint, bytes, place, .. } => {
                self.counters.save(bytes, stall);
                self.open_ticket(id, request, care, true, (checkpoint, bytes, place));
            }
            Reply::Served { id: checkpoint, bytes, place, .. } => {
                self.counters.restore(bytes, stall, place.tier);
                self.open_ticket(id, request, care, false, (checkpoint, bytes, place));
            }
            Reply::Flushed { before } => self.sync_stores(before),
            Reply::Refused(_) => self.counters.refused += 1,
        }
        self.go_on(id);
        Ok(())
    }

    fn open_ticket(
        &mut self,
        id: ThreadId,
        request: RequestId,
        care: Care,
        save: bool,
        (checkpoint, bytes, place): (CheckpointId, u64, Place),
    ) {
        let version = self.ever[&checkpoint].0;
        let size = if save { self.size_of_save(version) } else { Size::Exact };
        let thread = self.thread(id);
        let due = thread.at + usize::from(care.keep);
        let ticket = Ticket {
            request,
            id: checkpoint,
            bytes,
            place,
            save,
            abort: care.abort,
            due,
            size,
            kept: None,
            asynchronous: false,
            reported: false,
        };
        thread.tickets.push(ticket);
    }

    /// Withdraws a call that has waited long enough; if it was granted or served meanwhile, it is
    /// aborted.
    pub(crate) fn give_up(&mut self, id: ThreadId, request: RequestId) -> Checked {
        match self.thread(id).state {
            State::Waiting { request: awaited, .. } if awaited == request => {}
            _ => return Ok(()),
        }
        self.feed(Event::Withdraw { request })?;
        let reply = self.replies.remove(&request).and_then(|(_, reply)| reply);
        match reply {
            Some(Reply::Granted { .. }) => self.feed(Event::SaveAborted { request })?,
            Some(Reply::Served { .. }) => self.feed(Event::RestoreAborted { request })?,
            Some(Reply::Flushed { .. } | Reply::Refused(_)) | None => {}
        }
        self.go_on(id);
        Ok(())
    }
}
