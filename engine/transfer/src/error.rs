//! The error of a movement.

use std::error::Error;
use std::fmt;

use unspool_codec::FrameError;
use unspool_core::Failure;
use unspool_cuda::DeviceError;
use unspool_tiers::{TierError, failure_of};

/// The error of a movement: a kind for the core, and a text. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TransferError {
    kind: Failure,
    message: String,
    cause: Option<TierError>,
}

impl TransferError {
    /// An error that did not come from a tier.
    #[must_use]
    pub fn new(kind: Failure, message: impl Into<String>) -> Self {
        TransferError { kind, message: message.into(), cause: None }
    }

    /// The same error with a description of the operation in front: `"{doing}: {message}"`.
    #[must_use]
    pub fn while_doing(self, doing: impl fmt::Display) -> Self {
        TransferError { message: format!("{doing}: {}", self.message), ..self }
    }

    /// The same error, about bytes that were found at `location`.
    #[must_use]
    pub(crate) fn found_at(mut self, location: String) -> Self {
        self.cause = Some(TierError::new(self.kind, "get", location, self.message.clone()));
        self
    }

    /// The kind, for the core.
    #[must_use]
    pub fn kind(&self) -> Failure {
        self.kind
    }

    /// The error of the tier, if a tier reported it.
    #[must_use]
    pub fn tier_error(&self) -> Option<&TierError> {
        self.cause.as_ref()
    }
}

impl From<TierError> for TransferError {
    fn from(cause: TierError) -> Self {
        TransferError { kind: cause.kind(), message: cause.to_string(), cause: Some(cause) }
    }
}

impl From<DeviceError> for TransferError {
    fn from(cause: DeviceError) -> Self {
        TransferError::new(failure_of(&cause), cause.to_string())
    }
}

impl From<FrameError> for TransferError {
    fn from(cause: FrameError) -> Self {
        TransferError::new(cause.failure(), cause.to_string())
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for TransferError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as &(dyn Error + 'static))
    }
}
