//! How a client is made: its configuration, its spool, and what all ranks agree on.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::time::SystemTime;

use unspool::auto::{self, Picked};
use unspool::{Codecs, Error, Settings, Spec};
use unspool_restart::{Alone, Call, Exchanges, Ranks, Run};

use crate::client::Client;
use crate::config::{self, Config, MOST_BYTES, Tier};
use crate::console::Console;
use crate::mpi::Mpi;
use crate::names;
use crate::parts::{Parts, Who, text};

/// A client of one rank of a communicator, on all of them.
pub(crate) fn ranks(mpi: Mpi, path: &str) -> Result<Client, String> {
    let who = Who::Rank { rank: mpi.rank(), size: mpi.size() };
    opened(path, who, Box::new(mpi))
}

/// A client that stands alone.
pub(crate) fn single(id: u32, path: &str) -> Result<Client, String> {
    opened(path, Who::Single(id), Box::new(Alone))
}

fn opened(path: &str, who: Who, ranks: Box<dyn Ranks + Send>) -> Result<Client, String> {
    let exchanges = Exchanges::default();
    let config = read(path);
    let timeout = config.as_ref().map_or(std::time::Duration::from_secs(300), |c| c.timeout);
    let parts = config.and_then(|config| Ok((parts(&config, who)?, config)));
    let said = match &parts {
        Ok(_) => [&[0][..], &draw().0.to_le_bytes()].concat(),
        Err(why) => [&[1][..], why.as_bytes()].concat(),
    };
    let all = exchanges.all(&*ranks, Call::Open, &said, timeout);
    let ((mut parts, found, notes), config) = parts?;
    parts.run = run_of(&all.map_err(text)?)?;
    let console = Console::of(who.id(), config.log_prefix.as_deref());
    if who.rank_of().0 == 0 {
        config.notes.iter().for_each(|note| console.say(note));
    }
    notes.iter().for_each(|note| console.say(note));
    Client::new(config, console, ranks, exchanges, parts, found)
}

/// What the configuration file says.
fn read(path: &str) -> Result<Config, String> {
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|cause| {
        format!(
            "The configuration file {path} cannot be read: {cause}. Give the path of a file with \
             `scratch`, `persistent` and `mode`."
        )
    })?;
    config::parse(path, &bytes)
}

type Opened = (Parts, crate::parts::Found, Vec<String>);

fn parts(config: &Config, who: Who) -> Result<Opened, String> {
    let mut settings = Settings {
        timeout: config.timeout,
        verify: config.chksum,
        rates: unspool::rates_file(),
        codec: Codecs::all(if config.lossless { Spec::Lossless } else { Spec::Raw }),
        ..Settings::default()
    };
    // What was picked keeps the context of the device until the spool has it.
    let mut picks = Vec::new();
    let mut bytes = |tier, pick: &dyn Fn() -> Result<Picked, Error>| {
        Ok::<_, String>(match tier {
            Tier::None => None,
            Tier::Bytes(bytes) => Some(bytes),
            Tier::Auto => {
                picks.push(pick().map_err(text)?);
                picks.last().map(|picked| picked.bytes)
            }
        })
    };
    settings.device = bytes(config.device, &|| auto::device(&settings.on))?;
    settings.host = bytes(config.host, &|| auto::host(&settings))?;
    Parts::open(config, who, settings)
}

/// A number of a run that is larger than those of earlier ones.
fn draw() -> Run {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |since| since.as_nanos() as u64);
    names::run(nanoseconds, RandomState::new().build_hasher().finish())
}

/// The run of rank 0, when all ranks have opened their parts.
fn run_of(all: &[Vec<u8>]) -> Result<Run, String> {
    for (rank, said) in all.iter().enumerate() {
        if let Some((1, why)) = said.split_first() {
            let why = String::from_utf8_lossy(why);
            return Err(format!("Rank {rank} could not begin: {why}"));
        }
    }
    let first = all.first().and_then(|said| said.get(1..)?.try_into().ok());
    let run = first.map(|bytes| Run(u128::from_le_bytes(bytes)));
    run.ok_or_else(|| "Rank 0 said what this version does not understand.".to_owned())
}
