//! `with spool.writing(...)`: a checkpoint that is computed in place.

use std::any::Any;
use std::sync::{Arc, Mutex};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use unspool::gpu::{BlockMemory, DeviceArray, Gpu, Stream};
use unspool::{Dtype, Error, Head, Region, RegionSpec, SaveTicket, TierKind, Wait};

use super::block::Block;
use super::items::Items;
use super::memory::FixedMemory;
use super::{DeviceBuffer, HostBuffer, InPlace, arrange, close_to_writes, done, streams, wrap};
use crate::errors::{Class, error};
use crate::waiting::{detached, waiting};

/// A `with` block in which a checkpoint is computed in place; see `Spool.writing`.
#[pyclass(module = "unspool", frozen)]
#[derive(Debug)]
pub struct Writing {
    place: InPlace,
    version: i64,
    /// The stream that the caller gave, and the object that it came from.
    stream: Option<usize>,
    _given: Option<Py<PyAny>>,
    to: Option<String>,
    state: Mutex<WritingState>,
}

#[derive(Debug)]
enum WritingState {
    /// Not yet entered.
    New(Vec<RegionSpec>),
    /// Inside of the block.
    Open(Box<Open>),
    /// Left.
    Done,
}

#[derive(Debug)]
struct Open {
    ticket: SaveTicket,
    block: Arc<Block>,
    temporary: Vec<Temporary>,
    /// Memory in the place of regions that are encoded, or copied to a slower tier, when the block
    /// is left.
    plain: Vec<(usize, Arc<FixedMemory>)>,
    /// What was given to the user of the block.
    given: Vec<Py<PyAny>>,
}

/// Memory of the GPU in the place of a region that lies in a slower tier.
#[derive(Debug)]
struct Temporary {
    index: usize,
    array: DeviceArray,
    /// Holds it in place until the copy is enqueued.
    memory: Arc<BlockMemory>,
}

impl Open {
    /// Copies what was computed elsewhere into its regions, and saves the checkpoint.
    fn commit(mut self, on: Option<(&Gpu, &Stream)>) -> Result<(), Error> {
        for (index, memory) in &self.plain {
            // SAFETY: the block was left, and its buffers are lent no more: who still writes
            // through a view was told that its content is unspecified.
            self.ticket.fill_from(*index, unsafe { memory.values() })?;
        }
        let Some((gpu, stream)) = on else { return self.ticket.commit() };
        for Temporary { index, array, .. } in self.temporary.iter().filter(|t| t.array.bytes() > 0)
        {
            self.ticket.put(*index, array, stream)?;
        }
        self.ticket.commit_on(stream)?;
        done(gpu, stream, self.temporary.iter().map(|temporary| &temporary.memory));
        Ok(())
    }
}

/// What is to be made room for, from shapes and dtypes: one without a name, or several by name.
///
/// # Errors
/// `ArrayError` when it is neither, `OptionError` when a dtype or a shape is none.
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
                    error(py, Class::Array, message)
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
            Err(error(py, Class::Array, message))
        }
    }
}

