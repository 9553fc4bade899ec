//! The class `_unspool.RestartCore`: what `unspool.Checkpointer` is made of, and what reads what it
//! has stored as increments.

pub(crate) mod options;
mod ranks;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use unspool::Wait;
use unspool_restart::{
    Chains, Checkpointer, Listed, Manifest, Outcome, RemoteSettings, Settings, Stays, find,
    find_remote, list, list_remote, open_remote, remove, remove_copies,
};

use self::ranks::PyRanks;
use crate::errors::from_spool;
use crate::given;
use crate::panics::guarded;
use crate::spool::Spool;
use crate::waiting::{detached, waiting_for};

/// One rank's hold on the folder of a run.
#[pyclass(frozen, module = "unspool._unspool")]
pub(crate) struct RestartCore {
    checkpointer: Checkpointer,
    ranks: PyRanks,
}

/// Why a Checkpointer could not be opened: an error of ours, or what Python raised.
enum Unopened {
    Ours(unspool::Error),
    Raised(PyErr),
}

impl From<unspool::Error> for Unopened {
    fn from(error: unspool::Error) -> Unopened {
        Unopened::Ours(error)
    }
}

impl From<PyErr> for Unopened {
    fn from(raised: PyErr) -> Unopened {
        Unopened::Raised(raised)
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unopened::Ours(error) => error.fmt(f),
            Unopened::Raised(raised) => Python::attach(|py| raised.value(py).fmt(f)),
        }
    }
}

