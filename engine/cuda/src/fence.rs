//! Fences: events from a pool, one for each operation that may have to be waited for. Creating an
//! event costs a driver call and device memory, and a spool needs one for each copy, so events are
//! reused when their last fence is dropped.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::context::Context;
use crate::error::DeviceError;
use crate::event::Event;
use crate::stream::Stream;
use crate::waiting::Poll;

/// Maximum number of idle events in a pool; surplus events are destroyed.
const KEPT: usize = 4096;

/// A pool of events of one context.
#[derive(Debug)]
pub struct FencePool {
    context: Context,
    free: Mutex<Vec<Event>>,
}

impl FencePool {
    /// An empty pool.
    #[must_use]
    pub fn new(context: &Context) -> Arc<FencePool> {
        Arc::new(FencePool { context: context.clone(), free: Mutex::default() })
    }

    /// A fence after everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// When the stream belongs to another device, or the context is broken or out of resources.
    pub fn record(self: &Arc<FencePool>, stream: &Stream) -> Result<Fence, DeviceError> {
        self.prepare()?.record(stream)
    }

    /// An event for a fence, taken before the work is enqueued that the fence will follow: a lack
    /// of resources then shows while there is nothing to lose.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn prepare(self: &Arc<FencePool>) -> Result<Unrecorded, DeviceError> {
        // The guard ends with the statement: no call of the driver is made under the lock.
        let kept = self.free().pop();
        let event = kept.map_or_else(|| Event::new(&self.context), Ok)?;
        Ok(Unrecorded(PooledEvent {
            event: Some(event),
            fences: Arc::clone(self),
            done: false.into(),
        }))
    }

    /// Number of idle events.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.free().len()
    }

    fn free(&self) -> MutexGuard<'_, Vec<Event>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self, event: Event) {
        let mut free = self.free();
        if free.len() < KEPT {
            free.push(event);
        }
    }
}

/// A fence that is not recorded yet; dropping it returns its event to the pool.
#[derive(Debug)]
pub struct Unrecorded(PooledEvent);

impl Unrecorded {
    /// Records it after everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// When the stream belongs to another device, or the context is broken. What was enqueued may
    /// then still be running ([`DeviceError::leaves_work`]): [`Stream::drain`] waits for it without
    /// an event.
    pub fn record(self, stream: &Stream) -> Result<Fence, DeviceError> {
        self.0.event().record(stream).map_err(DeviceError::with_work_left)?;
        Ok(Fence(Arc::new(self.0)))
    }
}

/// A place in a stream, recorded once: when it is done, everything that was enqueued before is.
/// Dropping the last clone returns the event to the pool even if it is not done: waits that were
/// enqueued on it keep its place. It must not be recorded again through the event that it derefs
/// to.
#[derive(Clone, Debug)]
pub struct Fence(Arc<PooledEvent>);

#[derive(Debug)]
struct PooledEvent {
    /// Present until the drop.
    event: Option<Event>,
    fences: Arc<FencePool>,
    done: AtomicBool,
}

impl PooledEvent {
    fn event(&self) -> &Event {
        self.event.as_ref().expect("an event until it goes back")
    }
}

impl Fence {
    /// Whether it is done; costs one load from then on. Work that failed is never done:
    /// [`poll`](Self::poll) distinguishes it from work that is still running.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.poll(), Poll::Done)
    }

    /// Whether both are the same place in the same stream, recorded once.
    #[must_use]
    pub fn is_same(&self, other: &Fence) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// As [`Event::poll`]. What was seen done stays done, whatever becomes of the context.
    #[must_use]
    pub fn poll(&self) -> Poll {
        if self.0.done.load(Ordering::Acquire) {
            return Poll::Done;
        }
        let poll = self.0.event().poll();
        if matches!(poll, Poll::Done) {
            self.0.done.store(true, Ordering::Release);
        }
        poll
    }

    /// As [`Event::wait`], for a place that stays done once it was seen done.
    ///
    /// # Errors
    /// When something before it failed, and when the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<(), DeviceError> {
        if self.0.done.load(Ordering::Acquire) {
            return Ok(());
        }
        self.0.event().wait(limit)?;
        self.0.done.store(true, Ordering::Release);
        Ok(())
    }
}

impl Deref for Fence {
    type Target = Event;

    fn deref(&self) -> &Event {
        self.0.event()
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            event.forget();
            self.fences.take_back(event);
        }
    }
}
