//! `with spool.writing(...)`: a checkpoint that is computed in place.

use std::sync::{Arc, Mutex};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool::gpu::Gpu;
use unspool::{Dtype, Region, RegionSpec, SaveTicket, Spool, Wait};

use super::block::Block;
use super::items::Items;
use super::{DeviceBuffer, HostBuffer, adopt, arrange, streams};
use crate::errors::{Class, error};
use crate::waiting::{detached, waiting};

/// A `with` block in which a checkpoint is computed in place; see `Spool.writing`.
#[pyclass(module = "unspool", frozen)]
#[derive(Debug)]
pub struct Writing {
    spool: Arc<Spool>,
    /// The GPU in whose memory the fastest tier is.
    gpu: Option<Gpu>,
    version: i64,
    /// The stream that the caller gave, and the object that it came from.
    stream: Option<usize>,
    _given: Option<Py<PyAny>>,
    to: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Not yet entered.
    New(Vec<RegionSpec>),
    /// Inside of the block.
    Open(Box<SaveTicket>, Arc<Block>),
    /// Left.
    Done,
}

/// What is to be made room for, from shapes and dtypes: one without a name, or several by name.
///
/// # Errors
/// `RegionMismatchError` when it is neither, `OptionError` when a dtype or a shape is none.
pub fn described(
    version: i64,
    shape: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    named: Option<&Bound<'_, PyDict>>,
    py: Python<'_>,
) -> PyResult<Vec<RegionSpec>> {
    let named = named.filter(|named| !named.is_empty());
    match (shape, dtype, named) {
        (Some(shape), Some(dtype), None) => Ok(vec![spec("0".to_owned(), shape, dtype)?]),
        (None, None, Some(named)) => named
            .iter()
            .map(|(name, pair)| {
                let wrong = |_| {
                    let message = format!(
                        "writing({version}): {name} has to be a pair of a shape and a dtype, such \
                         as {name}=((100, 100), \"float32\")"
                    );
                    error(py, Class::RegionMismatch, message)
                };
                let (shape, dtype): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                    pair.extract().map_err(wrong)?;
                spec(name.extract()?, &shape, &dtype)
            })
            .collect(),
        _ => {
            let message = format!(
                "writing({version}): give a shape and a dtype, such as writing({version}, (100, \
                 100), \"float32\"), or several by name, such as writing({version}, u=((100, 100), \
                 \"float32\"), v=(...))."
            );
            Err(error(py, Class::RegionMismatch, message))
        }
    }
}

fn spec(name: String, shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<RegionSpec> {
    let py = shape.py();
    let number = shape.extract::<u64>().map(|extent| vec![extent]);
    let shape = number.or_else(|_| shape.extract::<Vec<u64>>()).map_err(|_| {
        let message = format!("writing(...): {shape} is no shape; give a tuple of integers.");
        error(py, Class::Option, message)
    })?;
    let helpers = py.import(intern!(py, "unspool._arrays"))?;
    let name_of = helpers.getattr(intern!(py, "dtype_name"))?;
    let spelled: String = name_of.call1((dtype,))?.extract()?;
    let dtype = Dtype::from_name(&spelled).ok_or_else(|| {
        let message = format!("writing(...): there is no dtype {spelled:?} here.");
        error(py, Class::Option, message)
    })?;
    Ok(RegionSpec { name, dtype, shape })
}

impl Writing {
    /// A block for `version`, not yet entered.
    pub fn new(
        (spool, gpu): (Arc<Spool>, Option<Gpu>),
        version: i64,
        regions: Vec<RegionSpec>,
        (stream, given): (Option<usize>, Option<Py<PyAny>>),
        to: Option<String>,
    ) -> Writing {
        let state = Mutex::new(State::New(regions));
        Writing { spool, gpu, version, stream, _given: given, to, state }
    }

    fn swap(&self, next: State) -> State {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        std::mem::replace(&mut state, next)
    }

    /// Buffers over the room that was granted.
    fn buffers<'py>(
        &self,
        py: Python<'py>,
        ticket: &mut SaveTicket,
        block: &Arc<Block>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let head = Arc::clone(ticket.head());
        let keep = ticket.memory().ok_or_else(|| self.no_room(py))?;
        let mut buffers = Vec::with_capacity(head.regions.len());
        for (index, region) in head.regions.iter().enumerate() {
            let shared = (Arc::clone(&keep), Arc::clone(block));
            let buffer = match &self.gpu {
                Some(gpu) => self.on_device(py, gpu, ticket, (index, region), shared)?,
                None => {
                    let room = ticket.host_region(index).ok_or_else(|| self.no_room(py))?;
                    let address = room.as_mut_ptr().expose_provenance();
                    let buffer = HostBuffer::new(address, Items::of(region), false, shared);
                    Bound::new(py, buffer)?.into_any()
                }
            };
            buffers.push(adopt(buffer, self.to.as_deref())?);
        }
        Ok(buffers)
    }

    fn on_device<'py>(
        &self,
        py: Python<'py>,
        gpu: &Gpu,
        ticket: &SaveTicket,
        (index, region): (usize, &Region),
        shared: (Arc<dyn std::any::Any + Send + Sync>, Arc<Block>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let span = detached(py, Some(self.version), || ticket.device_region(index))?;
        let address = span.ok_or_else(|| self.no_room(py))?.address();
        let buffer = DeviceBuffer::new(gpu.clone(), address, Items::of(region), false, shared);
        Ok(Bound::new(py, buffer)?.into_any())
    }

    /// The room is in a slower tier than the one to compute in.
    fn no_room(&self, py: Python<'_>) -> PyErr {
        let version = self.version;
        let message = format!(
            "writing({version}): the checkpoint does not fit into the fastest tier, so that it \
             cannot be computed in place. Compute it in an array of your own and call \
             save({version}, array), or open the spool with a larger tier."
        );
        error(py, Class::TooLarge, message)
    }
}

