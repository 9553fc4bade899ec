//! Dense buffers of bytes that Python owns, held for the length of one call.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A dense buffer of bytes.
pub struct ByteBuffer(PyBuffer<u8>);

impl ByteBuffer {
    /// A buffer to be read.
    ///
    /// # Errors
    /// `ValueError` when it is not dense.
    pub fn readable(buffer: PyBuffer<u8>) -> PyResult<ByteBuffer> {
        if buffer.is_c_contiguous() {
            return Ok(ByteBuffer(buffer));
        }
        Err(PyValueError::new_err("the bytes have to lie one after the other"))
    }

    /// A buffer to be written, apart from `source`.
    ///
    /// # Errors
    /// `ValueError` when it is not dense, read-only, or shares memory with `source`.
    pub fn writable(buffer: PyBuffer<u8>, source: &ByteBuffer) -> PyResult<ByteBuffer> {
        let target = ByteBuffer::readable(buffer)?;
        let (from, to) = (source.range(), target.range());
        if target.0.readonly() || (from.start < to.end && to.start < from.end) {
            return Err(PyValueError::new_err("the target has to be writable and apart"));
        }
        Ok(target)
    }

    /// A buffer to be written, by a call that takes no other.
    ///
    /// # Errors
    /// `ValueError` when it is not dense, or read-only.
    pub fn alone(buffer: PyBuffer<u8>) -> PyResult<ByteBuffer> {
        let target = ByteBuffer::readable(buffer)?;
        match target.0.readonly() {
            true => Err(PyValueError::new_err("the target has to be writable")),
            false => Ok(target),
        }
    }

    /// The bytes.
    pub fn get(&self) -> &[u8] {
        if self.0.item_count() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous and held, so that its owner cannot free or move it. The
        // caller of the Python function promises not to write it from another thread meanwhile,
        // as with every call that lets other threads run.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.item_count()) }
    }

    /// The bytes, of a buffer that [`writable`](Self::writable) or [`alone`](Self::alone) gave.
    pub fn get_mut(&mut self) -> &mut [u8] {
        if self.0.item_count() == 0 {
            return &mut [];
        }
        // SAFETY: as above, and another buffer of the call shares no memory with it.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.item_count()) }
    }

    fn range(&self) -> std::ops::Range<usize> {
        let begin = self.0.buf_ptr() as usize;
        begin..begin + self.0.len_bytes()
    }
}
