//! Marks: events from a pool, one for each operation that someone may have to wait for. Making an
//! event costs a call of the driver and memory of the device, and a spool needs one for each copy,
//! so events that nobody names any more are used again.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::error::DeviceError;
use crate::event::{Event, Poll};
use crate::stream::Stream;

/// Events that are kept for later use; more than that are destroyed when they come back.
const KEPT: usize = 4096;

/// A pool of events of one context.
#[derive(Debug)]
pub struct Marks {
    context: Context,
    free: Mutex<Vec<Event>>,
}

impl Marks {
    /// An empty pool.
    #[must_use]
    pub fn new(context: &Context) -> Arc<Marks> {
        Arc::new(Marks { context: context.clone(), free: Mutex::default() })
    }

    /// A mark behind everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// When the stream belongs to another device, or the context is broken or out of resources.
    pub fn record(self: &Arc<Marks>, stream: &Stream) -> Result<Mark, DeviceError> {
        self.prepare()?.record(stream)
    }

    /// An event for a mark, before the work that the mark will be behind is enqueued: what can fail
    /// for want of resources fails here, while there is nothing to lose.
    ///
    /// # Errors
    /// When the context is broken or out of resources.
    pub fn prepare(self: &Arc<Marks>) -> Result<Unrecorded, DeviceError> {
        // The guard ends with the statement: no call of the driver is made under the lock.
        let kept = self.free().pop();
        let event = kept.map_or_else(|| Event::new(&self.context), Ok)?;
        Ok(Unrecorded(Lent { event: Some(event), marks: Arc::clone(self), done: false.into() }))
    }

    /// Events that wait for their next use.
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

/// A mark that is still to be recorded; dropped without that, its event goes back to the pool.
#[derive(Debug)]
pub struct Unrecorded(Lent);

impl Unrecorded {
    /// Records it behind everything enqueued on `stream` so far.
    ///
    /// # Errors
    /// When the stream belongs to another device, or the context is broken. What was enqueued may
    /// then still be under way: [`Stream::drain`] waits for it without an event.
    pub fn record(self, stream: &Stream) -> Result<Mark, DeviceError> {
        self.0.event().record(stream)?;
        Ok(Mark(Arc::new(self.0)))
    }
}

/// A place in a stream, recorded once: when it is done, everything that was enqueued before is.
/// Its event goes back to the pool with its last clone, also while it is not done: waits that were
/// enqueued on it keep its place. It must not be recorded again through the event that it derefs
/// to.
#[derive(Clone, Debug)]
pub struct Mark(Arc<Lent>);

#[derive(Debug)]
struct Lent {
    /// Present until the drop.
    event: Option<Event>,
    marks: Arc<Marks>,
    done: AtomicBool,
}

impl Lent {
    fn event(&self) -> &Event {
        self.event.as_ref().expect("an event until it goes back")
    }
}

impl Mark {
    /// Whether it is done. Costs a load once it is. Work that failed is never done: [`Event::poll`]
    /// tells it apart from work that is under way.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let done = &self.0.done;
        if done.load(Ordering::Acquire) {
            return true;
        }
        let is = matches!(self.0.event().poll(), Poll::Done);
        if is {
            done.store(true, Ordering::Release);
        }
        is
    }
}

impl Deref for Mark {
    type Target = Event;

    fn deref(&self) -> &Event {
        self.0.event()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            event.forget();
            self.marks.take_back(event);
        }
    }
}
