//! Schedules without a search: what a plan is compared with.

use alloc::vec::Vec;

use super::timeline::{Group, hold, nanos, pack, raw};
use super::{Checkpoint, Decision, Problem};

/// A schedule that looks at most one step ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Simple {
    /// Everything raw: "no compression".
    Raw,
    /// Everything compressed alone: "compress single". What the cache has no room to compress goes
    /// raw.
    Alone,
    /// Hold until the cache has no room for more, then compress all of it.
    Full,
    /// Raw while the link is free before the next checkpoint comes; else hold, and compress as soon
    /// as that and sending the result take less time than sending what is held as it is.
    Pays,
    /// Groups of this many, or of as many as the cache can hold; 0 and 1 are [`Simple::Alone`].
    Batches(u32),
}

impl Simple {
    /// Its decisions. They can all be taken, for a problem that was checked.
    #[must_use]
    pub fn decisions(self, problem: &Problem) -> Vec<Decision> {
        let all = &problem.checkpoints;
        let mut decisions = Vec::with_capacity(all.len());
        let mut group = Group::default();
        for (at, one) in all.iter().enumerate() {
            let next = all.get(at + 1);
            let decision = self.decide(problem, group, one, next);
            let after = match decision {
                Decision::Hold => hold(problem, group, one),
                Decision::Raw => raw(problem, group, one),
                Decision::Alone | Decision::Together => pack(problem, group, one),
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
        group: Group,
        one: &Checkpoint,
        next: Option<&Checkpoint>,
    ) -> Decision {
        let wants = match self {
            Simple::Raw => return Decision::Raw,
            Simple::Alone => false,
            Simple::Full => true,
            Simple::Pays => {
                if group.count == 0 && link_is_free(problem, group, one, next) {
                    return Decision::Raw;
                }
                !pays(problem, group, one)
            }
            Simple::Batches(most) => group.count + 1 < most,
        };
        let wants = wants && group.count + 1 < problem.most_together;
        let more = || hold(problem, group, one).zip(next);
        if wants && more().is_some_and(|(held, next)| pack(problem, held, next).is_some()) {
            return Decision::Hold;
        }
        match (group.count, pack(problem, group, one)) {
            (0, None) => Decision::Raw,
            (0, Some(_)) => Decision::Alone,
            _ => Decision::Together,
        }
    }
}

/// Whether the link has sent this one raw before the next one comes.
fn link_is_free(
    problem: &Problem,
    group: Group,
    one: &Checkpoint,
    next: Option<&Checkpoint>,
) -> bool {
    let interval = next.map_or(0, |next| next.interval.0);
    raw(problem, group, one).is_some_and(|there| there.times.link <= there.times.app + interval)
}

/// Whether compressing all that is held with this one, and sending that, is faster than sending it.
fn pays(problem: &Problem, group: Group, one: &Checkpoint) -> bool {
    let (raw, packed) = (group.raw + one.raw, group.packed + one.packed);
    let send = |bytes| nanos(&problem.link, bytes);
    problem.packer.time.time(raw).0 + send(packed) < send(raw)
}
