//! Ranks as `unspool._restart.ranks` gives them: an object with `rank`, `size` and
//! `all_gather(message, seconds)`, which returns the message of each rank, and None for one that
//! did not answer in time.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use unspool_restart::{Ranks, Unanswered};

use crate::errors::{Class, error};

/// The ranks of a Python program.
pub(super) struct PyRanks {
    object: Py<PyAny>,
    rank: u32,
    size: u32,
    /// What was raised in an exchange and is not an error of it, such as `KeyboardInterrupt`.
    raised: Mutex<Option<PyErr>>,
}

impl PyRanks {
    pub(super) fn of(py: Python<'_>, object: Py<PyAny>) -> PyResult<PyRanks> {
        let number = |name| object.bind(py).getattr(name)?.extract::<u32>();
        let (rank, size) = (number("rank")?, number("size")?);
        if rank >= size {
            let text = format!("ranks=...: there is no rank {rank} of {size}.");
            return Err(error(py, Class::Option, text));
        }
        Ok(PyRanks { object, rank, size, raised: Mutex::new(None) })
    }

    /// What was raised in the last exchange, once.
    pub(super) fn raised(&self, py: Python<'_>) -> Option<PyErr> {
        // The lock is only ever held for a moment, by a thread that waits for nothing.
        py.detach(|| self.raised.lock().ok().and_then(|mut raised| raised.take()))
    }

    fn gather(&self, py: Python<'_>, mine: &[u8], timeout: Duration) -> PyResult<Answers> {
        let arguments = (PyBytes::new(py, mine), timeout.as_secs_f64());
        self.object.bind(py).call_method1("all_gather", arguments)?.extract()
    }
}

/// The message of each rank, None for those that did not answer.
type Answers = Vec<Option<Vec<u8>>>;

impl Ranks for PyRanks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, Unanswered> {
        let gathered = Python::attach(|py| {
            self.gather(py, mine, timeout).map_err(|raised| {
                let said = raised.value(py).to_string();
                if !raised.is_instance_of::<PyException>(py)
                    && let Ok(mut slot) = self.raised.lock()
                {
                    *slot = Some(raised);
                }
                Unanswered::Failed(format!("{said}."))
            })
        })?;
        Unanswered::unless_all(gathered)
    }
}
