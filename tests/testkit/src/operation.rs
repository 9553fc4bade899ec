//! The operations of a tier as values, which select the calls that faults, gates and counters apply
//! to.

/// One of the operations of a tier that can fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// `Tier::put`.
    Put,
    /// `Tier::get`.
    Get,
    /// `Tier::delete`.
    Delete,
    /// `Tier::list`.
    List,
    /// `Tier::sync`.
    Sync,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 5] =
        [Operation::Put, Operation::Get, Operation::Delete, Operation::List, Operation::Sync];

    /// The name in errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Delete => "delete",
            Operation::List => "list",
            Operation::Sync => "sync",
        }
    }

    /// Its index in [`Operation::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Total size of all parts in bytes.
pub(crate) fn total<T: AsRef<[u8]>>(parts: &[T]) -> u64 {
    parts.iter().map(|part| part.as_ref().len() as u64).sum()
}
