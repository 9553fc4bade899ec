//! Tests that look inside, or that need tiers which fail and wait on command.

#[path = "../../tests/common/mod.rs"]
mod common;

mod closing;
mod faults;
mod model;
mod records;
mod waits;

use std::sync::Arc;

use tempfile::TempDir;
use unspool_core::{TierKind, Version};
use unspool_testkit::{Faulty, Gate, Gated, Operation};
use unspool_tiers::{AnyTier, Arena, Disk, DiskOptions};
use unspool_transfer::{Clock, ManualClock, SystemClock};

use crate::runtime::shared::{Shared, SharedParts};
use crate::runtime::stack::Stack;
use crate::{DiskSettings, Settings, Spool};

/// A spool whose disk fails and waits on command.
struct Rig {
    spool: Spool,
    faults: Arc<Faulty>,
    gated: Arc<Gated>,
    clock: Arc<ManualClock>,
    dir: TempDir,
}

/// What a rig is made of.
struct Plan {
    settings: Settings,
    /// Time stands still unless the test moves it.
    manual_clock: bool,
    /// The process that the spool believes to have been opened by.
    process: u32,
}

impl Default for Plan {
    fn default() -> Self {
        let settings = Settings { timeout: common::PATIENCE, ..Settings::default() };
        Plan { settings, manual_clock: false, process: std::process::id() }
    }
}

impl Plan {
    fn arenas(device: Option<u64>, host: Option<u64>) -> Plan {
        let plan = Plan::default();
        Plan { settings: Settings { device, host, ..plan.settings }, ..plan }
    }

    fn with(mut self, change: common::Change) -> Plan {
        change(&mut self.settings);
        self
    }

    fn with_manual_clock(self) -> Plan {
        Plan { manual_clock: true, ..self }
    }

    fn build(self) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        self.build_in(dir)
    }

    fn build_in(mut self, dir: TempDir) -> Rig {
        let clock = Arc::new(ManualClock::default());
        let durable = self.settings.disk.as_ref().is_some_and(|disk| disk.durable);
        let capacity = self.settings.disk.as_ref().and_then(|disk| disk.capacity);
        let compress = self.settings.disk.as_ref().and_then(|disk| disk.compress);
        let disk = DiskSettings { durable, capacity, compress, ..DiskSettings::new(dir.path()) };
        self.settings.disk = Some(disk);
        let mut options = DiskOptions::new(dir.path());
        (options.durable, options.capacity) = (durable, capacity);
        let disk = Arc::new(Disk::open(options).unwrap());
        let faults = Arc::new(Faulty::new(disk.clone()));
        let gated = Arc::new(Gated::new(faults.clone()));
        let mut tiers: Vec<AnyTier> = Vec::new();
        let (device, host) = (self.settings.device, self.settings.host);
        for (kind, bytes) in [(TierKind::Device, device), (TierKind::Host, host)] {
            tiers.extend(bytes.map(|n| AnyTier::Arena(Arena::new(kind, n).unwrap())));
        }
        tiers.push(AnyTier::Store(gated.clone()));
        let time: Arc<dyn Clock> =
            if self.manual_clock { clock.clone() } else { Arc::new(SystemClock::default()) };
        let stack = Stack { tiers, disk: Some(disk), gpu: None, order: None };
        let parts = SharedParts { stack, clock: time, process: self.process };
        let spool = Spool::on(Shared::start(self.settings, parts).unwrap()).unwrap();
        Rig { spool, faults, gated, clock, dir }
    }
}

impl Rig {
    fn gate(&self, operation: Operation) -> Gate {
        self.gated.gate(operation)
    }

    fn save(&self, version: i64, len: usize) -> Result<(), crate::Error> {
        common::save(&self.spool, version, len)
    }

    fn restore(&self, version: i64, len: usize) -> Result<(), crate::Error> {
        common::restore(&self.spool, version, len)
    }
}

/// What must hold whenever no call is under way.
fn assert_consistent(spool: &Spool) {
    let state = spool.shared().state();
    state.driver.core().assert_invariants();
    assert!(!state.stepping);
    for (version, id) in state.checkpoints() {
        let frame = state.frames.frame(id);
        let named = frame.is_some_and(|frame| Version(frame.head().version) == version);
        assert!(named, "{version:?} is in the frame index under its id");
    }
    assert_eq!(state.frames.len(), state.checkpoints().count(), "nothing else is kept");
    assert_eq!(state.waiting(), 0, "no call waits");
}
