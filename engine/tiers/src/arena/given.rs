//! Arrays of the application that were given away: a copy lies in their memory, in place of the
//! bytes that the arena has for it. The place in the arena stays the copy's own all the same, so
//! that what was given counts as what was copied would.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unspool_cuda::{DeviceSpan, Fence, Poll, Stream};

/// What keeps the memory of an array allocated: the memory goes back when the last one is dropped.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// An array of a device that its owner has given away. See the module.
#[derive(Clone)]
pub struct GivenArray {
    span: DeviceSpan,
    stream: Arc<Stream>,
    waits: bool,
    owner: Owner,
}

impl GivenArray {
    /// The memory `span`, which stays allocated while `owner` lives and is not written meanwhile.
    /// What it holds is there after the work on `stream` so far. With `waits`, whoever gets the
    /// memory after `owner` was dropped works on `stream`, which then waits for what is unfinished;
    /// without it, `owner` is dropped when nothing is unfinished.
    #[must_use]
    pub fn new(span: DeviceSpan, stream: Stream, waits: bool, owner: Owner) -> GivenArray {
        GivenArray { span, stream: Arc::new(stream), waits, owner }
    }

    /// Its memory.
    #[must_use]
    pub fn span(&self) -> &DeviceSpan {
        &self.span
    }

    /// The stream after whose work it is whole.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What keeps its memory allocated.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The array, no longer used by a copy, as soon as the work before `after` is done.
    #[must_use]
    pub fn leaving(self, after: Vec<Fence>) -> LeavingArray {
        LeavingArray { array: self, after, stuck: false }
    }
}

impl fmt::Debug for GivenArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenArray").field("span", &self.span).finish_non_exhaustive()
    }
}

/// A given array of which the copy is gone, with the work on it that may be unfinished.
#[derive(Debug)]
pub struct LeavingArray {
    array: GivenArray,
    after: Vec<Fence>,
    /// Work on it may be under way, and when it is done cannot be known.
    stuck: bool,
}

impl LeavingArray {
    pub(super) fn stuck(self, stuck: bool) -> LeavingArray {
        LeavingArray { stuck, ..self }
    }

    /// Drops the owner in stream order, without a wait on the host. Gives the array back where that
    /// has to wait: for work that no stream waits for, or because a stream that is being captured
    /// into a graph cannot wait now. Memory that may be in use for ever is leaked.
    ///
    /// May run code of the application: call it without any lock.
    #[must_use]
    pub fn let_go(mut self) -> Option<LeavingArray> {
        if self.stuck {
            return self.end_of_context();
        }
        self.after.retain(|fence| !is_over(fence));
        let stream = &self.array.stream;
        if self.after.is_empty() {
            return None;
        }
        if !self.array.waits || stream.is_capturing().unwrap_or(false) {
            return Some(self);
        }
        let ordered = self.after.iter().try_for_each(|fence| stream.wait_for(fence));
        if ordered.is_ok() { None } else { self.end_of_context() }
    }

    /// As [`let_go`](Self::let_go), which waits for unfinished work, at most `limit` for each piece
    /// of it. What is not done then is leaked: memory that is in use is never given back.
    pub fn let_go_within(self, limit: Duration) {
        let Some(late) = self.let_go() else { return };
        if !late.after.iter().all(|fence| fence.wait(limit).is_ok() || is_over(fence)) {
            std::mem::forget(late);
        }
    }

    /// With its context all work has ended; where the context lives, the memory is leaked.
    fn end_of_context(self) -> Option<LeavingArray> {
        if self.array.stream.lost().is_none() {
            std::mem::forget(self);
        }
        None
    }
}

/// Whether the work before `fence` is not under way any more.
fn is_over(fence: &Fence) -> bool {
    match fence.poll() {
        Poll::Done => true,
        Poll::NotYet => false,
        Poll::Failed(cause) => cause.ends_context(),
    }
}
