//! The core stays pure: no dependency, no standard library, no unsafe code, and its assumptions
//! written as assertions.

use crate::finding::Finding;
use crate::metadata::{Kind, Package};
use crate::rust::{functions, words};
use crate::tree::{File, Tree};

const CORE: &str = "unspool-core";
const FOLDER: &str = "engine/core/src";
const ROOT: &str = "engine/core/src/lib.rs";

/// Functions that are long enough to assume something worth asserting, in lines.
const LONG: usize = 12;

/// What states an assumption: these macros, and `expect`, which says why a value is there.
const ASSERTIONS: &[&str] = &[
    "expect",
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "unreachable",
];

/// What makes the core less than pure.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut found = attributes(tree);
    found.extend(imports(packages));
    found.extend(assertions(tree));
    found
}

fn attributes(tree: &Tree) -> Vec<Finding> {
    let text = tree.file(ROOT).map_or("", |file| file.text.as_str());
    let missing = ["#![no_std]", "#![forbid(unsafe_code)]"]
        .into_iter()
        .filter(|attribute| !text.lines().any(|line| line.trim() == *attribute));
    missing
        .map(|attribute| {
            Finding::new(
                ROOT,
                1,
                format!("no {attribute}"),
                "the core decides and does nothing else, and the compiler must see to that",
                "Add the attribute",
            )
        })
        .collect()
}

fn imports(packages: &[Package]) -> Vec<Finding> {
    let core = packages.iter().filter(|package| package.name == CORE);
    core.flat_map(|package| package.dependencies.iter().map(move |edge| (package, edge)))
        .filter(|(_, edge)| edge.kind != Kind::Development)
        .map(|(package, edge)| {
            Finding::new(
                &package.manifest,
                1,
                format!("the core depends on {}", edge.name),
                "it depends on nothing",
                "Write what is needed, or move the code that needs it out of the core",
            )
        })
        .collect()
}

/// On average, every long function of the core states one assumption.
fn assertions(tree: &Tree) -> Option<Finding> {
    let files: Vec<&File> = tree.files.iter().filter(|file| is_core_code(file)).collect();
    let long: usize = files.iter().map(|file| long_functions(file)).sum();
    let stated: usize = files.iter().map(|file| stated(file)).sum();
    if stated >= long {
        return None;
    }
    Some(Finding::new(
        ROOT,
        1,
        format!("{stated} assertions for {long} functions over {LONG} lines"),
        "the core states its assumptions, at least one for each long function",
        "Assert what the functions take for granted",
    ))
}

fn is_core_code(file: &File) -> bool {
    let test = file.path.ends_with("tests.rs") || file.path.contains("/tests/");
    file.within(FOLDER) && file.is(&["rs"]) && !test
}

fn long_functions(file: &File) -> usize {
    let functions = functions(&shipped(file)).unwrap_or_default();
    functions.iter().filter(|function| function.lines > LONG).count()
}

fn stated(file: &File) -> usize {
    let words = words(&shipped(file));
    words.iter().filter(|(_, word)| ASSERTIONS.contains(&word.as_str())).count()
}

/// The file without its test module, which stands at the end.
fn shipped(file: &File) -> String {
    file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::metadata::{Dependency, Kind, Package};
    use crate::tree::Tree;

    const PURE: &str = "#![no_std]\n#![forbid(unsafe_code)]\n";

    fn tree(code: &str) -> Tree {
        Tree::of(&[("engine/core/src/lib.rs", PURE), ("engine/core/src/a.rs", code)])
    }

    #[test]
    fn a_missing_attribute_is_found() {
        let found = check(&Tree::of(&[("engine/core/src/lib.rs", "#![no_std]\n")]), &[]);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("forbid(unsafe_code)"));
    }

    #[test]
    fn a_dependency_is_found_and_one_for_tests_is_allowed() {
        let package = |kind| Package {
            name: "unspool-core".into(),
            version: "1.0.0".into(),
            manifest: "engine/core/Cargo.toml".into(),
            dependencies: vec![Dependency { name: "libm".into(), kind }],
        };
        assert_eq!(check(&tree(""), &[package(Kind::Normal)]).len(), 1);
        assert_eq!(check(&tree(""), &[package(Kind::Development)]), []);
    }

    #[test]
    fn long_functions_without_assertions_are_found() {
        let long = format!("fn a() {{\n{}}}\n", "    b();\n".repeat(20));
        assert!(check(&tree(&long), &[])[0].what.starts_with("0 assertions for 1 functions"));
        let stated = long.replacen("b();", "assert!(c);", 1);
        assert_eq!(check(&tree(&stated), &[]), []);
    }

    #[test]
    fn assertions_of_tests_do_not_count() {
        let long = format!("fn a() {{\n{}}}\n", "    b();\n".repeat(20));
        let tests = "#[cfg(test)]\nmod tests {\n    fn t() { assert!(true); }\n}\n";
        assert_eq!(check(&tree(&format!("{long}{tests}")), &[]).len(), 1);
    }
}
