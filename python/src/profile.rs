//! A spool with a profile: every call is reported to its `Watch` of `unspool.accumulate`.

use std::path::Path;

use pyo3::prelude::*;
use unspool::Accumulate;

use crate::errors::{Class, error};
use crate::spool::Spool;

/// The watch of a spool, if it has one. Without one every method does nothing.
#[derive(Default, Debug)]
pub(crate) struct Profile(Option<Py<PyAny>>);

impl Profile {
    /// Reads the file, or prepares to write it. A plan may hold checkpoints as `held` says.
    pub fn open(
        path: &Path,
        codec: Option<&Bound<'_, PyAny>>,
        held: Accumulate,
        py: Python<'_>,
    ) -> PyResult<Profile> {
        let Some(codec) = codec else {
            let text = "Spool(profile=...): a profile says what to compress: give a codec as well.";
            return Err(error(py, Class::Option, text));
        };
        let module = py.import("unspool.accumulate")?;
        let arguments = (path, codec.repr()?, held.checkpoints, held.bytes);
        let watch = module.call_method1("open_profile", arguments)?;
        Ok(Profile(Some(watch.unbind())))
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// What the plan decides for the next save; `None` without a plan.
    pub fn before_save(&self, spool: &Bound<'_, Spool>) -> PyResult<Option<String>> {
        let Some(watch) = self.watch(spool.py()) else { return Ok(None) };
        watch.call_method1("before_save", (spool,))?.extract()
    }

    /// A save has returned.
    pub fn after_save(&self, spool: &Bound<'_, Spool>, version: i64) -> PyResult<()> {
        let Some(watch) = self.watch(spool.py()) else { return Ok(()) };
        watch.call_method1("after_save", (spool, version)).map(drop)
    }

    /// Saves are over for now: what was saved may go.
    pub fn finish(&self, spool: &Bound<'_, Spool>) -> PyResult<()> {
        let Some(watch) = self.watch(spool.py()) else { return Ok(()) };
        watch.call_method1("finish", (spool,)).map(drop)
    }

    /// The run has failed: it is not an example for others.
    pub fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        let Some(watch) = self.watch(py) else { return Ok(()) };
        watch.call_method0("abandon").map(drop)
    }

    /// The spool closes.
    pub fn closing(&self, spool: &Bound<'_, Spool>) -> PyResult<()> {
        let Some(watch) = self.watch(spool.py()) else { return Ok(()) };
        watch.call_method1("closing", (spool,)).map(drop)
    }

    fn watch<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyAny>> {
        self.0.as_ref().map(|watch| watch.bind(py))
    }
}
