//! The command line.

use std::path::PathBuf;

/// Usage message of the program.
pub const USAGE: &str = "usage: unspool-sim --seed N [--verbose] [--shrink] [--trace FILE]
                   [--order-trace FILE]
       unspool-sim --seeds A..B
       unspool-sim --minutes M
       unspool-sim --order FILE

  --seed N            runs one seed
  --verbose           prints its plan and everything that happens
  --shrink            when it fails, looks for a smaller run that fails in the same way
  --trace FILE        writes the events and commands of the core
  --order-trace FILE  writes the operations that the order checker saw
  --seeds A..B        runs all seeds from A to B - 1 on all processors
  --minutes M         runs fresh seeds for so long
  --order FILE        checks the stream order of a run that was recorded (\"unspool-order 1\")";

/// What the program runs.
#[derive(Clone, PartialEq, Debug)]
pub enum Mode {
    /// One seed.
    One(u64),
    /// All seeds from the first to before the last.
    Many(u64, u64),
    /// Fresh seeds for a number of minutes.
    Minutes(f64),
    /// A recorded run instead of a seed.
    Order(PathBuf),
}

/// The command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// What to run.
    pub mode: Mode,
    /// Print the whole history.
    pub verbose: bool,
    /// Shrink a failing run.
    pub shrink: bool,
    /// File for the trace of one seed.
    pub trace: Option<PathBuf>,
    /// File for the stream order of one seed.
    pub order_trace: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let (mut mode, mut trace, mut order_trace) = (None, None, None);
        let (mut verbose, mut shrink) = (false, false);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--seed" => mode = Some(Mode::One(number(&value()?)?)),
                "--seeds" => mode = Some(range(&value()?)?),
                "--minutes" => mode = Some(Mode::Minutes(number(&value()?)?)),
                "--order" => mode = Some(Mode::Order(PathBuf::from(value()?))),
                "--order-trace" => order_trace = Some(PathBuf::from(value()?)),
                "--trace" => trace = Some(PathBuf::from(value()?)),
                "--verbose" => verbose = true,
                "--shrink" => shrink = true,
                other => return Err(format!("{other} is not an option")),
            }
        }
        let mode = mode.ok_or("one of --seed, --seeds, --minutes and --order is needed")?;
        Ok(Options { mode, verbose, shrink, trace, order_trace })
    }
}

fn range(text: &str) -> Result<Mode, String> {
    let (first, end) = text.split_once("..").ok_or(format!("{text:?} is not of the form A..B"))?;
    Ok(Mode::Many(number(first)?, number(end)?))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_modes_are_understood() {
        assert_eq!(
            parse("--seed 7 --verbose").map(|o| (o.mode, o.verbose)),
            Ok((Mode::One(7), true))
        );
        assert_eq!(parse("--seeds 3..9").map(|o| o.mode), Ok(Mode::Many(3, 9)));
        assert_eq!(parse("--minutes 0.5").map(|o| o.mode), Ok(Mode::Minutes(0.5)));
        assert_eq!(parse("--order a/b").map(|o| o.mode), Ok(Mode::Order(PathBuf::from("a/b"))));
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        assert!(parse("").is_err_and(|text| text.contains("is needed")));
        assert!(parse("--seed").is_err_and(|text| text.contains("needs a value")));
        assert!(parse("--seed x").is_err_and(|text| text.contains("not a number")));
        assert!(parse("--seeds 5").is_err_and(|text| text.contains("A..B")));
        assert!(parse("--fast").is_err_and(|text| text.contains("not an option")));
    }
}
