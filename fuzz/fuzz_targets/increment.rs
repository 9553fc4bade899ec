//! The table of an increment, of any bytes. The body is shared with a test of `unspool-codec` that
//! runs without a fuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../engine/codec/tests/fuzz_increment/mod.rs"]
mod body;

fuzz_target!(|data: &[u8]| {
    let _outcomes = body::check(data);
});
