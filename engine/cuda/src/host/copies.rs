//! Copies between a device and a pinned arena: split at the borders of chunks, direct where the
//! chunk is registered, otherwise by the method that the caller chose.

use std::ops::Range;

use crate::access::AccessedBytes;
use crate::driver::result;
use crate::ends::{enter, refused};
use crate::error::DeviceError;
use crate::host::PinnedArena;
use crate::host::staging::StagingRing;
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// How bytes move between the device and memory that is not registered yet. A copy waits instead if
/// the registration will be complete within about a sixth of the time that the copy takes. Both
/// methods block the calling thread for the copy's duration; copies of registered memory are only
/// enqueued.
#[derive(Debug)]
pub enum Unregistered<'a> {
    /// The driver's own way for pageable memory.
    Pageable,
    /// Through a ring of pinned buffers.
    Staged(&'a mut StagingRing),
}

const INTO: &str = "a copy into the host arena";
const OUT_OF: &str = "a copy out of the host arena";

impl PinnedArena {
    /// Copies `from` into the arena at `offset`. It is done when an event recorded on `stream`
    /// after it is done; bytes that went through staging have arrived when this returns.
    ///
    /// # Errors
    /// When the range or the device is wrong, the arena is closed, the driver refuses, or a staged
    /// copy does not finish within the ring's limit.
    pub fn copy_in(
        &self,
        stream: &Stream,
        offset: u64,
        from: &DeviceSpan,
        unregistered: Unregistered<'_>,
    ) -> Result<(), DeviceError> {
        self.check(offset, from.len())?;
        self.context.require(stream.context().ordinal(), "the stream")?;
        let _scope = enter(stream, &[from])?;
        let mut way = unregistered;
        for piece in self.pieces(offset, from.len()) {
            let (address, len) = (from.address() + (piece.start - offset), piece.end - piece.start);
            let registered = self.await_registered(piece.end, len);
            // Copies of unregistered memory are done when the call returns; registrations leave
            // gaps meanwhile.
            let _busy = self.busy();
            match &mut way {
                Unregistered::Staged(ring) if !registered => {
                    // SAFETY: the range was checked; the span keeps the memory in place, and the
                    // ring leaves nothing in flight.
                    unsafe { ring.copy_in(stream, self.place(&piece), address, len) }?;
                }
                _ => {
                    let place = self.place(&piece);
                    // SAFETY: checked above; the arena waits for the device before it unmaps.
                    let copied = unsafe { result::copy_dtoh(place, address, len, stream.raw()) };
                    refused(copied, INTO)?;
                    let device = AccessedBytes::device(from.ordinal(), address, len);
                    stream.saw_copy(INTO, device, AccessedBytes::host(place, len));
                }
            }
        }
        Ok(())
    }

    /// Copies the bytes of the arena at `offset` to `to`. It is done when an event recorded on
    /// `stream` after it is done.
    ///
    /// # Errors
    /// When the range or the device is wrong, the arena is closed, the driver refuses, or a slot
    /// of the ring does not become free within its limit.
    pub fn copy_out(
        &self,
        stream: &Stream,
        to: &DeviceSpan,
        offset: u64,
        unregistered: Unregistered<'_>,
    ) -> Result<(), DeviceError> {
        self.check(offset, to.len())?;
        self.context.require(stream.context().ordinal(), "the stream")?;
        let _scope = enter(stream, &[to])?;
        let mut way = unregistered;
        for piece in self.pieces(offset, to.len()) {
            let (address, len) = (to.address() + (piece.start - offset), piece.end - piece.start);
            let registered = self.await_registered(piece.end, len);
            // Copies of unregistered memory are done when the call returns; registrations leave
            // gaps meanwhile.
            let _busy = self.busy();
            match &mut way {
                Unregistered::Staged(ring) if !registered => {
                    // SAFETY: as above; the ring has the bytes when it returns.
                    unsafe { ring.copy_out(stream, address, self.place(&piece), len) }?;
                }
                _ => {
                    let place = self.place(&piece);
                    // SAFETY: as above.
                    let copied = unsafe { result::copy_htod(address, place, len, stream.raw()) };
                    refused(copied, OUT_OF)?;
                    let device = AccessedBytes::device(to.ordinal(), address, len);
                    stream.saw_copy(OUT_OF, AccessedBytes::host(place, len), device);
                }
            }
        }
        Ok(())
    }

    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        self.prepared.chunks.split(offset, len)
    }

    fn place(&self, piece: &Range<u64>) -> *mut u8 {
        self.prepared.mapping.at(piece.start, piece.end - piece.start)
    }
}
