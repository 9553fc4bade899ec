//! Answers of the core on their way to the waiting threads.

use unspool_core::{CheckpointId, Place, Refusal, RequestId, Version};

use super::World;
use crate::world::agenda::Action;

/// The answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Granted { id: CheckpointId, version: Version, bytes: u64, place: Place },
    Served { id: CheckpointId, version: Version, bytes: u64, place: Place },
    Flushed { before: CheckpointId },
    Refused(Refusal),
}

impl World {
    /// Sends the answer to the calling thread, if that still waits.
    pub(crate) fn reply(&mut self, request: RequestId, reply: Reply) {
        let Some((thread, slot)) = self.replies.get_mut(&request) else { return };
        *slot = Some(reply);
        let thread = *thread;
        let delay = self.delay(self.plan.machine.answer_delay);
        self.agenda.plan(self.now.plus(delay), Action::Answer(thread, request));
    }
}
