//! The begin of a checkpoint, for kernels that encode one checkpoint at a time.

use std::time::Duration;

use crate::codec::StoredCheckpoint;
use crate::pending::{Pending, Slot, Start};
use unspool_cuda::Stream;
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// The longest wait for the checkpoints before one that cannot be enqueued.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for the checkpoints before one that cannot be enqueued because of `error`, as the caller
/// then reuses their memory. The error says so where one of them may still be under way.
pub(crate) fn end(all: &[Pending], error: DeviceError) -> DeviceError {
    all.iter().for_each(|pending| drop(pending.wait(LIMIT)));
    let is_done = all.iter().all(|pending| pending.try_result().is_some());
    if is_done { error } else { error.with_work_left() }
}

/// Encodes checkpoints one after the other with `encode`, which gets the index, the begin and the
/// limit of each.
pub(crate) fn one_by_one(
    checkpoints: &[StoredCheckpoint<'_>],
    mut encode: impl FnMut(usize, (Start<'_>, u64)) -> Result<Pending, DeviceError>,
) -> Result<Vec<Pending>, DeviceError> {
    let mut all: Vec<Pending> = Vec::with_capacity(checkpoints.len());
    for (index, checkpoint) in checkpoints.iter().enumerate() {
        let start = match (checkpoint.start, all.last()) {
            (Start::Next { align }, Some(pending)) => Start::After { pending, align },
            (start, _) => start,
        };
        match encode(index, (start, checkpoint.limit)) {
            Ok(pending) => all.push(pending),
            Err(error) => return Err(end(&all, error)),
        }
    }
    Ok(all)
}

/// The kernels' `Place`: begin and limit of a checkpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    fixed: u64,
    before: u64,
    align: u64,
    limit: u64,
    bytes: u64,
}

impl Start<'_> {
    /// The arguments with which a kernel finds the begin; the record of the checkpoint before is
    /// kept for as long as `slot`.
    pub(crate) fn anchor(
        &self,
        stream: &Stream,
        slot: &mut Slot,
        (limit, bytes): (u64, u64),
    ) -> Result<Anchor, DeviceError> {
        let (fixed, before, align) = match *self {
            Start::At(address) => (address, 0, 1),
            Start::After { pending, align } => (0, pending.lead(stream, slot)?, align.max(1)),
            Start::Next { .. } => return Err(nothing_before()),
        };
        Ok(Anchor { fixed, before, align, limit, bytes })
    }
}

impl Anchor {
    /// The address, if the host knows it.
    pub(crate) fn known(&self) -> Option<u64> {
        (self.before == 0).then_some(self.fixed)
    }
}

fn nothing_before() -> DeviceError {
    let message = "a checkpoint that is encoded alone has none before it in the same call";
    DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice("Use `Start::After`.")
}
