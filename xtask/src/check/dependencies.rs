//! The dependency rule: which of our crates may import which, as the table in ARCHITECTURE.md says.

use crate::finding::Finding;
use crate::metadata::{Dependency, Kind, Package};
use crate::tree::Tree;

/// The page with the table, and the heading above it.
const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "### Which crate imports which";

/// What tests, examples and benchmarks may import besides.
const FOR_TESTS: &[&str] = &["unspool-testkit", "unspool-fakecuda"];

/// What packages import of the engine and of restart, whatever the table says of others: the doors.
const DOORS: &[&str] =
    &["unspool", "unspool-codec", "unspool-tiers", "unspool-restart", "unspool-remote"];
const PACKAGES: &str = "packages/";

/// Imports that the table does not allow, crates that it does not name, and names of no crate.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let rows = tree.file(PAGE).map_or_else(Vec::new, |page| rows(&page.text));
    let judged = packages.iter().flat_map(|package| judge(package, packages, &rows));
    let named = rows.iter().flat_map(|row| row.crates.iter().chain(&row.imports));
    let stale = named.filter(|name| !is_ours(packages, name)).map(|name| {
        Finding::new(
            PAGE,
            1,
            format!("{name} is in the dependency table"),
            "no crate of the workspace has that name",
            "Take it out of the table",
        )
    });
    judged.chain(stale).collect()
}

/// One row of the table: these crates may import those, as normal or build dependencies.
struct Row<'a> {
    crates: Vec<&'a str>,
    imports: Vec<&'a str>,
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let section = page.lines().skip_while(|line| *line != HEADING).skip(1);
    section
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split_once(" | "))
        .map(|(crates, imports)| Row { crates: names(crates), imports: names(imports) })
        .collect()
}

/// The names in backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn is_ours(packages: &[Package], name: &str) -> bool {
    packages.iter().any(|package| package.name == name)
}

