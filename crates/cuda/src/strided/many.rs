//! Copies of dense bytes, many by one launch: a call of the driver costs the host as much as one of
//! some hundred kilobytes costs the device.

use std::ffi::c_void;

use super::{StridedCopies, THREADS};
use crate::copy::{device_to_device, enter, same_length};
use crate::error::DeviceError;
use crate::kernels::Module;
use crate::span::DeviceSpan;
use crate::stream::Stream;
use crate::watch::AccessedBytes;

/// The most copies of one launch: what a kernel takes as parameters is 4 KiB.
const MOST: usize = 128;

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
struct Dense {
    to: u64,
    from: u64,
    bytes: u64,
}

/// The parameter of the kernel.
#[repr(C)]
struct Many {
    blocks: u64,
    copies: [Dense; MOST],
}

/// A copy within a device: to, from.
pub type DenseCopy = (DeviceSpan, DeviceSpan);

impl StridedCopies {
    /// Copies bytes within the device, where the copies do not overlap: small ones many by one
    /// launch, larger ones, and all where there are no kernels, one by one. Enqueued only: done when
    /// an event recorded after it is done.
    ///
    /// # Errors
    /// When the two sides of a copy have different lengths, the device is another one, or the
    /// driver refuses. Copies may be under way then.
    pub fn copy_many(&self, stream: &Stream, copies: &[DenseCopy]) -> Result<(), DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let (small, large): (Vec<_>, Vec<_>) =
            copies.iter().partition(|(to, _)| to.len() <= LARGEST);
        let module = if small.len() > 1 { self.module().ok() } else { None };
        let Some(module) = module else {
            return copies.iter().try_for_each(|(to, from)| device_to_device(stream, to, from));
        };
        small.chunks(MOST).try_for_each(|some| launch(&module, stream, some))?;
        large.iter().try_for_each(|(to, from)| device_to_device(stream, to, from))
    }
}

fn launch(module: &Module, stream: &Stream, copies: &[&DenseCopy]) -> Result<(), DeviceError> {
    let longest = copies.iter().map(|(to, _)| to.len()).max().unwrap_or(0);
    let blocks = longest.div_ceil(BYTES_OF_BLOCK).clamp(1, MOST_BLOCKS);
    let mut many = Many { blocks, copies: [Dense::default(); MOST] };
    for ((to, from), dense) in copies.iter().zip(&mut many.copies) {
        same_length(to.len(), from.len())?;
        drop(enter(stream, &[to, from])?);
        *dense = Dense { to: to.address(), from: from.address(), bytes: to.len() };
    }
    let mut list: [*mut c_void; 1] = [(&raw mut many).cast()];
    let shape = (blocks as u32 * copies.len() as u32, THREADS);
    // SAFETY: the kernel takes this parameter and accesses the bytes of its first copies, as many as
    // the blocks are for; spans keep their memory in place, and were found to be of this device and
    // to have these lengths.
    unsafe { module.launch_with(stream, "copy_many", shape, &mut list) }?;
    for (to, from) in copies {
        stream.saw_copy(WITHIN, AccessedBytes::of(from), AccessedBytes::of(to));
    }
    Ok(())
}
