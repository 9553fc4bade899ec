//! Streams that are decoded, once they are known to be Twine's.

use unspool_codec::twine::Layout;
use unspool_cuda::DeviceError;

use super::plan::invalid;
use crate::codec::{DecodeJob, GpuLayout};

/// A Twine stream to decode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded<'a> {
    /// The address of its first byte on the device, a multiple of 4.
    pub(super) stream: u64,
    /// Its bytes.
    pub(super) stored: u64,
    /// The array that it was made from.
    pub(super) layout: &'a Layout,
    /// The address of the first byte of the dense array that it is written to, a multiple of the
    /// size of a value.
    pub(super) target: u64,
}

impl<'a> Coded<'a> {
    pub(super) fn of(job: &'a DecodeJob) -> Result<Coded<'a>, DeviceError> {
        let GpuLayout::Twine(array) = &job.layout else {
            return Err(invalid("a stream of another codec"));
        };
        let DecodeJob { stream, stored, target, .. } = *job;
        Ok(Coded { stream, stored, layout: &array.layout, target })
    }
}
