//! The values of a checkpoint that are on a GPU, and what its save is placed after.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unspool_codec::Spec;
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, DeviceSpan, Fence, Stream, copy as raw};
use unspool_gpu_codec::{GpuLayout, Pending, Values};
use unspool_tiers::DeviceArray;

use super::encoded::Encoded;
use super::plan::EncodingPlan;
use crate::error::{Error, ErrorKind};
use crate::gpu::{Gpu, ScratchLease};

/// One array on its way into a checkpoint: its region, where it is, and the stream it is ready on.
pub(crate) type Given<'a> = (usize, &'a DeviceArray, &'a Stream);

/// The values that are on a GPU so far, by region.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) given: Vec<Option<Source>>,
}

/// The values of one region: dense.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) span: DeviceSpan,
    /// The memory, where it is the spool's own, and the fence after which it is filled.
    pub(crate) aside: Option<(ScratchLease, Fence)>,
}

impl Source {
    pub(crate) fn copied(lease: ScratchLease, ready: Fence) -> Source {
        Source { span: lease.span(), aside: Some((lease, ready)) }
    }
}

impl Sources {
    pub(crate) fn put(&mut self, index: usize, source: Source) {
        if self.given.len() <= index {
            self.given.resize_with(index + 1, || None);
        }
        self.given[index] = Some(source);
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.given.get(index).is_some_and(Option::is_some)
    }

    /// Memory of the spool's own can be used again after `fence`.
    pub(crate) fn done(self, gpu: &Gpu, fence: &Fence) {
        for (memory, _) in self.given.into_iter().flatten().filter_map(|source| source.aside) {
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
    /// Takes the values of region `index`, in place where an encoder can read them there. What was
    /// given before stays.
    ///
    /// # Errors
    /// When CUDA refuses to copy them aside.
    pub(crate) fn give(
        &mut self,
        gpu: &Gpu,
        index: usize,
        (array, stream): (&DeviceArray, &Stream),
    ) -> Result<(), DeviceError> {
        if self.has(index) {
            return Ok(());
        }
        let source = if stands_alone(self, index, array) {
            Source { span: array.span(gpu.context()), aside: None }
        } else {
            gather(gpu, array, stream)?
        };
        self.gather(gpu, index, source);
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
        let given = self.gathered().map_or(&[][..], |(_, sources)| &sources.given);
        for (index, region) in self.plan().regions.iter().enumerate() {
            let layout = region.layout.clone().unwrap_or(GpuLayout::Raw { bytes: region.bytes });
            let source = given.get(index).and_then(Option::as_ref);
            if let Some((_, fence)) = source.and_then(|source| source.aside.as_ref()) {
                stream.wait_for(fence)?;
            }
            // A region without bytes was not given.
            let empty = || nothing.slice(0, 0);
            let span = source.map_or_else(empty, |source| Ok(source.span.clone()))?;
            to.push(Values { span, layout });
        }
        Ok(())
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
            let Some(Source { span, aside: Some((memory, fence)) }) = source else { continue };
            stream.wait_for(&fence)?;
            raw::device_to_host(stream, self.memory(index)?, &span, limit)?;
            memory.done(gpu, gpu.fence(stream)?);
        }
        Ok(())
    }
}

/// Whether an encoder can read the array where it is.
fn stands_alone(encoded: &Encoded, index: usize, array: &DeviceArray) -> bool {
    let region = &encoded.plan().regions[index];
    let alignment = region.layout.as_ref().map_or(1, GpuLayout::alignment);
    array.is_dense() && array.address().is_multiple_of(alignment)
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
