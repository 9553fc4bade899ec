//! Which codec a checkpoint gets when the user leaves it to the run: none, or one of those that
//! there are and that lose nothing.
//!
//! A codec costs the application its time in encoder and decoder, each a fixed time and one that
//! grows with the bytes, and spares it what the link cannot move in the time that the application
//! computes between two checkpoints anyway. Each checkpoint crosses the link twice, there and back.
//! The codec that costs least is taken, and none where no codec saves anything worth its while.
//!
//! What was measured so far is taken to hold for the next checkpoint. To measure a codec it is
//! used: once to see the ratio, and some times more, when it is warm, to see the time, but only
//! where it could still win. Data change in the course of a run (a wavefield fills its grid), so
//! old readings are forgotten, and codecs that are not in use are tried again, less and less often
//! where that was in vain. A bad codec is tried on two of sixteen checkpoints at the most.

mod candidate;
mod line;
#[cfg(test)]
mod tests;

pub use candidate::Candidate;
pub use line::Line;

use unspool_core::Nanos;

/// Checkpoints from one trial of a codec to that of another.
const APART: u64 = 16;

/// What a codec has to save of the cost of the next best before it is worth anything.
const MARGIN: f64 = 0.02;

/// What is known when a checkpoint is about to be saved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Situation {
    /// Bytes of its values.
    pub bytes: u64,
    /// Its regions, each of which is decoded by itself.
    pub regions: u64,
    /// Bytes per second of the slowest link that the history goes over; `None` while it stays in
    /// the fastest tier.
    pub link: Option<f64>,
    /// The time between two checkpoints in which the link works for nothing.
    pub lead: Nanos,
}

impl Situation {
    /// Seconds for which the link makes the application wait, there and back.
    fn stall(&self, link: f64, ratio: f64) -> f64 {
        let way = self.bytes as f64 / link / ratio.max(f64::MIN_POSITIVE);
        2.0 * (way - self.lead.0 as f64 * 1e-9).max(0.0)
    }
}

/// Why a codec, or none, was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The history stays in the fastest tier: while nothing moves there is nothing to spare.
    Stays,
    /// The link keeps up with the application: it waits for nothing.
    KeepsUp,
    /// It costs least.
    Cheapest,
    /// To measure it.
    Trial,
}

/// What a checkpoint gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The candidate; `None` for the bytes as they are.
    pub pick: Option<usize>,
    /// Why.
    pub reason: Reason,
    /// The checkpoint before had the same codec: what it needs is there, so its time counts.
    pub is_warm: bool,
}

/// For how many checkpoints nothing was chosen, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// The history stayed in the fastest tier.
    pub stays: u64,
    /// The link kept up.
    pub keeps_up: u64,
    /// No codec was worth its time.
    pub cheapest: u64,
}

/// See the module.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Chooser {
    candidates: Vec<Candidate>,
    kept: Kept,
    /// Decisions so far.
    count: u64,
    /// The decision in which a codec was tried last, and that one if it is to be seen warm.
    tried: Option<u64>,
    next: Option<usize>,
    before: Option<usize>,
    latest: Option<Reason>,
}

impl Chooser {
    /// A choice among so many codecs, of which nothing is known yet.
    #[must_use]
    pub fn of(codecs: usize) -> Chooser {
        Chooser { candidates: vec![Candidate::default(); codecs], ..Chooser::default() }
    }

