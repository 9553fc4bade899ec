//! Streams: our own, and streams of the application by handle.

use std::sync::OnceLock;
use std::time::Duration;

use unspool_verify::{Agent, Op};

use crate::context::Context;
use crate::driver::raw::CUstream;
use crate::driver::result;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::life;
use crate::waiting::{Poll, wait_for};
use crate::watch::new_recording;

/// The legacy default stream, by its handle.
const LEGACY: usize = 1;
/// The default stream of each thread, by its handle.
const PER_THREAD: usize = 2;

/// A stream of one device: work on it is done in the order in which it was enqueued.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    handle: CUstream,
    owned: bool,
    /// The driver's number for it, kept after the first query.
    id: OnceLock<u64>,
}

// SAFETY: the driver allows a stream to be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver orders concurrent calls.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of our own, which does not wait for the legacy default stream.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn new(context: &Context) -> Result<Stream, DeviceError> {
        let _scope = context.enter()?;
        let handle = result::create_stream(0)?;
        Ok(Stream::make(context, handle, true))
    }

    fn make(context: &Context, handle: CUstream, owned: bool) -> Stream {
        Stream { context: context.clone(), handle, owned, id: OnceLock::new() }
    }

    /// The legacy default stream: it waits for blocking streams, and they wait for it.
    #[must_use]
    pub fn legacy_default(context: &Context) -> Stream {
        Stream::make(context, LEGACY as CUstream, false)
    }

    /// The application's stream by its handle, as array libraries give it: 0 and 1 are the legacy
    /// default stream, 2 is the per-thread default stream (the numbers of the Python array API).
    ///
    /// # Errors
    /// When the stream belongs to another device or context.
    ///
    /// # Safety
    /// `handle` is one of those numbers or a stream that lives as long as this value.
    pub unsafe fn borrow(context: &Context, handle: usize) -> Result<Stream, DeviceError> {
        let handle = if handle == 0 { LEGACY } else { handle };
        let stream = Stream::make(context, handle as CUstream, false);
        if handle > PER_THREAD {
            stream.require_own_context()?;
        }
        Ok(stream)
    }

    fn require_own_context(&self) -> Result<(), DeviceError> {
        let scope = self.context.enter()?;
        // SAFETY: the stream lives, as the caller of `borrow` guarantees.
        let theirs = unsafe { result::stream_context(self.handle) }?;
        drop(scope);
        if theirs == self.context.raw() {
            return Ok(());
        }
        let own = self.context.ordinal();
        let message = match ordinal_of(theirs) {
            Ok(other) if other != own => {
                format!("the stream belongs to device {other}, and device {own} is meant")
            }
            _ => format!("the stream belongs to another context than device {own}'s primary one"),
        };
        Err(DeviceError::new(DeviceErrorKind::WrongDevice, message)
            .with_advice("Give a stream that was made on the device of the spool."))
    }

    /// The handle as a number, for array libraries.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.handle as usize
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Why the context of the stream is lost, if it is: it has had an error that no context
    /// survives. One query, without any wait.
    #[must_use]
    pub fn lost(&self) -> Option<DeviceError> {
        let queried = self.context.enter().and_then(|_scope| {
            // SAFETY: it lives while it is borrowed.
            unsafe { result::is_idle(self.handle) }
        });
        queried.err().map(DeviceError::from).filter(DeviceError::ends_context)
    }

    /// Waits until everything on the stream is done, at most `limit`. It needs no event, so it
    /// works when none is available; but it also waits for what is enqueued meanwhile, so
    /// [`sync`](Self::sync) is preferable.
    ///
    /// # Errors
    /// When an operation on it failed, and when the limit has passed.
    pub fn drain(&self, limit: Duration) -> Result<(), DeviceError> {
        let _scope = self.context.enter()?;
        let poll = || {
            // SAFETY: it lives while it is borrowed.
            match unsafe { result::is_idle(self.handle) } {
                Ok(true) => Poll::Done,
                Ok(false) => Poll::NotYet,
                Err(cause) => Poll::Failed(cause.into()),
            }
        };
        wait_for(poll, limit, "the work on a stream")?;
        // The watch sees a recording after everything on the stream, although no event exists.
        let event = new_recording();
        self.context.saw(|| Op::Record { event, on: self.agent() });
        self.context.saw(|| Op::Wait { by: Agent::Host, event });
        self.context.saw(|| Op::Forget { event });
        Ok(())
    }

    /// Whether operations enqueued on it go into a graph instead of being executed. Nothing of ours
    /// may be enqueued then: every launch of the graph would execute it again. True also for the
    /// legacy default stream during the capture of a stream that it waits for.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn is_capturing(&self) -> Result<bool, DeviceError> {
        let _scope = self.context.enter()?;
        // SAFETY: it lives while it is borrowed.
        Ok(unsafe { result::is_capturing(self.handle) }?)
    }

    /// Its name for a watch: the driver's number, which no other stream of the process has or had;
    /// each thread's default stream has its own.
    pub(crate) fn agent(&self) -> Agent {
        let ask = || {
            let _scope = self.context.enter()?;
            // SAFETY: it lives while it is borrowed.
            unsafe { result::stream_id(self.handle) }
        };
        let number = || ask().unwrap_or(self.handle as u64);
        if self.handle as usize == PER_THREAD {
            return Agent::Stream(number());
        }
        Agent::Stream(*self.id.get_or_init(number))
    }

    /// The driver's handle, for CUDA libraries that take a stream.
    pub fn raw(&self) -> CUstream {
        self.handle
    }
}

/// The number of the device of a context.
fn ordinal_of(context: crate::driver::raw::CUcontext) -> Result<u32, DeviceError> {
    result::push_context(context)?;
    let device = result::current_device();
    let _ = result::pop_context();
    Ok(device?.unsigned_abs())
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned
            && life::driver_lives()
            && let Ok(_scope) = self.context.enter()
        {
            // SAFETY: owned by this value; the driver finishes what is enqueued before it destroys
            // the stream.
            let _ = unsafe { result::destroy_stream(self.handle) };
        }
    }
}
