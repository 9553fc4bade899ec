//! The plan of a run: everything that is decided at random before it begins. A plan is plain data,
//! so that the shrinker can remove parts of it.

pub mod codec;
pub mod faults;
pub mod script;
pub mod stack;
pub mod workload;

use std::fmt;

use unspool_core::Config;

use crate::canary::Canary;
use crate::plan::codec::Codec;
use crate::plan::faults::Faults;
use crate::plan::script::{Life, Script};
use crate::plan::stack::Machine;
use crate::random::{Random, Topic};

/// The plan of one run of the whole system.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Seed of all random decisions.
    pub seed: u64,
    /// The settings of the core.
    pub config: Config,
    /// Actual speeds of the machine.
    pub machine: Machine,
    /// Whether restores are announced from what earlier ones were like.
    pub learns: bool,
    /// Injected faults.
    pub faults: Faults,
    /// The compression of the application's saves, if any.
    pub codec: Option<Codec>,
    /// The scripts of the application; between two lives the machine crashes.
    pub lives: Vec<Life>,
    /// Whether memory and stores hold bytes; without them gigabytes cost nothing.
    pub content: bool,
    /// A planted bug.
    pub canary: Option<Canary>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Plan {
        let mut random = Random::of(seed, Topic::Stack, 0);
        let mut config = stack::config(&mut random);
        config.durable = Random::of(seed, Topic::Learning, 1).chance(0.5);
        let machine = stack::machine(&mut random, &config);
        let faults = faults::faults(&mut Random::of(seed, Topic::Faults, 0));
        let codec = codec::codec(&mut Random::of(seed, Topic::Codec, 0));
        let lives = workload::lives(&mut Random::of(seed, Topic::Script, 0), &config);
        let drawn = Random::of(seed, Topic::Learning, 0).chance(0.5);
        let learns = drawn && !config.discard_after_restore;
        Plan { seed, config, machine, learns, faults, codec, lives, content: true, canary: None }
    }

    /// All scripts of all lives.
    pub fn scripts_mut(&mut self) -> impl Iterator<Item = &mut Script> {
        self.lives.iter_mut().flat_map(|life| &mut life.threads)
    }

    /// The number of steps of all scripts.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.lives.iter().flat_map(|life| &life.threads).map(|script| script.steps.len()).sum()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "{:#?}", self.config)?;
        writeln!(f, "{:?}", self.machine)?;
        writeln!(f, "learns {}, {:?}", self.learns, self.faults)?;
        self.codec.iter().try_for_each(|codec| writeln!(f, "{codec:?}"))?;
        for (number, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}, crash after {:?} events", life.crash_after)?;
            for (thread, script) in life.threads.iter().enumerate() {
                writeln!(f, "  thread {thread}")?;
                script.steps.iter().try_for_each(|step| writeln!(f, "    {step}"))?;
            }
        }
        Ok(())
    }
}
