//! What the choice of a codec by the run itself is fed with.

use std::time::Duration;

use unspool_codec::{Codec, CodecId};
use unspool_core::Nanos;
use unspool_core::choose::{Measured, Pick, Situation};

use super::figures::RegionCoding;
use crate::hub::Hub;
use crate::state::State;

/// The weight of the newest checkpoint in the running means.
const NEWEST: f64 = 0.25;

/// What was measured of the lossless codec, and of the pace of the application.
#[derive(Clone, Debug, Default)]
pub(crate) struct Experience {
    twine: Measured,
    last_save: Option<Nanos>,
    /// The time between two saves, in nanoseconds.
    interval: f64,
}

impl Experience {
    /// A checkpoint with these regions was saved; its encoders took `time`.
    pub(crate) fn saved(&mut self, regions: &[RegionCoding], time: Duration) {
        let is_lossless = |region: &&RegionCoding| {
            let error = region.achieved.map_or(0.0, |achieved| achieved.max_error);
            region.codec == CodecId::Twine && error == 0.0
        };
        let lossless = || regions.iter().filter(is_lossless);
        let bytes: u64 = lossless().map(|region| region.bytes).sum();
        let stored: u64 = lossless().map(|region| region.stored).sum();
        if bytes == 0 || stored == 0 {
            return;
        }
        let twine = &mut self.twine;
        twine.trials += 1;
        twine.ratio = mean(twine.ratio, bytes as f64 / stored as f64);
        twine.encode = mean(twine.encode, bytes as f64 / time.as_secs_f64().max(1e-9));
    }

    /// `bytes` of values were decoded in `time`.
    pub(crate) fn decoded(&mut self, bytes: u64, time: Duration) {
        self.twine.decode = mean(self.twine.decode, bytes as f64 / time.as_secs_f64().max(1e-9));
    }

    /// A save begins.
    fn begins(&mut self, now: Nanos) {
        if let Some(last) = self.last_save.replace(now) {
            self.interval = mean(self.interval, now.since(last).0 as f64);
        }
    }
}

fn mean(old: f64, new: f64) -> f64 {
    if old == 0.0 { new } else { old + NEWEST * (new - old) }
}

impl Hub {
    /// The codec for the regions of a checkpoint of `bytes` bytes that leave it to the run.
    pub(crate) fn choose(&self, bytes: u64) -> Codec {
        let now = self.clock.now();
        let mut state = self.state();
        state.tally.experience.begins(now);
        let core = state.brain.core().stats();
        let experience = &state.tally.experience;
        let situation = Situation {
            bytes,
            saved: core.saves,
            link: slowest_link(&state),
            lead: Nanos(experience.interval as u64),
            twine: experience.twine,
            nvcomp: None,
        };
        match situation.pick() {
            Pick::Raw => Codec::Raw,
            Pick::Twine | Pick::NvComp => Codec::Lossless,
        }
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
    core.links.iter().map(|link| link.flush.rate).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use unspool_codec::Achieved;

    use super::*;

    fn region(codec: CodecId, max_error: f64) -> RegionCoding {
        let achieved = Some(Achieved { max_error, ..Achieved::default() });
        RegionCoding { name: "u".to_owned(), codec, bytes: 4000, stored: 1000, achieved }
    }

    #[test]
    fn only_what_was_encoded_without_loss_teaches() {
        let mut experience = Experience::default();
        let second = Duration::from_secs(1);
        experience.saved(&[region(CodecId::Twine, 0.1), region(CodecId::Raw, 0.0)], second);
        assert_eq!(experience.twine, Measured::default());
        experience.saved(&[region(CodecId::Twine, 0.0)], second);
        assert_eq!((experience.twine.ratio, experience.twine.encode), (4.0, 4000.0));
    }

    #[test]
    fn the_pace_is_the_time_between_saves() {
        let mut experience = Experience::default();
        [100, 300, 500].into_iter().for_each(|now| experience.begins(Nanos(now)));
        assert_eq!(experience.interval, 200.0);
    }
}
