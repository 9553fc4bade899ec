//! The life cycle of one copy (Score, HPDC'23, Figure 1).

/// The state of the copy of one checkpoint in one tier.
///
/// The arrows of Figure 1, and three more that a history which is not read exactly once needs:
/// a copy that will be read again leaves `Consumed` or `ReadComplete` without being read first,
/// and a copy whose backing in a slower tier went away is `WriteComplete` again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CopyState {
    /// Room is being found. Granted room -> `WriteInProgress` (save or flush into this tier) or
    /// `ReadInProgress` (prefetch into this tier).
    Init,
    /// Bytes arrive from the application or from a faster tier. Arrived -> `WriteComplete`.
    WriteInProgress,
    /// The bytes are here and in no slower tier: must not be evicted. Flushed -> `Flushed`;
    /// wanted by a hint that is near -> `ReadComplete`. In the slowest tier copies rest here.
    WriteComplete,
    /// The bytes are here and in a slower tier: may be evicted. Wanted by a hint that is near ->
    /// `ReadComplete`; the slower copy went away -> `WriteComplete`.
    Flushed,
    /// Bytes arrive from a slower tier. Arrived -> `ReadComplete`, or, when the hint has gone in
    /// the meantime, `Flushed`.
    ReadInProgress,
    /// The bytes wait for their restore: must not be evicted. Restored -> `Consumed`, or `Flushed`
    /// or `WriteComplete` when a later hint names the checkpoint; hint withdrawn -> the same two.
    ReadComplete,
    /// The bytes were used and are not needed here any more: may be evicted, first of all.
    /// Wanted again -> `ReadComplete` (or `Flushed`, when the new hint is far).
    Consumed,
}

impl CopyState {
    /// Whether the bytes are completely here and may be read.
    #[must_use]
    pub fn is_complete(self) -> bool {
        use CopyState::{Consumed, Flushed, ReadComplete, WriteComplete};
        matches!(self, WriteComplete | Flushed | ReadComplete | Consumed)
    }

    /// Whether the life cycle allows to evict a copy in this state, if nothing else is using it.
    #[must_use]
    pub fn is_evictable(self) -> bool {
        matches!(self, CopyState::Flushed | CopyState::Consumed)
    }

    /// Whether the life cycle has an arrow from `self` to `next`.
    #[must_use]
    pub fn may_become(self, next: CopyState) -> bool {
        use CopyState::{
            Consumed, Flushed, Init, ReadComplete, ReadInProgress, WriteComplete, WriteInProgress,
        };
        match self {
            Init => matches!(next, WriteInProgress | ReadInProgress),
            WriteInProgress | ReadInProgress => next.is_complete(),
            WriteComplete => matches!(next, Flushed | ReadComplete | Consumed),
            Flushed => matches!(next, WriteComplete | ReadComplete | Consumed),
            ReadComplete => matches!(next, Consumed | Flushed | WriteComplete),
            Consumed => matches!(next, ReadComplete | Flushed | WriteComplete),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CopyState::{self, *};

    const ALL: [CopyState; 7] =
        [Init, WriteInProgress, WriteComplete, Flushed, ReadInProgress, ReadComplete, Consumed];

    #[test]
    fn only_flushed_and_consumed_copies_are_evictable() {
        let evictable: alloc::vec::Vec<_> = ALL.into_iter().filter(|s| s.is_evictable()).collect();
        assert_eq!(evictable, [Flushed, Consumed]);
    }

    #[test]
    fn a_copy_in_progress_is_never_readable_and_nothing_returns_to_init() {
        for state in [Init, WriteInProgress, ReadInProgress] {
            assert!(!state.is_complete());
        }
        for state in ALL {
            assert!(!state.may_become(Init), "{state:?}");
            assert!(!state.may_become(state), "{state:?}");
        }
    }

    #[test]
    fn a_complete_copy_never_goes_back_to_in_progress() {
        for state in ALL.into_iter().filter(|s| s.is_complete()) {
            assert!(!state.may_become(WriteInProgress));
            assert!(!state.may_become(ReadInProgress));
        }
    }
}