#[pymethods]
impl RestartCore {
    /// `make`: opens a durable `unspool.Spool` in the directory that it is given, and one without a
    /// disk where that is None.
    #[new]
    #[pyo3(signature = (
        path, ranks, make, *, every, keep, best, keep_every, stops, limit, mtbf, share, timeout,
        remote, remote_every, partner, increments
    ))]
    #[expect(clippy::too_many_arguments, reason = "each one is an option of the Python class")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        ranks: Py<PyAny>,
        make: Py<PyAny>,
        every: &Bound<'_, PyAny>,
        keep: u32,
        best: u32,
        keep_every: Option<u64>,
        stops: bool,
        limit: Option<&Bound<'_, PyAny>>,
        mtbf: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::share)] share: f64,
        #[pyo3(from_py_with = given::timeout)] timeout: f64,
        remote: Option<String>,
        remote_every: &Bound<'_, PyAny>,
        partner: Option<&Bound<'_, PyAny>>,
        increments: &Bound<'_, PyAny>,
    ) -> PyResult<RestartCore> {
        let increments = options::increments(increments)?;
        let ranks = PyRanks::of(py, ranks)?;
        let rule = options::rule(every, mtbf, share, unspool_restart::Ranks::size(&ranks))?;
        let limit = limit.map(|limit| options::time("Stop.limit", limit)).transpose()?;
        let timeout = crate::options::timeout(py, timeout)?;
        let partner = partner.map(|every| options::every("Copies.partner", every)).transpose()?;
        let remote_every = options::every("Copies.every", remote_every)?;
        let remote = remote
            .map(|place| RemoteSettings { every: remote_every, ..RemoteSettings::new(place) });
        let keep = keep.max(1);
        let settings = Settings {
            path,
            rule,
            keep,
            stays: Stays { best, every: keep_every },
            stops,
            limit,
            timeout,
            remote,
            partner,
            increments,
        };
        guarded(py, || {
            let mut raised_by_make = None;
            let opened = waiting_for(py, None, None, |wait| {
                let opened = Checkpointer::open(settings, &ranks, wait, |data| {
                    Python::attach(|py| -> Result<_, Unopened> {
                        let spool = make.bind(py).call1((data,))?;
                        Ok(spool.cast::<Spool>().map_err(PyErr::from)?.get().shared())
                    })
                });
                opened.map_err(|why| match why {
                    Unopened::Ours(error) => error,
                    Unopened::Raised(raised) => {
                        raised_by_make = Some(raised);
                        unspool::Error::new(
                            unspool::ErrorKind::Invalid,
                            "The spool was not opened.",
                        )
                    }
                })
            });
            let opened = opened
                .map_err(|error| raised_by_make.or_else(|| ranks.raised(py)).unwrap_or(error));
            Ok(RestartCore { checkpointer: opened?, ranks })
        })
    }

    /// What was found damaged at the opening, in sentences.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.checkpointer.warnings().to_vec()
    }

    /// The checkpoints of which a GPU has found what has changed.
    #[getter]
    fn hashed_on_gpu(&self) -> u64 {
        self.checkpointer.hashed_on_gpu()
    }

    /// What went wrong in the background and was not told yet: an exception, or None.
    fn take_failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.checkpointer.take_failure()?;
        Some(from_spool(py, &failure, None).into_value(py).into_any())
    }

    /// What went wrong with copies beyond the machine and was not told yet: a text, or None.
    fn take_copy_failure(&self) -> Option<String> {
        self.checkpointer.take_copy_failure().map(|failure| failure.message().to_owned())
    }

    /// How far the copies beyond the machine are: a dictionary, or None.
    fn copies<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(copies) = self.checkpointer.copies() else { return Ok(None) };
        let fields = PyDict::new(py);
        fields.set_item("place", copies.place)?;
        fields.set_item("steps", copies.steps)?;
        fields.set_item("copying", copies.copying)?;
        fields.set_item("skipped", copies.skipped)?;
        Ok(Some(fields))
    }

    fn stop(&self) {
        self.checkpointer.stop();
    }

    #[getter]
    fn stopping(&self) -> bool {
        self.checkpointer.stopping()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.checkpointer.is_closed()
    }

    #[getter]
    fn interval(&self) -> Option<f64> {
        self.checkpointer.interval()
    }

    fn due(&self, py: Python<'_>, step: u64) -> PyResult<bool> {
        self.talking(py, None, |_| self.checkpointer.due(step, &self.ranks))
    }

    fn begin(&self, py: Python<'_>, step: u64, values: String) -> PyResult<()> {
        self.talking(py, None, |wait| self.checkpointer.begin(step, values, &self.ranks, wait))
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || detached(py, None, || self.checkpointer.commit()))
    }

    fn abandon(&self) {
        self.checkpointer.abandon();
    }

    #[pyo3(signature = (unreadable=Vec::new()))]
    fn candidate(&self, py: Python<'_>, unreadable: Vec<u64>) -> PyResult<Option<u64>> {
        self.talking(py, None, |wait| self.checkpointer.candidate(&unreadable, &self.ranks, wait))
    }

    /// Fetches this rank's part of `step` where only the remote place has it.
    fn ready(&self, py: Python<'_>, step: u64) -> PyResult<()> {
        self.talking(py, None, |wait| self.checkpointer.ready(step, wait))
    }

    /// The spool to restore `step` from, when it is ready: None for the one that `make` has opened,
    /// else one that is to be closed.
    fn reading(&self, py: Python<'_>, step: u64) -> PyResult<Option<Spool>> {
        let own = self.checkpointer.spool();
        let found = self.talking(py, None, |wait| self.checkpointer.reading(step, wait))?;
        Ok((!Arc::ptr_eq(&found, own)).then(|| Spool::over(found)))
    }

    /// The checkpoints of any durable spool.
    #[staticmethod]
    fn chains(spool: &Bound<'_, Spool>) -> RestartChains {
        RestartChains(Mutex::new(Chains::of(spool.get().shared())))
    }

    /// Fetches it in place of what is here; whether the remote place has it.
    fn fetch(&self, py: Python<'_>, step: u64) -> PyResult<bool> {
        self.talking(py, None, |wait| self.checkpointer.fetch(step, wait))
    }

    /// `outcome`: `"restored"`, `"unreadable"` or `"refused"`.
    fn restored(
        &self,
        py: Python<'_>,
        step: u64,
        outcome: &str,
        why: String,
    ) -> PyResult<Vec<String>> {
        let outcome = match outcome {
            "restored" => Outcome::Restored,
            "unreadable" => Outcome::Unreadable(why),
            _ => Outcome::Refused(why),
        };
        self.talking(py, None, |_| self.checkpointer.restored(step, &outcome, &self.ranks))
    }

    /// The application has what was saved under `step`, and may go on from it.
    fn loaded(&self, step: u64) {
        self.checkpointer.loaded(step);
    }

    /// How good the checkpoint of `step` is: lower is better.
    fn score(&self, step: u64, score: f64) {
        self.checkpointer.score(step, score);
    }

    fn values(&self, py: Python<'_>, step: u64) -> PyResult<String> {
        self.talking(py, None, |wait| self.checkpointer.values(step, wait))
    }

    #[pyo3(signature = (timeout=None))]
    fn flush(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::maybe_timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = timeout.map(|seconds| crate::options::timeout(py, seconds)).transpose()?;
        self.talking(py, timeout, |wait| self.checkpointer.flush(wait))
    }

    /// `agree`: whether all ranks close, so that they can agree on what is there.
    #[pyo3(signature = (agree, timeout=None))]
    fn close(
        &self,
        py: Python<'_>,
        agree: bool,
        #[pyo3(from_py_with = given::maybe_timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = timeout.map(|seconds| crate::options::timeout(py, seconds)).transpose()?;
        let ranks = agree.then_some(&self.ranks as &(dyn unspool_restart::Ranks + Sync));
        self.talking(py, timeout, |wait| {
            self.checkpointer.close(ranks.map(|ranks| ranks as &dyn unspool_restart::Ranks), wait)
        })
    }

    fn give_up(&self) {
        self.checkpointer.give_up();
    }

    /// The checkpoints in a folder, and sentences about what is damaged there.
    #[staticmethod]
    fn listed(py: Python<'_>, path: PathBuf) -> PyResult<ListedWord<'_>> {
        guarded(py, || described_all(py, detached(py, None, || list(&path))?))
    }

    /// The checkpoints in a remote place, and sentences about what is damaged there.
    #[staticmethod]
    fn listed_remote(py: Python<'_>, place: String) -> PyResult<ListedWord<'_>> {
        guarded(py, || {
            described_all(py, waiting_for(py, None, None, |wait| list_remote(&place, wait))?)
        })
    }

    /// All parts of a checkpoint: the manifest as bytes, and the directory of arrays.
    #[staticmethod]
    #[pyo3(signature = (path, step=None))]
    fn found(
        py: Python<'_>,
        path: PathBuf,
        #[pyo3(from_py_with = given::maybe_step)] step: Option<u64>,
    ) -> PyResult<Vec<FoundWord>> {
        guarded(py, || {
            let found = detached(py, None, || find(&path, step))?;
            let word = |part: unspool_restart::FoundPart| {
                (RestartManifest(part.manifest), Some(part.data))
            };
            Ok(found.into_iter().map(word).collect())
        })
    }

    /// All parts of a checkpoint in a remote place, which have no directory.
    #[staticmethod]
    #[pyo3(signature = (place, step=None))]
    fn found_remote(
        py: Python<'_>,
        place: String,
        #[pyo3(from_py_with = given::maybe_step)] step: Option<u64>,
    ) -> PyResult<Vec<FoundWord>> {
        guarded(py, || {
            let found = waiting_for(py, None, None, |wait| find_remote(&place, step, wait))?;
            Ok(found.into_iter().map(|manifest| (RestartManifest(manifest), None)).collect())
        })
    }

    /// A spool in memory that has a part of a remote place, and is to be closed.
    #[staticmethod]
    fn opened_remote(
        py: Python<'_>,
        place: String,
        manifest: &Bound<'_, RestartManifest>,
    ) -> PyResult<Spool> {
        let manifest = &manifest.get().0;
        guarded(py, || {
            let found = waiting_for(py, None, None, |wait| open_remote(&place, manifest, wait));
            found.map(Spool::over)
        })
    }

    /// Removes the copies by which a rank's part of a step could come back: the number of those
    /// that it kept for others, and the remote place that had its own, or None.
    #[staticmethod]
    fn remove_copies(
        py: Python<'_>,
        path: PathBuf,
        rank: u32,
        ranks: u32,
        step: u64,
    ) -> PyResult<(usize, Option<String>)> {
        guarded(py, || {
            let removed = detached(py, None, || remove_copies(&path, rank, ranks, step))?;
            Ok((removed.kept, removed.remote))
        })
    }

    /// Makes one rank's part of a step count no more.
    #[staticmethod]
    fn remove(py: Python<'_>, path: PathBuf, rank: u32, ranks: u32, step: u64) -> PyResult<()> {
        guarded(py, || detached(py, None, || remove(&path, rank, ranks, step)))
    }
}

/// What says that a rank's part of a checkpoint counts.
#[pyclass(frozen, module = "unspool._unspool")]
struct RestartManifest(Manifest);

#[pymethods]
impl RestartManifest {
    #[getter]
    fn rank(&self) -> u32 {
        self.0.rank
    }

    #[getter]
    fn ranks(&self) -> u32 {
        self.0.ranks
    }

    #[getter]
    fn step(&self) -> u64 {
        self.0.step
    }

    #[getter]
    fn values(&self) -> &str {
        &self.0.values
    }

    /// The bytes of the manifest of a copy of the part that is stored in full.
    fn in_full<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &Manifest { increment: None, frame: None, ..self.0.clone() }.render())
    }
}

