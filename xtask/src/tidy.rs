//! `cargo x tidy`: all checks, then what was found and a short report.

use std::path::Path;

use crate::check;
use crate::finding::Finding;
use crate::metadata::{self, Package};
use crate::python::{self, Sources};
use crate::report;
use crate::tree::Tree;

/// Runs every check on the checkout in `root`, prints what it found, and fails if that is
/// anything.
pub fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let python = python::read(&tree)?;
    let findings = findings(&tree, &python, &metadata::read(root)?)?;
    for finding in &findings {
        println!("{finding}");
    }
    print!("{}", report::summary(&tree, &python)?);
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("tidy: {count} findings")),
    }
}

/// What all checks find, ordered by place.
fn findings(tree: &Tree, python: &Sources, packages: &[Package]) -> Result<Vec<Finding>, String> {
    let mut found = [
        check::dependencies::check(tree, packages),
        check::core_purity::check(tree, packages),
        check::versions::check(tree, packages),
        check::function_length::check(tree, python)?,
        check::circles::check(tree, python),
        check::parameters::check(python),
        check::rooms::check(tree),
        check::words::check(tree),
        check::decisions::check(tree),
        check::file_length::check(tree),
        check::floors::check(tree),
        check::columns::check(tree),
        check::concurrency::check(tree),
        check::unsafe_code::check(tree),
        check::opening::check(tree),
        check::planning::check(tree),
        check::machine_paths::check(tree),
        check::laboratory::check(tree),
        check::links::check(tree),
        check::readme::check(tree),
    ]
    .concat();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::findings;
    use crate::metadata;
    use crate::python::Sources;
    use crate::root;
    use crate::tree::Tree;

    #[test]
    fn findings_of_all_checks_come_ordered_by_place() {
        let wide = format!("{}\n", "x".repeat(101));
        let files = [("b.rs", "use x;\n"), ("a.py", wide.as_str())];
        let found = findings(&Tree::of(&files), &Sources::new(), &[]).unwrap();
        let places: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert!(places.is_sorted());
        assert!(places.contains(&"a.py") && places.contains(&"b.rs"));
        assert!(places.contains(&"README.md") && places.contains(&"Cargo.toml"));
    }

    #[test]
    fn the_checks_read_this_workspace() {
        let tree = Tree::read(&root()).unwrap();
        assert!(tree.file("xtask/src/tidy.rs").is_some());
        let packages = metadata::read(&root()).unwrap();
        assert!(packages.iter().any(|package| package.name == "unspool-core"));
    }
}
