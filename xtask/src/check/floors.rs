//! The rooms of `engine/spool` stand on floors: a file imports from its own floor or from one below
//! it, so that each can be read with nothing but what is below in mind.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::rust_imports;
use crate::tree::{File, Tree};

const SOURCE: &str = "engine/spool/src";

/// From the lowest floor up, the modules on it: files and folders right below the source.
const FLOORS: &[&[&str]] = &[
    &["error", "figure", "sizes", "time", "wait"],
    &["gpu"],
    &["coding"],
    &["settings", "stats"],
    &["runtime"],
    &["save", "restore"],
    &["spool", "recover", "close", "durability", "figures"],
    &["batched", "auto", "doctor"],
];

/// Modules of tests, which look at every floor.
const TESTS: &[&str] = &["tests", "auto_tests", "interleavings"];

/// Imports from a floor above, and modules that stand on none.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| file.is(&["rs"]) && file.within(SOURCE))
        .flat_map(judge)
        .collect()
}

fn judge(file: &File) -> Vec<Finding> {
    let own = module(&file.path);
    if own == "lib" || TESTS.contains(&own) || file.path.ends_with("tests.rs") {
        return Vec::new();
    }
    let Some(floor) = floor(own) else {
        return vec![Finding::new(
            &file.path,
            1,
            format!("the module {own} stands on no floor"),
            "who adds a room has to say what it may rest on",
            "Add it to xtask/src/check/floors.rs",
        )];
    };
    imports(file)
        .into_iter()
        .filter(|(_, name)| self::floor(name).is_none_or(|other| other > floor))
        .map(|(line, name)| {
            Finding::new(
                &file.path,
                line,
                format!("{own} imports {name}, which stands above it"),
                "imports that run back up make a circle of what could be read in order",
                "Hand the thing in from above, or move what both need down",
            )
        })
        .collect()
}

/// The module of a file: the name that follows the source folder.
fn module(path: &str) -> &str {
    let below = path.strip_prefix(SOURCE).unwrap_or(path).trim_start_matches('/');
    below.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The modules of the crate that the shipped lines of a file name.
fn imports(file: &File) -> BTreeSet<(usize, String)> {
    let paths = rust_imports::paths(&file.text).into_iter();
    let of_crate = paths.filter(|(_, path)| path[0] == "crate");
    of_crate.filter_map(|(line, path)| Some((line, path.get(1)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_import_from_above_is_found_however_it_is_written() {
        let low = "engine/spool/src/coding/plan.rs";
        assert_eq!(found(low, "use crate::error::Error;\nuse crate::save::part;\n"), [2]);
        assert_eq!(found(low, "use crate::{error, save};\n"), [1]);
        assert_eq!(
            found(low, "use crate::{\n    error::{Error, save},\n    restore::Data,\n};\n"),
            [3]
        );
    }

    #[test]
    fn imports_from_the_same_floor_and_from_below_are_fine() {
        let none: [usize; 0] = [];
        let high = "engine/spool/src/save/mod.rs";
        assert_eq!(found(high, "use crate::restore::Data;\nuse crate::gpu::{self, Gpu};\n"), none);
        assert_eq!(found("engine/spool/src/lib.rs", "pub use crate::spool::Spool;\n"), none);
    }

    #[test]
    fn tests_look_at_every_floor_and_a_new_room_needs_one() {
        let text = "use crate::error::Error;\nmod tests {\n    use crate::spool::Spool;\n}\n";
        assert!(found("engine/spool/src/error.rs", text).is_empty());
        assert!(found("engine/spool/src/tests/waits.rs", "use crate::spool::Spool;\n").is_empty());
        assert_eq!(found("engine/spool/src/attic.rs", "\n"), [1]);
    }
}