fn spec(name: String, shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<RegionSpec> {
    let py = shape.py();
    let number = shape.extract::<u64>().map(|extent| vec![extent]);
    let shape = number.or_else(|_| shape.extract::<Vec<u64>>()).map_err(|_| {
        let message = format!("writing(...): {shape} is not a shape; give a tuple of integers.");
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
        place: InPlace,
        version: i64,
        regions: Vec<RegionSpec>,
        (stream, given): (Option<usize>, Option<Py<PyAny>>),
        to: Option<String>,
    ) -> Writing {
        let state = Mutex::new(WritingState::New(regions));
        Writing { place, version, stream, _given: given, to, state }
    }

    fn swap(&self, next: WritingState) -> WritingState {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        std::mem::replace(&mut state, next)
    }

    /// Buffers over the room that was granted.
    fn buffers<'py>(&self, py: Python<'py>, open: &mut Open) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let head = Arc::clone(open.ticket.head());
        let mut buffers = Vec::with_capacity(head.regions.len());
        for (index, region) in head.regions.iter().enumerate() {
            let buffer = match &self.place.gpu {
                Some(gpu) => self.on_device(py, gpu, open, (index, region))?,
                None => self.on_host(py, open, (index, region))?,
            };
            buffers.push(wrap(buffer, self.to.as_deref())?);
        }
        Ok(buffers)
    }

    fn on_host<'py>(
        &self,
        py: Python<'py>,
        open: &mut Open,
        (index, region): (usize, &Region),
    ) -> PyResult<Bound<'py, PyAny>> {
        let (items, block) = (Items::of(region), Arc::clone(&open.block));
        let (address, keep): (usize, Arc<dyn Any + Send + Sync>) = match open.ticket.memory() {
            Some(keep) => match open.ticket.host_region(index) {
                Some(room) => (room.as_mut_ptr().expose_provenance(), keep),
                None => return Err(self.too_large(py)),
            },
            // Encoded when the block is left, or put into a slower tier: there is no room in the
            // fastest one that could be made at the moment.
            None if self.fits(py, open.ticket.head())? => {
                let memory = Arc::new(FixedMemory::new(items.bytes));
                open.plain.push((index, Arc::clone(&memory)));
                (memory.address(), memory)
            }
            None => return Err(self.too_large(py)),
        };
        let buffer = HostBuffer::new(address, items, false, (keep, block));
        Ok(Bound::new(py, buffer)?.into_any())
    }

    /// The region in the device tier, or memory to compute it in where that is full at the moment.
    fn on_device<'py>(
        &self,
        py: Python<'py>,
        gpu: &Gpu,
        open: &mut Open,
        (index, region): (usize, &Region),
    ) -> PyResult<Bound<'py, PyAny>> {
        let (items, block) = (Items::of(region), Arc::clone(&open.block));
        let span = detached(py, Some(self.version), || open.ticket.device_region(index))?;
        if let (Some(span), Some(keep)) = (span, open.ticket.memory()) {
            let buffer =
                DeviceBuffer::new(gpu.clone(), span.address(), items, false, (keep, block));
            return Ok(Bound::new(py, buffer)?.into_any());
        }
        if !self.fits(py, open.ticket.head())? {
            return Err(self.too_large(py));
        }
        let made =
            detached(py, Some(self.version), || DeviceBuffer::allocate(gpu, items, false, block));
        let (buffer, memory) = made?;
        // SAFETY: the memory is kept until the copy is enqueued, and used by others after it.
        let array = unsafe { DeviceArray::dense(gpu.ordinal(), memory.address(), region.bytes) };
        open.temporary.push(Temporary { index, array, memory });
        Ok(Bound::new(py, buffer)?.into_any())
    }

    /// Whether a checkpoint can be in the fastest memory tier at all, or is encoded in main memory,
    /// where it may be as large as that is.
    fn fits(&self, py: Python<'_>, head: &Head) -> PyResult<bool> {
        if self.place.gpu.is_none() && head.is_encoded() {
            return Ok(true);
        }
        let stats = detached(py, None, || self.place.spool.stats())?;
        let fastest = stats.tiers.iter().find(|tier| tier.kind != TierKind::Disk);
        Ok(fastest.is_some_and(|tier| head.payload_bytes <= tier.capacity))
    }

    /// The fastest tier is too small to compute in.
    fn too_large(&self, py: Python<'_>) -> PyErr {
        let version = self.version;
        let message = format!(
            "writing({version}): the checkpoint is larger than the fastest tier, so that it cannot \
             be computed in place. Compute it in an array of your own and call save({version}, \
             array), or open the spool with a larger tier."
        );
        error(py, Class::Capacity, message)
    }
}

#[pymethods]
impl Writing {
    /// Waits for room and gives it: one buffer, or a dictionary of them.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.place.blocks.begin(py, ("writing", self.version), || self.enter(py))
    }

    /// Saves the checkpoint, ordered after what is enqueued; after an exception gives it up.
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let end = || self.leave(py, !raised.is_none());
        self.place.blocks.end(py, ("writing", self.version), end).map(|()| false)
    }

    fn __repr__(&self) -> String {
        format!("<unspool.Writing of version {}>", self.version)
    }
}

