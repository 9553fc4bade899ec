//! What is known of one codec that may be chosen.

use super::line::{Line, NEWEST};

/// After so many checkpoints a codec that is not in use is tried once more; twice as many after
/// each time that it was in vain, up to the second number.
const AGAIN: (u64, u64) = (64, 1024);

/// A ratio that is off by more than this part of what it was says that the data have changed.
const CHANGED: f64 = 0.1;

/// A codec that loses nothing, with what was measured of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Bytes of values for each byte that is stored; 0 before the first checkpoint.
    pub(super) ratio: f64,
    pub(super) encode: Line,
    pub(super) decode: Line,
    /// The decision for which it was taken last; `None` before the first.
    pub(super) last: Option<u64>,
    /// Decisions until it is tried again.
    pub(super) patience: u64,
    /// It has failed, and is not taken again.
    pub(super) is_out: bool,
    pub(super) chosen: u64,
    pub(super) tried: u64,
}

impl Default for Candidate {
    fn default() -> Candidate {
        Candidate {
            ratio: 0.0,
            encode: Line::default(),
            decode: Line::default(),
            last: None,
            patience: AGAIN.0,
            is_out: false,
            chosen: 0,
            tried: 0,
        }
    }
}

impl Candidate {
    /// Bytes of values for each byte that is stored; 0 before the first checkpoint.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// How many checkpoints it was chosen for because it costs least.
    #[must_use]
    pub fn chosen(&self) -> u64 {
        self.chosen
    }

    /// How many it was given in order to be measured.
    #[must_use]
    pub fn tried(&self) -> u64 {
        self.tried
    }

    /// Whether it has failed, and is not taken again.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.is_out
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

    /// Seconds in encoder and decoder.
    pub(super) fn work(&self, bytes: u64, regions: u64) -> Option<f64> {
        Some(self.encode_seconds(bytes)? + self.decode_seconds(bytes, regions)?)
    }

    /// Whether enough was measured to compare it.
    pub(super) fn is_measured(&self) -> bool {
        self.ratio > 0.0 && self.encode.is_known()
    }

    /// Whether it is time to look at it, again or at all.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= self.patience)
    }

    /// It is looked at again: if that is in vain, the next look is later.
    pub(super) fn lose_hope(&mut self) {
        if self.last.is_some() {
            self.patience = (2 * self.patience).min(AGAIN.1);
        }
    }

    /// It is worth another look soon.
    pub(super) fn hope(&mut self) {
        self.patience = AGAIN.0;
    }

    /// It has made `stored` of `bytes`: whether that was to be expected.
    pub(super) fn saw(&mut self, bytes: u64, stored: u64) -> bool {
        debug_assert!(bytes > 0, "nothing says nothing");
        let ratio = bytes as f64 / stored.max(1) as f64;
        if self.ratio == 0.0 {
            self.ratio = ratio;
            return true;
        }
        let is_expected = (ratio / self.ratio - 1.0).abs() <= CHANGED;
        // After a change the past says nothing.
        self.ratio = if is_expected { self.ratio + NEWEST * (ratio - self.ratio) } else { ratio };
        is_expected
    }
}
