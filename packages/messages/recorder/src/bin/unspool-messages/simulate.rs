//! Foretells what a recorded program would take on more ranks and another network.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use unspool_messages::run::RunError;
use unspool_messages::simulate::{
    Asked, Codec, Network, Placement, Recorded, forecast, ranks, time,
};
use unspool_messages::{Events, Run, show};

use crate::options::Words;

/// A run that is to be played.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Simulating {
    pub(crate) run: PathBuf,
    pub(crate) json: bool,
    pub(crate) asked: Asked,
}

/// Reads the words of the command line.
pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Simulating, String> {
    let options = [
        "--ranks",
        "--network",
        "--steps",
        "--ranks-per-node",
        "--rendezvous",
        "--overhead-per-byte",
        "--codec",
    ];
    let words = Words::read(words, &options, &["--json", "--spread"])?;
    let run = words.one("the run that `unspool-messages record` has written")?;
    let network = words.value("--network").ok_or(
        "Say which network with --network L,o,g,G, in nanoseconds, such as --network \
         5300,2300,2000,3.",
    )?;
    let on = words.value("--ranks").ok_or("Say on how many ranks with --ranks, as 256..4096.")?;
    let mut network = Network::parse(network)?;
    let number = |name: &str, usual: u64, least: u64| match words.value(name) {
        None => Ok(usual),
        Some(text) => text
            .parse()
            .ok()
            .filter(|number| (least..=u64::from(u32::MAX)).contains(number))
            .ok_or_else(|| format!("{name} {text}: give a number from {least} on.")),
    };
    network.ranks_per_node = number("--ranks-per-node", 1, 1)? as u32;
    network.rendezvous = number("--rendezvous", network.rendezvous, 0)?;
    let per_byte = words.value("--overhead-per-byte").unwrap_or("0");
    network.overhead_per_byte = time("--overhead-per-byte", per_byte)? * 1000.0;
    let codecs: Result<Vec<Codec>, String> = words.all("--codec").map(Codec::parse).collect();
    let placement = if words.has("--spread") { Placement::Spread } else { Placement::Packed };
    let asked = Asked {
        ranks: ranks(on)?,
        network,
        placement,
        steps: number("--steps", 4, 1)? as u32,
        codecs: codecs?,
    };
    Ok(Simulating { run, json: words.has("--json"), asked })
}

/// The forecast of a run as text.
pub(crate) fn simulate(simulating: Simulating) -> Result<String, String> {
    let path = &simulating.run;
    // How many ranks there are says how much of each is kept.
    let run = read(path, |_, _| ())?;
    let mut recorded = Recorded::of(&run);
    read(path, |rank, events| recorded.take(rank, events))?;
    let told = forecast(&run, recorded, simulating.asked)
        .map_err(|why| format!("{} cannot be played: {why}", path.display()))?;
    Ok(match simulating.json {
        true => show::forecast_json(&run, &told),
        false => show::forecast_text(&run, &told),
    })
}

fn read(path: &Path, events: impl FnMut(u32, Events)) -> Result<Run, String> {
    let file =
        crate::parts::regular(path).map_err(|error| format!("{}: {error}.", path.display()))?;
    Run::read_with(BufReader::new(file), events)
        .map_err(|error: RunError| format!("{} cannot be used: {error}", path.display()))
}
