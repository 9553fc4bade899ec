//! What the spool itself counts: the waits of the application and the work of the links.

use std::time::Duration;

use unspool_core::{Nanos, TierId, TransferKind};
use unspool_transfer::TransferError;

use crate::coding::{CodecCounters, Experience, LaunchStats};
use crate::stats::Stall;
use crate::time::duration;

/// Which call waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Save,
    Restore,
}

impl Call {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Call::Save => "save",
            Call::Restore => "restore",
        }
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    save_stall: Nanos,
    restore_stall: Nanos,
    /// What of both was for kernels.
    kernels: Nanos,
    longest: Option<Stall>,
    links: Vec<LinkCounters>,
    pub(crate) codecs: CodecCounters,
    pub(crate) launches: LaunchStats,
    pub(crate) experience: Experience,
}

/// What is counted for one link: flushes, prefetches.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkCounters {
    busy: [Nanos; 2],
    /// The last failure.
    failure: Option<TransferError>,
}

impl Counters {
    pub(crate) fn new(links: usize) -> Counters {
        Counters { links: vec![LinkCounters::default(); links], ..Counters::default() }
    }

    /// `call` has waited for `time`; `awaited` says for what, if anybody asks.
    pub(crate) fn stalled(
        &mut self,
        call: Call,
        version: i64,
        time: Nanos,
        awaited: impl FnOnce() -> String,
    ) {
        let sum = match call {
            Call::Save => &mut self.save_stall,
            Call::Restore => &mut self.restore_stall,
        };
        *sum = sum.plus(time);
        let time = duration(time);
        if self.longest.as_ref().is_none_or(|longest| longest.time < time) {
            self.longest = Some(Stall { call: call.name(), version, time, awaited: awaited() });
        }
    }

    /// `call` has waited for `time` until its kernels were loaded or compiled.
    pub(crate) fn stalled_for_kernels(&mut self, call: Call, version: i64, time: Nanos) {
        self.kernels = self.kernels.plus(time);
        let awaited = || "the GPU's kernels for its codec to be loaded or compiled".to_owned();
        self.stalled(call, version, time, awaited);
    }

    /// The waits for kernels.
    pub(crate) fn kernels(&self) -> Duration {
        duration(self.kernels)
    }

    pub(crate) fn stall(&self, call: Call) -> Duration {
        duration(match call {
            Call::Save => self.save_stall,
            Call::Restore => self.restore_stall,
        })
    }

    pub(crate) fn longest(&self) -> Option<Stall> {
        self.longest.clone()
    }

    pub(crate) fn link(&self, index: usize) -> &LinkCounters {
        &self.links[index]
    }

    pub(crate) fn moved(&mut self, route: Route, took: Nanos) {
        let link = &mut self.links[route.link()];
        let busy = &mut link.busy[direction(route.kind)];
        *busy = busy.plus(took);
    }

    pub(crate) fn failed(&mut self, link: usize, error: TransferError) {
        self.links[link].failure = Some(error);
    }
}

impl LinkCounters {
    pub(crate) fn busy(&self, kind: TransferKind) -> Duration {
        duration(self.busy[direction(kind)])
    }

    pub(crate) fn failure(&self) -> Option<&TransferError> {
        self.failure.as_ref()
    }
}

/// The way of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) kind: TransferKind,
    pub(crate) from: TierId,
    pub(crate) to: TierId,
}

impl Route {
    /// The link that the core counts it on: the one below the faster tier.
    pub(crate) fn link(self) -> usize {
        usize::from(self.from.0.min(self.to.0))
    }
}

fn direction(kind: TransferKind) -> usize {
    match kind {
        TransferKind::Flush => 0,
        TransferKind::Prefetch => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_summed_by_call_and_the_longest_is_remembered() {
        let mut tally = Counters::new(0);
        tally.stalled(Call::Save, 1, Nanos(5), || "room".to_owned());
        tally.stalled(Call::Restore, 2, Nanos(9), || "bytes".to_owned());
        tally.stalled(Call::Save, 3, Nanos(7), || unreachable!("not the longest"));
        assert_eq!(tally.stall(Call::Save), Duration::from_nanos(12));
        assert_eq!(tally.stall(Call::Restore), Duration::from_nanos(9));
        let longest = tally.longest().unwrap();
        assert_eq!((longest.call, longest.version), ("restore", 2));
        assert_eq!(longest.awaited, "bytes");
    }

    #[test]
    fn waits_for_kernels_are_told_apart_and_are_stalls_of_their_call() {
        let mut tally = Counters::new(0);
        tally.stalled(Call::Save, 1, Nanos(5), || "room".to_owned());
        tally.stalled_for_kernels(Call::Save, 2, Nanos(70));
        tally.stalled_for_kernels(Call::Restore, 2, Nanos(3));
        assert_eq!(tally.kernels(), Duration::from_nanos(73));
        assert_eq!(tally.stall(Call::Save), Duration::from_nanos(75));
        assert_eq!(tally.stall(Call::Restore), Duration::from_nanos(3));
        assert!(tally.longest().unwrap().awaited.contains("kernels"));
    }
}
