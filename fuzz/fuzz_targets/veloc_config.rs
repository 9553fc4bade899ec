//! The configuration file of VELOC's interface, of any bytes. The body is shared with a test of
//! `unspool-veloc` that runs without a fuzzer. The parser and the two that it calls are compiled
//! here from their sources, under the names of their crates, as all that those crates need would
//! take minutes.

#![no_main]

use libfuzzer_sys::fuzz_target;

extern crate self as unspool;
extern crate self as unspool_restart;
extern crate self as veloc_client;

#[path = "../../packages/veloc/src/config.rs"]
pub mod config;
#[path = "../../restart/src/duration.rs"]
mod duration;
#[path = "../../engine/spool/src/sizes.rs"]
pub mod sizes;

pub use duration::duration;

#[path = "../../packages/veloc/tests/fuzz_config/mod.rs"]
mod body;

fuzz_target!(|data: &[u8]| {
    let _is_one = body::check(data);
});
