//! What went wrong in a tier, exactly: where, doing what, how far it came, and what to do.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use unspool_core::Failure;

/// An error of a tier. Cheap to clone: one failure may have to be reported to several callers.
///
/// Its text is a sentence with a remedy; [`TierError::kind`] is what the core needs to know.
#[derive(Clone, Debug)]
pub struct TierError(Arc<Details>);

#[derive(Debug)]
struct Details {
    kind: Failure,
    operation: &'static str,
    location: String,
    reason: String,
    progress: Option<Progress>,
    advice: String,
    cause: Option<io::Error>,
}

/// How far an operation came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that were asked for.
    pub asked: u64,
    /// Bytes that had been moved when it failed.
    pub done: u64,
}

impl TierError {
    /// An error of `operation` ("put", "open", ...) at `location` (a path, "host memory"), for
    /// `reason`.
    #[must_use]
    pub fn new(
        kind: Failure,
        operation: &'static str,
        location: impl Into<String>,
        reason: impl Into<String>,
    ) -> TierError {
        TierError(Arc::new(Details {
            kind,
            operation,
            location: location.into(),
            reason: reason.into(),
            progress: None,
            advice: String::new(),
            cause: None,
        }))
    }

    /// The same error with the number of bytes asked for and done.
    #[must_use]
    pub fn with_progress(self, asked: u64, done: u64) -> TierError {
        self.edit(|details| details.progress = Some(Progress { asked, done }))
    }

    /// The same error with what a person can do about it, as a full sentence.
    #[must_use]
    pub fn with_advice(self, advice: impl Into<String>) -> TierError {
        self.edit(|details| details.advice = advice.into())
    }

    /// The same error with the error of the operating system that caused it.
    #[must_use]
    pub fn with_cause(self, cause: io::Error) -> TierError {
        self.edit(|details| details.cause = Some(cause))
    }

    /// Changes the details while nobody else has a clone, which holds while an error is built;
    /// afterwards the change is lost.
    fn edit(mut self, change: impl FnOnce(&mut Details)) -> TierError {
        let details = Arc::get_mut(&mut self.0);
        debug_assert!(details.is_some(), "errors are completed before they are shared");
        if let Some(details) = details {
            change(details);
        }
        self
    }

    /// What the core needs to know in order to decide what comes next.
    #[must_use]
    pub fn kind(&self) -> Failure {
        self.0.kind
    }

    /// What was tried: "put", "get", "delete", "list", "sync", "open", ...
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Where: a path, or "device memory".
    #[must_use]
    pub fn location(&self) -> &str {
        &self.0.location
    }

    /// Why, without the place and the remedy.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Bytes asked for and done, when the operation moves bytes.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.0.progress
    }

    /// What a person can do about it.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.0.advice
    }
}

impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { operation, location, reason, progress, advice, cause, .. } = &*self.0;
        write!(f, "{operation} failed at {location}")?;
        if let Some(Progress { asked, done }) = progress {
            write!(f, " after {done} of {asked} bytes")?;
        }
        write!(f, ": {reason}")?;
        if let Some(cause) = cause {
            write!(f, " ({cause})")?;
        }
        f.write_str(".")?;
        if !advice.is_empty() {
            write!(f, " {advice}")?;
        }
        Ok(())
    }
}

impl Error for TierError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.as_ref().map(|cause| cause as &(dyn Error + 'static))
    }
}
