//! What encoding has brought and cost, by region and by codec.

use std::time::Duration;

use unspool_codec::{Achieved, CodecId};

use crate::figure::figures;

/// What became of one region of a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionCoding {
    /// The name of the region.
    pub name: String,
    /// The codec of its stored bytes.
    pub codec: CodecId,
    /// Bytes of its values.
    pub bytes: u64,
    /// Bytes that are stored of it.
    pub stored: u64,
    /// The error that the encoder made; `None` where it is not known: zfp, and frames of an earlier
    /// run.
    pub achieved: Option<Achieved>,
}

/// What one codec has done.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CodecStats {
    /// The codec.
    pub codec: CodecId,
    /// Regions that were encoded and saved.
    pub encodes: u64,
    /// Bytes of the values of those.
    pub raw_bytes: u64,
    /// Bytes that were stored of those.
    pub stored_bytes: u64,
    /// The errors of those, as far as they are known.
    pub achieved: Achieved,
    /// Time of the host in encoders; on a GPU the time to enqueue them.
    pub encode_time: Duration,
    /// Regions that were decoded.
    pub decodes: u64,
    /// Time of the host in decoders; on a GPU the time to enqueue them.
    pub decode_time: Duration,
}

figures!(CodecStats:
    encodes decodes raw_bytes stored_bytes;
    encode_seconds = encode_time
    decode_seconds = decode_time
);

impl CodecStats {
    /// Bytes of values for each byte that is stored; 1 before anything was saved.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.stored_bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.stored_bytes as f64 }
    }
}

/// The counters, by codec.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodecCounters {
    codecs: Vec<CodecStats>,
}

impl CodecCounters {
    /// The codecs that were used, by their number.
    pub(crate) fn stats(&self) -> Vec<CodecStats> {
        let mut codecs = self.codecs.clone();
        codecs.sort_by_key(|stats| stats.codec);
        codecs
    }

    /// A checkpoint with these regions was saved; its encoders took `time`.
    pub(crate) fn saved(&mut self, regions: &[RegionCoding], time: Duration) {
        let bytes: u64 = regions.iter().filter(|r| r.codec != CodecId::Raw).map(|r| r.bytes).sum();
        for region in regions {
            let stats = self.of(region.codec);
            stats.encodes += 1;
            stats.raw_bytes += region.bytes;
            stats.stored_bytes += region.stored;
            stats.achieved = stats.achieved.and(region.achieved.unwrap_or_default());
            if region.codec != CodecId::Raw && bytes > 0 {
                stats.encode_time += time.mul_f64(region.bytes as f64 / bytes as f64);
            }
        }
    }

    /// A region was decoded.
    pub(crate) fn decoded(&mut self, codec: CodecId, time: Duration) {
        let stats = self.of(codec);
        stats.decodes += 1;
        stats.decode_time += time;
    }

    fn of(&mut self, codec: CodecId) -> &mut CodecStats {
        let index = self.codecs.iter().position(|stats| stats.codec == codec);
        let index = index.unwrap_or_else(|| {
            self.codecs.push(CodecStats { codec, ..CodecStats::default() });
            self.codecs.len() - 1
        });
        &mut self.codecs[index]
    }
}

/// How checkpoints of a GPU were launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchStats {
    /// Calls of encoders: each is one launch, or a few where large arrays have different forms.
    pub launches: u64,
    /// Checkpoints that they took.
    pub checkpoints: u64,
    /// The most of one launch.
    pub most: u64,
}

impl LaunchStats {
    pub(crate) fn add(&mut self, checkpoints: u64) {
        self.launches += 1;
        self.checkpoints += checkpoints;
        self.most = self.most.max(checkpoints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coding(codec: CodecId, bytes: u64, stored: u64, max_error: f64) -> RegionCoding {
        let achieved = Some(Achieved { max_error, values: bytes / 4, ..Achieved::default() });
        RegionCoding { name: "u".to_owned(), codec, bytes, stored, achieved }
    }

    #[test]
    fn regions_are_summed_by_codec_and_the_largest_error_is_kept() {
        let mut tally = CodecCounters::default();
        let regions = [
            coding(CodecId::Twine, 400, 100, 0.5),
            coding(CodecId::Raw, 40, 40, 0.0),
            coding(CodecId::Twine, 600, 100, 0.25),
        ];
        tally.saved(&regions, Duration::from_millis(10));
        tally.decoded(CodecId::Twine, Duration::from_millis(3));
        let stats = tally.stats();
        assert_eq!(stats.len(), 2);
        let (raw, twine) = (stats[0], stats[1]);
        assert_eq!((raw.codec, raw.encodes, raw.encode_time), (CodecId::Raw, 1, Duration::ZERO));
        assert_eq!((twine.encodes, twine.decodes, twine.ratio()), (2, 1, 5.0));
        assert_eq!((twine.achieved.max_error, twine.achieved.values), (0.5, 250));
        assert_eq!(twine.encode_time, Duration::from_millis(10));
        assert_eq!(CodecStats::default().ratio(), 1.0);
    }
}
