//! A small ring of pinned buffers, for memory that is not registered. A slot is reused only when
//! the event after its last use is done: reuse that is too early corrupts data silently.

use std::collections::VecDeque;
use std::ptr;
use std::time::{Duration, Instant};

use crate::access::AccessedBytes;
use crate::context::Context;
use crate::driver::result;
use crate::ends::refused;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::event::Event;
use crate::memory::PinnedMemory;
use crate::stream::Stream;

/// Pinned buffers of one size, used one after the other. One user at a time.
#[derive(Debug)]
pub struct StagingRing {
    memory: PinnedMemory,
    slot: u64,
    slots: usize,
    /// The event after the last use of each slot; empty while the ring is idle.
    events: Vec<Event>,
    next: usize,
    limit: Duration,
    /// The common end of all waits, for callers with one limit for a whole copy.
    deadline: Option<Instant>,
}

const TO_SLOT: &str = "a copy to a staging buffer";
const FROM_SLOT: &str = "a copy from a staging buffer";

/// Bytes on their way into a slot, and their destination.
struct Arriving {
    slot: usize,
    to: *mut u8,
    len: u64,
}

impl StagingRing {
    /// Creates `slots` buffers of `slot` bytes; every wait for one of them takes at most `limit`.
    /// Pinning takes about half a millisecond per MiB.
    ///
    /// # Errors
    /// When there are no slots or no bytes, or the memory cannot be pinned.
    pub fn new(
        context: &Context,
        slot: u64,
        slots: usize,
        limit: Duration,
    ) -> Result<StagingRing, DeviceError> {
        let total = slot.checked_mul(slots as u64).filter(|&total| total > 0).ok_or_else(|| {
            let message = format!("a ring of {slots} slots of {slot} bytes stages nothing");
            DeviceError::new(DeviceErrorKind::OutOfRange, message)
        })?;
        let memory = PinnedMemory::new(context, total)?;
        let first = memory.at(0, total)?;
        context.saw(|| AccessedBytes::host(first, total).arena());
        let mut ring =
            StagingRing { memory, slot, slots, events: Vec::new(), next: 0, limit, deadline: None };
        ring.attach(context)?;
        Ok(ring)
    }

    /// Creates the events for a new user of the ring, with the context and so the watch of that
    /// user.
    pub(crate) fn attach(&mut self, context: &Context) -> Result<(), DeviceError> {
        self.next = 0;
        self.events = (0..self.slots).map(|_| Event::new(context)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Drops the events; the device must be done with all slots.
    pub(crate) fn detach(&mut self) {
        self.events.clear();
    }

    /// Copies `len` bytes from the device to `to`; they have arrived when this returns. Copies into
    /// slots run while the processor empties others.
    ///
    /// # Safety
    /// Both ranges hold `len` bytes, `to` is not used by anyone else, and the context of `stream`
    /// is current.
    pub(crate) unsafe fn copy_in(
        &mut self,
        stream: &Stream,
        to: *mut u8,
        from: u64,
        len: u64,
    ) -> Result<(), DeviceError> {
        self.require(stream)?;
        let mut arriving = VecDeque::with_capacity(self.events.len());
        for (at, piece) in pieces(len, self.slot) {
            if arriving.len() == self.events.len() {
                self.empty(arriving.pop_front())?;
            }
            let slot = self.take_slot()?;
            let place = self.memory.at(slot as u64 * self.slot, piece)?;
            // SAFETY: the caller guarantees `from`; the slot is free and large enough.
            let copied = unsafe { result::copy_dtoh(place, from + at, piece, stream.raw()) };
            refused(copied, TO_SLOT)?;
            let device = AccessedBytes::device(stream.context().ordinal(), from + at, piece);
            stream.saw_copy(TO_SLOT, device, AccessedBytes::host(place, piece));
            self.events[slot].record(stream)?;
            // SAFETY: inside the caller's range.
            let to = unsafe { to.add(at as usize) };
            arriving.push_back(Arriving { slot, to, len: piece });
        }
        arriving.into_iter().try_for_each(|piece| self.empty(Some(piece)))
    }

    /// Copies `len` bytes at `from` to the device. They have been read when this returns, and have
    /// arrived when an event recorded after it is done.
    ///
    /// # Safety
    /// Both ranges hold `len` bytes, nobody writes to `from`, and the context of `stream` is
    /// current.
    pub(crate) unsafe fn copy_out(
        &mut self,
        stream: &Stream,
        to: u64,
        from: *const u8,
        len: u64,
    ) -> Result<(), DeviceError> {
        self.require(stream)?;
        for (at, piece) in pieces(len, self.slot) {
            let slot = self.take_slot()?;
            let place = self.memory.at(slot as u64 * self.slot, piece)?;
            // SAFETY: inside the caller's range and the slot, which is free.
            let from = unsafe { from.add(at as usize) };
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(from, place, piece as usize) };
            self.saw_move(from, place, piece);
            // SAFETY: the caller guarantees `to`.
            let copied = unsafe { result::copy_htod(to + at, place, piece, stream.raw()) };
            refused(copied, FROM_SLOT)?;
            let device = AccessedBytes::device(stream.context().ordinal(), to + at, piece);
            stream.saw_copy(FROM_SLOT, AccessedBytes::host(place, piece), device);
            self.events[slot].record(stream)?;
        }
        Ok(())
    }

    pub(crate) fn context(&self) -> &Context {
        self.memory.context()
    }

    /// Ends all later waits together at `deadline`.
    pub(crate) fn end_waits_at(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// The limit of a wait that begins now.
    fn left(&self) -> Duration {
        let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map_or(self.limit, until)
    }

    /// Refuses a stream of another device, before anything is enqueued on it.
    fn require(&self, stream: &Stream) -> Result<(), DeviceError> {
        let own = self.memory.context();
        own.require(stream.context().ordinal(), "the stream")
    }

    /// The next slot, once its last use is done.
    fn take_slot(&mut self) -> Result<usize, DeviceError> {
        let slot = self.next;
        self.events[slot].wait(self.left())?;
        self.next = (slot + 1) % self.events.len();
        Ok(slot)
    }

    /// Waits for the bytes of a slot and moves them to their destination.
    fn empty(&self, piece: Option<Arriving>) -> Result<(), DeviceError> {
        let Some(Arriving { slot, to, len }) = piece else { return Ok(()) };
        self.events[slot].wait(self.left())?;
        let place = self.memory.at(slot as u64 * self.slot, len)?;
        // SAFETY: the bytes have arrived; `to` is inside the range of `copy_in`'s caller.
        unsafe { ptr::copy_nonoverlapping(place, to, len as usize) };
        self.saw_move(place, to, len);
        Ok(())
    }

    /// Reports a copy by the processor to the watch.
    fn saw_move(&self, from: *const u8, to: *const u8, len: u64) {
        let Some(event) = self.events.first() else { return };
        event.context().saw_host("staging", from, len, false);
        event.context().saw_host("staging", to, len, true);
    }
}

/// Offset and length of each piece of `len` bytes, at most `slot` long.
fn pieces(len: u64, slot: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(slot)).map(move |index| (index * slot, slot.min(len - index * slot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_copy_in_order() {
        let list: Vec<_> = pieces(10, 4).collect();
        assert_eq!(list, [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(pieces(0, 4).count(), 0);
        assert_eq!(pieces(4, 4).collect::<Vec<_>>(), [(0, 4)]);
    }
}
