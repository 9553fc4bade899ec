//! Ranks as `unspool._restart.ranks` gives them: an object with `rank`, `size` and
//! `all_gather(message, seconds)`, which returns the message of each rank, and None for one that
//! did not answer in time; and perhaps `swap(message, to, source, seconds)`, which gives a message
//! to one rank and returns that of another one, or None.

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
    /// It has `swap`.
    swaps: bool,
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
        let swaps = object.bind(py).hasattr("swap")?;
        Ok(PyRanks { object, rank, size, swaps, raised: Mutex::new(None) })
    }

    /// What was raised in the last exchange, once.
    pub(super) fn raised(&self, py: Python<'_>) -> Option<PyErr> {
        // The lock is only ever held for a moment, by a thread that waits for nothing.
        py.detach(|| self.raised.lock().ok().and_then(|mut raised| raised.take()))
    }

    /// What a call of the object gives; what it raises is an exchange that failed.
    fn asked<T: Send>(
        &self,
        ask: impl FnOnce(Python<'_>) -> PyResult<T> + Send,
    ) -> Result<T, Unanswered> {
        Python::attach(|py| {
            ask(py).map_err(|raised| {
                let said = raised.value(py).to_string();
                if !raised.is_instance_of::<PyException>(py)
                    && let Ok(mut slot) = self.raised.lock()
                {
                    *slot = Some(raised);
                }
                Unanswered::Failed(format!("{said}."))
            })
        })
    }

    fn swap(
        &self,
        py: Python<'_>,
        (mine, to, from): (&[u8], u32, u32),
        timeout: Duration,
    ) -> PyResult<Option<Vec<u8>>> {
        let arguments = (PyBytes::new(py, mine), to, from, timeout.as_secs_f64());
        self.object.bind(py).call_method1("swap", arguments)?.extract()
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
        Unanswered::unless_all(self.asked(|py| self.gather(py, mine, timeout))?)
    }

    fn pass(
        &self,
        mine: &[u8],
        to: u32,
        from: u32,
        timeout: Duration,
    ) -> Result<Vec<u8>, Unanswered> {
        if !self.swaps {
            let all = self.all_gather(mine, timeout)?;
            return all.into_iter().nth(from as usize).ok_or(Unanswered::Late(vec![from]));
        }
        let given = self.asked(|py| self.swap(py, (mine, to, from), timeout))?;
        given.ok_or(Unanswered::Late(vec![from]))
    }
}
