//! The energy that the machine takes while a spool is open. The counters are read in
//! `package/unspool/_energy.py`.

use pyo3::prelude::*;
use unspool::Spool;

/// What was taken since it was made, by counters that belong to the machine; by default nothing is
/// counted.
#[derive(Default, Debug)]
pub struct Energy(Option<Py<PyAny>>);

impl Energy {
    /// Begins to count for a spool: the GPU that it is on, if any, and the processors.
    ///
    /// # Errors
    /// Whatever Python raises that has nothing to do with counters.
    pub fn since_now(py: Python<'_>, spool: &Spool) -> PyResult<Energy> {
        let address = spool.gpu().map(|gpu| gpu.context().device().pci.clone());
        let since_now = py.import("unspool._energy")?.getattr("since_now")?;
        Ok(Energy(Some(since_now.call1((address,))?.unbind())))
    }

    /// An `unspool.stats.EnergyStats`, if it counts.
    ///
    /// # Errors
    /// As above.
    pub fn taken<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.as_ref().map(|since| since.bind(py).call0()).transpose()
    }
}
