//! What is asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use unspool_messages::show::network;

use crate::run::{self, Running};
use crate::simulate::{self, Simulating};
use crate::size::size;

/// What the command can do.
pub(crate) const HELP: &str = "\
usage:
  unspool-messages record [-o RUN.msg] [--samples 16MiB] [--events 65536] [--analysis 30]
                          [--library FILE] -- mpirun -n 4 ./program ...
      Runs a program and records its messages. --samples is what each rank keeps of them,
      --events how many steps of each rank; --analysis is how many seconds are spent on coding
      the samples when the program is over. With Open MPI on several machines, give mpirun
      `-x LD_PRELOAD -x LD_AUDIT -x UNSPOOL_MESSAGES_PARTS` too, and -o in a folder that all share.
  unspool-messages merge RUN.msg.parts [-o RUN.msg] [--analysis 30]
      Makes a run of the parts that a recording has left which was itself cut off.
  unspool-messages report RUN.msg [-o PAGE.html] [--json] [--network 10GB/s]
      Says what the messages are and whether coding them would pay.
  unspool-messages run --plan RUN.msg --network 1GB/s [--threshold 64KiB] [--memory 256MiB]
                       [--bound TAG=1e-6]... [--library FILE] -- mpirun -n 4 ./program ...
      Runs the program that was recorded, on as many ranks, and codes without loss those of its
      messages of at least --threshold for which that pays on this network. --memory is what a
      rank keeps at most of messages that were sent to it. With Open MPI on several machines, give
      mpirun `-x LD_PRELOAD -x LD_AUDIT -x UNSPOOL_MESSAGES_PLAN`.
      --bound lets messages with this tag arrive with a small error, so that the program's results
      change: each float that is received is within this part of the range (largest
      less smallest value) of its own message of the float that was sent. NaN and infinities are
      exact, and all that is not floats by its datatype. Of the bounds that were measured, 1e-6 and
      1e-4, the one that pays most and is no larger is taken.
  unspool-messages simulate RUN.msg --ranks 256..4096 --network L,o,g,G[,TOPOLOGY] [--json]
                            [--ranks-per-node 1] [--spread] [--steps 4] [--codec NS[,FACTOR]]...
                            [--rendezvous 32768] [--overhead-per-byte 0]
      Says what a step of the program would take on more ranks and another network, plain and
      coded. L, o, g and G are nanoseconds and nanoseconds a byte, TOPOLOGY is crossbar,
      fattree:NODES:TAPER, torus or torus:8x8x4. Ranks are copies of those that were recorded,
      side by side or, with --spread, far apart. --codec adds one that takes NS nanoseconds a
      byte on either side and saves FACTOR of the bytes.
";

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Command {
    Help,
    Record(Recording),
    Merge(Merging),
    Report(Reporting),
    Run(Running),
    Simulate(Simulating),
}

/// A program to be recorded.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Recording {
    pub(crate) output: PathBuf,
    pub(crate) samples: u64,
    pub(crate) events: u64,
    pub(crate) time: Duration,
    pub(crate) listener: Option<PathBuf>,
    pub(crate) program: Vec<String>,
}

/// Parts to be put together.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Merging {
    pub(crate) folder: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) time: Duration,
}

/// A run to be reported on.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reporting {
    pub(crate) run: PathBuf,
    pub(crate) page: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) network: Option<f64>,
}

/// The words of an option that has a value, and those that stand alone.
#[derive(Default)]
pub(crate) struct Words {
    values: Vec<(String, String)>,
    alone: Vec<String>,
    flags: Vec<String>,
    program: Vec<String>,
}

impl Words {
    pub(crate) fn read(
        mut words: impl Iterator<Item = String>,
        with_value: &[&str],
        flags: &[&str],
    ) -> Result<Words, String> {
        let mut read = Words::default();
        while let Some(word) = words.next() {
            if word == "--" {
                read.program = words.collect();
                break;
            } else if with_value.contains(&word.as_str()) {
                let value = words.next().ok_or_else(|| format!("{word} has no value."))?;
                read.values.push((word, value));
            } else if flags.contains(&word.as_str()) {
                read.flags.push(word);
            } else if word.starts_with('-') {
                return Err(format!("{word} is not an option here."));
            } else {
                read.alone.push(word);
            }
        }
        Ok(read)
    }

