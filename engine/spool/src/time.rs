//! Durations as the core counts them, and back.

use std::time::Duration;

use unspool_core::Nanos;

pub(crate) fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.0)
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
