//! Planted bugs. A simulator that does not find them finds no others either.

/// A bug between the core and the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Canary {
    /// A grant is moved to memory that a running flush still reads, as if its space had been freed
    /// one step too early.
    EarlyFree,
    /// A grant is moved by one unit of alignment into its neighbour.
    Overlap,
    /// A transfer is reported done although it copied nothing.
    LostWrite,
    /// A restore is served from the place of another checkpoint.
    StaleData,
    /// The report of a transfer never arrives.
    LostReport,
    /// The report of a transfer arrives twice.
    DoubleReport,
    /// A grant never reaches its thread.
    LostGrant,
    /// A restorable checkpoint is reported lost.
    FalseLoss,
    /// Flushed checkpoints are reported durable without a sync.
    SkippedSync,
    /// Frames are adopted after a crash without a check of their checksums.
    TrustedFrames,
    /// A copy does not wait for the fences of copies that the application has only enqueued.
    ForgottenFence,
    /// The stream of a flush does not wait for the fence of the save that it flushes.
    UnawaitedSave,
    /// The fences of an evicted copy do not stay with its bytes as a pending range: the bytes are
    /// reused too early.
    NoPendingRanges,
    /// A worker reports a prefetch without waiting for its own fence: the restore is not ordered
    /// after it.
    EarlyReport,
    /// A compressed save is reported one unit of alignment after its actual place.
    ShiftedReport,
}

impl Canary {
    /// Every canary.
    pub const ALL: [Canary; 15] = [
        Canary::EarlyFree,
        Canary::Overlap,
        Canary::LostWrite,
        Canary::StaleData,
        Canary::LostReport,
        Canary::DoubleReport,
        Canary::LostGrant,
        Canary::FalseLoss,
        Canary::SkippedSync,
        Canary::TrustedFrames,
        Canary::ForgottenFence,
        Canary::UnawaitedSave,
        Canary::NoPendingRanges,
        Canary::EarlyReport,
        Canary::ShiftedReport,
    ];
}
