//! What the core counts. Plain data; times and stalls are measured by the spool.

use alloc::vec::Vec;

use crate::types::{TierId, TierKind};

/// The counters of a core since it was made.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CoreStats {
    /// Saves that were completed.
    pub saves: u64,
    /// Payload bytes of completed saves.
    pub saved_bytes: u64,
    /// Restores that were served.
    pub restores: u64,
    /// Payload bytes of served restores.
    pub restored_bytes: u64,
    /// Restores that a hint had announced.
    pub hinted_restores: u64,
    /// Checkpoints that were discarded, by the user or after their last restore.
    pub discards: u64,
    /// Unread prefetches that were given up because a save would have failed otherwise.
    pub reclaims: u64,
    /// Entries that the restore order queue holds now.
    pub hints: u64,
    /// For every restore that a hint had announced: how many of the restores after it, without a
    /// break, had their bytes ready in the fastest tier (the prefetch distance of Score, section
    /// 5.3.5). `lead[n]` counts the restores with a lead of `n`.
    pub lead: Vec<u64>,
    /// One entry a tier, fastest first.
    pub tiers: Vec<TierStats>,
    /// `links[i]` lies between tier `i` and tier `i + 1`.
    pub links: Vec<LinkStats>,
}

/// The counters of one tier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TierStats {
    /// What it is made of.
    pub kind: TierKind,
    /// Bytes that it may hold.
    pub capacity: u64,
    /// Bytes that are held or reserved, alignment included.
    pub used: u64,
    /// The most bytes that were ever held or reserved.
    pub peak: u64,
    /// Copies in it now.
    pub copies: u64,
    /// Copies that were evicted to make room.
    pub evictions: u64,
    /// Restores that were served from it.
    pub hits: u64,
}

/// The counters of one link: the way into the tier below, and back.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkStats {
    /// Towards the slower tier.
    pub flush: DirectionStats,
    /// Towards the faster tier.
    pub prefetch: DirectionStats,
}

/// The counters of one direction of a link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DirectionStats {
    /// Transfers that were completed.
    pub transfers: u64,
    /// Payload bytes of completed transfers.
    pub bytes: u64,
    /// Transfers that were cancelled, in time or not.
    pub cancelled: u64,
    /// Transfers that failed.
    pub failed: u64,
    /// Transfers that were tried again after a failure.
    pub retried: u64,
    /// Flushes that were never started because their checkpoint was consumed first.
    pub skipped: u64,
    /// The rate that the time model has learned, in bytes per second.
    pub rate: f64,
    /// Transfers in flight now.
    pub in_flight: u32,
}

/// The mean, the median and the smallest prefetch lead.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lead {
    /// Restores that were counted.
    pub samples: u64,
    /// The mean.
    pub mean: f64,
    /// The lower median.
    pub median: u64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl CoreStats {
    /// The distribution of [`CoreStats::lead`] in five numbers.
    #[must_use]
    pub fn lead_summary(&self) -> Lead {
        let samples: u64 = self.lead.iter().sum();
        if samples == 0 {
            return Lead::default();
        }
        let weighted = |(n, count): (usize, &u64)| n as f64 * *count as f64;
        Lead {
            samples,
            mean: self.lead.iter().enumerate().map(weighted).sum::<f64>() / samples as f64,
            median: self.lead_quantile(samples.div_ceil(2)),
            min: self.lead_quantile(1),
            max: self.lead_quantile(samples),
        }
    }

    /// The lead of the `rank`-th restore when they are sorted by lead, from 1.
    fn lead_quantile(&self, rank: u64) -> u64 {
        let mut seen = 0;
        for (lead, count) in self.lead.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return lead as u64;
            }
        }
        0
    }

    pub(crate) fn count_lead(&mut self, lead: usize) {
        if self.lead.len() <= lead {
            self.lead.resize(lead + 1, 0);
        }
        self.lead[lead] += 1;
    }

    pub(crate) fn tier(&mut self, tier: TierId) -> &mut TierStats {
        &mut self.tiers[usize::from(tier.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_leads_is_that_of_the_sorted_samples() {
        let mut stats = CoreStats::default();
        [0, 3, 3, 9].into_iter().for_each(|lead| stats.count_lead(lead));
        let lead = stats.lead_summary();
        assert_eq!((lead.samples, lead.min, lead.median, lead.max), (4, 0, 3, 9));
        assert!((lead.mean - 3.75).abs() < 1e-12);
    }

    #[test]
    fn without_restores_the_summary_is_zero() {
        assert_eq!(CoreStats::default().lead_summary(), Lead::default());
    }
}
