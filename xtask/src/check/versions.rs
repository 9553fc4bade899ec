//! One version for everything: it is written once, in the workspace's Cargo.toml.

use crate::finding::Finding;
use crate::metadata::Package;
use crate::tree::{File, Tree};

/// What describes the packages for Python.
const PYTHON: &[&str] = &["python/pyproject.toml", "lab/studies/pyproject.toml"];

/// Packages with another version, a Python package that writes down its own, and a change log
/// that does not know the version.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let Some(version) = workspace_version(tree) else {
        return vec![Finding::new(
            "Cargo.toml",
            1,
            "no [workspace.package] version",
            "every package takes its version from there",
            "Write it there",
        )];
    };
    let mut found: Vec<Finding> =
        packages.iter().filter(|package| package.version != version).map(differs).collect();
    found.extend(PYTHON.iter().filter_map(|path| python(tree, path)));
    let logs = tree.files.iter().filter(|file| file.path.ends_with("CHANGELOG.md"));
    found.extend(logs.filter_map(|log| change_log(log, &version)));
    found
}

/// The version in the workspace's manifest.
fn workspace_version(tree: &Tree) -> Option<String> {
    let text = &tree.file("Cargo.toml")?.text;
    let mut lines = text.lines().skip_while(|line| line.trim() != "[workspace.package]").skip(1);
    let line = lines
        .by_ref()
        .take_while(|line| !line.trim_start().starts_with('['))
        .find(|line| line.trim_start().starts_with("version"))?;
    line.split('"').nth(1).map(str::to_owned)
}

fn differs(package: &Package) -> Finding {
    Finding::new(
        &package.manifest,
        1,
        format!("{} has version {}", package.name, package.version),
        "all packages are released together, with one version",
        "Write `version.workspace = true`",
    )
}

fn python(tree: &Tree, path: &str) -> Option<Finding> {
    let file = tree.file(path)?;
    let dynamic = |text: &str| text.trim_start().starts_with("dynamic") && text.contains("version");
    if file.lines().any(|(_, line)| dynamic(line)) {
        return None;
    }
    Some(Finding::new(
        &file.path,
        1,
        "no `dynamic = [\"version\"]`",
        "maturin takes the version from Cargo.toml, so that there is only one",
        "Declare it dynamic and remove any `version`",
    ))
}

fn change_log(file: &File, version: &str) -> Option<Finding> {
    let heading = |line: &str| {
        line.starts_with("## ") && (line.contains(version) || line.contains("[Unreleased]"))
    };
    if file.lines().any(|(_, line)| heading(line)) {
        return None;
    }
    Some(Finding::new(
        &file.path,
        1,
        format!("no heading for version {version} or [Unreleased]"),
        "users look there for what changed",
        "Add the heading",
    ))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::metadata::Package;
    use crate::tree::Tree;

    const MANIFEST: &str = "[workspace]\n[workspace.package]\nedition = \"2024\"\n\
                            version = \"1.2.3\"\n[workspace.dependencies]\n";

    fn package(version: &str) -> Package {
        Package {
            name: "a".into(),
            version: version.into(),
            manifest: "engine/a/Cargo.toml".into(),
            dependencies: Vec::new(),
        }
    }

    #[test]
    fn a_package_with_another_version_is_found() {
        let tree = Tree::of(&[("Cargo.toml", MANIFEST)]);
        assert_eq!(check(&tree, &[package("1.2.3")]), []);
        assert_eq!(check(&tree, &[package("1.2.4")])[0].what, "a has version 1.2.4");
    }

    #[test]
    fn a_python_package_with_its_own_version_is_found() {
        for path in super::PYTHON {
            let own = Tree::of(&[("Cargo.toml", MANIFEST), (path, "version = \"1.2.3\"\n")]);
            assert_eq!(check(&own, &[])[0].path, *path);
            let good = Tree::of(&[("Cargo.toml", MANIFEST), (path, "dynamic = [\"version\"]\n")]);
            assert_eq!(check(&good, &[]), []);
        }
    }

    #[test]
    fn a_change_log_without_the_version_is_found() {
        let old = Tree::of(&[("Cargo.toml", MANIFEST), ("CHANGELOG.md", "## [1.2.2]\n")]);
        assert_eq!(check(&old, &[])[0].path, "CHANGELOG.md");
        let good = ("CHANGELOG.md", "## [1.2.3] - x\n");
        assert_eq!(check(&Tree::of(&[("Cargo.toml", MANIFEST), good]), &[]), []);
        let package = ("packages/paging/CHANGELOG.md", "## [1.2.2]\n");
        let found = check(&Tree::of(&[("Cargo.toml", MANIFEST), good, package]), &[]);
        assert_eq!((found.len(), found[0].path.as_str()), (1, package.0));
    }

    #[test]
    fn a_workspace_without_a_version_is_found() {
        assert_eq!(check(&Tree::of(&[("Cargo.toml", "[workspace]\n")]), &[]).len(), 1);
    }
}
