//! Checks of the device crate on a machine with a GPU, and measurements beside the raw operations.
//!
//! `cargo run --release --bin gpu_check [part]`, where the part is one of
//! check, order, turns, early, strided, figures and pace; without one, all.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod check;
mod devices;
mod early;
mod errors;
mod figures;
mod links;
mod order;
mod pace;
mod strided;
mod turns;
mod util;

use unspool_cuda::{Context, Driver};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words == ["hidden"] {
        return errors::hidden();
    }
    let driver = Driver::load().unwrap_or_else(|error| panic!("{error}"));
    let context = Context::new(&driver, 0).unwrap();
    if let ["child", directory, turns, processes] = words[..] {
        return turns::child(&context, directory, turns == "yes", processes.parse().unwrap());
    }
    println!("{:?} CUDA {:?}", driver.devices(), driver.cuda_version());
    println!("{}", unspool_gpu_tests::ship_kernels());
    let all = words.is_empty();
    if all || words == ["check"] {
        check::run(&context);
        errors::run(&driver, &context);
    }
    if all || words == ["check"] || words == ["order"] {
        order::run(&driver, &context);
        devices::run(&driver, &context);
    }
    if all || words == ["turns"] {
        turns::run();
    }
    if all || words == ["early"] || words == ["figures"] {
        early::run(&context);
    }
    if all || words == ["strided"] || words == ["figures"] {
        strided::check(&context);
        strided::figures(&context);
    }
    if all || words == ["figures"] {
        figures::run(&context);
        links::run(&context);
    }
    if all || words == ["pace"] {
        pace::run(&context);
    }
    util::wait_for_releases();
    println!("leaked {}; done", unspool_cuda::leaked());
}
