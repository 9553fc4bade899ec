//! `unsafe` lives where memory and foreign calls are, and nowhere else.

use crate::finding::Finding;
use crate::rust::words;
use crate::tree::{File, Tree};

/// The folders that may use it. The spool's own tests and benchmarks do so as an application does,
/// which gives it arrays by their addresses; a test of the codecs sets the processor's control
/// register as other libraries do. Paging answers the page faults of memory that it maps.
const ALLOWED: &[&str] = &[
    "engine/tiers",
    "engine/cuda",
    "engine/gpu_codec",
    "packages/paging",
    "tests/gpu",
    "lab/benches",
    "tests/fakecuda",
    "python/src",
    "c",
    "packages/common",
    "packages/messages/recorder",
    "packages/veloc",
    "lab/studies/src",
    "lab/studies/wave",
    "engine/codec/tests",
    "engine/spool/tests",
];

/// Uses of `unsafe` elsewhere.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let elsewhere = |file: &&File| !ALLOWED.iter().any(|folder| file.within(folder));
    tree.files.iter().filter(|file| file.is(&["rs"])).filter(elsewhere).flat_map(uses).collect()
}

fn uses(file: &File) -> Vec<Finding> {
    let unsafe_words = words(&file.text).into_iter().filter(|(_, word)| word == "unsafe");
    unsafe_words
        .map(|(line, _)| {
            Finding::new(
                &file.path,
                line,
                "`unsafe`",
                "it lives in engine/{tiers,cuda,gpu_codec}, packages, python, c, lab and tests",
                "Use a safe function of those crates, or add one there",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    #[test]
    fn a_block_a_function_and_a_macro_are_found() {
        let text = "fn a() {\n    unsafe { b() }\n}\nunsafe fn c() {}\nm! { unsafe }\n";
        let lines: Vec<usize> =
            check(&Tree::of(&[("engine/core/src/a.rs", text)])).iter().map(|f| f.line).collect();
        assert_eq!(lines, [2, 4, 5]);
    }

    #[test]
    fn the_crates_of_memory_may_use_it_and_forbidding_it_is_no_use() {
        let files =
            [("engine/tiers/src/a.rs", "unsafe fn a() {}"), ("b.rs", "#![forbid(unsafe_code)]")];
        assert_eq!(check(&Tree::of(&files)), []);
    }
}
