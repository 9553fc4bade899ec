//! The frame of a checkpoint as a durable store has it, for copies of it elsewhere.

use std::fmt;
use std::sync::Arc;

use unspool_core::{CheckpointId, Failure, TierId, Version};

use crate::error::{Error, ErrorKind};
use crate::runtime::shared::Shared;

/// The bytes of a durable checkpoint as they are stored, codecs and all. They are not compared with
/// their checksum here: it is in the frame. A discarded checkpoint cannot be read any more.
pub struct StoredFrame {
    shared: Arc<Shared>,
    version: i64,
    id: CheckpointId,
    tier: TierId,
    bytes: u64,
}

impl StoredFrame {
    pub(crate) fn of(shared: &Arc<Shared>, version: i64) -> Result<StoredFrame, Error> {
        let unknown = || {
            let message = format!("Version {version} is not in a durable tier.");
            Error::new(ErrorKind::Unknown, message)
        };
        let id = shared.enter()?.driver.core().checkpoint(Version(version)).ok_or_else(unknown)?;
        let tier = *shared.durable_tiers.last().ok_or_else(unknown)?;
        let listed = shared.tier(tier).list().map_err(|cause| {
            Error::new(ErrorKind::Io, format!("The store cannot be listed: {cause}"))
                .caused_by(cause)
        })?;
        let found = listed.into_iter().find(|stored| stored.id == id).ok_or_else(unknown)?;
        Ok(StoredFrame { shared: Arc::clone(shared), version, id, tier, bytes: found.bytes })
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `into` with the bytes from `at` on.
    ///
    /// # Errors
    /// `Lost` when it was discarded meanwhile, `Corrupt`, `Io`.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let read = self.shared.tier(self.tier).get(self.id, at, &mut [into]);
        read.map_err(|cause| {
            let kind = match cause.kind() {
                Failure::Missing => ErrorKind::Lost,
                Failure::Corrupt => ErrorKind::Corrupt,
                _ => ErrorKind::Io,
            };
            let message = format!("The frame of version {} cannot be read: {cause}", self.version);
            Error::new(kind, message).caused_by(cause)
        })
    }
}

impl fmt::Debug for StoredFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFrame").field("version", &self.version).finish_non_exhaustive()
    }
}
