//! Bugs to plant. A simulator that does not find them finds no others either.

/// A bug between the core and the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Canary {
    /// A grant is moved to memory that a running flush still reads: as if its room had been freed
    /// one step too early.
    EarlyFree,
    /// A grant is moved by one unit of alignment into its neighbour.
    Overlap,
    /// A transfer is reported done and has copied nothing.
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
    /// What was flushed is called durable without a sync.
    SkippedSync,
    /// Frames are adopted after a crash without a look at their checksums.
    TrustedFrames,
    /// A copy does not wait for the marks of copies that the application has only enqueued.
    ForgottenMark,
    /// The stream of a flush does not wait for the mark of the save that it flushes.
    UnawaitedSave,
    /// The marks of an evicted copy do not stay with its bytes: they are reused too early.
    NoGhosts,
    /// A worker reports a prefetch without waiting for its own mark: the restore is not ordered
    /// after it.
    EarlyReport,
    /// The settler reports a compressed save one unit of alignment behind the place where it is.
    ShiftedReport,
}

impl Canary {
    /// All of them.
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
        Canary::ForgottenMark,
        Canary::UnawaitedSave,
        Canary::NoGhosts,
        Canary::EarlyReport,
        Canary::ShiftedReport,
    ];
}
