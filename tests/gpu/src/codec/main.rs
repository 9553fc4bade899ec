//! Twine on a GPU, and the hashes of chunks: checks against the codec and the hash of the
//! processor, and measurements beside a plain copy.
//!
//! `cargo run --release --bin gpu_codec -- check [ROUNDS] | figures [MIB
//! [NAME [LEAST]]] | hashes [MIB] | sanitize`. `sanitize` is a small check for compute-sanitizer;
//! it and `check` print the seed of a failure. `figures` measures arrays of LEAST to MIB mebibytes,
//! with the codecs whose names contain NAME.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod bench;
mod check;
#[path = "../../../../engine/gpu_codec/src/twine/fields.rs"]
#[allow(dead_code)]
mod fields;
mod figures;
mod hashes;
mod large;
mod steps {
    pub use unspool_gpu_codec::Steps;
}

use unspool_cuda::{Context, Driver};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = words.get(1).and_then(|word| word.parse().ok());
    let driver = Driver::load().unwrap_or_else(|error| panic!("{error}"));
    let context = Context::new(&driver, 0).unwrap();
    println!("{:?} CUDA {:?}", driver.devices(), driver.cuda_version());
    println!("{}", unspool_gpu_tests::ship_kernels());
    match words.first().map(String::as_str) {
        Some("check") => {
            let first = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(0);
            if first == 0 {
                large::run(&context);
            }
            check::run(&context, first..first + number.unwrap_or(200), &[0, 2, 4, 8]);
        }
        Some("hashes") => {
            hashes::check(&context, 500);
            hashes::figures(&context, number.unwrap_or(4096));
        }
        Some("sanitize") => {
            hashes::check(&context, 20);
            check::run(&context, 0..number.unwrap_or(3), &[0]);
            // compute-sanitizer 13.0 examines the driver when the process exits; a third of the
            // runs under memcheck that exited at once crashed in it, with none of our threads left.
            drop(context);
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        Some("figures") => {
            let least = words.get(3).and_then(|word| word.parse().ok()).unwrap_or(1);
            let name = words.get(2).map_or("", String::as_str);
            figures::run(&context, (least, number.unwrap_or(512)), name);
        }
        _ => println!(
            "usage: gpu_codec check [ROUNDS [FIRST]] | figures [MIB [NAME [LEAST]]] | \
             hashes [MIB] | sanitize"
        ),
    }
}
