//! `make bench`: tables of the cost of the core's decisions and schedules, and of the benefit of
//! its policies.
//!
//! Nothing is asserted: every result stands beside a baseline of the same run.

// A command-line tool: its tables are its output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod chain;
mod decisions;
mod hintless;
mod machine;
mod policies;
mod random;
mod schedules;
mod sweeps;
mod table;
mod traces;

use std::process::ExitCode;

const USAGE: &str = "usage: unspool-benches [decisions] [hintless] [policies] [schedules] \
                     [sweeps]   (default: all)";
const NAMES: [&str; 5] = ["decisions", "hintless", "policies", "schedules", "sweeps"];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|name| !NAMES.contains(&name.as_str())) {
        eprintln!("there is no benchmark {unknown}\n{USAGE}");
        return ExitCode::FAILURE;
    }
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    if wanted("decisions") {
        decisions::run();
    }
    if wanted("hintless") {
        hintless::run();
    }
    if wanted("policies") {
        policies::run();
    }
    if wanted("schedules") {
        schedules::run();
    }
    if wanted("sweeps") {
        sweeps::run();
    }
    ExitCode::SUCCESS
}
