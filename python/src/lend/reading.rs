//! `with spool.reading(...)`: a checkpoint that is computed from where it lies.

use std::any::Any;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use unspool::gpu::{BlockMemory, DeviceArray, Gpu};
use unspool::{Error, Region, RestoreTicket, Wait};

use super::block::Block;
use super::items::Items;
use super::memory::ALIGNMENT;
use super::{DeviceBuffer, HostBuffer, InPlace, arrange, done, overwritten, streams, wrap};
use crate::errors::{Class, error};
use crate::waiting::{detached, waiting};

/// A `with` block in which a checkpoint is read where it lies; see `Spool.reading`.
#[pyclass(module = "unspool", frozen)]
#[derive(Debug)]
pub struct Reading {
    place: InPlace,
    version: i64,
    /// The stream that the caller gave, and the object that it came from.
    stream: Option<usize>,
    _given: Option<Py<PyAny>>,
    to: Option<String>,
    state: Mutex<ReadingState>,
}

#[derive(Debug)]
enum ReadingState {
    /// Not yet entered.
    New,
    /// Inside of the block.
    Open(Box<RestoreTicket>, Arc<Block>, Copies),
    /// Left.
    Done,
}

type Shared = (Arc<dyn Any + Send + Sync>, Arc<Block>);

/// The memory of regions that do not lie on the GPU as they are.
type Copies = Vec<Arc<BlockMemory>>;

impl Reading {
    /// A block for `version`, not yet entered.
    pub fn new(
        place: InPlace,
        version: i64,
        (stream, given): (Option<usize>, Option<Py<PyAny>>),
        to: Option<String>,
    ) -> Reading {
        let state = Mutex::new(ReadingState::New);
        Reading { place, version, stream, _given: given, to, state }
    }

    fn swap(&self, next: ReadingState) -> ReadingState {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        std::mem::replace(&mut state, next)
    }

    fn buffers<'py>(
        &self,
        py: Python<'py>,
        ticket: &mut RestoreTicket,
        block: &Arc<Block>,
        copies: &mut Copies,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let head = Arc::clone(ticket.head());
        let gpu = self.place.gpu.as_ref();
        let mut buffers = Vec::with_capacity(head.regions.len());
        for (index, region) in head.regions.iter().enumerate() {
            let made = detached(py, Some(self.version), || match gpu {
                Some(gpu) => on_device(gpu, ticket, (index, region), block)
                    .map(|(buffer, copy)| MadeArrays::Device(buffer, copy)),
                None => on_host(ticket, (index, region), block).map(MadeArrays::Host),
            })?;
            let buffer = match made {
                MadeArrays::Device(buffer, copy) => {
                    copies.extend(copy);
                    Bound::new(py, buffer)?.into_any()
                }
                MadeArrays::Host(buffer) => Bound::new(py, buffer)?.into_any(),
            };
            buffers.push(wrap(buffer, self.to.as_deref())?);
        }
        Ok(buffers)
    }
}

enum MadeArrays {
    Device(DeviceBuffer, Option<Arc<BlockMemory>>),
    Host(HostBuffer),
}

/// A region where it lies on the GPU, or a copy of it there.
fn on_device(
    gpu: &Gpu,
    ticket: &mut RestoreTicket,
    (index, region): (usize, &Region),
    block: &Arc<Block>,
) -> Result<(DeviceBuffer, Option<Arc<BlockMemory>>), Error> {
    let items = Items::of(region);
    if let (Some(span), Some(keep)) = (ticket.device_region(index)?, ticket.memory()) {
        let shared: Shared = (keep, Arc::clone(block));
        return Ok((DeviceBuffer::new(gpu.clone(), span.address(), items, true, shared), None));
    }
    let (buffer, memory) = DeviceBuffer::allocate(gpu, items, true, Arc::clone(block))?;
    if region.bytes > 0 {
        // SAFETY: the buffer keeps its memory, and the block waits for the copy before it ends.
        let array = unsafe { DeviceArray::dense(gpu.ordinal(), memory.address(), region.bytes) };
        ticket.get(index, &array, &streams::borrow(gpu, block.stream())?)?;
    }
    Ok((buffer, Some(memory)))
}

