//! Which codec a checkpoint gets when the user leaves it to the run: none, Unspool's own without
//! loss, or nvCOMP where there is one. Nothing that loses information is ever chosen.
//!
//! A codec costs the application its time in encoder and decoder, and spares it what the link
//! cannot move in the time that the application computes between two checkpoints anyway. Each
//! checkpoint crosses the link twice, there and back. What was measured so far is taken to hold for
//! the next checkpoint; since data change in the course of a run (a wavefield fills its grid),
//! codecs that are not in use are measured again from time to time.

use crate::types::Nanos;

/// Checkpoints that a codec is tried on before its figures count.
const TRIALS: u64 = 3;

/// After so many checkpoints a codec that is not in use is tried once more.
const AGAIN: u64 = 64;

/// What a codec has to save of the whole cost before it is worth anything.
const MARGIN: f64 = 0.02;

/// A codec that loses nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pick {
    /// The bytes as they are.
    Raw,
    /// Unspool's own codec, Twine.
    Twine,
    /// A codec of nvCOMP.
    NvComp,
}

/// What is known of a codec. Rates are in bytes of values per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Checkpoints that it was tried on.
    pub trials: u64,
    /// Bytes of values for each byte that is stored.
    pub ratio: f64,
    /// The rate of the encoder.
    pub encode: f64,
    /// The rate of the decoder; 0 when nothing was decoded yet: that of the encoder is taken.
    pub decode: f64,
}

/// What is known when a checkpoint is about to be saved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Situation {
    /// Bytes of its values.
    pub bytes: u64,
    /// Checkpoints that were saved before.
    pub saved: u64,
    /// Bytes per second of the slowest link that the history goes over; `None` while it stays in
    /// the fastest tier.
    pub link: Option<f64>,
    /// The time between two checkpoints, in which the link works for nothing.
    pub lead: Nanos,
    /// Unspool's own codec.
    pub twine: Measured,
    /// nvCOMP, where there is one.
    pub nvcomp: Option<Measured>,
}

impl Situation {
    /// The codec that costs the run least.
    #[must_use]
    pub fn pick(&self) -> Pick {
        // While nothing moves there is nothing to spare.
        let Some(link) = self.link.filter(|link| *link > 0.0) else { return Pick::Raw };
        let codecs = [(Pick::Twine, Some(self.twine)), (Pick::NvComp, self.nvcomp)];
        let mut best = (Pick::Raw, self.stall(1.0, link) * (1.0 - MARGIN));
        for (pick, measured) in codecs {
            let Some(measured) = measured else { continue };
            if measured.trials < TRIALS {
                return pick;
            }
            let cost = self.work(&measured) + self.stall(measured.ratio, link);
            if cost < best.1 {
                best = (pick, cost);
            }
        }
        match self.saved % AGAIN {
            0 if best.0 != Pick::Twine => Pick::Twine,
            1 if best.0 != Pick::NvComp && self.nvcomp.is_some() => Pick::NvComp,
            _ => best.0,
        }
    }

    /// Seconds in encoder and decoder.
    fn work(&self, codec: &Measured) -> f64 {
        let decode = if codec.decode > 0.0 { codec.decode } else { codec.encode };
        seconds(self.bytes, codec.encode) + seconds(self.bytes, decode)
    }

    /// Seconds for which the link makes the application wait, there and back.
    fn stall(&self, ratio: f64, link: f64) -> f64 {
        let way = seconds(self.bytes, link) / ratio.max(f64::MIN_POSITIVE);
        let lead = self.lead.0 as f64 * 1e-9;
        2.0 * (way - lead).max(0.0)
    }
}

/// The time of `bytes` at `rate`; a rate that is not known costs nothing.
fn seconds(bytes: u64, rate: f64) -> f64 {
    if rate > 0.0 { bytes as f64 / rate } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    fn codec(ratio: f64, encode: f64) -> Measured {
        Measured { trials: 10, ratio, encode, decode: 2.0 * encode }
    }

    /// A checkpoint of 100 MB that follows the last after `lead` milliseconds.
    fn at(link: f64, lead: u64, twine: Measured, nvcomp: Option<Measured>) -> Pick {
        let lead = Nanos(lead * 1_000_000);
        let link = Some(link * GB);
        Situation { bytes: 100_000_000, saved: 7, link, lead, twine, nvcomp }.pick()
    }

    #[test]
    fn the_cheapest_way_is_taken() {
        let (fast, slow) = (codec(4.0, 500.0 * GB), codec(4.0, 0.5 * GB));
        let dense = codec(8.0, 100.0 * GB);
        let table = [
            // A link that keeps up needs no codec.
            (50.0, 10, fast, None, Pick::Raw),
            // One that does not is spared by a codec that is fast enough, and not by a slow one.
            (1.0, 10, fast, None, Pick::Twine),
            (1.0, 10, slow, None, Pick::Raw),
            (0.1, 10, slow, None, Pick::Twine),
            // What cannot be made smaller is left as it is.
            (1.0, 10, codec(1.0, 500.0 * GB), None, Pick::Raw),
            (1.0, 10, codec(1.01, 500.0 * GB), None, Pick::Raw),
            // The better ratio wins where the link counts, the speed where it does not.
            (1.0, 1, fast, Some(dense), Pick::NvComp),
            (1.0, 30, fast, Some(dense), Pick::Twine),
            (1.0, 1, dense, Some(fast), Pick::Twine),
        ];
        for (row, (link, lead, twine, nvcomp, expected)) in table.into_iter().enumerate() {
            assert_eq!(at(link, lead, twine, nvcomp), expected, "row {row}");
        }
    }

    #[test]
    fn nothing_is_encoded_while_the_history_stays_where_it_is_saved() {
        let twine = Measured::default();
        let situation =
            Situation { bytes: 1 << 30, saved: 0, link: None, lead: Nanos(0), twine, nvcomp: None };
        assert_eq!(situation.pick(), Pick::Raw);
    }

    #[test]
    fn codecs_are_tried_before_their_figures_count_and_again_later() {
        let new = Measured { trials: TRIALS - 1, ..Measured::default() };
        assert_eq!(at(1.0, 0, new, None), Pick::Twine);
        assert_eq!(at(1.0, 0, codec(1.0, GB), Some(new)), Pick::NvComp);
        let useless = codec(1.0, GB);
        let picks = |nvcomp: Option<Measured>| -> alloc::vec::Vec<Pick> {
            let at = |saved| Situation {
                bytes: 1 << 20,
                saved,
                link: Some(GB),
                lead: Nanos(0),
                twine: useless,
                nvcomp,
            };
            (0..2 * AGAIN).map(|saved| at(saved).pick()).collect()
        };
        let count = |picks: &[Pick], pick| picks.iter().filter(|found| **found == pick).count();
        assert_eq!(count(&picks(None), Pick::Twine), 2);
        let both = picks(Some(useless));
        assert_eq!((count(&both, Pick::Twine), count(&both, Pick::NvComp)), (2, 2));
    }

    #[test]
    fn figures_that_make_no_sense_do_no_harm() {
        let odd = Measured { trials: 9, ratio: 0.0, encode: 0.0, decode: 0.0 };
        assert_eq!(at(1.0, 0, odd, Some(odd)), Pick::Raw);
        assert_eq!(at(0.0, 0, codec(9.0, GB), None), Pick::Raw);
    }
}
