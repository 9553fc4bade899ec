//! zfp streams and values, on any bytes. The body is shared with a test of `unspool-codec` that
//! runs without a fuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../engine/codec/tests/fuzz_zfp/mod.rs"]
mod body;

fuzz_target!(|data: &[u8]| {
    let _outcomes = body::check(data);
});