/// The checkpoints of a durable spool, put together one after the other.
#[pyclass(frozen, module = "unspool._unspool")]
struct RestartChains(Mutex<Chains>);

#[pymethods]
impl RestartChains {
    /// A spool that has a version in full and is to be closed; None where it lies there in full.
    fn put_together(&self, py: Python<'_>, version: i64) -> PyResult<Option<Spool>> {
        guarded(py, || {
            let found = detached(py, Some(version), || {
                let mut chains = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                chains.reader(version, &Wait::default())
            });
            Ok(found?.map(Spool::over))
        })
    }
}

/// Checkpoints, and sentences.
type ListedWord<'py> = (Vec<Bound<'py, PyDict>>, Vec<String>);

/// A part of a checkpoint.
type FoundWord = (RestartManifest, Option<PathBuf>);

impl RestartCore {
    /// Runs a call in which ranks may talk. What Python raises there is what the call raises.
    fn talking<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        work: impl FnOnce(&Wait<'_>) -> Result<T, unspool::Error> + Send,
    ) -> PyResult<T> {
        let done = guarded(py, || waiting_for(py, None, timeout, work));
        done.map_err(|raised| self.ranks.raised(py).unwrap_or(raised))
    }
}

fn described_all(
    py: Python<'_>,
    (listed, damaged): (Vec<Listed>, Vec<String>),
) -> PyResult<ListedWord<'_>> {
    let listed = listed.iter().map(|one| described(py, one)).collect::<PyResult<_>>()?;
    Ok((listed, damaged))
}

fn described<'py>(py: Python<'py>, one: &Listed) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("step", one.part.step)?;
    fields.set_item("run", one.part.run.to_string())?;
    fields.set_item("ranks", one.ranks)?;
    fields.set_item("has", &one.has)?;
    fields.set_item("counts", one.counts())?;
    fields.set_item("nbytes", one.bytes)?;
    fields.set_item("seconds", one.milliseconds as f64 / 1e3)?;
    fields.set_item("written", one.written)?;
    let increment = one.increment.as_ref();
    fields.set_item("stored", increment.map(|(bytes, _)| *bytes))?;
    let parents = increment.map(|(_, parents)| parents.iter().copied().collect::<Vec<_>>());
    fields.set_item("increment_to", parents.unwrap_or_default())?;
    Ok(fields)
}
