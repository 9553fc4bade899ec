//! The choice of `codec="auto"` for a checkpoint: its bytes as they are, or Twine without loss.
//!
//! A codec costs the application the time of encoder and decoder, each a fixed time and one that
//! grows with the bytes. It saves the time by which the link takes longer for the bytes than the
//! application computes between two checkpoints anyway. Each checkpoint crosses the link twice,
//! there and back. Checkpoints are encoded where that costs less than their bytes as they are.
//!
//! Earlier measurements are taken to hold for the next checkpoint. A trial uses the codec in order
//! to measure it: once to see the ratio, and some times more, when it is warm, to see the time, but
//! only where it could still win. Data change in the course of a run (a wavefield fills its grid),
//! so old readings are forgotten, and trials are repeated, less and less often where they were in
//! vain: on two of sixteen checkpoints at the most.

mod line;
#[cfg(test)]
mod tests;

pub use line::Line;

use line::NEWEST;
use unspool_core::Nanos;

/// Checkpoints from one trial to the next.
const APART: u64 = 16;

/// The part of the cost that the codec has to save to be chosen.
const MARGIN: f64 = 0.02;

/// The checkpoints without the codec after which it is tried once more; doubled after each trial in
/// vain, up to the second number.
const AGAIN: (u64, u64) = (64, 1024);

/// The relative change of the ratio that shows that the data have changed.
const CHANGED: f64 = 0.1;

/// The situation in which a checkpoint is about to be saved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Situation {
    /// Bytes of its values.
    pub bytes: u64,
    /// Number of its regions, each of which is decoded by itself.
    pub regions: u64,
    /// Bytes per second of the slowest link that the history goes over; `None` while it stays in
    /// the fastest tier.
    pub link: Option<f64>,
    /// The time that the application computes between two checkpoints, in which the link costs
    /// nothing.
    pub lead: Nanos,
}

impl Situation {
    /// Seconds for which the link makes the application wait, there and back.
    fn stall(&self, link: f64, ratio: f64) -> f64 {
        let way = self.bytes as f64 / link / ratio.max(f64::MIN_POSITIVE);
        2.0 * (way - self.lead.0 as f64 * 1e-9).max(0.0)
    }
}

/// Why a checkpoint is encoded, or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The history stays in the fastest tier, so no link costs time.
    Stays,
    /// The link keeps up with the application, which does not wait for it.
    KeepsUp,
    /// The choice costs least.
    Cheapest,
    /// The codec is being measured.
    Trial,
}

/// The decision for a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it is encoded.
    pub encodes: bool,
    /// Why it is encoded or is not.
    pub reason: Reason,
    /// Whether the checkpoint before was encoded: the codec then has all that it needs, and its
    /// time counts.
    pub is_warm: bool,
}

/// The numbers of checkpoints by decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// Kept as they are, because the history stayed in the fastest tier.
    pub stays: u64,
    /// Kept as they are, because the link kept up.
    pub keeps_up: u64,
    /// Kept as they are, because the codec was not worth its time, or was not measured yet.
    pub not_worth_it: u64,
    /// Encoded, because that costs less.
    pub chosen: u64,
    /// Encoded in order to measure the codec.
    pub tried: u64,
}

/// The decisions of a run, and what was measured of the codec. See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Chooser {
    /// Bytes of values for each byte that is stored; 0 before the first checkpoint.
    ratio: f64,
    encode: Line,
    decode: Line,
    counts: Decisions,
    /// Decisions so far.
    now: u64,
    /// The number of the decision that used the codec last, and of the last trial.
    last: Option<u64>,
    tried: Option<u64>,
    /// Decisions without the codec until it is tried again.
    patience: u64,
    /// The codec was tried cold, and is to be tried warm next.
    again: bool,
    was_encoded: bool,
    latest: Option<Reason>,
}

impl Default for Chooser {
    fn default() -> Chooser {
        Chooser {
            ratio: 0.0,
            encode: Line::default(),
            decode: Line::default(),
            counts: Decisions::default(),
            now: 0,
            last: None,
            tried: None,
            patience: AGAIN.0,
            again: false,
            was_encoded: false,
            latest: None,
        }
    }
}

impl Chooser {
    /// The numbers of checkpoints by decision so far.
    #[must_use]
    pub fn counts(&self) -> Decisions {
        self.counts
    }

    /// The reason of the latest decision.
    #[must_use]
    pub fn latest(&self) -> Option<Reason> {
        self.latest
    }

    /// Bytes of values for each byte that is stored; 0 before the first checkpoint.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// How long it takes to encode `bytes`, in seconds; `None` before that was measured.
    #[must_use]
    pub fn encode_seconds(&self, bytes: u64) -> Option<f64> {
        self.encode.is_known().then(|| self.encode.seconds(bytes as f64))
    }

