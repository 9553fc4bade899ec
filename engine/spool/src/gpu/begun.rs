//! Tickets whose memory the application works on in place, and that are dropped without a word
//! about the stream on which it does: their memory is free when everything on the device is done.

use std::thread::Builder;

use unspool_cuda::Context;

/// Whether the application may have enqueued work on a ticket's memory that left no fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InPlace {
    /// It has not.
    No,
    /// It may have. Dropped -> `Leaving`, in a thread of its own.
    Yes,
    /// Everything on the device is being waited for. Done -> `No`; dropped before that, the memory
    /// waits for a moment at which the device has nothing left to do.
    Leaving,
}

/// A ticket that ends later.
pub(crate) trait Leave: Send + 'static {
    /// Everything on the device is done.
    fn device_is_idle(&mut self);
}

/// Drops `ticket` when everything on the device of `context` is done. Returns at once.
pub(crate) fn drop_when_idle(context: Context, mut ticket: impl Leave) {
    // If the thread cannot be started, the ticket is dropped here: others get its memory only after
    // a wait for the whole device.
    let _ = Builder::new().name("unspool-leave".to_owned()).spawn(move || {
        if context.synchronize().is_ok() {
            ticket.device_is_idle();
        }
    });
}
