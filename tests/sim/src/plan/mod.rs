//! What a run is made of: everything that chance decides before it begins. A plan is plain data,
//! so that the shrinker can take pieces out of it.

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

/// One run of the whole system.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// The settings of the core.
    pub config: Config,
    /// How fast everything really is.
    pub machine: Machine,
    /// What goes wrong.
    pub faults: Faults,
    /// How the application compresses what it saves, if it does.
    pub codec: Option<Codec>,
    /// What the application does; between two lives the machine crashes.
    pub lives: Vec<Life>,
    /// Whether memory and stores hold bytes; without them gigabytes cost nothing.
    pub content: bool,
    /// A bug to plant.
    pub canary: Option<Canary>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Plan {
        let mut random = Random::of(seed, Topic::Stack, 0);
        let config = stack::config(&mut random);
        let machine = stack::machine(&mut random, &config);
        let faults = faults::faults(&mut Random::of(seed, Topic::Faults, 0));
        let codec = codec::codec(&mut Random::of(seed, Topic::Codec, 0));
        let lives = workload::lives(&mut Random::of(seed, Topic::Script, 0), &config);
        Plan { seed, config, machine, faults, codec, lives, content: true, canary: None }
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
        writeln!(f, "{:?}", self.faults)?;
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
