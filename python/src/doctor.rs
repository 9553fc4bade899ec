//! What the doctor found, as plain dictionaries: `package/unspool/_doctor/` judges and shows them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool::doctor::{Checkup, Device, Diagnosis, Disk, Nvrtc};

use crate::panics::guarded;

/// The longest limit: a day.
const LONGEST: f64 = 86_400.0;

/// A dictionary with fields of a record under their own names, and with more.
macro_rules! record {
    ($py:expr, $of:expr, [$($field:ident),*] $(, $name:ident: $value:expr)* $(,)?) => {{
        let all = PyDict::new($py);
        $(all.set_item(stringify!($field), &$of.$field)?;)*
        $(all.set_item(stringify!($name), $value)?;)*
        Ok::<_, PyErr>(all)
    }};
}

/// What this machine has, as nested dictionaries. `folders`: where the compiler for kernels may be;
/// `limit`: seconds that the driver, and then the disk, may take to answer.
#[pyfunction]
#[pyo3(signature = (disk, cuda, measure, folders, limit))]
pub fn examine(
    py: Python<'_>,
    disk: Option<PathBuf>,
    cuda: bool,
    measure: bool,
    folders: Vec<PathBuf>,
    limit: f64,
) -> PyResult<Bound<'_, PyDict>> {
    let limit = if limit.is_nan() { 0.0 } else { limit.clamp(0.0, LONGEST) };
    let limit = Duration::from_secs_f64(limit);
    let checkup =
        Checkup { disk, cuda, measure, nvrtc_folders: folders, limit, ..Checkup::default() };
    guarded(py, || whole(py, &py.detach(|| checkup.run())))
}

fn whole<'py>(py: Python<'py>, found: &Diagnosis) -> PyResult<Bound<'py, PyDict>> {
    let devices = found.cuda.devices.iter().map(|one| device(py, one));
    record!(py, found, [],
        version: env!("CARGO_PKG_VERSION"),
        host: record!(py, found.host, [cores, total, free, limit, locked_soft,
            locked_hard, turns])?,
        cuda: record!(py, found.cuda, [looked_for, version, path, problem])?,
        devices: devices.collect::<PyResult<Vec<_>>>()?,
        kernels: &found.kernels.sentence,
        compiled_on: &found.kernels.compiled_on,
        nvrtc: nvrtc(py, &found.nvrtc)?,
        disk: found.disk.as_ref().map(|one| disk(py, one)).transpose()?,
        automatic_device: &found.automatic.device,
        automatic_host: &found.automatic.host)
}

fn device<'py>(py: Python<'py>, device: &Device) -> PyResult<Bound<'py, PyDict>> {
    let speeds = device.speeds.map(|speeds| {
        record!(py, speeds, [device_to_host, host_to_device, both_each],
            within_device: speeds.device_to_device)
    });
    record!(py, device, [free, pins_are_locked, problem],
        ordinal: device.info.ordinal,
        name: &device.info.name,
        compute_capability: device.info.compute_capability,
        total: device.info.memory,
        maps_in_pieces: device.info.maps_in_pieces,
        pci: &device.info.pci,
        start_seconds: device.start.map(|start| start.as_secs_f64()),
        speeds: speeds.transpose()?)
}

fn nvrtc<'py>(py: Python<'py>, nvrtc: &Nvrtc) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("path", text(nvrtc.path.as_deref()))?;
    all.set_item("version", nvrtc.version)?;
    all.set_item("problem", nvrtc.problem.as_deref())?;
    Ok(all)
}

fn disk<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    record!(py, disk, [file_system, medium, free, total, direct, direct_problem, io_uring,
            io_uring_problem, write, read, problem],
        directory: text(Some(&disk.directory)))
}

/// Paths are only shown: what is not Unicode in them is replaced.
fn text(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.to_string_lossy().into_owned())
}
