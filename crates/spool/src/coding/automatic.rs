//! What the choice of a codec by the run itself is fed with, and what comes of it.

use std::time::Duration;

use unspool_codec::choose::{Chooser, Decision, Kept, Reason, Situation};
use unspool_codec::{Codec, Head, NvComp};
use unspool_core::{LinkStats, Nanos, TransferKind};

use super::choice::CodecChoice;
use super::encoded::Encoded;
use super::timing::Reading;
use crate::hub::Hub;
use crate::state::State;
use crate::tally::{Call, nanos};

/// nvCOMP's formats without loss, the quickest first. Twine comes before them all.
const FORMATS: [NvComp; 6] =
    [NvComp::Bitcomp, NvComp::Cascaded, NvComp::Lz4, NvComp::Ans, NvComp::Gdeflate, NvComp::Zstd];

/// The weight of the newest interval in the running mean, and how many times as long as that it
/// may count: a save may wait for a kernel that was never compiled.
const NEWEST: f64 = 0.25;
const LONGEST: f64 = 4.0;

/// After so many transfers the core knows the rate of a link, whatever it took it for at first.
const LEARNED: u64 = 32;

/// One in so many calls of a codec is timed once its time is known.
const EVERY: u64 = 8;

/// What `Choice::Auto` has decided so far, and why.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AutoStats {
    /// Checkpoints that were kept as they are because the history stays in the fastest tier.
    pub stays: u64,
    /// Those that were because the link keeps up with the application.
    pub keeps_up: u64,
    /// Those that were because no codec was worth its time, or none was measured yet.
    pub not_worth_it: u64,
    /// The codecs that may be chosen: those that were tried at least once, or have failed.
    pub codecs: Vec<AutoCodec>,
    /// Why the latest checkpoint got what it got, in words; empty before the first.
    pub latest: &'static str,
}

/// One codec that may be chosen, and what was measured of it lately.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AutoCodec {
    /// The codec.
    pub codec: Codec,
    /// Checkpoints that it was chosen for because it costs least.
    pub chosen: u64,
    /// Checkpoints that it was given in order to be measured.
    pub tried: u64,
    /// Bytes of values for each byte that is stored; 0 before it was measured.
    pub ratio: f64,
    /// How long it takes to encode a checkpoint of the latest size; `None` before it was measured.
    pub encode: Option<Duration>,
    /// How long it takes to decode one; that of the encoder before it was measured.
    pub decode: Option<Duration>,
    /// It has failed here, and is not chosen again.
    pub is_out: bool,
}

/// What a checkpoint was given.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Picked {
    pub(super) index: usize,
    pub(crate) codec: Codec,
    /// Whether it is there to be measured.
    is_trial: bool,
    /// Whether the time of its encoder is to be taken.
    pub(crate) is_timed: bool,
}

/// What a checkpoint has shown that got its codec so.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Lesson {
    pub(super) index: usize,
    /// Bytes of its values, and what is stored of them.
    pub(super) bytes: u64,
    pub(super) stored: u64,
    /// The time of the host in its encoders; `None` where a GPU has encoded it.
    pub(super) time: Option<Duration>,
    /// Its arrays were on a GPU.
    pub(super) is_from_gpu: bool,
}

/// What is known of the codecs, and of the pace of the application.
#[derive(Debug)]
pub(crate) struct Experience {
    chooser: Chooser,
    pace: Pace,
    /// The arrays of the checkpoint that was encoded last were on a GPU.
    pub(super) is_from_gpu: bool,
    /// nvCOMP is being prepared, or was.
    pub(super) is_preparing: bool,
    /// The codec that was decoded last, and how many decoders were looked at.
    decoded: (Option<usize>, u64),
    /// Times that the GPU has still to tell.
    pub(super) readings: Vec<Reading>,
    /// Bytes and regions of the latest checkpoint.
    latest: (u64, u64),
}

impl Default for Experience {
    fn default() -> Experience {
        Experience {
            chooser: Chooser::of(1 + FORMATS.len()),
            pace: Pace::default(),
            is_from_gpu: false,
            is_preparing: false,
            decoded: (None, 0),
            readings: Vec::new(),
            latest: (0, 0),
        }
    }
}

