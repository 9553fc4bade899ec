//! Decoding jobs that are known to be Twine streams.

use unspool_codec::twine::Layout;
use unspool_cuda::DeviceError;

use super::plan::invalid;
use crate::codec::{DecodeJob, GpuLayout};

/// A Twine stream to decode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded<'a> {
    /// The address of its first byte on the device, a multiple of 4.
    pub(super) stream: u64,
    /// Length of the stream in bytes.
    pub(super) stored: u64,
    /// The layout of the encoded array.
    pub(super) layout: &'a Layout,
    /// The address of the first byte of the dense array that is written, aligned to the size of a
    /// value.
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
