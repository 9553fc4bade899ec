//! What holds for a configuration of any bytes. The fuzz target `veloc_config` and a test share it.

use std::time::Duration;

use veloc_client::config::{Persist, parse};

/// Whether these bytes are a configuration; panics when the answer is not as it has to be.
pub fn check(bytes: &[u8]) -> bool {
    match parse("veloc.cfg", bytes) {
        Ok(config) => {
            assert!(!config.scratch.as_os_str().is_empty() && !config.persistent.is_empty());
            assert!(!config.timeout.is_zero());
            assert!(config.persist != Persist::Every(Duration::ZERO));
            assert!(config.notes.iter().all(|note| note.starts_with("veloc.cfg:")));
            true
        }
        Err(why) => {
            assert!(why.starts_with("veloc.cfg") && why.ends_with('.'), "{why}");
            assert!(why.len() < 2000, "{} bytes", why.len());
            false
        }
    }
}
