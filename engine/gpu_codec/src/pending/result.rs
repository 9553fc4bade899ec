//! The result of an encoded checkpoint as the device writes it, and how it is read.
//!
//! In mapped pinned memory, words of 64 bits (a C struct of `u64`, little endian):
//!
//! - 0: the sequence number of the slot, written last, after a system-wide memory fence;
//! - 1: [`DONE`], [`OVERFLOW`] or [`REFUSED`];
//! - 2: the address at which the checkpoint begins;
//! - 3: its bytes, from there to the end of its last job (also when that was too much);
//! - from 4 + 6 j, of job j: offset from the begin, stored bytes, largest error (`f64`), sum of the
//!   squared errors (`f64`), values, outliers.
//!
//! For the checkpoint after it, the device writes a record of four words in device memory: where
//! this one ends (not aligned), where it begins, word 1 from above, and two counters of 32 bits for
//! kernels, which are 0 between launches. A checkpoint that does not fit ends at its limit, so that
//! its successor still has its own room.

use std::fmt;

use unspool_codec::Achieved;

use unspool_cuda::{Bytes, DeviceError, DeviceErrorKind};

/// The checkpoint was encoded.
pub(super) const DONE: u64 = 0;
/// The checkpoint does not fit below its limit.
pub(super) const OVERFLOW: u64 = 1;
/// The codec does not take the values.
pub(super) const REFUSED: u64 = 2;

/// Words of a slot before those of its jobs, and words of each job.
pub(super) const HEAD_WORDS: usize = 4;
pub(super) const JOB_WORDS: usize = 6;

/// The words of a slot after the first one.
pub(super) type Words = Vec<u64>;

/// Place and parts of an encoded checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckpointResult {
    /// The address of its first byte.
    pub start: u64,
    /// Bytes from there to the end of the last job.
    pub bytes: u64,
    /// One result for each job, in their order.
    pub jobs: Vec<JobResult>,
}

/// Place and error of one job of an encoded checkpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JobResult {
    /// Bytes from the begin of the checkpoint.
    pub offset: u64,
    /// Stored bytes.
    pub stored: u64,
    /// The error of the values; 0 for bytes that were copied.
    pub achieved: Achieved,
}

/// The error of a checkpoint that was not encoded.
#[derive(Clone, Debug)]
pub struct EncodeError {
    kind: EncodeErrorKind,
    error: DeviceError,
}

/// The kind of an [`EncodeError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EncodeErrorKind {
    /// The checkpoint does not fit below its limit; nothing was written beyond it.
    Overflow,
    /// The codec does not take the values.
    Refused,
    /// The device failed, or the limit of the wait has passed.
    Device,
}

impl EncodeError {
    fn new(kind: EncodeErrorKind, error: DeviceError) -> EncodeError {
        EncodeError { kind, error }
    }

    pub(super) fn lost() -> EncodeError {
        let message = "the encoder ended without a result";
        DeviceError::new(DeviceErrorKind::Kernel, message).into()
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> EncodeErrorKind {
        self.kind
    }

    /// The same error as an error of the device.
    #[must_use]
    pub fn into_device_error(self) -> DeviceError {
        self.error
    }
}

impl From<DeviceError> for EncodeError {
    fn from(error: DeviceError) -> EncodeError {
        EncodeError::new(EncodeErrorKind::Device, error)
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for EncodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Reads the words of a slot; nothing was written at or beyond `limit`.
pub(super) fn read(words: &Words, limit: u64) -> Result<CheckpointResult, EncodeError> {
    let [status, start, bytes, jobs @ ..] = words.as_slice() else {
        return Err(EncodeError::lost());
    };
    match *status {
        DONE => {
            let jobs = jobs.chunks_exact(JOB_WORDS).map(job).collect();
            Ok(CheckpointResult { start: *start, bytes: *bytes, jobs })
        }
        OVERFLOW => Err(overflow(limit.saturating_sub(*start), *bytes)),
        REFUSED => Err(refused()),
        _ => Err(EncodeError::lost()),
    }
}

fn job(words: &[u64]) -> JobResult {
    JobResult {
        offset: words[0],
        stored: words[1],
        achieved: Achieved {
            max_error: f64::from_bits(words[2]),
            sum_sq_error: f64::from_bits(words[3]),
            values: words[4],
            outliers: words[5],
        },
    }
}

fn overflow(room: u64, bytes: u64) -> EncodeError {
    let message =
        format!("an encoded checkpoint takes {} and has room for {}", Bytes(bytes), Bytes(room));
    let error = DeviceError::new(DeviceErrorKind::OutOfRange, message)
        .with_advice("Give it room for the largest size that its codecs can make of it.");
    EncodeError::new(EncodeErrorKind::Overflow, error)
}

fn refused() -> EncodeError {
    let message = "the codec takes no such values";
    let error = DeviceError::new(DeviceErrorKind::OutOfRange, message)
        .with_advice("zfp takes finite values only: use a codec that keeps NaN and infinities.");
    EncodeError::new(EncodeErrorKind::Refused, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_slot_are_read_as_the_table_says() {
        let bits = [0.5f64.to_bits(), 2.25f64.to_bits()];
        let words = vec![DONE, 0x4000, 200, 0, 100, bits[0], bits[1], 9, 1, 128, 72, 0, 0, 0, 0];
        let result = read(&words, 0x5000).unwrap();
        assert_eq!((result.start, result.bytes, result.jobs.len()), (0x4000, 200, 2));
        let achieved = Achieved { max_error: 0.5, sum_sq_error: 2.25, values: 9, outliers: 1 };
        assert_eq!(result.jobs[0], JobResult { offset: 0, stored: 100, achieved });
        assert_eq!((result.jobs[1].offset, result.jobs[1].stored), (128, 72));
    }

    #[test]
    fn what_did_not_fit_says_how_much_it_would_have_taken() {
        let error = read(&vec![OVERFLOW, 0x1000, 4096], 0x1400).unwrap_err();
        assert_eq!(error.kind(), EncodeErrorKind::Overflow);
        assert!(error.to_string().contains("takes 4 KiB and has room for 1 KiB"), "{error}");
        let error = read(&vec![REFUSED, 0, 0], 0).unwrap_err();
        assert_eq!(error.kind(), EncodeErrorKind::Refused);
    }
}
