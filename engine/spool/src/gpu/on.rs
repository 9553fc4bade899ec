//! Where a spool's tiers are.

/// Where the device tier is, and for which device the host tier is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum On {
    /// On a CUDA device when there is a device tier and such a device, or when this thread has one
    /// current; else in main memory.
    #[default]
    Auto,
    /// In main memory.
    Cpu,
    /// On this CUDA device; without a number on the one that is current on this thread, or else on
    /// the first one.
    Cuda(Option<u32>),
}

impl On {
    /// The place that `text` names: `auto`, `cpu`, `cuda`, or `cuda:1`.
    #[must_use]
    pub fn named(text: &str) -> Option<On> {
        match text {
            "auto" => Some(On::Auto),
            "cpu" => Some(On::Cpu),
            "cuda" => Some(On::Cuda(None)),
            _ => text.strip_prefix("cuda:")?.parse().ok().map(|number| On::Cuda(Some(number))),
        }
    }
}
