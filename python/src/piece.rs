//! Arrays on their way through copies that run without Python attached.

use unspool::{Checkpoint, Error, RestoreTicket, SaveTicket};

use crate::array::{Array, ArrayPlace};
use crate::gpu::DevicePiece;
use crate::strided::StridedWalk;

/// One array. Whoever uses it keeps what it was made from until the copy is done.
#[derive(Debug)]
pub enum ArrayPiece {
    /// It lies in memory of the host.
    Host(HostPiece),
    /// It lies in the memory of a GPU.
    Device(DevicePiece),
}

/// See [`ArrayPiece`].
#[derive(Debug)]
pub struct HostPiece {
    data: *mut u8,
    walk: StridedWalk,
}

// SAFETY: a piece is only an address and a description. Whoever uses it keeps the array that it
// was made from on the stack of the same call, and copies on the same thread.
unsafe impl Send for HostPiece {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for HostPiece {}

impl ArrayPiece {
    /// The memory of `array`; `given` says that its stream is the caller's.
    pub fn of(array: &Array, given: bool) -> ArrayPiece {
        match array.place() {
            ArrayPlace::Host => {
                ArrayPiece::Host(HostPiece { data: array.data(), walk: array.walk() })
            }
            ArrayPlace::Cuda { ordinal, work } => {
                ArrayPiece::Device(DevicePiece::of(array, ordinal, work, given))
            }
        }
    }
}

impl ArrayPiece {
    /// `bytes` bytes at an address of the host, one after the other.
    pub fn dense_host(data: *mut u8, bytes: usize) -> ArrayPiece {
        ArrayPiece::Host(HostPiece { data, walk: StridedWalk::new(&[bytes], &[1], 1) })
    }

    /// `bytes` bytes at an address of device `ordinal`, whose owner orders all that it does with
    /// them, also their reuse, after what is on `stream`.
    pub fn dense_device(ordinal: u32, address: u64, bytes: u64, stream: usize) -> ArrayPiece {
        ArrayPiece::Device(DevicePiece::dense(ordinal, address, bytes, stream))
    }
}

impl HostPiece {
    /// Copies the elements into region `index`.
    ///
    /// # Errors
    /// Those of the spool.
    ///
    /// # Safety
    /// The array that this was made from is still borrowed.
    pub unsafe fn save(&self, ticket: &mut SaveTicket, index: usize) -> Result<(), Error> {
        if self.walk.dims().is_empty() {
            // SAFETY: the exporter lends the memory of all elements, which are one run.
            return ticket.fill_from(index, unsafe { self.run() });
        }
        // SAFETY: the exporter lends the memory of all elements, and `room` is the spool's own.
        ticket.fill(index, |room| unsafe { crate::strided::gather(self.data, &self.walk, room) })
    }

    /// Tells `checkpoint` to take region `index` from the elements.
    ///
    /// # Errors
    /// When the region has another size.
    ///
    /// # Safety
    /// The array that this was made from is borrowed for as long as `checkpoint` lives.
    pub unsafe fn give<'c>(
        &'c self,
        checkpoint: &mut Checkpoint<'c>,
        index: usize,
    ) -> Result<(), Error> {
        if self.walk.dims().is_empty() {
            // SAFETY: the exporter lends the memory of all elements, which are one run.
            return checkpoint.fill_from(index, unsafe { self.run() });
        }
        // SAFETY: the exporter lends the memory of all elements, and `room` is the spool's own.
        checkpoint
            .fill(index, |room| unsafe { crate::strided::gather(self.data, &self.walk, room) });
        Ok(())
    }

    /// Copies region `index` into the elements.
    ///
    /// # Errors
    /// Those of the spool.
    ///
    /// # Safety
    /// The array that this was made from is still borrowed, and may be written.
    pub unsafe fn restore(&self, ticket: &mut RestoreTicket, index: usize) -> Result<(), Error> {
        if self.walk.dims().is_empty() {
            // SAFETY: the elements are one run that may be written.
            return ticket.read_into(index, unsafe { self.run_mut() });
        }
        // SAFETY: as above.
        ticket.read(index, |bytes| unsafe {
            crate::strided::scatter(bytes, &self.walk, self.data);
        })
    }

    /// The elements as bytes. Another thread that writes them meanwhile makes what is saved a
    /// mixture, as for every save.
    ///
    /// # Safety
    /// The elements are one run, and still borrowed.
    unsafe fn run(&self) -> &[u8] {
        if self.walk.bytes() == 0 {
            return &[];
        }
        // SAFETY: the run has all bytes of the elements, and its address is not null.
        unsafe { std::slice::from_raw_parts(self.data, self.walk.bytes()) }
    }

    /// The elements as bytes to be written.
    ///
    /// # Safety
    /// As for [`run`](Self::run), and they may be written.
    #[expect(clippy::mut_from_ref, reason = "the memory is that of the array, not of the piece")]
    unsafe fn run_mut(&self) -> &mut [u8] {
        if self.walk.bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as above, and no other target of the call shares it: that was checked.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.walk.bytes()) }
    }
}
