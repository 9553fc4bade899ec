//! How long a call may wait, and who may end the wait early.

use std::fmt;
use std::time::Duration;

use unspool_cuda::Stream;

/// How long a call may wait, and who may end the wait early.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// The longest wait; `None` means [`Settings::timeout`](crate::Settings::timeout).
    pub timeout: Option<Duration>,
    /// Asked at least every 100 ms while the call waits, with no lock held; `true` ends the wait
    /// with [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted).
    pub interrupted: &'a dyn Fn() -> bool,
    /// The stream of the application that the call is about: while it has work, a wait of the host
    /// is not a stall.
    pub stream: Option<&'a Stream>,
}

impl Default for Wait<'_> {
    fn default() -> Self {
        Wait { timeout: None, interrupted: &|| false, stream: None }
    }
}

impl Wait<'_> {
    /// A wait of at most `timeout` that nobody interrupts.
    #[must_use]
    pub fn at_most(timeout: Duration) -> Self {
        Wait { timeout: Some(timeout), ..Wait::default() }
    }
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
