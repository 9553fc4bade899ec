//! The decoder of Twine, on any bytes. The body is shared with a test of `unspool-codec` that runs
//! without a fuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/codec/tests/twine_fuzz_body/mod.rs"]
mod body;

fuzz_target!(|data: &[u8]| {
    let layouts = body::layouts();
    let layout = &layouts[data.first().map_or(0, |byte| usize::from(*byte)) % layouts.len()];
    let _outcome = body::check(layout, data);
    let _outcome = body::check(layout, &body::repaired(layout, data));
});
