//! How the kernels that encode one checkpoint at a time find where it begins.

use crate::pending::{Slot, Start};
use unspool_cuda::Stream;
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// The kernels' `Place`: where a checkpoint of known or unknown size begins and may end.
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
    /// What a kernel needs to find the begin; what it begins behind stays for as long as `slot`.
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
