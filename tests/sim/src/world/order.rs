//! What the order checker is told, as the hooks of a real device tell it: waits, accesses and
//! recordings when they are enqueued, and what the host has waited for or asked about.

use unspool_core::{CheckpointId, Place};
use unspool_verify::{Agent, Op};

use super::{Checked, World};
use crate::canary::Canary;
use crate::check::{Rule, Violation};
use crate::device::marks::{Before, Span};
use crate::device::streams::{Mark, StreamId};

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

    /// The host knows that a mark is reached, and nobody will wait for it any more.
    pub(crate) fn host_learns(&mut self, mark: Mark) -> Checked {
        let event = mark.event();
        self.see(&Op::Wait { by: Agent::Host, event })?;
        self.see(&Op::Forget { event })
    }

    /// The marks that an operation must wait for before it touches this.
    pub(crate) fn marks_before(&mut self, touched: Touched) -> Result<Vec<Mark>, Violation> {
        let span = self.span(touched);
        let (marks, streams) = (&mut self.hardware.marks, &self.hardware.streams);
        let before = marks.before(touched.id, span, touched.write, |m| streams.is_reached(m));
        let Before { reached, mut entry, ghosts } = before;
        reached.into_iter().try_for_each(|mark| self.host_learns(mark))?;
        entry.extend(ghosts);
        let forgets = !entry.is_empty() && self.sings(Canary::ForgottenMark);
        Ok(if forgets { Vec::new() } else { entry })
    }

    pub(crate) fn span(&self, touched: Touched) -> Span {
        let Touched { id, place, bytes, .. } = touched;
        self.hardware.span(id, place, bytes)
    }

    /// An operation is enqueued: its stream waits for marks and then touches bytes.
    pub(crate) fn enqueue(
        &mut self,
        stream: StreamId,
        waits: &[Mark],
        touches: &[Touched],
        what: &str,
    ) -> Checked {
        let by = stream.agent();
        waits.iter().try_for_each(|mark| self.see(&Op::Wait { by, event: mark.event() }))?;
        touches.iter().try_for_each(|touched| {
            let Span { tier, first, end } = self.span(*touched);
            let space = unspool_verify::Space::Device(u32::from(tier.0));
            let write = touched.write;
            self.see(&Op::Access { by, space, first, end, write, what })
        })
    }

    /// The mark behind what was enqueued.
    pub(crate) fn record(&mut self, stream: StreamId, mark: Mark) -> Checked {
        self.see(&Op::Record { event: mark.event(), on: stream.agent() })
    }
}
