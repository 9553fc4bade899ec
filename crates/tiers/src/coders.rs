//! Encoding into an arena of a device and decoding out of it: what makes the calls of the device
//! crate safe.
//!
//! A checkpoint that is being encoded has the bytes of its guard, and those that the checkpoint it
//! comes behind leaves of its own. Nobody else has a guard for either: the one before is an
//! [`Encoding`] as well, which gives its bytes away only with its result, and the caller ends
//! encodings in the order in which they were begun.

use std::fmt;
use std::time::Duration;

use unspool_codec::twine::Layout;
use unspool_core::CheckpointId;
use unspool_device::pending::{CheckpointResult, DecodeStatus, EncodeError, Pending, Start};
use unspool_device::twine::{Checkpoint, DecodeJob, EncodeJob, JobSpec, Twine};
use unspool_device::{DeviceError, DeviceSpan, Stream};

use crate::arena::WriteGuard;
use crate::error::TierError;

/// The values of one region on a device, dense, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    /// Where they are.
    pub span: DeviceSpan,
    /// How they are stored.
    pub spec: JobSpec<'a>,
}

/// A checkpoint on its way into an arena of a device. See the module.
#[must_use = "dropping it forgets the entry"]
pub struct Encoding {
    guard: WriteGuard,
    pending: Pending,
    /// The address of the first byte of the guard, and its place in the arena.
    first: (u64, u64),
}

/// Where an encoded checkpoint lies in its arena.
#[derive(Clone, PartialEq, Debug)]
pub struct Encoded {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes and its regions.
    pub result: CheckpointResult,
}

impl Encoding {
    /// Enqueues the encoder on `stream`, which the values are ready on. The checkpoint begins with
    /// the bytes of `guard`, which are `offset` and following of its arena, or behind the end of
    /// `behind` at a multiple of `align`: that is the checkpoint whose room ends where the guard
    /// begins.
    ///
    /// # Errors
    /// When it cannot be enqueued: the guard comes back, and nothing of it was written.
    ///
    /// # Panics
    /// When the guard is of an arena in main memory.
    pub fn begin(
        twine: &Twine,
        stream: &Stream,
        (mut guard, offset): (WriteGuard, u64),
        values: &[Values<'_>],
        behind: Option<(&Pending, u64)>,
    ) -> Result<Encoding, (WriteGuard, DeviceError)> {
        let Some(span) = guard.device().cloned() else {
            panic!("a device encodes into the arena of a device")
        };
        if let Err(error) = guard.order(stream) {
            return Err((guard, error));
        }
        let limit = span.address() + guard.len();
        let start = match behind {
            Some((pending, align)) if pending.limit() <= span.address() => {
                Start::After { pending, align }
            }
            _ => Start::At(span.address()),
        };
        match enqueue(twine, stream, values, start, limit) {
            Ok(pending) => {
                guard.leave_mark(pending.mark().clone());
                Ok(Encoding { guard, pending, first: (span.address(), offset) })
            }
            Err(error) => Err((guard, error)),
        }
    }

    /// Whose entry it is.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.guard.id()
    }

    /// What is still to come.
    #[must_use]
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Where the checkpoint lies, once that is known. Makes no call of the driver.
    #[must_use]
    pub fn try_result(&self) -> Option<Result<Encoded, EncodeError>> {
        self.pending.try_result().map(|result| result.map(|result| self.placed(result)))
    }

    /// The same, after at most `limit`.
    ///
    /// # Errors
    /// When the checkpoint could not be encoded, the device failed, or the limit has passed.
    pub fn wait(&self, limit: Duration) -> Result<Encoded, EncodeError> {
        self.pending.wait(limit).map(|result| self.placed(result))
    }

    fn placed(&self, result: CheckpointResult) -> Encoded {
        let (address, offset) = self.first;
        Encoded { offset: (offset + result.start).wrapping_sub(address), result }
    }

    /// The checkpoint is there: its entry can be read from now on.
    ///
    /// # Errors
    /// Those of [`WriteGuard::commit_at`].
    pub fn commit(self, encoded: &Encoded) -> Result<(), TierError> {
        self.guard.commit_at(encoded.offset, encoded.result.bytes)
    }

    /// Forgets the entry of a checkpoint that could not be encoded. Its bytes are never lent again
    /// when the device may still write to them.
    pub fn forget(mut self) {
        if self.pending.try_result().is_none() {
            self.guard.stick();
        }
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoding").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// Encodes `values` to the start of `to`, memory that nobody else uses until the result is there.
///
/// # Errors
/// When it cannot be enqueued.
pub fn encode_aside(
    twine: &Twine,
    stream: &Stream,
    values: &[Values<'_>],
    to: &DeviceSpan,
) -> Result<Pending, DeviceError> {
    let start = Start::At(to.address());
    enqueue(twine, stream, values, start, to.address() + to.len())
}

fn enqueue(
    twine: &Twine,
    stream: &Stream,
    values: &[Values<'_>],
    start: Start<'_>,
    limit: u64,
) -> Result<Pending, DeviceError> {
    for values in values {
        let needed = match values.spec {
            JobSpec::Twine(spec) => spec.layout.bytes(),
            JobSpec::Raw { bytes } => bytes,
        };
        values.span.slice(0, needed)?;
    }
    let jobs: Vec<EncodeJob<'_>> = values
        .iter()
        .map(|Values { span, spec }| EncodeJob { source: span.address(), spec: *spec })
        .collect();
    let checkpoint = Checkpoint { jobs: &jobs, start, limit };
    // SAFETY: spans name memory that stays while it is used. What is written is the caller's own:
    // a guard's bytes, behind what it was ordered after, or what the checkpoint before it leaves,
    // which nobody else is lent before both are done (see the module).
    let mut pending = unsafe { twine.encode(stream, &[checkpoint]) }?;
    Ok(pending.pop().unwrap_or_else(|| unreachable!("one checkpoint gives one result")))
}

/// One stream in the memory of a device, and the array that it is decoded to.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// The bytes of the stream.
    pub stream: DeviceSpan,
    /// The array that it was made from.
    pub layout: &'a Layout,
    /// A dense array.
    pub target: DeviceSpan,
}

/// Decodes streams behind what is on `stream`. The host does not wait; a stream that is damaged is
/// told by the status later.
///
/// # Errors
/// When an array is shorter than its layout, and when it cannot be enqueued.
pub fn decode(
    twine: &Twine,
    stream: &Stream,
    stored: &[Stored<'_>],
) -> Result<DecodeStatus, DeviceError> {
    for stored in stored {
        stored.target.slice(0, stored.layout.bytes())?;
    }
    let jobs: Vec<DecodeJob<'_>> = stored
        .iter()
        .map(|Stored { stream, layout, target }| DecodeJob {
            stream: stream.address(),
            stored: stream.len(),
            layout,
            target: target.address(),
        })
        .collect();
    // SAFETY: spans name memory that stays while it is used. The caller's stream orders this with
    // other accesses to them: it waits for what wrote the streams, and what is enqueued on it
    // later comes after.
    unsafe { twine.decode(stream, &jobs) }
}
