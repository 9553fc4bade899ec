//! Runs seeds of the simulator: `--seed N [--verbose] [--trace FILE]`, `--seeds A..B`,
//! `--minutes M`; or checks the stream order of a recorded run: `--order FILE`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program")]

use std::path::Path;
use std::process::ExitCode;

mod options;

use options::{Mode, Options};
use unspool_sim::{Plan, World, fleet, recorded, run_world, shrink};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let sound = match &options.mode {
        Mode::One(seed) => run_one(*seed, &options),
        Mode::Many(first, end) => run_many(fleet::Seeds::Range(*first..*end)),
        Mode::Minutes(minutes) => run_many(fleet::Seeds::minutes(*minutes)),
        Mode::Order(path) => check_order(path),
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed, with its full history if requested; shrinks it when it fails.
fn run_one(seed: u64, options: &Options) -> bool {
    let plan = Plan::of_seed(seed);
    if options.verbose {
        println!("{plan}");
    }
    let mut world = World::new(plan);
    world.keep_notes();
    if options.order_trace.is_some() {
        world.keep_order();
    }
    let (history, result) = run_world(world);
    if options.verbose {
        print!("{}", history.text());
    }
    let trace = options.trace.as_ref().is_none_or(|path| write(path, &history.trace()));
    let order = history.order.unwrap_or_default();
    if !trace || !options.order_trace.as_ref().is_none_or(|path| write(path, &order)) {
        return false;
    }
    match result {
        Ok(figures) => {
            println!("seed {seed} breaks no rule in {} events", figures.events);
            true
        }
        Err(failure) => {
            println!("{failure}");
            if options.shrink {
                print_smaller(&failure);
            }
            false
        }
    }
}

fn write(path: &Path, text: &str) -> bool {
    let written = std::fs::write(path, text);
    if let Err(error) = &written {
        eprintln!("the trace cannot be written to {}: {error}", path.display());
    }
    written.is_ok()
}

fn print_smaller(failure: &unspool_sim::Failure) {
    let smaller = shrink::shrink(failure);
    println!("\nthe smallest run found that breaks the same rule:\n\n{}", smaller.plan);
    println!("{smaller}");
}

fn run_many(seeds: fleet::Seeds) -> bool {
    let report = fleet::run(seeds);
    for failure in &report.failures {
        println!("{failure}\n");
    }
    println!("{report}");
    report.failures.is_empty()
}

/// Prints the verdict on a recorded run.
fn check_order(path: &Path) -> bool {
    let checked = recorded::check_file(path);
    match &checked {
        Ok(verdict) => println!("{}: in order\n{verdict}", path.display()),
        Err(error) => println!("{} {error}", path.display()),
    }
    checked.is_ok()
}
