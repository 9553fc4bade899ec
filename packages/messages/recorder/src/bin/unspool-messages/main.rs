//! `unspool-messages`: what the messages of an MPI program are, whether coding them would pay, and
//! a run in which they are coded.

mod options;
mod parts;
#[path = "../../../../../common/preload.rs"]
mod preload;
mod record;
mod run;
mod simulate;
#[path = "../../../../../common/size.rs"]
mod size;

use std::fs;
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::process::ExitCode;

use unspool_messages::Run;
use unspool_messages::report::Report;
use unspool_messages::show;

use options::{Command, HELP, Merging, Reporting};

fn main() -> ExitCode {
    let words = std::env::args().skip(1);
    let done = match options::parse(words) {
        Ok(Command::Help) => say(HELP).map(|()| ExitCode::SUCCESS),
        Ok(Command::Record(recording)) => record::record(&recording),
        Ok(Command::Merge(merging)) => merge(&merging),
        Ok(Command::Report(reporting)) => report(&reporting),
        Ok(Command::Run(running)) => run::run(&running),
        Ok(Command::Simulate(simulating)) => {
            simulate::simulate(simulating).and_then(|text| say(&text)).map(|()| ExitCode::SUCCESS)
        }
        Err(why) => Err(format!("{why}\n\n{HELP}")),
    };
    done.unwrap_or_else(|why| {
        let _nobody = writeln!(io::stderr(), "unspool-messages: {}", why.trim_end());
        ExitCode::from(2)
    })
}

fn say(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|error| format!("standard output: {error}.")),
    }
}

fn merge(merging: &Merging) -> Result<ExitCode, String> {
    let told = parts::merge(&merging.folder, &merging.output, vec![], merging.time)?;
    told.iter().for_each(|line| record::tell(line));
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Run, String> {
    let file = parts::regular(path).map_err(|error| format!("{}: {error}.", path.display()))?;
    Run::read(BufReader::new(file))
        .map_err(|error| format!("{} cannot be used: {error}", path.display()))
}

fn report(reporting: &Reporting) -> Result<ExitCode, String> {
    let run = read(&reporting.run)?;
    let report = Report::of(&run, reporting.network);
    if let Some(page) = &reporting.page {
        fs::write(page, show::html(&run, &report))
            .map_err(|error| format!("{}: {error}.", page.display()))?;
        record::tell(&format!("the page is {}", page.display()));
        if !reporting.json {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let text = if reporting.json { show::json(&run, &report) } else { show::text(&run, &report) };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}
