//! How long things take: one rate and one latency for every link and direction.

use crate::config::LinkConfig;
use crate::types::Nanos;

/// The weight of the newest transfer in the running mean.
const NEWEST: f64 = 0.25;

/// What is known about one direction of one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkModel {
    /// Bytes per second.
    rate: f64,
    latency: Nanos,
    /// When the work that was given to the link so far will be done.
    busy_until: Nanos,
}

impl LinkModel {
    pub fn new(rate: f64, latency: Nanos) -> LinkModel {
        LinkModel { rate: rate.max(1.0), latency, busy_until: Nanos(0) }
    }

    /// Both directions of a link: towards the slower tier, towards the faster one.
    pub fn pair(link: &LinkConfig) -> (LinkModel, LinkModel) {
        (
            LinkModel::new(link.flush_rate, link.latency),
            LinkModel::new(link.prefetch_rate, link.latency),
        )
    }

    /// The time that `bytes` take when the link is idle.
    pub fn duration(&self, bytes: u64) -> Nanos {
        let seconds = bytes as f64 / self.rate;
        self.latency.plus(Nanos((seconds * 1e9) as u64))
    }

    /// Adds work to the link and returns when it will be done.
    pub fn enqueue(&mut self, bytes: u64, now: Nanos) -> Nanos {
        self.busy_until = self.busy_until.max(now).plus(self.duration(bytes));
        self.busy_until
    }

    /// When work added now would be done (`predict_evictable` of Score, Algorithm 1).
    pub fn predict(&self, bytes: u64, now: Nanos) -> Nanos {
        self.busy_until.max(now).plus(self.duration(bytes))
    }

    /// Learns from a finished transfer. Small transfers teach the latency, large ones the rate.
    pub fn learn(&mut self, bytes: u64, took: Nanos) {
        let beyond = took.since(self.latency);
        if bytes == 0 || beyond.0 == 0 {
            self.latency = Nanos(mean(self.latency.0 as f64, took.0 as f64) as u64);
            return;
        }
        let rate = bytes as f64 / (beyond.0 as f64 * 1e-9);
        self.rate = mean(self.rate, rate).max(1.0);
    }

    /// Forgets when the work was estimated to be done. Called when there is none left.
    pub fn idle(&mut self, now: Nanos) {
        self.busy_until = self.busy_until.min(now);
    }

    /// Bytes per second, as learned.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

fn mean(old: f64, new: f64) -> f64 {
    old + (new - old) * NEWEST
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_queues_up_after_work() {
        let mut link = LinkModel::new(1e9, Nanos(0));
        assert_eq!(link.enqueue(1_000_000, Nanos(0)), Nanos(MS));
        assert_eq!(link.enqueue(1_000_000, Nanos(0)), Nanos(2 * MS));
        assert_eq!(link.predict(1_000_000, Nanos(10 * MS)), Nanos(11 * MS));
    }

    #[test]
    fn a_link_without_work_forgets_how_long_it_was_thought_to_take() {
        let mut link = LinkModel::new(1e9, Nanos(0));
        link.enqueue(5_000_000, Nanos(0));
        link.idle(Nanos(MS));
        assert_eq!(link.predict(1_000_000, Nanos(MS)), Nanos(2 * MS));
    }

    #[test]
    fn a_transfer_moves_the_rate_by_a_quarter() {
        let mut link = LinkModel::new(1e9, Nanos(0));
        link.learn(5_000_000, Nanos(MS));
        assert!((link.rate() - 2e9).abs() < 1.0, "{}", link.rate());
    }

    #[test]
    fn the_rate_approaches_what_transfers_show() {
        let mut link = LinkModel::new(1e9, Nanos(0));
        for _ in 0..40 {
            link.learn(4_000_000, Nanos(MS));
        }
        assert!((link.rate() - 4e9).abs() < 1e7, "{}", link.rate());
    }

    #[test]
    fn a_transfer_faster_than_the_latency_shortens_the_latency() {
        let mut link = LinkModel::new(1e9, Nanos(MS));
        link.learn(8, Nanos(MS / 2));
        assert!(link.duration(0) < Nanos(MS));
        assert!((link.rate() - 1e9).abs() < 1.0);
    }

    #[test]
    fn a_rate_of_zero_never_divides_by_zero() {
        let link = LinkModel::new(0.0, Nanos(0));
        assert!(link.duration(10) > Nanos(0));
    }
}
