//! What the doctor found, as plain dictionaries: `python/unspool/diagnosis/facts.py` makes objects
//! of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool::doctor::{
    Checkup, Cuda, Device, Diagnosis, Disk, Finding, Host, Leftover, Links, Nvrtc, Owner, PciPort,
    Turns,
};

use crate::panics::guarded;

/// The longest limit: a day.
const LONGEST: f64 = 86_400.0;

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
    let all = PyDict::new(py);
    all.set_item("version", found.version)?;
    all.set_item("host", host(py, &found.host)?)?;
    all.set_item("cuda", cuda(py, &found.cuda)?)?;
    let devices = found.cuda.devices.iter().map(|one| device(py, one));
    all.set_item("devices", devices.collect::<PyResult<Vec<_>>>()?)?;
    all.set_item("kernels", &found.kernels.sentence)?;
    all.set_item("nvrtc", nvrtc(py, &found.nvrtc)?)?;
    all.set_item("turns", turns(py, &found.turns)?)?;
    all.set_item("disk", found.disk.as_ref().map(|found| disk(py, found)).transpose()?)?;
    all.set_item("automatic_device", found.automatic.device.as_deref())?;
    all.set_item("automatic_host", &found.automatic.host)?;
    let findings = found.findings.iter().map(|one| finding(py, one));
    all.set_item("findings", findings.collect::<PyResult<Vec<_>>>()?)?;
    Ok(all)
}

fn host<'py>(py: Python<'py>, host: &Host) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("kernel", host.kernel.as_deref())?;
    all.set_item("cores", host.cores)?;
    all.set_item("total", host.total)?;
    all.set_item("available", host.available)?;
    all.set_item("free", host.free)?;
    all.set_item("limit", &host.limit)?;
    all.set_item("promised", host.promised)?;
    all.set_item("locked_soft", host.locked_soft)?;
    all.set_item("locked_hard", host.locked_hard)?;
    all.set_item("huge_pages", host.huge_pages.name())?;
    all.set_item("strict_overcommit", host.strict_overcommit)?;
    Ok(all)
}

fn cuda<'py>(py: Python<'py>, cuda: &Cuda) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let driver = cuda.driver.as_ref();
    all.set_item("looked_for", cuda.looked_for)?;
    all.set_item("version", driver.map(|driver| driver.cuda))?;
    all.set_item("path", driver.and_then(|driver| text(driver.path.as_deref())))?;
    all.set_item("module", driver.and_then(|driver| driver.module.as_deref()))?;
    all.set_item("problem", cuda.problem.as_deref())?;
    Ok(all)
}

fn device<'py>(py: Python<'py>, device: &Device) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("ordinal", device.info.ordinal)?;
    all.set_item("name", &device.info.name)?;
    all.set_item("compute_capability", device.info.compute_capability)?;
    all.set_item("free", device.free)?;
    all.set_item("total", device.info.memory)?;
    all.set_item("maps_in_pieces", device.info.maps_in_pieces)?;
    all.set_item("copy_engines", device.info.copy_engines)?;
    all.set_item("pci", &device.info.pci)?;
    all.set_item("link_now", device.pci.now.map(|port| link(py, port)).transpose()?)?;
    all.set_item("link_most", device.pci.most.map(|port| link(py, port)).transpose()?)?;
    all.set_item("numa_node", device.pci.numa_node)?;
    all.set_item("start_seconds", device.start.map(|start| start.as_secs_f64()))?;
    all.set_item("speeds", device.links.map(|links| speeds(py, links)).transpose()?)?;
    all.set_item("pins_are_locked", device.pins_are_locked)?;
    all.set_item("problem", device.problem.as_deref())?;
    Ok(all)
}

fn link(py: Python<'_>, port: PciPort) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("generation", port.generation())?;
    all.set_item("lanes", port.lanes)?;
    all.set_item("bytes_per_second", port.bytes_per_second())?;
    Ok(all)
}

fn speeds(py: Python<'_>, links: Links) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("device_to_host", links.speeds.device_to_host)?;
    all.set_item("host_to_device", links.speeds.host_to_device)?;
    all.set_item("both_each", links.speeds.both_each)?;
    all.set_item("within_device", links.speeds.device_to_device)?;
    all.set_item("copy_bytes", links.bytes)?;
    all.set_item("copies", links.rounds)?;
    Ok(all)
}

fn nvrtc<'py>(py: Python<'py>, nvrtc: &Nvrtc) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("path", text(nvrtc.path.as_deref()))?;
    all.set_item("version", nvrtc.version)?;
    all.set_item("problem", nvrtc.problem.as_deref())?;
    Ok(all)
}

fn turns<'py>(py: Python<'py>, turns: &Turns) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("path", text(Some(&turns.path)))?;
    all.set_item("exists", turns.exists)?;
    all.set_item("holder", turns.holder)?;
    all.set_item("problem", turns.problem.as_deref())?;
    Ok(all)
}

fn disk<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let mount = disk.mount.as_ref();
    all.set_item("directory", text(Some(&disk.dir)))?;
    all.set_item("file_system", mount.map(|mount| mount.kind.as_str()))?;
    all.set_item("mount_point", mount.and_then(|mount| text(Some(&mount.point))))?;
    all.set_item("source", mount.map(|mount| mount.source.as_str()))?;
    all.set_item("free", disk.free)?;
    all.set_item("total", disk.total)?;
    all.set_item("direct", disk.direct)?;
    all.set_item("direct_problem", disk.direct_problem.as_deref())?;
    all.set_item("io_uring", disk.io_uring)?;
    all.set_item("io_uring_problem", disk.io_uring_problem.as_deref())?;
    all.set_item("notes", &disk.notes)?;
    all.set_item("write", disk.rates.map(|rates| rates.write))?;
    all.set_item("read", disk.rates.map(|rates| rates.read))?;
    all.set_item("written_bytes", disk.rates.map_or(0, |rates| rates.bytes))?;
    all.set_item("frame_bytes", disk.rates.map_or(0, |rates| rates.frame))?;
    let spools = disk.spools.iter().map(|spool| leftover(py, spool));
    all.set_item("spools", spools.collect::<PyResult<Vec<_>>>()?)?;
    all.set_item("problem", disk.problem.as_deref())?;
    Ok(all)
}

fn leftover<'py>(py: Python<'py>, spool: &Leftover) -> PyResult<Bound<'py, PyDict>> {
    let (owner, pid) = match spool.owner {
        Owner::Alive { pid } => ("alive", pid),
        Owner::Dead { pid } => ("dead", pid),
        Owner::Unknown { pid } => ("unknown", pid),
    };
    let all = PyDict::new(py);
    all.set_item("path", text(Some(&spool.path)))?;
    all.set_item("bytes", spool.bytes)?;
    all.set_item("owner", owner)?;
    all.set_item("pid", pid)?;
    Ok(all)
}

fn finding<'py>(py: Python<'py>, finding: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("level", finding.level.name())?;
    all.set_item("about", &finding.about)?;
    all.set_item("what", &finding.what)?;
    all.set_item("meaning", &finding.meaning)?;
    all.set_item("remedy", &finding.remedy)?;
    Ok(all)
}

/// Paths are only shown: what is no Unicode in them is replaced.
fn text(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.to_string_lossy().into_owned())
}
