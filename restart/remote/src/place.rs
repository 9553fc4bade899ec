//! What every kind of place beyond the machine does.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use unspool_tiers::TierError;

use crate::source::Whole;

/// What a kind of place does. It knows nothing of feet.
pub(crate) trait Place: fmt::Debug + Send + Sync {
    /// The place of an object, for people.
    fn locate(&self, name: &str) -> String;

    /// Stores an object in place of what has its name. A large one is sent in pieces; `journal` is
    /// the file that remembers them.
    fn put(
        &self,
        name: &str,
        whole: &mut Whole<'_>,
        journal: Option<&Path>,
    ) -> Result<(), TierError>;

    /// The bytes of an object.
    fn size(&self, name: &str) -> Result<u64, TierError>;

    /// Gives the bytes of `range` of an object of `size` bytes to `take`, in order.
    fn read(
        &self,
        name: &str,
        size: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), TierError>,
    ) -> Result<(), TierError>;

    /// The objects whose names begin so, with their bytes.
    fn list(&self, begin: &str) -> Result<Vec<(String, u64)>, TierError>;

    /// Removes an object; fine when it is not there.
    fn delete(&self, name: &str) -> Result<(), TierError>;

    /// What this place is, also where it is seen under another path: not that of a copy of it.
    fn identity(&self) -> Result<String, TierError>;

    /// Ends what is under way, and everything that is asked for later.
    fn stop(&self);
}
