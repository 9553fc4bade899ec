//! The class `_unspool.ScheduleCore`: any schedule of the core, whose actions are drawn in batches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool_schedule::{
    Action, AnySchedule, Counts, Fault, Interpreter, Level, Limits, Listed, MultiLevel,
    OnlineRevolve, Revolve, Schedule, ScheduleError, StoreAll, Trace, Uniform, ZCut,
};

use super::AT_ONCE;
use super::interpreter::{counted, refused};
use super::words::{self, ActionWord};
use crate::errors::{Class, error, sentence};
use crate::panics::guarded;

/// The longest trace that is written, in lines: some gigabytes of text.
const MOST_LINES: u64 = 200_000_000;

/// A schedule that is somewhere in its actions.
///
/// `unspool.schedules` makes them; every iteration has one of its own.
#[pyclass(frozen, module = "unspool._unspool")]
pub(crate) struct ScheduleCore {
    schedule: Mutex<AnySchedule>,
}

impl ScheduleCore {
    /// The schedule itself, to draw from.
    pub(crate) fn inner(&self) -> MutexGuard<'_, AnySchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another one that is as far as this one.
    pub(crate) fn fresh(&self) -> AnySchedule {
        self.inner().clone()
    }

    fn of(schedule: impl Into<AnySchedule>) -> ScheduleCore {
        ScheduleCore { schedule: Mutex::new(schedule.into()) }
    }

    fn made<S: Into<AnySchedule>>(
        py: Python<'_>,
        made: Result<S, ScheduleError>,
    ) -> PyResult<ScheduleCore> {
        made.map(ScheduleCore::of).map_err(|why| wrong(py, &why))
    }
}

fn wrong(py: Python<'_>, why: &ScheduleError) -> PyErr {
    sentence(py, Class::Schedule, why)
}

#[pymethods]
impl ScheduleCore {
    #[staticmethod]
    fn store_all(py: Python<'_>, steps: u64) -> PyResult<ScheduleCore> {
        guarded(py, || ScheduleCore::made(py, StoreAll::new(steps)))
    }

    #[staticmethod]
    fn revolve(py: Python<'_>, steps: u64, slots: u64) -> PyResult<ScheduleCore> {
        guarded(py, || ScheduleCore::made(py, Revolve::new(steps, slots)))
    }

    #[staticmethod]
    fn online_revolve(py: Python<'_>, slots: u64) -> PyResult<ScheduleCore> {
        guarded(py, || ScheduleCore::made(py, OnlineRevolve::new(slots)))
    }

    #[staticmethod]
    fn uniform(py: Python<'_>, steps: u64, slots: u64) -> PyResult<ScheduleCore> {
        guarded(py, || ScheduleCore::made(py, Uniform::new(steps, slots)))
    }

    /// `knob`: what `value` is: `"cuts"`, `"length"` or `"slots"`.
    #[staticmethod]
    fn z_cut(py: Python<'_>, steps: u64, knob: &str, value: u64) -> PyResult<ScheduleCore> {
        guarded(py, || {
            let made = match knob {
                "cuts" => ZCut::with_cuts(steps, value),
                "length" => ZCut::with_length(steps, value),
                _ => ZCut::with_slots(steps, value),
            };
            ScheduleCore::made(py, made)
        })
    }

    /// `levels`: of each tier its name, its slots or None, seconds to write and to read.
    #[staticmethod]
    fn multi_level(
        py: Python<'_>,
        steps: u64,
        levels: Vec<(String, Option<u64>, f64, f64)>,
        step_seconds: f64,
    ) -> PyResult<ScheduleCore> {
        let level =
            |(name, slots, write_seconds, read_seconds): (String, Option<u64>, f64, f64)| {
                let why = format!("There is no tier {name:?}: there are device, host and disk.");
                let tier =
                    words::tier_called(&name).ok_or_else(|| error(py, Class::Schedule, why))?;
                Ok(Level { tier, slots: slots.unwrap_or(u64::MAX), write_seconds, read_seconds })
            };
        let levels = levels.into_iter().map(level).collect::<PyResult<Vec<_>>>()?;
        guarded(py, || {
            ScheduleCore::made(py, py.detach(|| MultiLevel::new(steps, &levels, step_seconds)))
        })
    }

    /// A text in GPUZIP's format.
    #[staticmethod]
    fn trace(py: Python<'_>, text: &str) -> PyResult<ScheduleCore> {
        guarded(py, || {
            let parsed = py.detach(|| Trace::parse(text));
            parsed.map(ScheduleCore::of).map_err(|why| {
                error(py, Class::Schedule, format!("This is not a valid trace: {why}."))
            })
        })
    }

    /// Actions as tuples; they are checked.
    #[staticmethod]
    fn listed(words: &Bound<'_, PyAny>) -> PyResult<ScheduleCore> {
        let (py, actions) = (words.py(), words::actions(words)?);
        guarded(py, || {
            let listed = py.detach(|| Listed::new(actions));
            listed.map(ScheduleCore::of).map_err(|fault| refused(py, &fault))
        })
    }

    /// Another one that is as far as this one.
    fn copy(&self) -> ScheduleCore {
        ScheduleCore::of(self.fresh())
    }

