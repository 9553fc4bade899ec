//! Schedules without a search, with which a plan is compared.

use alloc::vec::Vec;

use super::timeline::{BatchTimes, batch, nanos, pack, raw};
use super::{CheckpointDecision, CheckpointProfile, Problem};

/// A schedule that looks at most one step ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Simple {
    /// Sends everything raw.
    Raw,
    /// Compresses everything alone. A checkpoint that the cache has no room to compress goes raw.
    Alone,
    /// Holds until the cache has no room for more, then compresses all together.
    Full,
    /// Sends raw while the link is free before the next checkpoint comes; else holds, and
    /// compresses as soon as that and sending the result take less time than sending what is held
    /// as it is.
    Pays,
    /// Compresses groups of this many, or of as many as the cache can hold; 0 and 1 are
    /// [`Simple::Alone`].
    Batches(u32),
}

impl Simple {
    /// The decisions of this schedule. All can be taken, for a problem that was checked.
    #[must_use]
    pub fn decisions(self, problem: &Problem) -> Vec<CheckpointDecision> {
        let all = &problem.checkpoints;
        let mut decisions = Vec::with_capacity(all.len());
        let mut group = BatchTimes::default();
        for (at, one) in all.iter().enumerate() {
            let next = all.get(at + 1);
            let decision = self.decide(problem, group, one, next);
            let after = match decision {
                CheckpointDecision::Hold => batch(problem, group, one),
                CheckpointDecision::Raw => raw(problem, group, one),
                CheckpointDecision::Alone | CheckpointDecision::Together => {
                    pack(problem, group, one)
                }
            };
            debug_assert!(after.is_some(), "a decision that can be taken");
            group = after.unwrap_or(group);
            decisions.push(decision);
        }
        decisions
    }

    fn decide(
        self,
        problem: &Problem,
        group: BatchTimes,
        one: &CheckpointProfile,
        next: Option<&CheckpointProfile>,
    ) -> CheckpointDecision {
        let wants = match self {
            Simple::Raw => return CheckpointDecision::Raw,
            Simple::Alone => false,
            Simple::Full => true,
            Simple::Pays => {
                if group.count == 0 && link_is_free(problem, group, one, next) {
                    return CheckpointDecision::Raw;
                }
                !pays(problem, group, one)
            }
            Simple::Batches(most) => group.count + 1 < most,
        };
        let wants = wants && group.count + 1 < problem.most_together;
        let more = || batch(problem, group, one).zip(next);
        if wants && more().is_some_and(|(held, next)| pack(problem, held, next).is_some()) {
            return CheckpointDecision::Hold;
        }
        match (group.count, pack(problem, group, one)) {
            (0, None) => CheckpointDecision::Raw,
            (0, Some(_)) => CheckpointDecision::Alone,
            _ => CheckpointDecision::Together,
        }
    }
}

/// Whether the link has sent this one raw before the next one comes.
fn link_is_free(
    problem: &Problem,
    group: BatchTimes,
    one: &CheckpointProfile,
    next: Option<&CheckpointProfile>,
) -> bool {
    let interval = next.map_or(0, |next| next.interval.0);
    raw(problem, group, one).is_some_and(|there| there.times.link <= there.times.app + interval)
}

/// Whether compressing all that is held with this one, and sending that, is faster than sending it.
fn pays(problem: &Problem, group: BatchTimes, one: &CheckpointProfile) -> bool {
    let (raw, packed) = (group.raw + one.raw, group.packed + one.packed);
    let send = |bytes| nanos(&problem.link, bytes);
    problem.packer.time.time(raw).0 + send(packed) < send(raw)
}