    /// The last value that was given for an option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(word, _)| word == name).map(|(_, value)| value.as_str())
    }

    /// All of them.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(word, _)| word == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|word| word == flag)
    }

    /// The path that was given for an option.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.value(name).map(PathBuf::from)
    }

    fn seconds(&self) -> Result<Duration, String> {
        let text = self.value("--analysis").unwrap_or("30");
        let seconds =
            text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.ok_or_else(|| format!("--analysis {text}: give a number of seconds."))
    }

    /// The words of the program that is to be run, when there is nothing but options before it.
    pub(crate) fn program(&self) -> Result<Vec<String>, String> {
        if self.program.is_empty() || !self.alone.is_empty() {
            return Err("Name the program after `--`, such as `-- mpirun -n 4 ./program`.".into());
        }
        Ok(self.program.clone())
    }

    /// The one word that stands alone.
    pub(crate) fn one(&self, what: &str) -> Result<PathBuf, String> {
        match &self.alone[..] {
            [one] => Ok(PathBuf::from(one)),
            _ => Err(format!("Name {what}.")),
        }
    }
}

/// Reads the words of a command line.
pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let first = words.next().unwrap_or_default();
    match first.as_str() {
        "record" => record(words).map(Command::Record),
        "merge" => merge(words).map(Command::Merge),
        "report" => report(words).map(Command::Report),
        "run" => run::parse(words).map(Command::Run),
        "simulate" => simulate::parse(words).map(Command::Simulate),
        "" | "help" | "-h" | "--help" => Ok(Command::Help),
        other => Err(format!("`{other}` is not something that it does.")),
    }
}

fn record(words: impl Iterator<Item = String>) -> Result<Recording, String> {
    let options = ["-o", "--samples", "--events", "--analysis", "--library"];
    let words = Words::read(words, &options, &[])?;
    let program = words.program()?;
    let events = words.value("--events").unwrap_or("65536");
    Ok(Recording {
        output: words.path("-o").unwrap_or_else(|| PathBuf::from("run.msg")),
        samples: size(words.value("--samples").unwrap_or("16MiB"))?,
        events: events.parse().map_err(|_| format!("--events {events}: give a number."))?,
        time: words.seconds()?,
        listener: words.path("--library"),
        program,
    })
}

fn merge(words: impl Iterator<Item = String>) -> Result<Merging, String> {
    let words = Words::read(words, &["-o", "--analysis"], &[])?;
    let folder = words.one("the folder with the parts")?;
    let output = words.path("-o").unwrap_or_else(|| folder.with_extension(""));
    if output == folder {
        return Err("Name the file that is to be written with -o.".to_owned());
    }
    Ok(Merging { output, time: words.seconds()?, folder })
}

