//! The threads of a lane: each takes a task, executes it and reports it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use unspool_core::{CheckpointId, Event, Failure, Nanos, TierId, TierKind};

use crate::clock::Clock;
use crate::error::TransferError;
use crate::execute::{Mover, Outcome};
use crate::job::{Job, Task, TaskWork, label};
use crate::lane::Lane;
use crate::sink::Sink;
use crate::span::Span;

/// State that all workers share.
pub(crate) struct Crew {
    pub(crate) mover: Mover,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) trace: bool,
}

/// Leaves the lane when dropped, however the worker ends.
struct Leave<'a>(&'a Lane);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Works until the lane is closed and empty.
pub(crate) fn work(lane: &Lane, worker: u32, crew: &Crew) {
    let _leave = Leave(lane);
    while let Some((task, start)) = lane.next(&*crew.clock) {
        let outcome = crew.outcome(&task);
        let end = crew.clock.now();
        lane.finish(&task);
        // A panic of the sink must not end the worker: later jobs need it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if crew.trace {
                crew.sink.span(crew.span((lane, worker), &task, &outcome, (start, end)));
            }
            crew.report(&task.work, outcome, end.since(start));
        }));
    }
}

impl Crew {
    /// Executes `task`; a panic becomes a failure.
    fn outcome(&self, task: &Task) -> Outcome {
        let done = catch_unwind(AssertUnwindSafe(|| match &task.work {
            TaskWork::Move(job) => self.mover.run(job, task),
            TaskWork::Delete { checkpoint, tier } => self.delete(*checkpoint, *tier),
        }));
        match done.unwrap_or_else(|panic| Outcome::Failed(panicked(&*panic))) {
            Outcome::Failed(error) => Outcome::Failed(error.while_doing(self.describe(&task.work))),
            other => other,
        }
    }

    fn delete(&self, checkpoint: CheckpointId, tier: TierId) -> Outcome {
        let done = self.mover.tier(tier).delete(checkpoint);
        let waited = Nanos(0);
        done.map_or_else(|cause| Outcome::Failed(cause.into()), |()| Outcome::Done { waited })
    }

    /// Sends the one report of `work`.
    pub(crate) fn report(&self, work: &TaskWork, outcome: Outcome, took: Nanos) {
        let error = match &outcome {
            Outcome::Failed(error) => Some(error.clone()),
            _ => None,
        };
        let event = match work {
            TaskWork::Move(job) => report_of(job, &outcome, took),
            TaskWork::Delete { checkpoint, tier } => {
                Event::Deleted { checkpoint: *checkpoint, tier: *tier }
            }
        };
        self.sink.event(event, error);
    }

    fn describe(&self, work: &TaskWork) -> String {
        match work {
            TaskWork::Move(job) => {
                format!("{work}, from {} to {}", self.kind(job.from.tier), self.kind(job.to.tier))
            }
            TaskWork::Delete { tier, .. } => format!("{work} in {}", self.kind(*tier)),
        }
    }

    fn kind(&self, tier: TierId) -> TierKind {
        self.mover.kinds[usize::from(tier.0)]
    }

    fn span(
        &self,
        (lane, worker): (&Lane, u32),
        task: &Task,
        outcome: &Outcome,
        (start, end): (Nanos, Nanos),
    ) -> Span {
        let (label, tier, version, bytes) = match &task.work {
            TaskWork::Move(job) => (label(job.kind), job.to.tier, Some(job.version.0), job.bytes),
            TaskWork::Delete { tier, .. } => ("delete", *tier, None, 0),
        };
        let outcome = match outcome {
            Outcome::Done { .. } => "done",
            Outcome::Cancelled => "cancelled",
            Outcome::Failed(_) => "failed",
        };
        let (lane, tier, queued) = (Arc::clone(&lane.name), self.kind(tier), task.queued);
        Span { lane, worker, label, outcome, tier, version, bytes, queued, start, end }
    }
}

fn report_of(job: &Job, outcome: &Outcome, took: Nanos) -> Event {
    let transfer = job.transfer;
    match outcome {
        Outcome::Done { waited } => Event::TransferDone { transfer, took: took.since(*waited) },
        Outcome::Cancelled => Event::TransferCancelled { transfer },
        Outcome::Failed(error) => Event::TransferFailed { transfer, failure: error.kind() },
    }
}

fn panicked(panic: &(dyn Any + Send)) -> TransferError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "no message".to_owned());
    let message = format!("a worker panicked ({text}). This is a fault in Unspool; report it.");
    TransferError::new(Failure::Permanent, message)
}