/// The codec of a candidate.
pub(super) fn codec_of(index: usize) -> Codec {
    match index.checked_sub(1).and_then(|format| FORMATS.get(format)) {
        Some(format) => Codec::NvComp(*format),
        None => Codec::Lossless,
    }
}

/// The candidate that is this codec.
pub(super) fn index_of(codec: Codec) -> Option<usize> {
    (0..=FORMATS.len()).find(|index| codec_of(*index) == codec)
}

impl Experience {
    /// What the checkpoint gets.
    fn decide(&mut self, situation: &Situation, can: impl Fn(usize) -> bool) -> Option<Picked> {
        self.latest = (situation.bytes, situation.regions);
        let Decision { pick, reason, is_warm } = self.chooser.decide(situation, can);
        let index = pick?;
        let turn = self.chooser.candidates()[index].chosen().is_multiple_of(EVERY);
        let is_trial = reason == Reason::Trial;
        let is_timed = is_warm && (turn || is_trial);
        Some(Picked { index, codec: codec_of(index), is_trial, is_timed })
    }

    /// A checkpoint was saved with the codec that it was given.
    pub(crate) fn learn(&mut self, lesson: &Lesson) {
        self.is_from_gpu = lesson.is_from_gpu;
        self.chooser.saved(lesson.index, lesson.bytes, lesson.stored);
        if let Some(time) = lesson.time {
            self.chooser.encoded(lesson.index, lesson.bytes, nanos(time));
        }
    }

    /// A GPU has told how long a codec takes.
    pub(super) fn read(&mut self, reading: &Reading, time: Duration) {
        match reading.is_decoder {
            false => self.chooser.encoded(reading.index, reading.bytes, nanos(time)),
            true => self.chooser.decoded(reading.index, reading.bytes, nanos(time)),
        }
    }

    /// The host has decoded `bytes` in `time`.
    pub(super) fn decoded(&mut self, codec: Codec, bytes: u64, time: Duration) {
        if let Some(index) = index_of(codec) {
            self.chooser.decoded(index, bytes, nanos(time));
        }
    }

    /// A GPU is about to decode: whether its time is to be taken, and for which candidate. The
    /// first call of a codec makes what it needs, and tells nothing.
    pub(super) fn decodes(&mut self, codec: Codec) -> Option<usize> {
        let index = index_of(codec).filter(|_| self.chooser.latest().is_some())?;
        let is_warm = self.decoded.0.replace(index) == Some(index);
        self.decoded.1 += 1;
        let is_turn = self.decoded.1 % EVERY == 2;
        (is_warm && is_turn).then_some(index)
    }

    /// A codec does not work here.
    pub(super) fn failed(&mut self, picked: Picked) {
        self.chooser.failed(picked.index);
    }

    /// What was decided so far; `None` when nothing was.
    pub(crate) fn stats(&self) -> Option<AutoStats> {
        let latest = said(self.chooser.latest()?);
        let Kept { stays, keeps_up, cheapest } = self.chooser.kept();
        let codecs = (0..=FORMATS.len()).map(|index| self.codec(index));
        let codecs = codecs.filter(|codec| codec.tried > 0 || codec.is_out).collect();
        Some(AutoStats { stays, keeps_up, not_worth_it: cheapest, codecs, latest })
    }

