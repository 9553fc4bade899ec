//! The readers of recorded messages, of any bytes. The body is shared with a test of
//! `unspool-messages` that runs without a fuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../packages/messages/tests/fuzz_messages/mod.rs"]
mod body;

fuzz_target!(|data: &[u8]| {
    body::check(data);
});
