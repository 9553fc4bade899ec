//! What the buffers of one `with` block share.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::array::LEGACY_STREAM;

/// Whether a block is still open, and the stream on which its memory is in order.
#[derive(Debug)]
pub struct Block {
    open: AtomicBool,
    stream: usize,
}

impl Block {
    /// An open block whose memory is in order on `stream`.
    pub fn new(stream: usize) -> Block {
        Block { open: AtomicBool::new(true), stream }
    }

    /// An open block for memory of the host.
    pub fn of_host() -> Block {
        Block::new(LEGACY_STREAM)
    }

    /// The stream.
    pub fn stream(&self) -> usize {
        self.stream
    }

    /// Ends the block: its memory is lent no more.
    pub fn end(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Refuses to lend memory of a block that was left.
    ///
    /// # Errors
    /// `BufferError`, which is what the protocols ask for.
    pub fn check(&self) -> PyResult<()> {
        if self.open.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(PyBufferError::new_err(
            "the `with` block that lent this memory was left, and the memory may have another \
             content by now: use it inside of the block, or take a copy there",
        ))
    }
}
