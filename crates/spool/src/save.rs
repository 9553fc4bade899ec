//! A save in progress.

use crate::error::{Error, ErrorKind};
use crate::spool::Spool;
use unspool_codec::Head;

/// Room for one checkpoint: fill its regions, then [`commit`](SaveTicket::commit). Dropping the
/// ticket gives the save up: nothing was saved and the version is free again.
#[must_use = "a save that is not committed is given up"]
#[derive(Debug)]
pub struct SaveTicket<'a> {
    _spool: &'a Spool,
    head: std::sync::Arc<Head>,
}

impl SaveTicket<'_> {
    /// The regions and where they lie in the payload.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The bytes of region `index`, to be filled by the caller; what they hold before is
    /// unspecified.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    #[must_use]
    pub fn region_mut(&mut self, _index: usize) -> &mut [u8] {
        &mut []
    }

    /// The checkpoint is complete: from now on it can be restored.
    ///
    /// # Errors
    /// `Io` or `Full` when it had to be written to a store at once and that failed; `Closed` when
    /// the spool was closed meanwhile. Nothing was saved then.
    pub fn commit(self) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Closed, "This build of the spool has no bodies."))
    }
}