#[pymethods]
impl Writing {
    /// Waits for room and gives it: one buffer, or a dictionary of them.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let State::New(regions) = self.swap(State::Done) else {
            return Err(error(py, Class::Option, "writing(...): the block was entered already."));
        };
        let (spool, gpu) = (&self.spool, self.gpu.as_ref());
        let stream = gpu.map(|gpu| streams::of_block(py, gpu, self.stream, self.to.as_deref()));
        let mut ticket = waiting(py, Some(self.version), |wait| {
            let stream = gpu.zip(stream).map(|(gpu, stream)| streams::borrow(gpu, stream));
            let stream = stream.transpose()?;
            let wait = Wait { stream: stream.as_ref(), ..*wait };
            let mut ticket = spool.save(self.version, regions, &wait)?;
            if let Some(stream) = &stream {
                ticket.begin(stream)?;
            }
            Ok(ticket)
        })?;
        let block = Arc::new(stream.map_or_else(Block::of_host, Block::new));
        let things = self.buffers(py, &mut ticket, &block).inspect_err(|_| block.end())?;
        let answer = arrange(py, ticket.head(), things)?;
        drop(self.swap(State::Open(Box::new(ticket), block)));
        Ok(answer)
    }

    /// Saves the checkpoint, ordered after what is enqueued; after an exception gives it up.
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let State::Open(ticket, block) = self.swap(State::Done) else { return Ok(false) };
        block.end();
        let gpu = self.gpu.as_ref();
        if let (Some(gpu), None) = (gpu, self.stream) {
            streams::gather(py, gpu, block.stream())?;
        }
        let given_up = !raised.is_none();
        detached(py, Some(self.version), || {
            let stream = gpu.map(|gpu| streams::borrow(gpu, block.stream())).transpose()?;
            match (stream, given_up) {
                (Some(stream), false) => ticket.commit_on(&stream),
                (None, false) => ticket.commit(),
                (Some(stream), true) => {
                    // The block has an exception of its own.
                    let _ = ticket.give_up_on(&stream);
                    Ok(())
                }
                // Dropping the ticket gives it up.
                (None, true) => Ok(()),
            }
        })?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<unspool.Writing of version {}>", self.version)
    }
}

impl Drop for Writing {
    /// A block that was entered and never left is given up.
    fn drop(&mut self) {
        if let State::Open(ticket, block) = self.swap(State::Done) {
            block.end();
            let gpu = self.gpu.clone();
            let end = move || {
                let stream = gpu.and_then(|gpu| streams::borrow(&gpu, block.stream()).ok());
                // Without its stream the ticket waits for the whole device when it is dropped.
                if let Some(stream) = stream {
                    let _ = ticket.give_up_on(&stream);
                }
            };
            Python::attach(|py| py.detach(end));
        }
    }
}
