//! `cargo x`: what the project checks about itself, the same here and in CI.
//!
//! - `cargo x tidy`: the dependency table, the budgets, the documents, the versions;
//! - `cargo x ci`: everything that CI runs, in the same order.

// A command-line tool: what it finds is its output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod finding;
mod graph;
mod metadata;
mod python;
mod python_imports;
mod report;
mod rust;
mod rust_imports;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo x <command>

  tidy    check the dependency table, the budgets, the documents and the versions
  ci      run everything that CI runs (formatting, lints, tidy, all tests)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["ci"] => ci(&root()),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace: this crate lies directly in it.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Runs the script that CI runs.
fn ci(root: &Path) -> Result<(), String> {
    let script = root.join(".ci").join("run");
    let status = Command::new(&script)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run {}: {error}; is bash there?", script.display()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", script.display())) }
}