/// A region where it lies in main memory, or a copy of it.
fn on_host(
    ticket: &RestoreTicket,
    (index, region): (usize, &Region),
    block: &Arc<Block>,
) -> Result<HostBuffer, Error> {
    let items = Items::of(region);
    if let Some(keep) = ticket.memory()
        && let Some(bytes) = ticket.host_region(index)
    {
        let address = bytes.as_ptr().expose_provenance();
        return Ok(HostBuffer::new(address, items, true, (keep, Arc::clone(block))));
    }
    let mut copy = vec![0_u8; items.bytes + ALIGNMENT];
    let first = copy.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    ticket.read_into(index, &mut copy[first..first + items.bytes])?;
    let keep: Arc<Vec<u8>> = Arc::new(copy);
    let address = keep.as_ptr().expose_provenance() + first;
    Ok(HostBuffer::new(address, items, true, (keep, Arc::clone(block))))
}

#[pymethods]
impl Reading {
    /// Waits for the checkpoint and gives it: one buffer, a tuple or a dictionary of them.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.place.blocks.begin(py, ("reading", self.version), || self.enter(py))
    }

    /// The restore counts, once what is enqueued is done; after an exception it does not.
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let end = || self.leave(py, !raised.is_none());
        self.place.blocks.end(py, ("reading", self.version), end).map(|()| false)
    }

    fn __repr__(&self) -> String {
        format!("<unspool.Reading of version {}>", self.version)
    }
}

impl Reading {
    /// Waits for the checkpoint and gives it.
    fn enter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !matches!(self.swap(ReadingState::Done), ReadingState::New) {
            return Err(error(py, Class::Option, "reading(...): the block was entered already."));
        }
        let (spool, gpu) = (&self.place.spool, self.place.gpu.as_ref());
        let stream = gpu.map(|gpu| streams::of_block(py, gpu, self.stream, self.to.as_deref()));
        let (mut ticket, changed) = waiting(py, Some(self.version), |wait| {
            let stream = gpu.zip(stream).map(|(gpu, stream)| streams::borrow(gpu, stream));
            let stream = stream.transpose()?;
            let wait = Wait { stream: stream.as_ref(), ..*wait };
            let mut ticket = spool.restore(self.version, &wait)?;
            let changed = self.place.written.changed(self.version, &ticket)?;
            if let Some(stream) = &stream {
                ticket.begin(stream)?;
            }
            Ok((ticket, changed))
        })?;
        if let Some(name) = changed {
            return Err(error(py, Class::Corrupt, overwritten(self.version, &name)));
        }
        let block = Arc::new(stream.map_or_else(Block::of_host, Block::new));
        let mut copies = Copies::new();
        let things = self.buffers(py, &mut ticket, &block, &mut copies);
        let things = things.inspect_err(|_| block.end())?;
        let answer = arrange(py, ticket.head(), things)?;
        drop(self.swap(ReadingState::Open(Box::new(ticket), block, copies)));
        Ok(answer)
    }

    /// Ends the restore, or gives it up.
    fn leave(&self, py: Python<'_>, given_up: bool) -> PyResult<()> {
        let ReadingState::Open(ticket, block, copies) = self.swap(ReadingState::Done) else {
            return Ok(());
        };
        block.end();
        let gpu = self.place.gpu.as_ref();
        if let (Some(gpu), None) = (gpu, self.stream) {
            streams::gather(py, gpu, block.stream())?;
        }
        detached(py, Some(self.version), || {
            let stream = gpu.map(|gpu| streams::borrow(gpu, block.stream())).transpose()?;
            if let Some((gpu, stream)) = gpu.zip(stream.as_ref()) {
                done(gpu, stream, &copies);
            }
            match (stream, given_up) {
                (Some(stream), false) => ticket.finish_on(&stream),
                (None, false) => ticket.finish(),
                (Some(stream), true) => {
                    // The block has an exception of its own.
                    let _ = ticket.give_up_on(&stream);
                    Ok(())
                }
                // Dropping the ticket gives it up.
                (None, true) => Ok(()),
            }
        })
    }
}

impl Drop for Reading {
    /// A block that was entered and never left is given up.
    fn drop(&mut self) {
        if let ReadingState::Open(ticket, block, _) = self.swap(ReadingState::Done) {
            self.place.blocks.leave("reading", self.version);
            block.end();
            let gpu = self.place.gpu.clone();
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