    /// The number of steps, or None while it is not known.
    #[getter]
    fn steps(&self) -> Option<u64> {
        self.inner().steps()
    }

    /// The most copies that it keeps at a time.
    #[getter]
    fn slots(&self) -> u64 {
        self.inner().slots()
    }

    /// The next `count` actions, fewer at the end. As long as the number of steps is not known a
    /// `Forward` is the last one: it may end early.
    fn take(&self, py: Python<'_>, count: usize) -> PyResult<Vec<ActionWord>> {
        guarded(py, || {
            let mut schedule = self.inner();
            let mut taken = Vec::with_capacity(count.min(4096));
            while taken.len() < count {
                let Some(action) = schedule.next() else { break };
                taken.push(words::word(action));
                if matches!(action, Action::Forward { .. }) && schedule.steps().is_none() {
                    break;
                }
            }
            Ok(taken)
        })
    }

    /// The forward pass has ended with the working state being state `steps`.
    fn finish(&self, py: Python<'_>, steps: u64) -> PyResult<()> {
        let finish = || self.inner().finish(steps);
        guarded(py, || finish().map_err(|why| wrong(py, &why)))
    }

    /// What all actions that are left cost; this one stays where it is. `steps`: where the forward
    /// pass ends, for a schedule that does not know it.
    #[pyo3(signature = (steps=None))]
    fn counts<'py>(&self, py: Python<'py>, steps: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
        counted(py, &self.all_counts(py, steps)?)
    }
}

impl ScheduleCore {
    /// The same as the core counts it. Ctrl-C ends it.
    pub(crate) fn all_counts(&self, py: Python<'_>, steps: Option<u64>) -> PyResult<Counts> {
        let mut schedule = self.fresh();
        let mut interpreter = Interpreter::new(Limits::of(&schedule));
        loop {
            let mut ran = || py.detach(|| follow(&mut schedule, &mut interpreter, steps));
            match guarded(py, || Ok(ran()))? {
                Ran::On => py.check_signals()?,
                Ran::Out(Err(refusal)) => return Err(refusal.into_exception(py)),
                Ran::Out(Ok(())) => return Ok(interpreter.counts()),
            }
        }
    }
}

enum Ran {
    On,
    Out(Result<(), ScheduleRefusal>),
}

enum ScheduleRefusal {
    Fault(Fault),
    Schedule(ScheduleError),
    NoSteps,
}

impl ScheduleRefusal {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            ScheduleRefusal::Fault(fault) => refused(py, &fault),
            ScheduleRefusal::Schedule(why) => wrong(py, &why),
            ScheduleRefusal::NoSteps => {
                let text = "The number of steps is not known before the forward pass ends: give \
                            `steps` to see what the schedule does when it ends there.";
                error(py, Class::Schedule, text)
            }
        }
    }
}

impl From<Fault> for ScheduleRefusal {
    fn from(fault: Fault) -> ScheduleRefusal {
        ScheduleRefusal::Fault(fault)
    }
}

/// Follows many actions, but not so many that Ctrl-C would have to wait.
fn follow(schedule: &mut AnySchedule, interpreter: &mut Interpreter, steps: Option<u64>) -> Ran {
    for _ in 0..AT_ONCE {
        let Some(action) = schedule.next() else {
            return Ran::Out(interpreter.finish().map(|_| ()).map_err(ScheduleRefusal::from));
        };
        let followed = interpreter.see(&action).map_err(ScheduleRefusal::from);
        if let Err(refusal) = followed.and_then(|()| stop(schedule, interpreter, &action, steps)) {
            return Ran::Out(Err(refusal));
        }
    }
    Ran::On
}

/// Ends the forward pass of a schedule that does not know its steps where it has come to `steps`.
fn stop(
    schedule: &mut AnySchedule,
    interpreter: &mut Interpreter,
    action: &Action,
    steps: Option<u64>,
) -> Result<(), ScheduleRefusal> {
    if schedule.steps().is_some() {
        return Ok(());
    }
    let steps = steps.ok_or(ScheduleRefusal::NoSteps)?;
    match action {
        Action::Forward { to, .. } if *to >= steps => {
            schedule.finish(steps).map_err(ScheduleRefusal::Schedule)?;
            interpreter.stopped_at(steps).map_err(ScheduleRefusal::from)
        }
        _ => Ok(()),
    }
}

/// A schedule in GPUZIP's text format, which has no tiers and no discards.
///
/// Raises:
///     ScheduleError: an item is not an action, or the text would have too many lines: one for
///     each step of a `Forward`.
#[pyfunction]
pub(crate) fn trace_text(words: &Bound<'_, PyAny>) -> PyResult<String> {
    let (py, actions) = (words.py(), words::actions(words)?);
    let lines = actions.iter().map(lines).fold(0, u64::saturating_add);
    if lines > MOST_LINES {
        let text = format!(
            "The text would have {lines} lines, one for each step of a Forward: at most \
             {MOST_LINES} are written."
        );
        return Err(error(py, Class::Schedule, text));
    }
    guarded(py, || Ok(py.detach(|| Trace::write(actions))))
}

/// The most lines that an action takes in a trace.
fn lines(action: &Action) -> u64 {
    match *action {
        Action::Forward { from, to } => to.saturating_sub(from),
        _ => 1,
    }
}
