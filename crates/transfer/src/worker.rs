//! The threads of a lane: each takes tasks, executes and reports them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use unspool_core::{CheckpointId, Event, Failure, Nanos, TierId, TierKind};

use crate::clock::Clock;
use crate::engine::{Report, Sink};
use crate::error::TransferError;
use crate::execute::{Mover, Outcome};
use crate::job::{Job, Task, TaskWork, label};
use crate::lane::Lane;
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
    while let Some(tasks) = lane.next(&*crew.clock) {
        let mut rest = &tasks[..];
        while !rest.is_empty() {
            let start = crew.clock.now();
            let (outcomes, waited) = crew.outcomes(rest);
            let end = crew.clock.now();
            let (ended, left) = rest.split_at(outcomes.len());
            rest = left;
            lane.finish(ended);
            // A panic of the sink must not end the worker: later jobs need it.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let times = shares(ended, start.plus(waited), end);
                if crew.trace {
                    crew.trace((lane, worker), (ended, &outcomes), (start, &times));
                }
                let ended = ended.iter().zip(outcomes).zip(times);
                crew.report(ended.map(|((task, outcome), (start, end))| {
                    report_of(&task.work, outcome, end.since(start))
                }));
            }));
        }
    }
}

/// The time from `start` to `end`, cut into the shares of `tasks` by their bytes.
fn shares(tasks: &[Arc<Task>], start: Nanos, end: Nanos) -> Vec<(Nanos, Nanos)> {
    let bytes = |task: &Arc<Task>| match &task.work {
        TaskWork::Move(job) => u128::from(job.bytes.max(1)),
        TaskWork::Delete { .. } => 1,
    };
    let (all, whole) = (tasks.iter().map(bytes).sum::<u128>(), u128::from(end.since(start).0));
    let (mut sum, mut begin) = (0, start);
    let share = |task| {
        sum += bytes(task);
        let until = start.plus(Nanos((whole * sum / all.max(1)) as u64));
        (std::mem::replace(&mut begin, until), until)
    };
    tasks.iter().map(share).collect()
}

impl Crew {
    /// Executes the first of `tasks`, and those after it that can be executed together with it.
    /// Returns their outcomes, and the time spent only waiting for the application's work on the
    /// bytes. A panic is a failure of the first.
    fn outcomes(&self, tasks: &[Arc<Task>]) -> (Vec<Outcome>, Nanos) {
        let done = catch_unwind(AssertUnwindSafe(|| match &tasks[0].work {
            TaskWork::Move(_) => self.mover.run(tasks),
            TaskWork::Delete { checkpoint, tier } => {
                (vec![self.delete(*checkpoint, *tier)], Nanos(0))
            }
        }));
        let failed =
            |panic: Box<dyn Any + Send>| (vec![Outcome::Failed(panicked(&*panic))], Nanos(0));
        let (mut outcomes, waited) = done.unwrap_or_else(failed);
        for (outcome, task) in outcomes.iter_mut().zip(tasks) {
            if let Outcome::Failed(error) = outcome {
                *error = error.clone().while_doing(self.describe(&task.work));
            }
        }
        (outcomes, waited)
    }

    fn delete(&self, checkpoint: CheckpointId, tier: TierId) -> Outcome {
        let done = self.mover.tier(tier).delete(checkpoint);
        done.map_or_else(|cause| Outcome::Failed(cause.into()), |()| Outcome::Done)
    }

    /// Sends reports, each of which is the one of its task.
    fn report(&self, reports: impl Iterator<Item = Report>) {
        let reports: Vec<_> = reports.collect();
        if !reports.is_empty() {
            self.sink.reports(reports);
        }
    }

    /// Sends the reports of tasks that are not executed.
    pub(crate) fn report_cancelled(&self, tasks: impl Iterator<Item = Arc<Task>>) {
        self.report(tasks.map(|task| report_of(&task.work, Outcome::Cancelled, Nanos(0))));
    }

    /// Puts tasks on the timeline, one after the other.
    fn trace(
        &self,
        by: (&Lane, u32),
        (tasks, outcomes): (&[Arc<Task>], &[Outcome]),
        (mut start, times): (Nanos, &[(Nanos, Nanos)]),
    ) {
        for ((task, outcome), (_, end)) in tasks.iter().zip(outcomes).zip(times) {
            self.sink.span(self.span(by, task, outcome, (start, *end)));
            start = *end;
        }
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
            Outcome::Done => "done",
            Outcome::Cancelled => "cancelled",
            Outcome::Failed(_) => "failed",
        };
        let (lane, tier, queued) = (Arc::clone(&lane.name), self.kind(tier), task.queued);
        Span { lane, worker, label, outcome, tier, version, bytes, queued, start, end }
    }
}

fn report_of(work: &TaskWork, outcome: Outcome, took: Nanos) -> Report {
    let event = match work {
        TaskWork::Move(job) => event_of(job, &outcome, took),
        TaskWork::Delete { checkpoint, tier } => {
            Event::Deleted { checkpoint: *checkpoint, tier: *tier }
        }
    };
    let error = match outcome {
        Outcome::Failed(error) => Some(error),
        Outcome::Done | Outcome::Cancelled => None,
    };
    Report { event, error }
}

fn event_of(job: &Job, outcome: &Outcome, took: Nanos) -> Event {
    let transfer = job.transfer;
    match outcome {
        Outcome::Done => Event::TransferDone { transfer, took },
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