    /// What is known of the codecs, by their numbers.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// For how many checkpoints nothing was chosen.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.kept
    }

    /// The reason of the latest decision.
    #[must_use]
    pub fn latest(&self) -> Option<Reason> {
        self.latest
    }

    /// What the next checkpoint gets, of the codecs that `can` take it.
    pub fn decide(&mut self, situation: &Situation, can: impl Fn(usize) -> bool) -> Decision {
        let decision = self.decided(situation, can);
        self.note(decision);
        decision
    }

    fn decided(&self, situation: &Situation, can: impl Fn(usize) -> bool) -> Decision {
        let as_it_is = |reason| Decision { pick: None, reason, is_warm: false };
        let Some(link) = situation.link.filter(|link| *link > 0.0) else {
            return as_it_is(Reason::Stays);
        };
        let raw = situation.stall(link, 1.0);
        if raw <= 0.0 {
            return as_it_is(Reason::KeepsUp);
        }
        let can = |index: usize| !self.candidates[index].is_out && can(index);
        let (best, cost) = self.best(situation, (link, raw), can);
        let trial = self.trial(best, |index| {
            can(index) && self.least(index, situation, link) < cost * (1.0 - MARGIN)
        });
        let (pick, reason) = match trial {
            Some(index) => (Some(index), Reason::Trial),
            None => (best, Reason::Cheapest),
        };
        Decision { pick, reason, is_warm: pick.is_some() && pick == self.before }
    }

    /// The codec that costs least, and its cost in seconds.
    fn best(
        &self,
        situation: &Situation,
        (link, raw): (f64, f64),
        can: impl Fn(usize) -> bool,
    ) -> (Option<usize>, f64) {
        debug_assert!(raw > 0.0 && link > 0.0, "there is something to spare");
        let mut best = (None, raw);
        for (index, candidate) in self.candidates.iter().enumerate() {
            let Some(cost) = cost(candidate, situation, link).filter(|_| can(index)) else {
                continue;
            };
            if cost < best.1 * (1.0 - MARGIN) {
                best = (Some(index), cost);
            }
        }
        best
    }

    /// What a codec costs at least, with the best that may come of looking at it now.
    fn least(&self, index: usize, situation: &Situation, link: f64) -> f64 {
        let candidate = &self.candidates[index];
        let known = candidate.work(situation.bytes, situation.regions);
        let work = known.filter(|_| candidate.encode.is_sure()).unwrap_or(0.0);
        let is_fresh = candidate.ratio > 0.0 && !candidate.is_due(self.count);
        work + if is_fresh { situation.stall(link, candidate.ratio) } else { 0.0 }
    }

    /// The codec to be looked at now, if any: one that may win.
    fn trial(&self, best: Option<usize>, may_win: impl Fn(usize) -> bool) -> Option<usize> {
        if let Some(next) = self.next.filter(|next| may_win(*next)) {
            return Some(next);
        }
        if self.tried.is_some_and(|tried| self.count - tried < APART) {
            return None;
        }
        let is_due = |index: &usize| {
            let candidate = &self.candidates[*index];
            let is_wanted = !candidate.encode.is_sure() || candidate.is_due(self.count);
            Some(*index) != best && is_wanted && may_win(*index)
        };
        let due = (0..self.candidates.len()).filter(is_due);
        due.min_by_key(|index| self.candidates[*index].last)
    }

    fn note(&mut self, decision: Decision) {
        let now = self.count;
        debug_assert!(decision.pick.is_some() || !decision.is_warm, "only codecs are warm");
        self.count += 1;
        self.before = decision.pick;
        self.latest = Some(decision.reason);
        let Some(index) = decision.pick else {
            match decision.reason {
                Reason::Stays => self.kept.stays += 1,
                Reason::KeepsUp => self.kept.keeps_up += 1,
                Reason::Cheapest | Reason::Trial => self.kept.cheapest += 1,
            }
            return;
        };
        let is_second = self.next.take() == Some(index);
        let candidate = &mut self.candidates[index];
        if decision.reason == Reason::Trial {
            candidate.tried += 1;
            if candidate.is_due(now) {
                candidate.lose_hope();
            }
            self.tried = Some(now);
            self.next = (!is_second && !candidate.encode.is_sure()).then_some(index);
        } else {
            candidate.chosen += 1;
            candidate.hope();
        }
        candidate.last = Some(now);
    }

    /// A checkpoint of `bytes` that was given codec `index` takes `stored` bytes.
    pub fn saved(&mut self, index: usize, bytes: u64, stored: u64) {
        if bytes > 0 && !self.candidates[index].saw(bytes, stored) {
            // The data have changed: what was in vain may not be any more.
            self.candidates.iter_mut().for_each(Candidate::hope);
        }
    }

    /// Codec `index` took `time` to encode a checkpoint of `bytes`.
    pub fn encoded(&mut self, index: usize, bytes: u64, time: Nanos) {
        self.candidates[index].encode.saw(bytes, time);
    }

    /// Codec `index` took `time` to decode a region of `bytes`.
    pub fn decoded(&mut self, index: usize, bytes: u64, time: Nanos) {
        self.candidates[index].decode.saw(bytes, time);
    }

    /// Codec `index` does not work here: it is not taken again.
    pub fn failed(&mut self, index: usize) {
        self.candidates[index].is_out = true;
    }
}

/// What a codec costs that was measured, in seconds.
fn cost(candidate: &Candidate, situation: &Situation, link: f64) -> Option<f64> {
    let work = candidate.work(situation.bytes, situation.regions)?;
    candidate.is_measured().then(|| work + situation.stall(link, candidate.ratio))
}
