//! zfp and nvCOMP on a machine with a GPU: checks against the codec of the processor, and
//! measurements beside a copy within the device.
//!
//! `cargo run --release --bin gpu_libs [part]`, where the part is one of check and figures; without
//! one, both. nvCOMP is searched for in the folders of `PYTHONPATH`, and with `UNSPOOL_NVCOMP`;
//! without it its parts are skipped.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod bench;
mod data;
mod figures;
mod nvcomp;
mod zfp;

use unspool_cuda::{Context, Driver};

use bench::Bench;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let part = words.first().map(String::as_str);
    println!("{}", unspool_gpu_tests::ship_kernels());
    let driver = Driver::load().unwrap_or_else(|error| panic!("{error}"));
    let bench = Bench::new(Context::new(&driver, 0).unwrap());
    println!("{} CUDA {:?}", driver.devices()[0].name, driver.cuda_version());
    let library = bench.nvcomp.loaded();
    match &library {
        Ok(library) => println!("{library:?}"),
        Err(error) => println!("{error}"),
    }
    if part != Some("figures") {
        zfp::check(&bench);
        if library.is_ok() {
            nvcomp::check(&bench);
        }
    }
    if part != Some("check") {
        figures::run(&bench, library.is_ok());
    }
    println!("done");
}
