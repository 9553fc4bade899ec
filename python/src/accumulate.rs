//! Plans of accumulated compression: a question as a `dict`, the answer as one.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use unspool_core::Nanos;
use unspool_schedule::accumulate::{
    AccumulatePlan, CheckpointDecision, CheckpointProfile, Curve, Effort, End, Mistake, Packer,
    Problem, RunTimes, Simple, Worst, follow, plan,
};
use unspool_schedule::forecast::Rate;

use crate::errors::{Class, error, sentence};
use crate::panics::guarded;

/// The best schedule, and what it and the simple ones cost.
#[pyfunction]
#[pyo3(name = "plan_accumulation")]
pub(crate) fn run_plan<'py>(
    py: Python<'py>,
    asked: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let problem = problem_of(asked)?;
    let found = guarded(py, || Ok(py.detach(|| all(&problem))))?;
    let (found, simple) = found.map_err(|why| sentence(py, Class::Option, &why))?;
    let fields = outcome(py, &found.outcome)?;
    fields.set_item("decisions", names(&found.decisions))?;
    fields.set_item("at_least", seconds(found.at_least))?;
    let others = PyDict::new(py);
    for (name, (decisions, cost)) in simple {
        let one = outcome(py, &cost)?;
        one.set_item("decisions", names(&decisions))?;
        others.set_item(name, one)?;
    }
    fields.set_item("simple", others)?;
    Ok(fields)
}

/// What a given schedule costs.
#[pyfunction]
#[pyo3(name = "follow_accumulation")]
pub(crate) fn run_follow<'py>(
    py: Python<'py>,
    asked: &Bound<'py, PyDict>,
    decisions: Vec<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let problem = problem_of(asked)?;
    let decision = |name: &String| {
        CheckpointDecision::of(name).ok_or_else(|| {
            let known = CheckpointDecision::ALL.map(CheckpointDecision::name).join(", ");
            let text = format!(
                "{name:?} is not a decision: a schedule has one of {known} for each checkpoint."
            );
            error(py, Class::Option, text)
        })
    };
    let decisions = decisions.iter().map(decision).collect::<PyResult<Vec<_>>>()?;
    let found = guarded(py, || Ok(follow(&problem, &decisions)))?;
    let fields = outcome(py, &found.map_err(|why| sentence(py, Class::Option, &why))?)?;
    fields.set_item("decisions", names(&decisions))?;
    Ok(fields)
}

/// A simple schedule by name, and what it costs.
type AccumulateRule = (&'static str, (Vec<CheckpointDecision>, RunTimes));

fn all(problem: &Problem) -> Result<(AccumulatePlan, Vec<AccumulateRule>), Mistake> {
    let found = plan(problem, Effort::for_problem(problem))?;
    let rules = [
        ("raw", Simple::Raw),
        ("alone", Simple::Alone),
        ("full", Simple::Full),
        ("pays", Simple::Pays),
        ("batches", Simple::Batches(8)),
    ];
    let costed = |(name, rule): (&'static str, Simple)| {
        let decisions = rule.decisions(problem);
        let cost = follow(problem, &decisions)?;
        Ok((name, (decisions, cost)))
    };
    Ok((found, rules.into_iter().map(costed).collect::<Result<_, Mistake>>()?))
}

fn names(decisions: &[CheckpointDecision]) -> Vec<&'static str> {
    decisions.iter().map(|one| one.name()).collect()
}

fn problem_of(asked: &Bound<'_, PyDict>) -> PyResult<Problem> {
    let checkpoints: Vec<(f64, u64, u64)> = need(asked, "checkpoints")?;
    let checkpoint = |(interval, raw, packed): (f64, u64, u64)| {
        Ok(CheckpointProfile { interval: nanos(asked.py(), interval)?, raw, packed })
    };
    let application: bool = need(asked, "until_application")?;
    Ok(Problem {
        checkpoints: checkpoints.into_iter().map(checkpoint).collect::<PyResult<_>>()?,
        packer: packer(asked)?,
        cache: need(asked, "cache")?,
        copy: rate(asked, "copy")?,
        link: rate(asked, "link")?,
        end: if application { End::Application } else { End::Flushed },
        most_together: need(asked, "most_together")?,
    })
}

fn packer(asked: &Bound<'_, PyDict>) -> PyResult<Packer> {
    let points: Vec<(u64, f64)> = need(asked, "times")?;
    let point = |(bytes, time): (u64, f64)| Ok((bytes, nanos(asked.py(), time)?));
    let points = points.into_iter().map(point).collect::<PyResult<Vec<_>>>()?;
    let time = Curve::through(&points).map_err(|why| sentence(asked.py(), Class::Option, &why))?;
    Ok(Packer {
        time,
        worst: Worst {
            per_mille: need(asked, "worst_per_mille")?,
            fixed: need(asked, "worst_fixed")?,
        },
        in_place: need(asked, "in_place")?,
        compacts: need(asked, "compacts")?,
    })
}

fn rate(asked: &Bound<'_, PyDict>, key: &str) -> PyResult<Rate> {
    let (bytes_per_second, latency): (f64, f64) = need(asked, key)?;
    Ok(Rate { bytes_per_second, latency: nanos(asked.py(), latency)? })
}

fn nanos(py: Python<'_>, seconds: f64) -> PyResult<Nanos> {
    if !(0.0..1e9).contains(&seconds) {
        let text = format!("Times are numbers of seconds from 0 to 1e9: not {seconds}.");
        return Err(error(py, Class::Option, text));
    }
    Ok(Nanos((seconds * 1e9).round() as u64))
}

fn need<'py, T>(asked: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let value = asked.get_item(key)?.filter(|value| !value.is_none());
    let Some(value) = value else {
        return Err(error(asked.py(), Class::Option, format!("A plan needs {key:?}.")));
    };
    value.extract::<T>().map_err(Into::into)
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

fn outcome<'py>(py: Python<'py>, found: &RunTimes) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, time) in [
        ("seconds", found.end),
        ("computing", found.computing),
        ("room", found.room),
        ("copies", found.copies),
        ("codec", found.codec),
        ("last", found.last),
        ("blocked", found.blocked()),
    ] {
        fields.set_item(name, seconds(time))?;
    }
    fields.set_item("overhead", found.overhead())?;
    fields.set_item("counts", PyList::new(py, found.counts)?)?;
    fields.set_item("raw_bytes", found.raw_bytes)?;
    fields.set_item("link_bytes", found.link_bytes)?;
    Ok(fields)
}
