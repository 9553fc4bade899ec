//! The spools that are open, so that the interpreter closes them when it exits.

use std::sync::{Arc, Mutex, Weak};

use pyo3::prelude::*;
use crate::front::Front;

static LIVE: Mutex<Vec<Weak<Front>>> = Mutex::new(Vec::new());

/// Remembers an open spool for as long as it lives.
pub fn remember(spool: &Arc<Front>) {
    // The lock is only ever held while Python is attached, so that nobody holds it here; should
    // it be lost all the same, the spool is closed when it is dropped.
    if let Ok(mut live) = LIVE.try_lock() {
        live.retain(|known| known.strong_count() > 0);
        live.push(Arc::downgrade(spool));
    }
}

/// Closes every spool that is still open. Runs at exit, when nobody is left to be told of errors.
#[pyfunction]
pub fn close_all(py: Python<'_>) {
    let known = LIVE.try_lock().map(|mut live| std::mem::take(&mut *live)).unwrap_or_default();
    let open: Vec<Arc<Front>> = known.iter().filter_map(Weak::upgrade).collect();
    py.detach(|| {
        for spool in open {
            let _ = spool.close();
        }
    });
}
