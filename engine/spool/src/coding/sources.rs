//! The values of a checkpoint that are on a GPU, and what its save is placed after.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unspool_codec::Spec;
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, DeviceSpan, Fence, Stream, copy as raw};
use unspool_gpu_codec::{GpuLayout, Items, Pending, Values};
use unspool_tiers::DeviceArray;

use super::encoded::Encoded;
use super::plan::EncodingPlan;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Direction, Gpu, ScratchLease, UNIT};

/// One array on its way into a checkpoint: its region, where it is, and the stream it is ready on.
pub(crate) type Given<'a> = (usize, &'a DeviceArray, &'a Stream);

/// The values that are on a GPU so far, by region.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) given: Vec<Option<Source>>,
    /// Memory with dense copies of several, and the fence after which it is filled.
    copies: Vec<(ScratchLease, Fence)>,
}

/// The values of one region.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) items: Items,
    /// The memory, where it is the spool's own, and the fence after which it is filled.
    pub(crate) aside: Option<(ScratchLease, Fence)>,
}

impl Source {
    pub(crate) fn copied(lease: ScratchLease, ready: Fence) -> Source {
        Source { items: lease.span().into(), aside: Some((lease, ready)) }
    }
}

impl Sources {
    pub(crate) fn put(&mut self, index: usize, source: Source) {
        if self.given.len() <= index {
            self.given.resize_with(index + 1, || None);
        }
        self.given[index] = Some(source);
    }

    pub(super) fn keep_copies(&mut self, memory: ScratchLease, ready: Fence) {
        self.copies.push((memory, ready));
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.given.get(index).is_some_and(Option::is_some)
    }

    /// Memory of the spool's own can be used again after `fence`.
    pub(crate) fn done(self, gpu: &Gpu, fence: &Fence) {
        let aside = self.given.into_iter().flatten().filter_map(|source| source.aside);
        for (memory, _) in aside.chain(self.copies) {
            memory.done(gpu, fence.clone());
        }
    }
}

/// Whether a GPU can encode every region of `plan`.
pub(crate) fn is_for_gpu(plan: &EncodingPlan) -> bool {
    plan.regions.iter().all(|region| region.layout.is_some())
}

/// Refuses formats of nvCOMP that cannot be had on `gpu`.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_formats(gpu: &Gpu, plan: &EncodingPlan) -> Result<(), Error> {
    for region in &plan.regions {
        let Spec::NvComp(format) = region.codec else { continue };
        let Some(coders) = gpu.coders() else { continue };
        let (name, dtype) = (&region.spec.name, &region.spec.dtype);
        let library = coders.nvcomp().loaded().map_err(|cause| {
            let message = format!(
                "Region {name:?} cannot be encoded with nvCOMP (`pip install unspool[nvcomp]`): \
                 {cause}"
            );
            Error::new(ErrorKind::Invalid, message).caused_by(cause)
        })?;
        if !library.takes(format, dtype) {
            let message = format!(
                "Region {name:?} has items of dtype {}, which {library:?} cannot take as \
                 {format:?}. Install nvCOMP 6, or choose the lossless codec or a bound.",
                dtype.name(),
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    }
    Ok(())
}

/// The end of a save that is pending, once it was launched.
pub(crate) type Launched = Arc<OnceLock<Pending>>;

/// A save that is pending and whose room ends where that of another one begins, which may therefore
/// begin right after it.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// Empty while it is not launched, and for ever when it cannot be.
    pub(crate) end: Launched,
    pub(crate) request: RequestId,
    pub(crate) alignment: u64,
}

