//! What `codec="auto"` is fed with, and what comes of it.

use std::time::Duration;

use unspool_codec::Head;
use unspool_codec::choose::{Chooser, Decision, Decisions, Reason, Situation};
use unspool_core::Nanos;

use super::timing::Reading;
use crate::figure::figures;
use crate::time::nanos;

/// The weight of the newest interval in the running mean, and how many times as long as that it
/// may count: a save may wait for a kernel that was never compiled.
const NEWEST: f64 = 0.25;
const LONGEST: f64 = 4.0;

/// After so many transfers the core knows the rate of a link, whatever it took it for at first.
pub(crate) const LEARNED: u64 = 32;

/// One in so many calls of the codec is timed once its time is known.
const EVERY: u64 = 8;

/// What `Spec::Auto` has decided so far, and why.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct AutoStats {
    /// Checkpoints that were kept as they are because the history stays in the fastest tier.
    pub stays: u64,
    /// Those that were because the link keeps up with the application.
    pub keeps_up: u64,
    /// Those that were because the codec was not worth its time, or was not measured yet.
    pub not_worth_it: u64,
    /// Checkpoints that were encoded because that costs less.
    pub chosen: u64,
    /// Checkpoints that were encoded in order to measure the codec.
    pub tried: u64,
    /// Bytes of values for each byte that is stored; 0 before it was measured.
    pub ratio: f64,
    /// How long it takes to encode a checkpoint of the latest size; `None` before it was measured.
    pub encode: Option<Duration>,
    /// How long it takes to decode one; that of the encoder before it was measured.
    pub decode: Option<Duration>,
    /// Why the latest checkpoint got what it got, in words; empty before the first.
    pub latest: &'static str,
}

figures!(AutoStats: stays keeps_up not_worth_it chosen tried;);

/// A checkpoint that is encoded because the run has chosen so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Picked {
    /// Whether the time of its encoder is to be taken.
    pub(crate) is_timed: bool,
}

/// What a checkpoint has shown that was encoded so.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Lesson {
    /// Bytes of its values, and what is stored of them.
    pub(crate) bytes: u64,
    pub(crate) stored: u64,
    /// The time of the host in its encoders; `None` where a GPU has encoded it.
    pub(crate) time: Option<Duration>,
}

/// What is known of the codec, and of the pace of the application.
#[derive(Debug, Default)]
pub(crate) struct Experience {
    chooser: Chooser,
    pace: Pace,
    /// Decoders that were looked at.
    decoders: u64,
    /// Times of a GPU that are still to come.
    pub(crate) readings: Vec<Reading>,
    /// Bytes and regions of the latest checkpoint.
    latest: (u64, u64),
}

impl Experience {
    /// Decides for the next checkpoint, which begins `now`; `stalled` is how long saves have waited
    /// so far, and `restores` how many there were.
    pub(crate) fn choose(
        &mut self,
        head: &Head,
        (now, stalled): (Nanos, Nanos),
        restores: u64,
        link: Option<f64>,
    ) -> Option<Picked> {
        self.pace.begins(now, stalled, restores);
        self.decide(&Situation {
            bytes: head.payload_bytes,
            regions: head.regions.len() as u64,
            link,
            lead: Nanos(self.pace.interval as u64),
        })
    }

    /// What the checkpoint gets; `None` for its bytes as they are.
    fn decide(&mut self, situation: &Situation) -> Option<Picked> {
        self.latest = (situation.bytes, situation.regions);
        let Decision { encodes, reason, is_warm } = self.chooser.decide(situation);
        let is_turn = self.chooser.counts().chosen.is_multiple_of(EVERY);
        let is_timed = is_warm && (is_turn || reason == Reason::Trial);
        encodes.then_some(Picked { is_timed })
    }

    /// A checkpoint was saved that was encoded by choice.
    pub(crate) fn learn(&mut self, lesson: &Lesson) {
        self.chooser.saved(lesson.bytes, lesson.stored);
        if let Some(time) = lesson.time {
            self.chooser.encoded(lesson.bytes, nanos(time));
        }
    }

    /// The time that a GPU took is known.
    pub(crate) fn read(&mut self, reading: &Reading, time: Duration) {
        match reading.is_decoder {
            false => self.chooser.encoded(reading.bytes, nanos(time)),
            true => self.chooser.decoded(reading.bytes, nanos(time)),
        }
    }

