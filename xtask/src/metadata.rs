//! The packages of the workspace, as cargo sees them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// How a package uses another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// In what it ships.
    Normal,
    /// In its tests, examples and benchmarks.
    Development,
    /// In its build script.
    Build,
}

/// One dependency as a manifest declares it.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The name of the other package.
    pub name: String,
    /// How it is used.
    pub kind: Kind,
}

/// One package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its manifest, from the root of the project.
    pub manifest: String,
    /// What it depends on, ours and others'.
    pub dependencies: Vec<Dependency>,
}

/// Asks cargo for the packages of the workspace in `root`.
pub fn read(root: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    parse(&String::from_utf8_lossy(&output.stdout), root)
}

/// Reads the answer of `cargo metadata`.
fn parse(answer: &str, root: &Path) -> Result<Vec<Package>, String> {
    let answer: Value = serde_json::from_str(answer)
        .map_err(|error| format!("cargo metadata gave no JSON: {error}"))?;
    let packages = answer["packages"].as_array().ok_or("cargo metadata names no packages")?;
    Ok(packages.iter().map(|package| one(package, root)).collect())
}

fn one(package: &Value, root: &Path) -> Package {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
    Package {
        name: text(&package["name"]),
        version: text(&package["version"]),
        manifest: manifest.display().to_string(),
        dependencies: package["dependencies"].as_array().into_iter().flatten().map(edge).collect(),
    }
}

fn edge(dependency: &Value) -> Dependency {
    let kind = match dependency["kind"].as_str() {
        Some("dev") => Kind::Development,
        Some("build") => Kind::Build,
        _ => Kind::Normal,
    };
    Dependency { name: text(&dependency["name"]), kind }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Kind, parse};
    use std::path::Path;

    #[test]
    fn kinds_and_relative_manifests_are_read() {
        let answer = r#"{"packages": [{"name": "a", "version": "1.2.3",
            "manifest_path": "/r/engine/a/Cargo.toml", "dependencies": [
              {"name": "b", "kind": null}, {"name": "c", "kind": "dev"},
              {"name": "d", "kind": "build"}]}]}"#;
        let packages = parse(answer, Path::new("/r")).unwrap();
        assert_eq!(packages[0].manifest, "engine/a/Cargo.toml");
        assert_eq!(packages[0].version, "1.2.3");
        let kinds: Vec<Kind> = packages[0].dependencies.iter().map(|edge| edge.kind).collect();
        assert_eq!(kinds, [Kind::Normal, Kind::Development, Kind::Build]);
    }

    #[test]
    fn an_answer_that_is_not_json_is_an_error() {
        assert!(parse("oops", Path::new("/r")).unwrap_err().contains("no JSON"));
    }
}
