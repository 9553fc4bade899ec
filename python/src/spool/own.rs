//! What the methods of `unspool.Spool` are made of, and how it goes.

use std::ffi::CString;
use std::sync::Arc;

use pyo3::exceptions::{PyKeyError, PyResourceWarning};
use pyo3::prelude::*;

use super::Spool;
use crate::codecs::UnseenNames;
use crate::energy::Energy;
use crate::front::Front;
use crate::gpu::{self, KeptArrays};
use crate::hints::RestoreOrder;
use crate::lend::{InPlace, Written};
use crate::load::{self, Wanted};
use crate::panics::guarded;
use crate::target::Target;
use crate::waiting::detached;

impl Spool {
    /// A spool that something else has opened. It is closed when it is dropped.
    pub(crate) fn over(spool: Arc<unspool::Spool>) -> Spool {
        Spool {
            front: Arc::new(Front::of(spool)),
            tiers: "memory".to_owned(),
            has_device_tier: false,
            kept: KeptArrays::default(),
            written: Arc::new(Written::new(false)),
            blocks: Arc::default(),
            unseen: UnseenNames::default(),
            order: RestoreOrder::default(),
            codec: None,
            learn: false,
            energy: Energy::default(),
        }
    }

    /// What the blocks of `writing` and `reading` need.
    pub(super) fn in_place(&self) -> InPlace {
        InPlace {
            spool: Arc::clone(self.spool()),
            gpu: self.spool().gpu().filter(|_| self.has_device_tier).cloned(),
            written: Arc::clone(&self.written),
            blocks: Arc::clone(&self.blocks),
        }
    }

    /// The spool in a line.
    pub(super) fn shown(&self, py: Python<'_>) -> String {
        let state = if self.spool().is_closed() {
            "closed".to_owned()
        } else {
            let count = detached(py, None, || self.spool().versions()).map(|found| found.len());
            count.map_or_else(|_| "not usable here".to_owned(), in_number)
        };
        format!("<unspool.Spool {}: {state}>", self.tiers)
    }

    /// The spool itself.
    pub(super) fn spool(&self) -> &Arc<unspool::Spool> {
        self.front.spool()
    }

    /// The same for what is built on a spool.
    pub(crate) fn shared(&self) -> Arc<unspool::Spool> {
        Arc::clone(self.spool())
    }

    /// The same for loops of JAX.
    pub(crate) fn shared_front(&self) -> Arc<Front> {
        Arc::clone(&self.front)
    }

    /// Runs a call about `version`: panics end here, and errors name it, and the block of this
    /// thread that the call waited for.
    pub(crate) fn call<T>(
        &self,
        py: Python<'_>,
        version: i64,
        work: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        guarded(py, work).map_err(|raised| self.blocks.explained(py, raised, version))
    }

    /// All of `version`, as arrays of a library.
    pub(crate) fn loaded<'py>(
        &self,
        py: Python<'py>,
        version: i64,
        wanted: Wanted<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, version, || {
            self.order.restoring(py, self.spool())?;
            load::load(py, self.target(None)?, version, wanted)
        })
    }

    /// Warns that this spool was not closed, unless it belongs to the process before a fork.
    pub(super) fn warn_of_drop(&self, py: Python<'_>) {
        if self.spool().versions().is_err() {
            return;
        }
        let text = format!(
            "a spool was dropped while it was open ({}): use `with`, or call close()",
            self.tiers
        );
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        if let Err(raised) = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &text, 1) {
            raised.write_unraisable(py, None);
        }
    }

    /// What a call needs; `stream` is its argument.
    pub(crate) fn target(&self, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Target<'_>> {
        let spool = self.spool();
        let (kept, written, blocks) = (&self.kept, &*self.written, &*self.blocks);
        let (unseen, stream) = (&self.unseen, gpu::handle(stream)?);
        Ok(Target { spool, kept, written, blocks, unseen, stream })
    }
}

/// Discards all checkpoints.
///
/// # Errors
/// `ClosedError`.
pub(super) fn clear(slf: &Bound<'_, Spool>) -> PyResult<()> {
    let (py, this) = (slf.py(), slf.get());
    for version in this.versions(py)? {
        match Spool::discard(slf, version) {
            // Another thread was faster.
            Err(raised) if raised.is_instance_of::<PyKeyError>(py) => {}
            done => done?,
        }
    }
    Ok(())
}

fn in_number(checkpoints: usize) -> String {
    format!("{checkpoints} checkpoint{}", if checkpoints == 1 { "" } else { "s" })
}
