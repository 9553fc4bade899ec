//! Decoding jobs that are known to be Twine streams.

use unspool_codec::twine::Layout;
use unspool_cuda::DeviceError;

use super::plan::invalid;
use crate::codec::{DecodeJob, GpuLayout};
use crate::steps::Steps;

/// A Twine stream to decode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded<'a> {
    /// The address of its first byte on the device, a multiple of 4.
    pub(super) stream: u64,
    /// Length of the stream in bytes.
    pub(super) stored: u64,
    /// The layout of the encoded array.
    pub(super) layout: &'a Layout,
    /// The address of the first byte of the array that is written, aligned to the size of a value.
    pub(super) target: u64,
    pub(super) steps: Steps,
}

impl<'a> Coded<'a> {
    pub(super) fn of(job: &'a DecodeJob) -> Result<Coded<'a>, DeviceError> {
        let GpuLayout::Twine(array) = &job.layout else {
            return Err(invalid("a stream of another codec"));
        };
        let DecodeJob { stream, stored, target, .. } = *job;
        let layout = &array.layout;
        let steps = job.steps.unwrap_or_else(|| Steps::dense(layout));
        Ok(Coded { stream, stored, layout, target, steps })
    }
}