    fn codec(&self, index: usize) -> AutoCodec {
        let (candidate, (bytes, regions)) = (&self.chooser.candidates()[index], self.latest);
        let time = |seconds: Option<f64>| seconds.map(|s| Duration::from_secs_f64(s.max(0.0)));
        AutoCodec {
            codec: codec_of(index),
            chosen: candidate.chosen(),
            tried: candidate.tried(),
            ratio: candidate.ratio(),
            encode: time(candidate.encode_seconds(bytes)),
            decode: time(candidate.decode_seconds(bytes, regions)),
            is_out: candidate.is_out(),
        }
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

impl Hub {
    /// The codec for the regions of a checkpoint that leave it to the run; `None` for their bytes
    /// as they are.
    pub(crate) fn choose(&self, head: &Head, codecs: &CodecChoice) -> Option<Picked> {
        self.collect_readings();
        let offer = self.offer(head, codecs);
        let now = self.clock.now();
        let mut state = self.state();
        let core = state.brain.core().stats();
        let link = slowest_link(&state);
        let stalled = nanos(state.tally.stall(Call::Save));
        let experience = &mut state.tally.experience;
        experience.pace.begins(now, stalled, core.restores);
        let situation = Situation {
            bytes: head.payload_bytes,
            regions: head.regions.len() as u64,
            link,
            lead: Nanos(experience.pace.interval as u64),
        };
        let picked = experience.decide(&situation, |index| match codec_of(index) {
            Codec::NvComp(format) => offer.has(format),
            _ => true,
        });
        drop(state);
        let needs_memory =
            |picked: &Picked| picked.is_trial && matches!(picked.codec, Codec::NvComp(_));
        // What is too large for the memory that is left is seen before anything is enqueued.
        picked.filter(|picked| !needs_memory(picked) || offer.has_memory(head))
    }

    /// The codec that the run has chosen for a checkpoint does not work: it gets none, and the
    /// codec is not chosen again. `false` when the user has chosen it.
    pub(super) fn give_up_choice(&self, encoded: &mut Encoded, why: &str) -> bool {
        let Some(picked) = encoded.plan().auto.filter(|_| encoded.plan().needs_gpu()) else {
            return false;
        };
        if encoded.keep_as_it_is().is_err() {
            return false;
        }
        self.state().tally.experience.failed(picked);
        self.note_once(&format!("{:?} is not chosen any more: {why}", picked.codec));
        true
    }
}

/// The rate of the slowest link that the history goes over, once the fastest tier is half full.
fn slowest_link(state: &State) -> Option<f64> {
    let core = state.brain.core().stats();
    let first = core.tiers.first()?;
    let moves = core.links.iter().any(|link| link.flush.transfers > 0);
    if !moves && first.used < first.capacity / 2 {
        return None;
    }
    let rate = |(index, link): (usize, &LinkStats)| {
        let busy = state.tally.link(index).busy(TransferKind::Flush).as_secs_f64();
        let is_new = (1..LEARNED).contains(&link.flush.transfers) && busy > 0.0;
        if is_new { link.flush.bytes as f64 / busy } else { link.flush.rate }
    };
    core.links.iter().enumerate().map(rate).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(index: usize, stored: u64) -> Lesson {
        let time = Some(Duration::from_secs(1));
        Lesson { index, bytes: 4000, stored, time, is_from_gpu: index > 0 }
    }

    #[test]
    fn candidates_are_twine_and_what_nvcomp_does_without_loss() {
        assert_eq!((codec_of(0), index_of(Codec::Lossless)), (Codec::Lossless, Some(0)));
        for (index, format) in (1..).zip(FORMATS) {
            assert_eq!(codec_of(index), Codec::NvComp(format));
            assert_eq!(index_of(Codec::NvComp(format)), Some(index));
        }
        assert_eq!(index_of(Codec::NvComp(NvComp::BitcompLossy(0.1))), None);
        assert_eq!(index_of(Codec::Raw), None);
    }

    #[test]
    fn what_was_saved_teaches_ratio_and_time() {
        let mut experience = Experience::default();
        assert_eq!(experience.stats(), None);
        experience.learn(&lesson(0, 1000));
        experience.learn(&lesson(3, 500));
        assert!(experience.is_from_gpu);
        let situation = Situation { bytes: 4000, regions: 1, link: None, lead: Nanos(0) };
        assert_eq!(experience.decide(&situation, |_| true), None);
        let stats = experience.stats().unwrap();
        assert_eq!((stats.stays, stats.latest), (1, "the history stays in the fastest tier"));
        let [twine, lz4] = [0, 3].map(|index| experience.codec(index));
        assert_eq!((twine.ratio, lz4.ratio, lz4.codec), (4.0, 8.0, codec_of(3)));
        assert_eq!(twine.encode, Some(Duration::from_secs(1)));
    }

    #[test]
    fn only_warm_decoders_are_timed_and_few_of_them() {
        let mut experience = Experience::default();
        assert_eq!(experience.decodes(Codec::Lossless), None);
        let situation = Situation { bytes: 4000, regions: 1, link: None, lead: Nanos(0) };
        experience.decide(&situation, |_| true);
        let timed = |experience: &mut Experience, codec| {
            (0..80).filter(|_| experience.decodes(codec).is_some()).count()
        };
        assert_eq!(timed(&mut experience, Codec::Lossless), 10);
        assert_eq!(timed(&mut experience, Codec::Raw), 0);
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
