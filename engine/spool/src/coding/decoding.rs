//! Restores whose calls have returned while a GPU still decodes: an error of theirs is reported by
//! the calls after them, and by close.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use unspool_cuda::{DeviceError, DeviceErrorKind};
use unspool_gpu_codec::DecodeStatus;
use unspool_transfer::sync::{Mutex, lock};

use crate::error::{Error, ErrorKind};

/// After so long without a result the driver is asked whether the device has failed.
const ASK: Duration = Duration::from_millis(100);

/// The most that are remembered: a restore beyond them waits for the oldest.
const MOST: usize = 4096;

/// Regions that a GPU decodes after their call has returned.
#[derive(Debug)]
pub(crate) struct Decoding {
    version: i64,
    /// As an error names them.
    regions: String,
    status: DecodeStatus,
    /// When it was begun, or the driver was asked last.
    asked: Instant,
}

impl Decoding {
    /// Of at least one region.
    pub(crate) fn new(version: i64, names: &[&str], status: DecodeStatus) -> Decoding {
        let regions = match names {
            [name] => format!("region {name:?}"),
            [first, .., last] => {
                format!("one of the {} regions from {first:?} to {last:?}", names.len())
            }
            [] => String::new(),
        };
        Decoding { version, regions, status, asked: Instant::now() }
    }

    pub(crate) fn wait(&self, limit: Duration) -> Result<(), Error> {
        self.status.wait(limit).map_err(|cause| self.failed(cause, 0))
    }

    /// What came of it; `None` while that is not known.
    fn look(&mut self) -> Option<Result<(), DeviceError>> {
        let result = self.status.try_result();
        if result.is_some() || self.asked.elapsed() < ASK {
            return result;
        }
        self.asked = Instant::now();
        self.status.failure().map(Err)
    }

    /// The error of it, and of `others` with which it is the same.
    fn failed(&self, cause: DeviceError, others: usize) -> Error {
        let kind = kind_of(&cause);
        let others = match others {
            0 => String::new(),
            1 => " (and one restored after it)".to_owned(),
            many => format!(" (and {many} restored after it)"),
        };
        let message = format!(
            "What was restored of version {} is not right: {}{others}: {cause}",
            self.version, self.regions
        );
        Error::new(kind, message).caused_by(cause)
    }
}

pub(crate) fn kind_of(cause: &DeviceError) -> ErrorKind {
    match cause.kind() {
        DeviceErrorKind::Damaged => ErrorKind::Corrupt,
        _ => ErrorKind::Device,
    }
}

/// All of them, in the order of their restores.
#[derive(Debug, Default)]
pub(crate) struct Decodings(Mutex<VecDeque<Decoding>>);

impl Decodings {
    /// Remembers regions until they are decoded.
    ///
    /// # Errors
    /// That of an older one, where there are too many.
    pub(crate) fn follow(&self, decoding: Decoding, limit: Duration) -> Result<(), Error> {
        let mut all = lock(&self.0);
        let oldest = if all.len() >= MOST { all.pop_front() } else { None };
        all.push_back(decoding);
        drop(all);
        oldest.map_or(Ok(()), |oldest| oldest.wait(limit))
    }

    /// Looks at what GPUs have decoded since: a damaged stream is reported by the next call.
    ///
    /// # Errors
    /// `Corrupt` and `Device`, for a restore that has returned.
    pub(crate) fn look(&self) -> Result<(), Error> {
        let mut decoding = lock(&self.0);
        while let Some(result) = decoding.front_mut().and_then(Decoding::look) {
            let Some(first) = decoding.pop_front() else { break };
            let Err(cause) = result else { continue };
            let before = decoding.len();
            if cause.kind() != DeviceErrorKind::Damaged {
                // Those of a device that is lost are reported with the first one.
                decoding.retain(|other| other.status.failure().is_none());
            }
            return Err(first.failed(cause, before - decoding.len()));
        }
        Ok(())
    }

    /// Waits for all of them, at most for `limit`.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub(crate) fn check_all(&self, limit: Duration) -> Result<(), Error> {
        let all = std::mem::take(&mut *lock(&self.0));
        let began = Instant::now();
        all.iter().try_for_each(|decoding| decoding.wait(limit.saturating_sub(began.elapsed())))
    }
}
