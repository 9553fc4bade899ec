//! Who knows what: vector clocks over application threads, streams and the core, and a record of
//! every access to memory. Two accesses to the same bytes, one of them a write, must be ordered.
//!
//! Order comes from communication alone: an operation begins after what its issuer knew, a stream
//! runs its operations one after the other, a wait for a mark adds what was known at the mark, and
//! a report tells the core what its sender knew. Virtual time orders nothing: that one operation
//! happened to be over before another began does not excuse a missing wait.

use std::collections::BTreeMap;

/// One party with an order of its own: a thread, a stream, the core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Agent(pub usize);

/// What an agent knows: for each agent, how many of its actions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    seen: Vec<u64>,
}

impl Clock {
    /// Adds what `other` knows.
    pub fn join(&mut self, other: &Clock) {
        if self.seen.len() < other.seen.len() {
            self.seen.resize(other.seen.len(), 0);
        }
        for (mine, theirs) in self.seen.iter_mut().zip(&other.seen) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Counts one more action of `agent` and returns its number.
    pub fn tick(&mut self, agent: Agent) -> u64 {
        if self.seen.len() <= agent.0 {
            self.seen.resize(agent.0 + 1, 0);
        }
        self.seen[agent.0] += 1;
        self.seen[agent.0]
    }

    /// Whether the action number `time` of `agent` is known.
    #[must_use]
    pub fn knows(&self, agent: Agent, time: u64) -> bool {
        self.seen.get(agent.0).is_some_and(|seen| *seen >= time)
    }
}

/// Bytes `first..end` of a tier; in a store the frame number `first`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    /// The tier.
    pub tier: u8,
    /// The first byte.
    pub first: u64,
    /// The byte after the last one.
    pub end: u64,
}

impl Span {
    /// Whether both have a byte in common.
    #[must_use]
    pub fn meets(&self, other: &Span) -> bool {
        self.tier == other.tier && self.first < other.end && other.first < self.end
    }

    fn covers(&self, other: &Span) -> bool {
        self.tier == other.tier && self.first <= other.first && other.end <= self.end
    }
}

#[derive(Clone, Debug)]
struct Access {
    span: Span,
    write: bool,
    agent: Agent,
    time: u64,
    what: String,
}

/// Every access that later ones must be ordered with.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    by_tier: BTreeMap<u8, Vec<Access>>,
}

impl Accesses {
    /// Records an access by `agent`, whose clock is `clock`.
    ///
    /// # Errors
    /// When an earlier access to the same bytes is not ordered before this one.
    pub fn record(
        &mut self,
        agent: Agent,
        clock: &mut Clock,
        span: Span,
        write: bool,
        what: &str,
    ) -> Result<(), String> {
        let time = clock.tick(agent);
        if span.first >= span.end {
            return Ok(());
        }
        let earlier = self.by_tier.entry(span.tier).or_default();
        let conflict = |a: &&Access| a.span.meets(&span) && (a.write || write);
        let unordered = |a: &&Access| !clock.knows(a.agent, a.time);
        if let Some(other) = earlier.iter().filter(conflict).find(unordered) {
            let bytes = format!("bytes {}..{} of tier {}", span.first, span.end, span.tier);
            return Err(format!("{what} on {bytes} is not ordered with {}", other.what));
        }
        earlier.retain(|a| !replaced_by(a, agent, span, write));
        earlier.push(Access { span, write, agent, time, what: what.to_owned() });
        Ok(())
    }
}

/// Whether an access needs no record any more once the same bytes were accessed in order after it.
fn replaced_by(earlier: &Access, agent: Agent, span: Span, write: bool) -> bool {
    let same_reader = !write && !earlier.write && earlier.agent == agent;
    span.covers(&earlier.span) && (write || same_reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: Agent = Agent(0);
    const ONE: Agent = Agent(1);
    const TWO: Agent = Agent(2);

    fn span(first: u64, end: u64) -> Span {
        Span { tier: 0, first, end }
    }

    #[test]
    fn a_write_after_an_unreported_read_is_found() {
        let (mut accesses, mut one, mut two) =
            (Accesses::default(), Clock::default(), Clock::default());
        accesses.record(ONE, &mut one, span(0, 10), false, "a flush").unwrap();
        let error = accesses.record(TWO, &mut two, span(9, 12), true, "a save").unwrap_err();
        assert_eq!(error, "a save on bytes 9..12 of tier 0 is not ordered with a flush");
    }

    #[test]
    fn a_report_through_the_core_orders() {
        let mut accesses = Accesses::default();
        let (mut core, mut one, mut two) = (Clock::default(), Clock::default(), Clock::default());
        accesses.record(ONE, &mut one, span(0, 10), false, "a flush").unwrap();
        core.tick(CORE);
        core.join(&one);
        two.join(&core);
        assert_eq!(accesses.record(TWO, &mut two, span(0, 10), true, "a save"), Ok(()));
    }

    #[test]
    fn reads_need_no_order_but_remain_to_be_ordered_with_writes() {
        let mut accesses = Accesses::default();
        let (mut one, mut two, mut three) = (Clock::default(), Clock::default(), Clock::default());
        accesses.record(ONE, &mut one, span(0, 10), false, "a flush").unwrap();
        accesses.record(TWO, &mut two, span(0, 10), false, "a restore").unwrap();
        three.join(&two);
        assert!(accesses.record(Agent(3), &mut three, span(0, 1), true, "a save").is_err());
    }

    #[test]
    fn disjoint_and_empty_spans_never_conflict() {
        let mut accesses = Accesses::default();
        let (mut one, mut two) = (Clock::default(), Clock::default());
        accesses.record(ONE, &mut one, span(0, 10), true, "a save").unwrap();
        assert_eq!(accesses.record(TWO, &mut two, span(10, 20), true, "a save"), Ok(()));
        assert_eq!(accesses.record(TWO, &mut two, span(5, 5), true, "a save"), Ok(()));
        let other_tier = Span { tier: 1, first: 0, end: 10 };
        assert_eq!(accesses.record(TWO, &mut two, other_tier, true, "a save"), Ok(()));
    }
}
