//! What a schedule says: plain actions, each with an English reading.
//!
//! Steps are counted from 0; *state `n`* is the state before step `n`. There is one working state,
//! the one that the application computes with; it is state 0 at first.

use unspool_core::TierKind;

/// One thing to do, in the order in which the schedule gives them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// `Forward { from: 10, to: 25 }` is read as: the working state is state 10; advance it over
    /// the steps 10 to 24, so that it becomes state 25.
    Forward {
        /// The working state's step.
        from: u64,
        /// Its step afterwards, larger than `from`.
        to: u64,
    },
    /// `Save { step: 10, .. }` is read as: the working state is state 10; keep a copy of it.
    Save {
        /// The working state's step.
        step: u64,
        /// The tier whose slot the copy takes, as a preference; `None` when the schedule does not
        /// distinguish tiers. One state may be kept in several tiers at once.
        tier: Option<TierKind>,
    },
    /// `Restore { step: 10, .. }` is read as: whatever the working state was, it is now state 10,
    /// from the copy in that tier, which stays.
    Restore {
        /// The step whose state was saved.
        step: u64,
        /// The tier that it was saved with.
        tier: Option<TierKind>,
    },
    /// `Reverse { step: 10 }` is read as: the working state is state 10; take the adjoint back over
    /// step 10. The working state is as it was afterwards, or worthless: no action relies on it.
    Reverse {
        /// The working state's step.
        step: u64,
    },
    /// `Discard { step: 10, .. }` is read as: the copy of state 10 in that tier is not needed any
    /// more.
    Discard {
        /// The step whose state was saved.
        step: u64,
        /// The tier that it was saved with.
        tier: Option<TierKind>,
    },
    /// `End` is read as: every step was reversed and no copy is kept; nothing follows.
    End,
}