    /// The host has decoded `bytes` in `time`.
    pub(crate) fn decoded(&mut self, bytes: u64, time: Duration) {
        self.chooser.decoded(bytes, nanos(time));
    }

    /// A GPU is about to decode: whether its time is to be taken. The first call makes what it
    /// needs, and says nothing about the codec.
    pub(crate) fn times_decoder(&mut self) -> bool {
        if self.chooser.latest().is_none() {
            return false;
        }
        self.decoders += 1;
        self.decoders % EVERY == 2
    }

    /// What was decided so far; `None` when nothing was.
    pub(crate) fn stats(&self) -> Option<AutoStats> {
        let latest = said(self.chooser.latest()?);
        let Decisions { stays, keeps_up, not_worth_it, chosen, tried } = self.chooser.counts();
        let (chooser, (bytes, regions)) = (&self.chooser, self.latest);
        let time = |seconds: Option<f64>| seconds.map(|s| Duration::from_secs_f64(s.max(0.0)));
        Some(AutoStats {
            stays,
            keeps_up,
            not_worth_it,
            chosen,
            tried,
            ratio: chooser.ratio(),
            encode: time(chooser.encode_seconds(bytes)),
            decode: time(chooser.decode_seconds(bytes, regions)),
            latest,
        })
    }
}

/// A reason in words.
fn said(reason: Reason) -> &'static str {
    match reason {
        Reason::Stays => "the history stays in the fastest tier",
        Reason::KeepsUp => "the link keeps up with the application",
        Reason::Cheapest => "it costs least, by ratio, codec, link and pace",
        Reason::Trial => "it was tried, to be measured",
    }
}

/// The time between two saves.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    last: Option<Nanos>,
    /// How long saves had waited, and how many restores there were, when the last one began.
    stalled: Nanos,
    restores: u64,
    /// Nanoseconds, without the waits: these are what a codec may spare.
    interval: f64,
    /// The first interval is over, in which much was made for the first time.
    has_begun: bool,
}

impl Pace {
    fn begins(&mut self, now: Nanos, stalled: Nanos, restores: u64) {
        let last = self.last.replace(now).filter(|_| self.restores == restores);
        if let Some(last) = last {
            let interval = now.since(last).since(stalled.since(self.stalled));
            if self.has_begun {
                self.interval = mean(self.interval, interval.0 as f64);
            }
            self.has_begun = true;
        }
        (self.stalled, self.restores) = (stalled, restores);
    }
}

fn mean(old: f64, new: f64) -> f64 {
    if old == 0.0 { new } else { old + NEWEST * (new.min(LONGEST * old) - old) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stays() -> Situation {
        Situation { bytes: 4000, regions: 1, link: None, lead: Nanos(0) }
    }

    #[test]
    fn what_was_saved_teaches_ratio_and_time() {
        let mut experience = Experience::default();
        assert_eq!(experience.stats(), None);
        experience.learn(&Lesson { bytes: 4000, stored: 1000, time: Some(Duration::from_secs(1)) });
        assert_eq!(experience.decide(&stays()), None);
        let stats = experience.stats().unwrap();
        assert_eq!((stats.stays, stats.latest), (1, "the history stays in the fastest tier"));
        assert_eq!((stats.ratio, stats.encode), (4.0, Some(Duration::from_secs(1))));
        assert_eq!((stats.chosen, stats.tried), (0, 0));
    }

    #[test]
    fn only_warm_decoders_are_timed_and_few_of_them() {
        let mut experience = Experience::default();
        assert!(!experience.times_decoder());
        experience.decide(&stays());
        assert_eq!((0..80).filter(|_| experience.times_decoder()).count(), 10);
    }

    #[test]
    fn the_pace_is_the_time_between_saves_without_waits_and_restores() {
        let mut pace = Pace::default();
        let saves = [0, 9000, 9200, 9400];
        saves.into_iter().for_each(|now| pace.begins(Nanos(now), Nanos(0), 0));
        assert_eq!(pace.interval, 200.0);
        pace.begins(Nanos(10_600), Nanos(1000), 0);
        assert_eq!(pace.interval, 200.0);
        pace.begins(Nanos(90_000), Nanos(1000), 7);
        assert_eq!(pace.interval, 200.0);
        // What takes very long once says little.
        pace.begins(Nanos(990_000), Nanos(1000), 7);
        assert_eq!(pace.interval, 350.0);
    }
}
