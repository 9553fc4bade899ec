//! Temporary failures: how often and how soon a transfer is tried again.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, Config, Nanos};

use super::{Rule, Violation, ensure};

/// Maximum number of transfers of one checkpoint that are in flight, and may fail, at once.
const AT_ONCE: u32 = 4;

/// The consecutive failures of each checkpoint.
#[derive(Clone, Debug)]
pub struct Retries {
    delay: Nanos,
    most: u32,
    failed: BTreeMap<CheckpointId, Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Failures since the last success.
    in_row: u32,
    /// Failures since the last success or the last request.
    failures: u32,
    not_before: Nanos,
}

impl Retries {
    /// A state without failures.
    #[must_use]
    pub fn new(config: &Config) -> Retries {
        Retries { delay: config.retry_delay, most: config.max_retries, failed: BTreeMap::new() }
    }

    /// Enters a temporary failure of a transfer of this checkpoint. Returns whether the core must
    /// try again without a request.
    pub fn failed(&mut self, id: CheckpointId, now: Nanos) -> Result<bool, Violation> {
        let none = Row { in_row: 0, failures: 0, not_before: Nanos(0) };
        let row = self.failed.entry(id).or_insert(none);
        (row.in_row, row.failures) = (row.in_row + 1, row.failures + 1);
        // After the last retry, a request may start a transfer at any time.
        row.not_before = if row.in_row <= self.most { now.plus(self.delay) } else { now };
        let (in_row, failures, most) = (row.in_row, row.failures, self.most);
        let what = || format!("{id:?} fails {failures} times in a row, {most} retries are allowed");
        ensure(failures <= most + AT_ONCE, Rule::Transfer, what)?;
        Ok(in_row <= most)
    }

    /// Enters a successful transfer of this checkpoint.
    pub fn succeeded(&mut self, id: CheckpointId) {
        self.failed.remove(&id);
    }

    /// Resets the retries, because a call needs a checkpoint whose retries are exhausted.
    pub fn asked_again(&mut self) {
        self.failed.values_mut().for_each(|row| row.failures = 0);
    }

    /// Checks that a transfer of this checkpoint does not start too early.
    pub fn started(&self, id: CheckpointId, now: Nanos) -> Result<(), Violation> {
        let not_before = self.failed.get(&id).map_or(Nanos(0), |row| row.not_before);
        ensure(now >= not_before, Rule::Transfer, || {
            format!("{id:?} is tried again at {} and not after {}", now.0, not_before.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    const ID: CheckpointId = CheckpointId(1);

    fn retries() -> Retries {
        let config = Plan::of_seed(0).config;
        Retries::new(&Config { max_retries: 1, retry_delay: Nanos(100), ..config })
    }

    #[test]
    fn a_retry_before_its_time_is_found() {
        let mut retries = retries();
        assert_eq!(retries.failed(ID, Nanos(10)), Ok(true));
        assert!(retries.started(ID, Nanos(109)).is_err());
        assert_eq!(retries.started(ID, Nanos(110)), Ok(()));
    }

    #[test]
    fn too_many_retries_are_found_unless_somebody_asked() {
        let mut retries = retries();
        assert_eq!(retries.failed(ID, Nanos(10)), Ok(true));
        for _ in 0..AT_ONCE {
            assert_eq!(retries.failed(ID, Nanos(200)), Ok(false));
        }
        assert!(retries.clone().failed(ID, Nanos(400)).is_err());
        retries.asked_again();
        assert_eq!(retries.failed(ID, Nanos(400)), Ok(false));
    }
}
