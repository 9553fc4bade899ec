//! Room for the expected size of an encoded checkpoint, in place of its largest size.
//!
//! The part of a save's room that stays empty is free once the save is complete. In a tier with
//! room for few checkpoints of the largest size, that part of the last save is much of the tier,
//! and many encoded ones do without. Unless so much is free, a save asks for the expected size
//! there, and its call waits for the encoder: where the checkpoint needs more, its values are still
//! there.

use std::time::Instant;

use unspool_core::{TierId, TierKind};
use unspool_cuda::DeviceErrorKind;
use unspool_gpu_codec::EncodeErrorKind;

use super::ticket::SaveState;
use super::{Prepared, SaveTicket};
use crate::coding::{Encoding, EncodingPlan};
use crate::error::{Error, ErrorKind};
use crate::gpu::Gpu;
use crate::runtime::completion::EncodeOutcome;
use crate::runtime::state::State;
use crate::runtime::waiting::POLL;
use crate::wait::Wait;

/// A tier with room for so many checkpoints of the largest size holds about 0.8 of what their ratio
/// promises, or more, also when each save asks for the largest size.
const ENOUGH: u64 = 8;

/// Whether the fastest tier is a device's, and without room for enough checkpoints of `most` bytes.
fn is_scarce(state: &State, most: u64) -> bool {
    let core = state.driver.core();
    let is_device = core.config().tiers.first().is_some_and(|tier| tier.kind == TierKind::Device);
    is_device && core.capacity(TierId(0)) < most.saturating_mul(ENOUGH)
}

impl Prepared {
    /// The bytes that it will probably have where room is scarce, else the most.
    pub(super) fn expected(&self, state: &State) -> u64 {
        let (most, gap) = (self.most(), state.driver.core().largest_gap(TierId(0)));
        let plan = self.plan().filter(|_| is_scarce(state, most));
        plan.map_or(most, |plan| state.recent.expected(plan, most, gap))
    }
}

impl SaveTicket {
    /// Whether it has room for its largest size, until its true one is known.
    pub(super) fn has_all_room(&self) -> bool {
        self.grant.room >= self.head().payload_bytes
    }

    /// Whether what is being encoded fits its room. Waits for the encoder if it has less than the
    /// most, and where room is scarce and no size is known: later saves expect the same.
    ///
    /// # Errors
    /// `Interrupted`, and `Timeout` when the device has not done it within its limit.
    pub(super) fn fits(&self, gpu: &Gpu, wait: &Wait<'_>) -> Result<bool, Error> {
        let SaveState::InFlight(encoding) = &self.state else { return Ok(true) };
        let plan = encoding.encoded.plan();
        if self.has_all_room() && !self.is_to_learn(plan) {
            return Ok(true);
        }
        let outcome = wait_for(encoding, gpu, wait)?;
        let recent = &mut self.shared.state().recent;
        match outcome {
            Ok(placed) if placed.result.bytes <= self.grant.room => {
                recent.learn(plan, placed.result.bytes);
                Ok(true)
            }
            // The thread that completes saves reports other failures.
            Err(cause) if cause.kind() != EncodeErrorKind::Overflow => Ok(true),
            _ => {
                recent.forget(plan);
                Ok(self.has_all_room())
            }
        }
    }

    fn is_to_learn(&self, plan: &EncodingPlan) -> bool {
        let state = self.shared.state();
        is_scarce(&state, self.head().payload_bytes) && state.recent.largest(plan).is_none()
    }
}

/// Waits until a checkpoint is encoded, within the limit of the device.
///
/// # Errors
/// `Interrupted`, and `Timeout` after that limit.
fn wait_for(encoding: &Encoding, gpu: &Gpu, wait: &Wait<'_>) -> Result<EncodeOutcome, Error> {
    let until = Instant::now() + gpu.device().limit();
    loop {
        let outcome = encoding.wait(POLL);
        let late = outcome.as_ref().err().map(|cause| cause.clone().into_device_error());
        match late.filter(|cause| cause.kind() == DeviceErrorKind::TimedOut) {
            Some(cause) if Instant::now() >= until => return Err(cause.into()),
            Some(_) if (wait.interrupted)() => return Err(interrupted()),
            Some(_) => {}
            None => return Ok(outcome),
        }
    }
}

pub(super) fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "the wait was interrupted.")
}
