//! Small checkpoints of a GPU that wait for a common launch of their encoder: what
//! `unspool.accumulate.Batched` is made of.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use unspool::{Accumulate, Batched, Codecs, Error, Wait};

use crate::call::Target;
use crate::codecs;
use crate::copies::Copies;
use crate::errors::{Class, error};
use crate::load;
use crate::options;
use crate::panics::guarded;
use crate::piece::ArrayPiece;
use crate::regions::{Call, Given, specs};
use crate::spool::Spool;
use crate::version::version;
use crate::waiting::{detached, waiting};

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

    /// Copies arrays to where they wait. False, and nothing was done, where they are not all on a
    /// GPU.
    #[pyo3(signature = (version, arrays, named, stream, codec))]
    fn hold(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
        arrays: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
        stream: Option<&Bound<'_, PyAny>>,
        codec: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let Some(batched) = self.batched() else { return Ok(false) };
        let codec = codec.map(|codec| codecs::codecs(codec, "save(codec=...)")).transpose()?;
        let spool = self.spool.bind(py).get();
        let target = spool.target(stream)?;
        spool.call(py, version, || hold(&target, &batched, version, codec, arrays, named))
    }

    /// Gives all that waits to the spool; or, if `version` is given, does so if it is among it.
    #[pyo3(signature = (version=None))]
    fn hand_over(&self, py: Python<'_>, version: Option<i64>) -> PyResult<()> {
        let Some(batched) = self.batched() else { return Ok(()) };
        guarded(py, || {
            waiting(py, version, |wait| match version {
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
                load::describe(py, &*detached(py, Some(version), || batched.regions(version))?)
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
        let batched = self.batched.lock().unwrap_or_else(PoisonError::into_inner).take();
        Python::try_attach(|py| py.detach(|| drop(batched)));
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

fn hold(
    target: &Target<'_>,
    batched: &Batched,
    version: i64,
    codec: Option<Codecs>,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<bool> {
    let py = positional.py();
    target.kept.sweep(py);
    let given = Given::collect(Call { name: "save", version }, positional, named)?;
    let arrays = given.sources(&target.intake())?;
    let pieces = target.pieces(&arrays);
    if !pieces.iter().all(|piece| matches!(piece, ArrayPiece::Device(_))) {
        return Ok(false);
    }
    let regions = specs(&given, &arrays);
    codecs::check(py, codec.as_ref(), &regions)?;
    target.unseen.see(&regions);
    let save = |wait: &Wait<'_>| -> Result<_, Error> {
        let mut copies = Copies::new(target.spool, &pieces)?;
        copies.begin_all();
        let wait = copies.wait(wait);
        let checkpoint = match &codec {
            None => target.spool.checkpoint(version, regions),
            Some(codec) => target.spool.checkpoint_as(version, regions, codec),
        }?;
        // SAFETY: `arrays` lives until the copies are done: `copies` and `release` see to that.
        unsafe { copies.keep(batched, checkpoint, &wait) }?;
        copies.finish()
    };
    let saved = waiting(py, Some(version), |wait| {
        target.blocks.unless_stuck((target.spool, version), wait, save)
    })?;
    let marks = saved.map_err(|refusal| error(py, Class::Capacity, refusal))?;
    target.release(py, arrays, marks);
    Ok(true)
}