impl Encoded {
    /// Takes the values of regions after what is on `on`: in place where an encoder can read them
    /// there, the others by dense copies. What was given before stays.
    ///
    /// # Errors
    /// When CUDA refuses to copy them aside.
    pub(crate) fn give(
        &mut self,
        gpu: &Gpu,
        on: &Stream,
        arrays: &[Given<'_>],
    ) -> Result<(), DeviceError> {
        let mut others = Vec::new();
        for &(index, array, _) in arrays {
            if self.has(index) {
                continue;
            }
            // Values that are compared with what is decoded are read back one after the other.
            let may_stay = array.is_dense() || !self.checks();
            let items = gpu::in_place(gpu.context(), &self.layout_of(index), array);
            match items.filter(|_| may_stay) {
                Some(items) => self.gather(gpu, index, Source { items, aside: None }),
                None => others.push((index, array)),
            }
        }
        if others.is_empty() { Ok(()) } else { self.copy_aside(gpu, on, &others) }
    }

    fn copy_aside(
        &mut self,
        gpu: &Gpu,
        on: &Stream,
        arrays: &[(usize, &DeviceArray)],
    ) -> Result<(), DeviceError> {
        let room = |array: &DeviceArray| array.bytes().next_multiple_of(UNIT);
        let lease = gpu.scratch(arrays.iter().map(|(_, array)| room(array)).sum(), on)?;
        let (mut places, mut at) = (Vec::with_capacity(arrays.len()), 0);
        for &(_, array) in arrays {
            places.push((lease.span().slice(at, array.bytes())?, array));
            at += room(array);
        }
        gpu::copy_all(gpu, on, &places, Direction::Gather)?;
        let ready = gpu.device().fence(on)?;
        for (&(index, _), (span, _)) in arrays.iter().zip(places) {
            self.gather(gpu, index, Source { items: span.into(), aside: None });
        }
        self.keep_copies(lease, ready);
        Ok(())
    }

    /// Adds what an encoder reads to `to`: the values of every region. Copies that were made aside
    /// are waited for by `stream`.
    ///
    /// # Errors
    /// When CUDA refuses.
    pub(crate) fn values(
        &self,
        stream: &Stream,
        nothing: &DeviceSpan,
        to: &mut Vec<Values>,
    ) -> Result<(), DeviceError> {
        let gathered = self.gathered().map(|(_, sources)| sources);
        let given = gathered.map_or(&[][..], |sources| &sources.given);
        let copies = gathered.map_or(&[][..], |sources| &sources.copies);
        copies.iter().try_for_each(|(_, ready)| stream.wait_for(ready))?;
        for index in 0..self.regions() {
            let source = given.get(index).and_then(Option::as_ref);
            if let Some((_, fence)) = source.and_then(|source| source.aside.as_ref()) {
                stream.wait_for(fence)?;
            }
            // A region without bytes was not given.
            let empty = || nothing.slice(0, 0).map(Items::from);
            let items = source.map_or_else(empty, |source| Ok(source.items.clone()))?;
            to.push(Values { items, layout: self.layout_of(index) });
        }
        Ok(())
    }

    fn layout_of(&self, index: usize) -> GpuLayout {
        let region = &self.plan().regions[index];
        region.layout.clone().unwrap_or(GpuLayout::Raw { bytes: region.bytes })
    }

    /// Brings the values that were set aside to the host, each within `limit`: it encodes them from
    /// now on.
    ///
    /// # Errors
    /// When CUDA refuses, or there is no memory.
    pub(crate) fn download(&mut self, gpu: &Gpu, limit: Duration) -> Result<(), Error> {
        let Some((_, sources)) = self.forget_gathered() else { return Ok(()) };
        let stream = gpu.stream();
        for (index, source) in sources.given.into_iter().enumerate() {
            let Some(Source { aside: Some((memory, fence)), .. }) = source else { continue };
            stream.wait_for(&fence)?;
            raw::device_to_host(stream, self.memory(index)?, &memory.span(), limit)?;
            memory.done(gpu, gpu.fence(stream)?);
        }
        Ok(())
    }
}

/// Copies the array aside, after what is on `stream`.
pub(crate) fn gather(
    gpu: &Gpu,
    array: &DeviceArray,
    stream: &Stream,
) -> Result<Source, DeviceError> {
    let lent = gpu.scratch(array.bytes(), stream)?;
    array.gather(gpu.strided(), stream, &lent.span())?;
    let ready = gpu.device().fence(stream)?;
    Ok(Source::copied(lent, ready))
}

/// The error of a checkpoint that a GPU could not encode, for the call after it.
pub(crate) fn not_encoded(version: i64, cause: &DeviceError) -> Error {
    let message = format!(
        "Version {version} was not saved: the GPU could not encode what it was given after the \
         call had returned: {cause} Save again."
    );
    Error::new(ErrorKind::Device, message).caused_by(cause.clone())
}
