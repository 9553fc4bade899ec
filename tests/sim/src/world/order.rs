//! The input of the order checker, as the hooks of a real device report it: waits, accesses and
//! recordings when they are enqueued, and fences that the host has waited for or polled.

use unspool_core::{CheckpointId, Place};
use unspool_verify::{Agent, Op};

use super::{Checked, World};
use crate::canary::Canary;
use crate::check::{Rule, Violation};
use crate::device::fences::{Before, Span};
use crate::device::streams::{Fence, StreamId};

/// One access of an operation that is being enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub id: CheckpointId,
    pub place: Place,
    pub bytes: u64,
    pub write: bool,
}

impl World {
    fn see(&mut self, op: &Op<&str>) -> Checked {
        let seen = self.order.see(op);
        self.enforce(seen.map_err(|v| Violation::new(Rule::Order, v.to_string())))
    }

    /// Reports that the host knows a fence to be reached, and that nothing will wait for it.
    pub(crate) fn host_learns(&mut self, fence: Fence) -> Checked {
        let event = fence.event();
        self.see(&Op::Wait { by: Agent::Host, event })?;
        self.see(&Op::Forget { event })
    }

    /// The fences that an operation must wait for before it accesses these bytes.
    pub(crate) fn fences_before(&mut self, touched: Touched) -> Result<Vec<Fence>, Violation> {
        let span = self.span(touched);
        let (fences, streams) = (&mut self.hardware.fences, &self.hardware.streams);
        let before = fences.before(touched.id, span, touched.write, |m| streams.is_reached(m));
        let Before { reached, mut entry, pending } = before;
        reached.into_iter().try_for_each(|fence| self.host_learns(fence))?;
        entry.extend(pending);
        let forgets = !entry.is_empty() && self.strikes(Canary::ForgottenFence);
        Ok(if forgets { Vec::new() } else { entry })
    }

    pub(crate) fn span(&self, touched: Touched) -> Span {
        let Touched { id, place, bytes, .. } = touched;
        self.hardware.span(id, place, bytes)
    }

    /// Reports an enqueued operation: its stream waits for fences and then accesses bytes.
    pub(crate) fn enqueue(
        &mut self,
        stream: StreamId,
        waits: &[Fence],
        touches: &[Touched],
        what: &str,
    ) -> Checked {
        let by = stream.agent();
        waits.iter().try_for_each(|fence| self.see(&Op::Wait { by, event: fence.event() }))?;
        touches.iter().try_for_each(|touched| {
            let Span { tier, first, end } = self.span(*touched);
            let space = unspool_verify::Space::Device(u32::from(tier.0));
            let write = touched.write;
            self.see(&Op::Access { by, space, first, end, write, what })
        })
    }

    /// Reports the fence after the operation that was enqueued.
    pub(crate) fn record(&mut self, stream: StreamId, fence: Fence) -> Checked {
        self.see(&Op::Record { event: fence.event(), on: stream.agent() })
    }
}
