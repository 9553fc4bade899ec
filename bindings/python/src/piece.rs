//! Arrays on their way through copies that run without Python attached.

use unspool::{Error, RestoreTicket, SaveTicket};

use crate::array::{Array, Place};
use crate::gpu::DevicePiece;
use crate::strided::Walk;

/// One array. Whoever uses it keeps what it was made from until the copy is done.
#[derive(Debug)]
pub enum Piece {
    /// It lies in memory of the host.
    Host(HostPiece),
    /// It lies in the memory of a GPU.
    Device(DevicePiece),
}

/// See [`Piece`].
#[derive(Debug)]
pub struct HostPiece {
    data: *mut u8,
    walk: Walk,
}

// SAFETY: a piece is only an address and a description. Whoever uses it keeps the array that it
// was made from on the stack of the same call, and copies on the same thread.
unsafe impl Send for HostPiece {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for HostPiece {}

impl Piece {
    /// The memory of `array`; `given` says that its stream is the caller's.
    pub fn of(array: &Array, given: bool) -> Piece {
        match array.place() {
            Place::Host => Piece::Host(HostPiece { data: array.data(), walk: array.walk() }),
            Place::Cuda { ordinal, work } => {
                Piece::Device(DevicePiece::of(array, ordinal, work, given))
            }
        }
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
        // SAFETY: the exporter lends the memory of all elements, and `room` is the spool's own.
        ticket.fill(index, |room| unsafe { crate::strided::gather(self.data, &self.walk, room) })
    }

    /// Copies region `index` into the elements.
    ///
    /// # Errors
    /// Those of the spool.
    ///
    /// # Safety
    /// The array that this was made from is still borrowed, and may be written.
    pub unsafe fn restore(&self, ticket: &mut RestoreTicket, index: usize) -> Result<(), Error> {
        // SAFETY: as above.
        ticket.read(index, |bytes| unsafe {
            crate::strided::scatter(bytes, &self.walk, self.data);
        })
    }
}
