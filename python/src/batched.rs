//! Small checkpoints of a GPU that wait for a common launch of their encoder: what
//! `unspool.accumulate.Batched` is made of.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use unspool::{Accumulate, Batched, Error, Wait};

use crate::call::{self, How, save_pieces};
use crate::codecs;
use crate::copies::Copies;
use crate::options;
use crate::panics::guarded;
use crate::piece::ArrayPiece;
use crate::regions;
use crate::spool::Spool;
use crate::version::version;
use crate::waiting::{detached, waiting_for};

/// The most checkpoints of one launch that can be asked for.
const MOST_TOGETHER: u32 = 4096;

/// The longest that a plan holds a checkpoint: it knows when the others come, so that this is for
/// runs which stop on the way.
const HELD_BY_PLAN: Duration = Duration::from_secs(10);

/// What waits in front of a spool.
#[pyclass(module = "unspool._unspool", frozen)]
pub struct BatchCore {
    spool: Py<Spool>,
    most: Accumulate,
    /// `None` from `end` on.
    batched: Mutex<Option<Arc<Batched>>>,
}

#[pymethods]
impl BatchCore {
    /// What waits together is as many as `together` says, or as a plan likes.
    #[new]
    fn new(
        spool: Bound<'_, Spool>,
        together: Option<&Bound<'_, PyAny>>,
        has_plan: bool,
    ) -> PyResult<BatchCore> {
        if together.is_some() && spool.get().shared().checks_codecs() {
            let why = "check_codec=True looks at each checkpoint as it is saved, so none can be \
                       held for a launch with others; leave one of them out";
            return Err(options::wrong(spool.py(), "together", why));
        }
        let any = Accumulate { checkpoints: MOST_TOGETHER, ..Accumulate::default() };
        let mut most = together.map_or(Ok(any), most_together)?;
        if has_plan {
            most.held_at_most = HELD_BY_PLAN;
        }
        let batched = Batched::new(spool.get().shared(), most);
        Ok(BatchCore { spool: spool.unbind(), most, batched: Mutex::new(Some(Arc::new(batched))) })
    }

    /// The most checkpoints that wait together, and the most bytes of them.
    #[getter]
    fn most(&self) -> (u32, u64) {
        (self.most.checkpoints, self.most.bytes)
    }

    /// Copies arrays to where they wait, and gives all that waits to the spool if they come
    /// `together`. Those that are not all on a GPU are saved at once, after what waits.
    #[pyo3(signature = (version, arrays, named, stream, codec, together))]
    #[expect(clippy::too_many_arguments, reason = "those of `Batched.save`")]
    fn save(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
        arrays: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
        stream: Option<&Bound<'_, PyAny>>,
        codec: Option<&Bound<'_, PyAny>>,
        together: bool,
    ) -> PyResult<()> {
        let codec = codec.map(|codec| codecs::codecs(codec, "save(codec=...)")).transpose()?;
        let how = How { codec, overwrite: false, donate: false };
        let (this, batched) = (self.spool.bind(py).get(), self.batched());
        let target = this.target(stream)?;
        let (spool, codec) = (target.spool, how.codec.as_ref());
        let put = |mut copies: Copies<'_>,
                   pieces: &[ArrayPiece],
                   regions,
                   wait: &Wait<'_>|
         -> Result<_, Error> {
            let may_wait = pieces.iter().all(|piece| matches!(piece, ArrayPiece::Device(_)));
            if let Some(batched) = batched.as_ref().filter(|_| may_wait) {
                copies.begin_all();
                let wait = copies.wait(wait);
                let codec = codec.unwrap_or_else(|| spool.codecs());
                let checkpoint = spool.checkpoint_as(version, regions, codec)?;
                // SAFETY: the arrays live until the copies are done.
                unsafe { copies.keep(batched, checkpoint, &wait) }?;
                if together {
                    batched.hand_over(&wait)?;
                }
                return copies.finish();
            }
            batched.as_ref().map_or(Ok(()), |batched| batched.hand_over(wait))?;
            // SAFETY: as above.
            unsafe { save_pieces(spool, copies, version, regions, codec, wait) }
        };
        this.call(py, version, || call::save(target, version, &how, arrays, named, put))
    }

    /// Gives all that waits to the spool; or, if `version` is given, does so if it is among it.
    #[pyo3(signature = (version=None, timeout=None))]
    fn hand_over(
        &self,
        py: Python<'_>,
        version: Option<i64>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let Some(batched) = self.batched() else { return Ok(()) };
        let timeout = timeout.map(|seconds| options::timeout(py, seconds)).transpose()?;
        guarded(py, || {
            waiting_for(py, version, timeout, |wait| match version {
                None => batched.hand_over(wait),
                Some(version) => batched.hand_over_for(version, wait),
            })
        })
    }

    /// The versions that wait.
    fn waits(&self) -> Vec<i64> {
        self.batched().map_or_else(Vec::new, |batched| batched.waits())
    }

    /// As `Spool.regions`, also of what waits.
    fn regions<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let spool = self.spool.bind(py).get();
        match self.batched() {
            None => spool.regions(py, version),
            Some(batched) => spool.call(py, version, || {
                regions::describe(py, &*detached(py, Some(version), || batched.regions(version))?)
            }),
        }
    }

    /// Nothing waits from now on, and the memory in which it did is given back.
    fn end(&self, py: Python<'_>) {
        let batched = self.batched.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(batched));
    }
}

impl BatchCore {
    fn batched(&self) -> Option<Arc<Batched>> {
        self.batched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for BatchCore {
    /// Hands over what waits without holding up other Python threads.
    fn drop(&mut self) {
        Python::try_attach(|py| self.end(py));
    }
}

/// What is encoded together: a number of checkpoints, a size, or both as a pair.
fn most_together(value: &Bound<'_, PyAny>) -> PyResult<Accumulate> {
    let (count, most) = match value.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => (Some(pair.get_item(0)?), Some(pair.get_item(1)?)),
        _ if value.is_instance_of::<PyString>() => (None, Some(value.clone())),
        _ => (Some(value.clone()), None),
    };
    let checkpoints = match &count {
        None => Some(MOST_TOGETHER),
        Some(count) => options::whole(count).and_then(|count| u32::try_from(count).ok()),
    };
    let checkpoints = checkpoints.filter(|count| (1..=MOST_TOGETHER).contains(count));
    let Some(checkpoints) = checkpoints else {
        let shown = value.repr().map_or_else(|_| "this".to_owned(), |repr| repr.to_string());
        let why = format!(
            "{shown} is not a number of checkpoints from 1 to {MOST_TOGETHER}; write 32, \
             \"64MiB\", or both as (32, \"64MiB\")"
        );
        return Err(options::wrong(value.py(), "together", &why));
    };
    let bytes = most.map(|most| options::size("together", &most)).transpose()?.flatten();
    let usual = Accumulate::default();
    Ok(Accumulate { checkpoints, bytes: bytes.unwrap_or(usual.bytes), ..usual })
}
