//! Forecasts of schedules: a question as a `dict`, the answer as one.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use unspool::Settings;
use unspool_core::{Nanos, TierConfig, TierKind};
use unspool_schedule::AnySchedule;
use unspool_schedule::forecast::{
    Compression, Forecast, ForecastError, ForecastJob, LinkBytes, LinkSpeed, Rate, forecast,
    forecast_from_sample,
};

use crate::errors::{Class, error, sentence};
use crate::panics::guarded;
use crate::schedule::{ScheduleCore, counted};

/// What a spool rounds copies up to: with a disk among its tiers, and without.
const DISK_ALIGNMENT: u64 = 4096;
const ALIGNMENT: u64 = 256;

/// Predicts what the schedule costs on the machine and with the spool that `job` describes.
///
/// `sample`: a shorter schedule of the same shape, run instead of one that is too long.
#[pyfunction]
#[pyo3(name = "forecast", signature = (schedule, job, sample=None))]
pub(crate) fn run_forecast<'py>(
    py: Python<'py>,
    schedule: &ScheduleCore,
    job: &Bound<'py, PyDict>,
    sample: Option<&ScheduleCore>,
) -> PyResult<Bound<'py, PyDict>> {
    let job = job_of(job)?;
    let found = forecast_of(py, schedule.fresh(), &job)?;
    let found = match (found, sample) {
        (Err(ForecastError::TooLong { .. }), Some(sample)) => {
            let (whole, sample) = (schedule.all_counts(py, job.steps)?, sample.fresh());
            guarded(py, || Ok(py.detach(|| forecast_from_sample(&whole, sample, &job))))?
        }
        (found, _) => found,
    };
    found.map_or_else(|why| Err(refused(py, &why)), |found| answer(py, &found))
}

fn forecast_of(
    py: Python<'_>,
    schedule: AnySchedule,
    job: &ForecastJob,
) -> PyResult<Result<Forecast, ForecastError>> {
    guarded(py, || Ok(py.detach(|| forecast(schedule, job))))
}

fn refused(py: Python<'_>, why: &ForecastError) -> PyErr {
    let class = match why {
        ForecastError::DoesNotFit { .. } => Class::Capacity,
        ForecastError::Job(_) | ForecastError::Config(_) => Class::Option,
        _ => Class::Schedule,
    };
    sentence(py, class, why)
}

fn job_of(asked: &Bound<'_, PyDict>) -> PyResult<ForecastJob> {
    let tiers: Vec<(String, Option<u64>)> = need(asked, "tiers")?;
    let links: Vec<Bound<'_, PyDict>> = need(asked, "links")?;
    let contention = contention(asked, links.len())?;
    let links = links.iter().zip(contention).map(link).collect::<PyResult<Vec<_>>>()?;
    let state_bytes: u64 = need(asked, "state_bytes")?;
    let step_seconds: f64 = need(asked, "step_seconds")?;
    Ok(ForecastJob {
        discard_after_restore: false,
        state_bytes,
        reverse_bytes: find(asked, "reverse_bytes")?.unwrap_or(state_bytes),
        step_seconds,
        reverse_seconds: find(asked, "reverse_seconds")?.unwrap_or(step_seconds),
        save: rate(asked.py(), need(asked, "save")?)?,
        restore: rate(asked.py(), need(asked, "restore")?)?,
        lookahead: need(asked, "lookahead")?,
        on_gpu: need(asked, "on_gpu")?,
        first_touch: find(asked, "first_touch")?.unwrap_or(0.0),
        compression: find(asked, "compression")?.map(compression).transpose()?,
        steps: find(asked, "steps")?,
        tiers: tiers_of(asked.py(), &tiers)?,
        links,
    })
}

/// The codec: how small states become, and how fast.
fn compression(asked: Bound<'_, PyDict>) -> PyResult<Compression> {
    let way = |name| rate(asked.py(), need(&asked, name)?);
    Ok(Compression {
        ratio: need(&asked, "ratio")?,
        encode: way("encode")?,
        decode: way("decode")?,
    })
}

/// By how much a busy direction of each link slows the application: a figure for each, or one for
/// all. What was measured with every link flushing is `slowdown`, how many times as long it takes.
fn contention(asked: &Bound<'_, PyDict>, links: usize) -> PyResult<Vec<f64>> {
    let Some(value) = asked.get_item("contention")?.filter(|value| !value.is_none()) else {
        let all: f64 = find(asked, "slowdown")?.unwrap_or(1.0);
        return Ok(vec![(all - 1.0) / links.max(1) as f64; links]);
    };
    if let Ok(one) = value.extract::<f64>() {
        return Ok(vec![one; links]);
    }
    let each: Vec<f64> = value.extract()?;
    if each.len() == links {
        return Ok(each);
    }
    let text = format!("There are {links} links, and {} figures of contention.", each.len());
    Err(error(asked.py(), Class::Option, text))
}

