//! The manifest of a checkpoint of a run, of any bytes, as they are and with their checksum
//! repaired. Its parser is compiled here from its source, as its crate needs much more.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_codec::checksum;

#[path = "../../restart/src/manifest.rs"]
pub mod manifest;

fuzz_target!(|data: &[u8]| {
    let repaired = [data, format!("checksum {:016x}\n", checksum(data)).as_bytes()].concat();
    for bytes in [data, &repaired] {
        if let Ok(found) = manifest::Manifest::parse(bytes) {
            assert_eq!(found.render(), bytes);
            assert!(found.rank < found.ranks);
        }
    }
});