fn report(words: impl Iterator<Item = String>) -> Result<Reporting, String> {
    let words = Words::read(words, &["-o", "--network"], &["--json"])?;
    Ok(Reporting {
        run: words.one("the run that `unspool-messages record` has written")?,
        page: words.path("-o"),
        json: !words.flags.is_empty(),
        network: words.value("--network").map(network).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use unspool_messages::plan::Limits;

    use super::{Command, parse, size};

    fn of(text: &str) -> Result<Command, String> {
        parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_recording_is_read_with_its_program() {
        let Ok(Command::Record(one)) = of("record -o a.msg --samples 1MiB -- mpirun -n 2 ./a -o b")
        else {
            panic!("a recording")
        };
        assert_eq!(one.program, ["mpirun", "-n", "2", "./a", "-o", "b"]);
        assert_eq!((one.output.to_str(), one.samples, one.events), (Some("a.msg"), 1 << 20, 65536));
    }

    #[test]
    fn a_run_has_a_plan_a_network_and_limits() {
        let Ok(Command::Run(one)) = of("run --plan a.msg --network 1GB/s -- ./a --plan b") else {
            panic!("a run")
        };
        assert_eq!((one.run.to_str(), one.program.len()), (Some("a.msg"), 3));
        let (network, bounds) = (1e9, BTreeMap::new());
        let limits = Limits { network, threshold: 64 << 10, memory: 256 << 20, bounds };
        assert_eq!(one.limits, limits);
        let Ok(Command::Run(one)) =
            of("run --plan a --network 1GB/s --bound 7=1e-4 --bound 8=1e-6 -- b")
        else {
            panic!("a run")
        };
        assert_eq!(one.limits.bounds, BTreeMap::from([(7, 1e-4), (8, 1e-6)]));
    }

    #[test]
    fn parts_become_the_run_that_they_are_named_after() {
        let Ok(Command::Merge(one)) = of("merge some/run.msg.parts --analysis 1.5") else {
            panic!("a merge")
        };
        assert_eq!(one.output.to_str(), Some("some/run.msg"));
        assert_eq!(one.time.as_millis(), 1500);
    }

    #[test]
    fn a_simulation_is_read_with_its_network_and_codecs() {
        let words = "simulate a.msg --ranks 8,16 --network 1,2,3,4,torus --codec 4 --codec 9,0.5 \
                     --spread --ranks-per-node 2 --rendezvous 100 --overhead-per-byte 0.5";
        let Ok(Command::Simulate(one)) = of(words) else { panic!("a simulation") };
        let asked = &one.asked;
        assert_eq!((asked.ranks.clone(), asked.steps), (vec![8, 16], 4));
        let codecs: Vec<f64> = asked.codecs.iter().map(|codec| codec.ns_per_byte).collect();
        assert_eq!((codecs, asked.codecs[1].factor), (vec![4.0, 9.0], 0.5));
        let network = &asked.network;
        assert_eq!((network.ranks_per_node, network.rendezvous), (2, 100));
        assert_eq!((network.overhead_per_byte, one.json), (500.0, false));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, told) in [
            ("paint", "`paint` is not"),
            ("record ./program", "after `--`"),
            ("record --", "after `--`"),
            ("record --samples many -- a", "`many` is not a size"),
            ("record --events few -- a", "--events few"),
            ("report", "Name the run"),
            ("report a b", "Name the run"),
            ("report a --network fast", "`fast` is not a speed"),
            ("report a --colour", "--colour is not an option"),
            ("report a -o", "-o has no value"),
            ("merge a -o b --analysis -1", "--analysis -1"),
            ("merge a", "-o"),
            ("run --plan a.msg -- b", "--network"),
            ("run --network 1GB/s -- b", "--plan"),
            ("run --plan a.msg --network 1GB/s", "after `--`"),
            ("run --plan a.msg --network 1GB/s --memory lots -- b", "`lots` is not a size"),
            ("run --plan a --network 1GB/s --bound 1e-4 -- b", "`1e-4` is not a bound"),
            ("run --plan a --network 1GB/s --bound 3=0.5e-6 -- b", "1e-6 or more"),
            ("run --plan a --network 1GB/s --bound 3=nan -- b", "1e-6 or more"),
            ("simulate", "Name the run"),
            ("simulate a --ranks 4", "--network"),
            ("simulate a --network 1,1,1,1", "--ranks"),
            ("simulate a --network 1,1,1,1 --ranks few", "`few` is not a number of ranks"),
            ("simulate a --network 1,1,1 --ranks 4", "is not a network"),
            ("simulate a --network 1,1,1,1 --ranks 4 --steps 0", "--steps 0"),
            ("simulate a --network 1,1,1,1 --ranks 4 --ranks-per-node 0", "--ranks-per-node 0"),
            ("simulate a --network 1,1,1,1 --ranks 4 --rendezvous big", "--rendezvous big"),
            ("simulate a --network 1,1,1,1 --ranks 4 --overhead-per-byte -1", "`-1`"),
            ("simulate a --network 1,1,1,1 --ranks 4 --codec 4,1", "`4,1` is not a codec"),
        ] {
            let why = of(text).expect_err(text);
            assert!(why.contains(told), "{text}: {why}");
        }
        assert_eq!(of(""), Ok(Command::Help));
        assert_eq!(size("99999999999GiB").ok(), None);
    }
}