/// The tiers with the alignment that a spool gives them.
fn tiers_of(py: Python<'_>, tiers: &[(String, Option<u64>)]) -> PyResult<Vec<TierConfig>> {
    let kinds = tiers.iter().map(|(name, _)| kind(py, name)).collect::<PyResult<Vec<_>>>()?;
    let disk = kinds.iter().any(|kind| !kind.is_arena());
    let alignment = if disk { DISK_ALIGNMENT } else { ALIGNMENT };
    let tier = |(kind, (_, capacity)): (&TierKind, &(String, Option<u64>))| TierConfig {
        kind: *kind,
        capacity: capacity.unwrap_or(u64::MAX),
        alignment,
    };
    Ok(kinds.iter().zip(tiers).map(tier).collect())
}

fn kind(py: Python<'_>, name: &str) -> PyResult<TierKind> {
    [TierKind::Device, TierKind::Host, TierKind::Disk]
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| error(py, Class::Option, format!("There is no tier {name:?}.")))
}

fn link((asked, contention): (&Bound<'_, PyDict>, f64)) -> PyResult<LinkSpeed> {
    let way = |name: &str| -> PyResult<Rate> {
        let speed = need(asked, &format!("{name}_rate"))?;
        let latency = find(asked, &format!("{name}_latency"))?.unwrap_or(0.0);
        rate(asked.py(), (speed, latency))
    };
    let usual = Settings::default();
    Ok(LinkSpeed {
        flush: way("flush")?,
        prefetch: way("prefetch")?,
        max_in_flight_bytes: find(asked, "in_flight_bytes")?.unwrap_or(usual.in_flight_bytes),
        max_in_flight: find(asked, "in_flight")?.unwrap_or(usual.in_flight),
        contention: find(asked, "contention")?.unwrap_or(contention),
    })
}

/// Bytes a second, and seconds that every copy takes besides.
fn rate(py: Python<'_>, (bytes_per_second, latency): (f64, f64)) -> PyResult<Rate> {
    if !(latency.is_finite() && latency >= 0.0) {
        let text = format!("A latency is a finite number of seconds, 0 or more: not {latency}.");
        return Err(error(py, Class::Option, text));
    }
    Ok(Rate { bytes_per_second, latency: Nanos((latency * 1e9) as u64) })
}

fn find<'py, T>(asked: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let value = asked.get_item(key)?.filter(|value| !value.is_none());
    value.map(|value| value.extract::<T>().map_err(Into::into)).transpose()
}

fn need<'py, T>(asked: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    find(asked, key)?.ok_or_else(|| {
        error(asked.py(), Class::Option, format!("A forecast needs {key:?} in its job."))
    })
}

fn answer<'py>(py: Python<'py>, found: &Forecast) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, seconds) in [
        ("seconds", found.seconds),
        ("compute_seconds", found.compute_seconds),
        ("copy_seconds", found.copy_seconds),
        ("save_stall_seconds", found.save_stall_seconds),
        ("restore_stall_seconds", found.restore_stall_seconds),
    ] {
        fields.set_item(name, seconds)?;
    }
    let (peaks, restores) = (PyDict::new(py), PyDict::new(py));
    for tier in &found.tiers {
        peaks.set_item(tier.kind.name(), tier.peak)?;
        restores.set_item(tier.kind.name(), tier.restores)?;
    }
    fields.set_item("counts", counted(py, &found.counts)?)?;
    fields.set_item("peak_bytes", peaks)?;
    fields.set_item("restores_from", restores)?;
    let moved = |link: &LinkBytes| (link.flush, link.prefetch);
    fields.set_item("link_bytes", PyList::new(py, found.links.iter().map(moved))?)?;
    fields.set_item("lead", lead(py, found)?)?;
    Ok(fields)
}

/// Smallest, median, largest and mean; None when no restore was announced.
fn lead<'py>(py: Python<'py>, found: &Forecast) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let lead = &found.lead;
    let figures = (lead.min, lead.median, lead.max, lead.mean);
    (lead.samples > 0).then(|| figures.into_pyobject(py)).transpose()
}
