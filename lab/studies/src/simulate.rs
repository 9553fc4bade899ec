//! The GPUs of a node in virtual time: a question as a `dict`, the answer as a list of them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool_core::{Nanos, TierConfig, TierKind, TransferKind};
use unspool_schedule::forecast::{
    ForecastJob, LinkSpeed, LinkUser, ProcessForecast, Rate, SharedLink, TogetherJob, Workload,
    forecast_together,
};

/// What a spool with a disk rounds copies up to.
const ALIGNMENT: u64 = 4096;

/// Bytes a second, and seconds of latency.
type Speed = (f64, f64);

/// Process, link, and whether upwards.
type User = (usize, usize, bool);

/// The processes of a node, one for each GPU.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    /// Name and bytes, fastest first.
    tiers: Vec<(String, u64)>,
    /// Towards the slower tier and back, for each link of one process alone.
    links: Vec<(Speed, Speed)>,
    /// Copies within the device.
    copies: Speed,
    /// Seconds of a step.
    compute: f64,
    /// Restores that are announced ahead; None: all.
    hints: Option<usize>,
    /// Sizes and the order of restores of each process; without an order they are commits.
    workloads: Vec<(Vec<u64>, Option<Vec<u64>>)>,
    /// Bytes a second of each shared link, and its users.
    shared: Vec<(f64, Vec<User>)>,
    /// Whether the processes wait for each other before every step.
    coupled: bool,
    /// The most bytes and transfers in flight in one direction of a link.
    in_flight: (u64, u32),
}

/// What each process takes, and bytes and most bytes a second of what they share.
type Answer<'py> = (Vec<Bound<'py, PyDict>>, Vec<(f64, f64)>);

/// Runs the core of a spool for each process of `asked`, in one virtual time.
#[pyfunction]
pub(crate) fn simulate<'py>(py: Python<'py>, asked: Asked) -> PyResult<Answer<'py>> {
    let job = asked.job()?;
    let found = py.detach(|| forecast_together(&job));
    let found = found.map_err(|why| PyValueError::new_err(why.to_string()))?;
    let processes = found.processes.iter().map(|one| answer(py, one)).collect::<PyResult<_>>()?;
    Ok((processes, found.shared.iter().map(|used| (used.bytes, used.most)).collect()))
}

impl Asked {
    fn job(self) -> PyResult<TogetherJob> {
        let links = self.links.iter().map(|pair| self.link(pair)).collect::<PyResult<Vec<_>>>()?;
        let copies = rate(self.copies)?;
        let job = ForecastJob {
            tiers: self.tiers.iter().map(tier).collect::<PyResult<Vec<_>>>()?,
            links,
            discard_after_restore: true,
            state_bytes: 0,
            reverse_bytes: 0,
            step_seconds: self.compute,
            reverse_seconds: self.compute,
            save: copies,
            restore: copies,
            compression: None,
            lookahead: self.hints.unwrap_or(usize::MAX),
            on_gpu: true,
            first_touch: 0.0,
            steps: None,
        };
        let workloads = self.workloads.into_iter().map(|(sizes, order)| match order {
            Some(order) => Workload::Shot { sizes, order },
            None => Workload::Commits { sizes },
        });
        let shared = self.shared.into_iter().map(|(bytes_per_second, users)| SharedLink {
            bytes_per_second,
            users: users.into_iter().map(user).collect(),
        });
        Ok(TogetherJob {
            job,
            workloads: workloads.collect(),
            shared: shared.collect(),
            is_coupled: self.coupled,
        })
    }

    fn link(&self, (down, up): &(Speed, Speed)) -> PyResult<LinkSpeed> {
        let (max_in_flight_bytes, max_in_flight) = self.in_flight;
        Ok(LinkSpeed {
            flush: rate(*down)?,
            prefetch: rate(*up)?,
            max_in_flight_bytes,
            max_in_flight,
            contention: 0.0,
        })
    }
}

fn tier((name, capacity): &(String, u64)) -> PyResult<TierConfig> {
    let kind = [TierKind::Device, TierKind::Host, TierKind::Disk]
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no tier {name:?}")))?;
    Ok(TierConfig { kind, capacity: *capacity, alignment: ALIGNMENT })
}

fn rate((bytes_per_second, latency): Speed) -> PyResult<Rate> {
    if !(latency.is_finite() && latency >= 0.0 && bytes_per_second.is_finite()) {
        return Err(PyValueError::new_err("speeds and latencies are finite and not negative"));
    }
    Ok(Rate { bytes_per_second, latency: Nanos((latency * 1e9) as u64) })
}

fn user((process, link, up): User) -> LinkUser {
    let way = if up { TransferKind::Prefetch } else { TransferKind::Flush };
    LinkUser { process, link, way }
}

fn answer<'py>(py: Python<'py>, found: &ProcessForecast) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    let forecast = &found.forecast;
    fields.set_item("bytes", found.bytes)?;
    for (name, seconds) in [
        ("seconds", forecast.seconds),
        ("compute_seconds", forecast.compute_seconds),
        ("save_seconds", found.save_seconds),
        ("restore_seconds", found.restore_seconds),
        ("save_stall_seconds", forecast.save_stall_seconds),
        ("restore_stall_seconds", forecast.restore_stall_seconds),
        ("meeting_seconds", found.meeting_seconds),
        ("flush_seconds", found.flush_seconds),
    ] {
        fields.set_item(name, seconds)?;
    }
    let served: Vec<u64> = forecast.tiers.iter().map(|tier| tier.restores).collect();
    let moved: Vec<(u64, u64)> = forecast.links.iter().map(|l| (l.flush, l.prefetch)).collect();
    fields.set_item("restores_from", served)?;
    fields.set_item("link_bytes", moved)?;
    Ok(fields)
}