    /// How long it takes to decode `bytes` in `regions` equal parts, in seconds. Before that was
    /// measured, the time of the encoder is taken; `None` before either was.
    #[must_use]
    pub fn decode_seconds(&self, bytes: u64, regions: u64) -> Option<f64> {
        if !self.decode.is_known() {
            return self.encode_seconds(bytes);
        }
        let parts = regions.max(1) as f64;
        Some(parts * self.decode.seconds(bytes as f64 / parts))
    }

    /// Decides for the next checkpoint.
    pub fn decide(&mut self, situation: &Situation) -> Decision {
        let (encodes, reason) = self.decided(situation);
        let decision = Decision { encodes, reason, is_warm: encodes && self.was_encoded };
        self.note(decision);
        decision
    }

    fn decided(&self, situation: &Situation) -> (bool, Reason) {
        let Some(link) = situation.link.filter(|link| *link > 0.0) else {
            return (false, Reason::Stays);
        };
        let raw = situation.stall(link, 1.0);
        if raw <= 0.0 {
            return (false, Reason::KeepsUp);
        }
        let is_better = |cost: f64| cost < raw * (1.0 - MARGIN);
        if self.cost(situation, link).is_some_and(is_better) {
            return (true, Reason::Cheapest);
        }
        if self.wants_trial() && is_better(self.least(situation, link)) {
            return (true, Reason::Trial);
        }
        (false, Reason::Cheapest)
    }

    /// What the codec costs, in seconds; `None` before it was measured.
    fn cost(&self, situation: &Situation, link: f64) -> Option<f64> {
        let work = self.work(situation)?;
        (self.ratio > 0.0).then(|| work + situation.stall(link, self.ratio))
    }

    /// The least that the codec can cost, with the best result that a trial could have.
    fn least(&self, situation: &Situation, link: f64) -> f64 {
        let work = self.work(situation).filter(|_| self.encode.is_sure()).unwrap_or(0.0);
        let is_fresh = self.ratio > 0.0 && !self.is_due();
        work + if is_fresh { situation.stall(link, self.ratio) } else { 0.0 }
    }

    /// Seconds in encoder and decoder.
    fn work(&self, situation: &Situation) -> Option<f64> {
        let decode = self.decode_seconds(situation.bytes, situation.regions)?;
        Some(self.encode_seconds(situation.bytes)? + decode)
    }

    fn wants_trial(&self) -> bool {
        let is_apart = self.tried.is_none_or(|tried| self.now - tried >= APART);
        self.again || (is_apart && (!self.encode.is_sure() || self.is_due()))
    }

    /// Whether it is time for a trial.
    fn is_due(&self) -> bool {
        self.last.is_none_or(|last| self.now.saturating_sub(last) >= self.patience)
    }

    fn note(&mut self, decision: Decision) {
        debug_assert!(decision.encodes || !decision.is_warm, "only a codec is warm");
        match (decision.reason, decision.encodes) {
            (Reason::Stays, _) => self.counts.stays += 1,
            (Reason::KeepsUp, _) => self.counts.keeps_up += 1,
            (_, false) => self.counts.not_worth_it += 1,
            (Reason::Cheapest, true) => {
                self.counts.chosen += 1;
                self.patience = AGAIN.0;
            }
            (Reason::Trial, true) => self.note_trial(),
        }
        if decision.encodes {
            self.last = Some(self.now);
        }
        self.was_encoded = decision.encodes;
        self.latest = Some(decision.reason);
        self.now += 1;
    }

    fn note_trial(&mut self) {
        self.counts.tried += 1;
        if self.is_due() && self.last.is_some() {
            // If this trial is in vain, the next one is later.
            self.patience = (2 * self.patience).min(AGAIN.1);
        }
        self.tried = Some(self.now);
        self.again = !self.again && !self.encode.is_sure();
    }

    /// Notes that a checkpoint of `bytes` was encoded in `stored` bytes.
    pub fn saved(&mut self, bytes: u64, stored: u64) {
        if bytes == 0 {
            return;
        }
        let ratio = bytes as f64 / stored.max(1) as f64;
        let is_first = self.ratio == 0.0;
        let is_expected = !is_first && (ratio / self.ratio - 1.0).abs() <= CHANGED;
        // After a change earlier ratios do not count.
        self.ratio = if is_expected { self.ratio + NEWEST * (ratio - self.ratio) } else { ratio };
        if !is_first && !is_expected {
            // Trials that were in vain may succeed now.
            self.patience = AGAIN.0;
        }
    }

    /// Notes that the codec took `time` to encode a checkpoint of `bytes`.
    pub fn encoded(&mut self, bytes: u64, time: Nanos) {
        self.encode.saw(bytes, time);
    }

    /// Notes that the codec took `time` to decode a region of `bytes`.
    pub fn decoded(&mut self, bytes: u64, time: Nanos) {
        self.decode.saw(bytes, time);
    }
}