impl Writing {
    /// Waits for room and gives it: one buffer, or a dictionary of them.
    fn enter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let WritingState::New(regions) = self.swap(WritingState::Done) else {
            return Err(error(py, Class::Option, "writing(...): the block was entered already."));
        };
        let (spool, gpu) = (&self.place.spool, self.place.gpu.as_ref());
        let stream = gpu.map(|gpu| streams::of_block(py, gpu, self.stream, self.to.as_deref()));
        let blocks = &self.place.blocks;
        let ticket = waiting(py, Some(self.version), |wait| {
            let stream = gpu.zip(stream).map(|(gpu, stream)| streams::borrow(gpu, stream));
            let stream = stream.transpose()?;
            let wait = Wait { stream: stream.as_ref(), ..*wait };
            let save = |wait: &Wait<'_>| spool.save(self.version, regions, wait);
            let granted = blocks.unless_stuck((spool, self.version), &wait, save)?;
            let mut ticket = match granted {
                Ok(ticket) => ticket,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Some(stream) = &stream {
                ticket.begin(stream)?;
            }
            Ok(Ok(ticket))
        })?;
        let ticket = ticket.map_err(|refusal| error(py, Class::Capacity, refusal))?;
        let block = Arc::new(stream.map_or_else(Block::of_host, Block::new));
        let (temporary, plain, given) = (Vec::new(), Vec::new(), Vec::new());
        let mut open = Open { ticket, block, temporary, plain, given };
        let things = self.buffers(py, &mut open).inspect_err(|_| open.block.end())?;
        if self.to.is_some() {
            open.given = things.iter().map(|thing| thing.clone().unbind()).collect();
        }
        let answer = arrange(py, open.ticket.head(), things)?;
        drop(self.swap(WritingState::Open(Box::new(open))));
        Ok(answer)
    }

    /// Saves the checkpoint, or gives it up.
    fn leave(&self, py: Python<'_>, given_up: bool) -> PyResult<()> {
        let WritingState::Open(mut open) = self.swap(WritingState::Done) else { return Ok(()) };
        open.block.end();
        close_to_writes(py, &open.given)?;
        let gpu = self.place.gpu.as_ref();
        if let (Some(gpu), None) = (gpu, self.stream) {
            streams::gather(py, gpu, open.block.stream())?;
        }
        detached(py, Some(self.version), || {
            let stream = gpu.map(|gpu| streams::borrow(gpu, open.block.stream())).transpose()?;
            match stream {
                stream if !given_up => {
                    // A GPU computes in memory of its own where its tier is full at the moment.
                    // What is copied when the block is left, nobody else has.
                    let sealed = match stream {
                        None if open.plain.is_empty() => self.place.written.seal(&mut open.ticket),
                        _ => None,
                    };
                    open.commit(gpu.zip(stream.as_ref()))?;
                    self.place.written.keep(self.version, sealed);
                    Ok(())
                }
                Some(stream) => {
                    // The block has an exception of its own.
                    let _ = open.ticket.give_up_on(&stream);
                    Ok(())
                }
                // Dropping the ticket gives it up.
                None => Ok(()),
            }
        })
    }
}

impl Drop for Writing {
    /// A block that was entered and never left is given up.
    fn drop(&mut self) {
        if let WritingState::Open(open) = self.swap(WritingState::Done) {
            self.place.blocks.leave("writing", self.version);
            open.block.end();
            let gpu = self.place.gpu.clone();
            let end = move || {
                let stream = gpu.and_then(|gpu| streams::borrow(&gpu, open.block.stream()).ok());
                // Without its stream the ticket waits for the whole device when it is dropped.
                if let Some(stream) = stream {
                    let _ = open.ticket.give_up_on(&stream);
                }
            };
            Python::attach(|py| py.detach(end));
        }
    }
}
