//! A restore in progress.

use crate::error::{Error, ErrorKind};
use crate::spool::Spool;
use unspool_codec::Head;

/// The bytes of one checkpoint, verified: copy them out, then
/// [`finish`](RestoreTicket::finish). Dropping the ticket gives the restore up: it does not count
/// as restored.
#[must_use = "a restore that is not finished does not count"]
#[derive(Debug)]
pub struct RestoreTicket<'a> {
    _spool: &'a Spool,
    head: std::sync::Arc<Head>,
}

impl RestoreTicket<'_> {
    /// The regions and where they lie in the payload.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The bytes of region `index`.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    #[must_use]
    pub fn region(&self, _index: usize) -> &[u8] {
        &[]
    }

    /// The bytes were copied out: the restore counts, and the checkpoint may be discarded when
    /// the settings say so.
    ///
    /// # Errors
    /// `Closed` when the spool was closed meanwhile; the bytes that were copied are right.
    pub fn finish(self) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Closed, "This build of the spool has no bodies."))
    }
}
