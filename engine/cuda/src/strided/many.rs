//! Copies of dense bytes, many by one launch: a call of the driver costs the host as much as one of
//! some hundred kilobytes costs the device.

use std::ffi::c_void;

use super::{StridedCopies, THREADS};
use crate::access::AccessedBytes;
use crate::copy::device_to_device;
use crate::ends::same_length;
use crate::error::DeviceError;
use crate::kernels::Module;
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// The most copies of one launch: what a kernel takes as parameters is 4 KiB.
pub(super) const MOST: usize = 128;

/// The largest copy that goes by a launch. The driver's own copy of more is as cheap, and as fast
/// without the threads of a kernel.
const LARGEST: u64 = 1 << 20;

/// What a block copies of one copy, about; and the most blocks for one.
const BYTES_OF_BLOCK: u64 = 16 << 10;
const MOST_BLOCKS: u64 = 16;

const WITHIN: &str = "a copy within the device, one of many";

/// The bytes of one copy, as the kernel has them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Dense {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: u64,
}

/// The parameter of the kernel.
#[repr(C)]
pub(super) struct Many {
    blocks: u64,
    copies: [Dense; MOST],
}

impl Many {
    /// Of as many copies as a launch takes.
    pub(super) fn of(some: &[Dense]) -> Many {
        let longest = some.iter().map(|copy| copy.bytes).max().unwrap_or(0);
        let blocks = longest.div_ceil(BYTES_OF_BLOCK).clamp(1, MOST_BLOCKS);
        let mut copies = [Dense::default(); MOST];
        copies.iter_mut().zip(some).for_each(|(copy, one)| *copy = *one);
        Many { blocks, copies }
    }

    /// The blocks of a launch for its first `count` copies.
    pub(super) fn shape(&self, count: usize) -> u32 {
        self.blocks as u32 * count as u32
    }
}

/// A copy within a device: to, from.
pub type DenseCopy = (DeviceSpan, DeviceSpan);

impl StridedCopies {
    /// Copies bytes within the device, where the copies do not overlap: small ones many by one
    /// launch, larger ones, and all where there are no kernels, one by one. Enqueued only: done
    /// when an event recorded after it is done.
    ///
    /// # Errors
    /// When the two sides of a copy have different lengths, the device is another one, or the
    /// driver refuses. Copies may be under way then.
    pub fn copy_many(&self, stream: &Stream, copies: &[DenseCopy]) -> Result<(), DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let (small, large): (Vec<_>, Vec<_>) =
            copies.iter().partition(|(to, _)| to.len() <= LARGEST);
        let wanted = small.len() > 1 && !self.is_missing();
        let Some(module) = wanted.then(|| self.module().ok()).flatten() else {
            return copies.iter().try_for_each(|(to, from)| device_to_device(stream, to, from));
        };
        small.chunks(MOST).try_for_each(|some| launch(&module, stream, some))?;
        large.iter().try_for_each(|(to, from)| device_to_device(stream, to, from))
    }
}

fn launch(module: &Module, stream: &Stream, copies: &[&DenseCopy]) -> Result<(), DeviceError> {
    let dense = |(to, from): &&DenseCopy| {
        same_length(to.len(), from.len())?;
        for side in [to, from] {
            stream.context().require(side.ordinal(), "the memory")?;
        }
        Ok(Dense { to: to.address(), from: from.address(), bytes: to.len() })
    };
    let mut many = Many::of(&copies.iter().map(dense).collect::<Result<Vec<_>, DeviceError>>()?);
    let shape = (many.shape(copies.len()), THREADS);
    let mut list: [*mut c_void; 1] = [(&raw mut many).cast()];
    // SAFETY: the kernel takes this parameter and accesses the bytes of its first copies, as many
    // as the blocks are for; spans keep their memory in place, and were found to be of this device
    // and to have these lengths.
    unsafe { module.launch_with(stream, "copy_many", shape, &mut list) }?;
    for (to, from) in copies {
        stream.saw_copy(WITHIN, AccessedBytes::of(from), AccessedBytes::of(to));
    }
    Ok(())
}
