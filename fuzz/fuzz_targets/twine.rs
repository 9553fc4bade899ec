//! The decoder of Twine, and the sum of a stream and a difference, on any bytes. The body is shared
//! with tests of `unspool-codec` that run without a fuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../engine/codec/tests/twine_fuzz_body/mod.rs"]
mod body;

fuzz_target!(|data: &[u8]| {
    let layouts = body::layouts();
    let layout = &layouts[data.first().map_or(0, |byte| usize::from(*byte)) % layouts.len()];
    let _outcome = body::check(layout, data);
    let _outcome = body::check(layout, &body::repaired(layout, data));
    for bounded in [false, true] {
        let parent = body::parent(layout, bounded);
        let difference = body::repaired_difference(layout, data, &parent);
        let _outcome = body::check_difference(layout, data, &parent);
        let _outcome = body::check_difference(layout, &difference, &parent);
    }
});
