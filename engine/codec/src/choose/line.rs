//! The time of a codec by its bytes, learned from measured times: a fixed part, and one that grows
//! with the bytes.

use unspool_core::Nanos;

/// The weight of the newest reading. Older ones are forgotten exponentially.
pub(super) const NEWEST: f64 = 0.25;

/// Sizes that differ by less than this part of their mean say nothing about the fixed part.
const APART: f64 = 0.05;

/// The number of readings from which on a line is relied on. Of fewer, one may be far too long
/// because something else kept the device busy.
const SURE: u32 = 3;

/// Readings of sizes within this part of the mean can be compared with it.
const ALIKE: f64 = 0.25;

/// The most that a reading counts, as a multiple of the time that was expected.
const LONGEST: f64 = 4.0;

/// A straight line through readings of bytes and time, by least squares, neither part of it
/// negative. While all readings are of about one size, a line through the origin is taken, which
/// gives the same time at that size.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Line {
    weight: f64,
    /// Weighted sums: bytes, seconds, bytes squared, bytes by seconds.
    bytes: f64,
    seconds: f64,
    squares: f64,
    products: f64,
    readings: u32,
}

impl Line {
    /// Takes the reading that `bytes` took `time`.
    pub fn saw(&mut self, bytes: u64, time: Nanos) {
        let (bytes, mut seconds) = (bytes as f64, time.0 as f64 * 1e-9);
        let keep = 1.0 - NEWEST;
        if self.is_like(bytes) {
            let expected = self.seconds(bytes);
            if !self.is_sure() && 2.0 * seconds < expected {
                *self = Line { readings: self.readings, ..Line::default() };
            }
            seconds = seconds.min(LONGEST * expected);
        }
        self.readings = self.readings.saturating_add(1);
        self.weight = keep * self.weight + NEWEST;
        self.bytes = keep * self.bytes + NEWEST * bytes;
        self.seconds = keep * self.seconds + NEWEST * seconds;
        self.squares = keep * self.squares + NEWEST * bytes * bytes;
        self.products = keep * self.products + NEWEST * bytes * seconds;
    }

    /// Whether `bytes` are about as many as in the readings before.
    fn is_like(&self, bytes: f64) -> bool {
        let mean = self.bytes / self.weight;
        self.is_known() && (bytes - mean).abs() <= ALIKE * mean && mean > 0.0
    }

    /// Whether there were enough readings.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.readings >= SURE
    }

    /// Whether there was a reading.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.weight > 0.0
    }

    /// The seconds that `bytes` take; 0 before the first reading.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> f64 {
        if !self.is_known() {
            return 0.0;
        }
        let [mean, time, squares, products] =
            [self.bytes, self.seconds, self.squares, self.products].map(|sum| sum / self.weight);
        let through_nothing = if mean > 0.0 { time / mean } else { 0.0 };
        let variance = squares - mean * mean;
        let is_apart = variance > (APART * mean) * (APART * mean);
        let slope = if is_apart { (products - mean * time) / variance } else { through_nothing };
        time + slope.clamp(0.0, through_nothing) * (bytes - mean)
    }
}