fn judge(package: &Package, packages: &[Package], rows: &[Row<'_>]) -> Vec<Finding> {
    let Some(row) = rows.iter().find(|row| row.crates.contains(&package.name.as_str())) else {
        return vec![Finding::new(
            &package.manifest,
            1,
            format!("the package {} is not in the dependency table", package.name),
            "every crate has a place in the one way that data flows",
            "Add it to the table in ARCHITECTURE.md",
        )];
    };
    let edges = || package.dependencies.iter().filter(|edge| is_ours(packages, &edge.name));
    let around = edges().filter(|edge| is_around_the_doors(package, edge, packages)).map(|edge| {
        Finding::new(
            &package.manifest,
            1,
            format!("{} imports {}, which is behind a door", package.name, edge.name),
            "a maintainer of a package has to know the doors of the engine alone",
            "Take it from a door, which may export it",
        )
    });
    let unlisted = edges()
        .filter(|edge| !row.imports.contains(&edge.name.as_str()) && !is_for_tests(edge))
        .map(|edge| {
            Finding::new(
                &package.manifest,
                1,
                format!("{} imports {}", package.name, edge.name),
                "the dependency table of ARCHITECTURE.md does not allow it",
                "Move the code to where both may import it, or hand the thing in from outside",
            )
        });
    unlisted.chain(around).collect()
}

fn is_around_the_doors(package: &Package, edge: &Dependency, packages: &[Package]) -> bool {
    let is_a_package = |name: &str| {
        packages.iter().any(|other| other.name == name && other.manifest.starts_with(PACKAGES))
    };
    package.manifest.starts_with(PACKAGES)
        && edge.kind != Kind::Development
        && !DOORS.contains(&edge.name.as_str())
        && !is_a_package(&edge.name)
}

fn is_for_tests(edge: &Dependency) -> bool {
    edge.kind == Kind::Development && FOR_TESTS.contains(&edge.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::{check, rows};
    use crate::finding::Finding;
    use crate::metadata::{Dependency, Kind, Package};
    use crate::tree::Tree;

    const CORE: &str = "unspool-core";
    const CODEC: &str = "unspool-codec";
    const TESTKIT: &str = "unspool-testkit";
    const PAGE: &str = "### Which crate imports which\n\n| crate | may import |\n| --- | --- |\n\
                        | `unspool-core` | nothing |\n| `unspool-codec` | `unspool-core` |\n\
                        | `unspool-testkit`, `unspool-sim` | `unspool-core`, `unspool-codec` |\n\
                        \n## After\n\n| `other` | `unspool-core` |\n";

    fn package(name: &str, edges: &[(&str, Kind)]) -> Package {
        let edge = |(name, kind): &(&str, Kind)| Dependency { name: (*name).into(), kind: *kind };
        Package {
            name: name.into(),
            version: "1.0.0".into(),
            manifest: format!("engine/{name}/Cargo.toml"),
            dependencies: edges.iter().map(edge).collect(),
        }
    }

    /// What is found in a workspace of the page's crates, some of which are given.
    fn found(given: &[Package]) -> Vec<Finding> {
        let is_given = |name: &&str| given.iter().any(|package| package.name == *name);
        let all = [CORE, CODEC, TESTKIT, "unspool-sim"];
        let rest = all.iter().filter(|name| !is_given(name)).map(|name| package(name, &[]));
        let packages: Vec<_> = given.iter().cloned().chain(rest).collect();
        check(&Tree::of(&[("ARCHITECTURE.md", PAGE)]), &packages)
    }

    #[test]
    fn an_import_against_the_flow_is_found() {
        let codec = package(CODEC, &[(CORE, Kind::Normal)]);
        let upwards = package(CORE, &[(CODEC, Kind::Normal)]);
        let found = found(&[codec, upwards]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "unspool-core imports unspool-codec");
    }

    #[test]
    fn a_row_holds_for_each_of_its_crates() {
        let sim = package("unspool-sim", &[(CORE, Kind::Normal), (CODEC, Kind::Build)]);
        assert_eq!(found(&[sim]), []);
        assert_eq!(found(&[package("unspool-sim", &[(TESTKIT, Kind::Normal)])]).len(), 1);
    }

    #[test]
    fn tests_may_use_the_testkit_and_shipped_code_may_not() {
        assert_eq!(found(&[package(CODEC, &[(TESTKIT, Kind::Development)])]), []);
        assert_eq!(found(&[package(CODEC, &[(TESTKIT, Kind::Normal)])]).len(), 1);
        assert_eq!(found(&[package(CODEC, &[(TESTKIT, Kind::Build)])]).len(), 1);
    }

    #[test]
    fn a_package_comes_in_by_the_doors() {
        let paging = |door: &str| Package {
            manifest: "packages/paging/Cargo.toml".into(),
            ..package("unspool-sim", &[(door, Kind::Normal)])
        };
        assert_eq!(found(&[paging(CODEC)]), []);
        let around = found(&[paging(CORE)]);
        assert_eq!(around.len(), 1);
        assert!(around[0].what.contains("unspool-core, which is behind a door"));
    }

    #[test]
    fn packages_of_others_are_not_judged_and_new_ones_of_ours_need_a_place() {
        assert_eq!(found(&[package(CORE, &[("libc", Kind::Normal)])]), []);
        let new = found(&[package("unspool-new", &[])]);
        assert!(new[0].what.contains("unspool-new is not in the dependency"));
    }

    #[test]
    fn a_row_about_no_crate_is_found() {
        let tree = Tree::of(&[("ARCHITECTURE.md", PAGE)]);
        let without = [package(CORE, &[]), package(CODEC, &[]), package(TESTKIT, &[])];
        assert_eq!(check(&tree, &without).len(), 1);
    }

    #[test]
    fn this_project_has_a_table() {
        let tree = Tree::read(&crate::root()).unwrap();
        assert!(rows(&tree.file("ARCHITECTURE.md").unwrap().text).len() > 20);
    }
}
