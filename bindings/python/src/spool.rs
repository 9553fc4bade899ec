//! The class `unspool.Spool`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::Settings;

use crate::errors::{Class, error};
use crate::panics::guarded;
use crate::waiting::{detached, waiting};
use crate::{call, live, load, options, sizes, stats};

/// One history of checkpoints with its tiers and workers; see `_unspool.pyi` for the whole
/// documentation of its methods.
#[pyclass(module = "unspool", frozen, weakref, subclass)]
#[derive(Debug)]
pub struct Spool {
    spool: Arc<unspool::Spool>,
    /// The tiers in words.
    tiers: String,
}

#[pymethods]
impl Spool {
    #[new]
    #[pyo3(signature = (device=None, host=None, disk=None, *, discard_after_restore=false,
                        policy="score", timeout=300.0, verify=true, trace=false, record=None,
                        **others))]
    #[expect(clippy::too_many_arguments, reason = "each one is an option of the Python class")]
    fn new(
        py: Python<'_>,
        device: Option<&Bound<'_, PyAny>>,
        host: Option<&Bound<'_, PyAny>>,
        disk: Option<&Bound<'_, PyAny>>,
        discard_after_restore: bool,
        policy: &str,
        timeout: f64,
        verify: bool,
        trace: bool,
        record: Option<&Bound<'_, PyAny>>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Spool> {
        options::no_others(py, others)?;
        let settings = Settings {
            device: device.map_or(Ok(None), |value| options::size("device", value))?,
            host: host.map_or(Ok(None), |value| options::size("host", value))?,
            disk: disk.map_or(Ok(None), options::disk)?,
            discard_after_restore,
            policy: options::policy(py, policy)?,
            timeout: options::timeout(py, timeout)?,
            verify,
            trace,
            record: record.map(|value| options::path("record", value)).transpose()?,
            ..Settings::default()
        };
        let tiers = in_words(&settings);
        guarded(py, || {
            let spool = Arc::new(detached(py, None, || unspool::Spool::open(settings))?);
            live::remember(&spool);
            Ok(Spool { spool, tiers })
        })
    }

    #[pyo3(signature = (version, /, *arrays, **named))]
    fn save(
        &self,
        version: i64,
        arrays: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        guarded(arrays.py(), || call::save(&self.spool, version, arrays, named))
    }

    #[pyo3(signature = (version, /, *arrays, **named))]
    fn restore(
        &self,
        version: i64,
        arrays: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        guarded(arrays.py(), || call::restore(&self.spool, version, arrays, named))
    }

    #[pyo3(signature = (version, /, *, to="numpy"))]
    fn load<'py>(&self, py: Python<'py>, version: i64, to: &str) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || load::load(py, &self.spool, version, to))
    }

    #[pyo3(signature = (version, /))]
    fn regions<'py>(&self, py: Python<'py>, version: i64) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || load::describe(py, &*call::head(py, &self.spool, version)?))
    }

    #[pyo3(signature = (versions, /, *, start=true))]
    fn expect(&self, py: Python<'_>, versions: &Bound<'_, PyAny>, start: bool) -> PyResult<()> {
        let versions = versions
            .try_iter()?
            .map(|version| version?.extract())
            .collect::<PyResult<Vec<i64>>>()?;
        guarded(py, || {
            detached(py, None, || {
                if !start {
                    self.spool.hold_prefetch()?;
                }
                self.spool.expect(versions)
            })
        })
    }

    fn forget_hints(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || detached(py, None, || self.spool.forget_hints()))
    }

    fn start_prefetch(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || detached(py, None, || self.spool.start_prefetch()))
    }

    fn hold_prefetch(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || detached(py, None, || self.spool.hold_prefetch()))
    }

    #[pyo3(signature = (version, /))]
    fn discard(&self, py: Python<'_>, version: i64) -> PyResult<()> {
        guarded(py, || detached(py, Some(version), || self.spool.discard(version)))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || waiting(py, None, |wait| self.spool.flush(wait)))
    }

    fn versions(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        guarded(py, || detached(py, None, || self.spool.versions()))
    }

    #[pyo3(signature = (version, /))]
    fn durable(&self, py: Python<'_>, version: i64) -> PyResult<bool> {
        guarded(py, || detached(py, Some(version), || self.spool.durable(version)))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || stats::to_python(py, &detached(py, None, || self.spool.stats())?))
    }

    #[pyo3(signature = (path, /))]
    fn write_trace(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = options::path("path", path)?;
        guarded(py, || detached(py, None, || self.spool.write_trace(&path)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || detached(py, None, || self.spool.close()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.spool.is_closed()
    }

    fn __contains__(&self, py: Python<'_>, version: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(version) = version.extract() else {
            return Ok(false);
        };
        guarded(py, || detached(py, Some(version), || self.spool.contains(version)))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.versions(py).map(|versions| versions.len())
    }

    /// An empty spool is still a spool: `spool or other` gives the spool.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.spool.is_closed() {
            "closed".to_owned()
        } else {
            let count = detached(py, None, || self.spool.versions()).map(|found| found.len());
            count.map_or_else(|_| "not usable here".to_owned(), |n| format!("{n} checkpoints"))
        };
        format!("<unspool.Spool {}: {state}>", self.tiers)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the spool. What goes wrong then does not hide an exception of the block: it is
    /// added to it as a note.
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        match self.close(py) {
            Err(failure) if !raised.is_none() => {
                let note = format!("Closing the spool failed as well: {}", failure.value(py));
                raised.call_method1("add_note", (note,))?;
                Ok(false)
            }
            outcome => outcome.map(|()| false),
        }
    }

    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = "A spool holds memory, files and threads of this process, so that it cannot \
                       be copied, pickled or sent to another one. Open a spool in each process.";
        Err(error(py, Class::NotPicklable, message))
    }
}

impl Drop for Spool {
    /// Closes the spool without holding up other Python threads.
    fn drop(&mut self) {
        if Arc::strong_count(&self.spool) > 1 || self.spool.is_closed() {
            return;
        }
        let closed = Python::try_attach(|py| py.detach(|| self.spool.close()));
        // Nobody is left to be told of an error, and the spool closes itself if Python could not
        // be attached.
        let _ = closed;
    }
}

fn in_words(settings: &Settings) -> String {
    let arena = |name: &str, bytes: Option<u64>| {
        bytes.map(|bytes| format!("{name}={:?}", sizes::display(bytes)))
    };
    let disk = settings.disk.as_ref().map(|disk| format!("disk={:?}", disk.path));
    let tiers = [arena("device", settings.device), arena("host", settings.host), disk];
    tiers.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
