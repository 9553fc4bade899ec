//! A few bytes to and from a device in stream order: tokens of programs that run on it.

use unspool_cuda::{Stream, copy};

use super::copies::{check_size, check_stream, download};
use super::{DeviceArray, Gpu};
use crate::error::Error;

impl Gpu {
    /// Writes `bytes` into `to`, byte by byte: that is only enqueued, and needs no memory of the
    /// host that would have to stay in place.
    ///
    /// # Errors
    /// `Invalid` when sizes differ, `Device` when CUDA refuses.
    pub fn write_small(
        &self,
        to: &DeviceArray,
        bytes: &[u8],
        stream: &Stream,
    ) -> Result<(), Error> {
        check_size(to.bytes(), bytes.len() as u64)?;
        check_stream(stream)?;
        let span = to.span(self.context());
        for (offset, byte) in bytes.iter().enumerate() {
            copy::fill(stream, &span.slice(offset as u64, 1)?, *byte)?;
        }
        Ok(())
    }

    /// Reads `from`, once what is on `stream` is done.
    ///
    /// # Errors
    /// `Invalid` when sizes differ, `Device` when CUDA refuses or that takes too long.
    pub fn read_small(
        &self,
        to: &mut [u8],
        from: &DeviceArray,
        stream: &Stream,
    ) -> Result<(), Error> {
        download(self, to, from, stream)
    }
}
