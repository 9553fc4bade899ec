//! Which files of a Python package import which.

use std::collections::BTreeMap;

use crate::graph::Graph;
use crate::python::{Import, Sources};

/// The packages: folders of the tree that hold one top-level package each.
const PACKAGES: &[&str] = &["python/package/unspool", "lab/studies/python/unspool_studies"];

/// One graph of files for each package, by its folder.
pub fn graphs(python: &Sources) -> BTreeMap<String, Graph> {
    PACKAGES.iter().map(|folder| ((*folder).to_owned(), graph(folder, python))).collect()
}

fn graph(folder: &str, python: &Sources) -> Graph {
    let own = python.iter().filter(|(path, _)| path.starts_with(folder) && path.ends_with(".py"));
    let modules: BTreeMap<String, &String> =
        own.clone().map(|(path, _)| (module(folder, path), path)).collect();
    own.map(|(path, source)| {
        let imports = source.imports.iter().flat_map(|import| named(folder, path, import));
        let files = imports.filter_map(|names| longest(&modules, names)).cloned();
        (path.clone(), files.filter(|other| other != path).collect())
    })
    .collect()
}

/// The dotted name of the module in a file.
fn module(folder: &str, path: &str) -> String {
    let outside = folder.rfind('/').map_or(0, |at| at + 1);
    let name = path[outside..].trim_end_matches(".py").trim_end_matches("/__init__");
    name.replace('/', ".")
}

/// The dotted names that an import may mean: each may be a module, or something in one.
fn named(folder: &str, path: &str, import: &Import) -> Vec<String> {
    let dots = import.module.len() - import.module.trim_start_matches('.').len();
    let mut base = import.module[dots..].to_owned();
    if dots > 0 {
        let own = module(folder, path);
        let above = if path.ends_with("/__init__.py") { dots - 1 } else { dots };
        let parts: Vec<&str> = own.split('.').collect();
        let package = parts[..parts.len().saturating_sub(above)].join(".");
        base = if base.is_empty() { package } else { format!("{package}.{base}") };
    }
    if import.names.is_empty() {
        return vec![base];
    }
    import.names.iter().map(|name| format!("{base}.{name}")).collect()
}

/// The file of the innermost module on the way to this name: `a.b` or `a`, for `a.b.C`.
fn longest<'a>(modules: &BTreeMap<String, &'a String>, mut name: String) -> Option<&'a String> {
    let mut parts = 2;
    while parts > 0 {
        if let Some(path) = modules.get(&name) {
            return Some(path);
        }
        name.truncate(name.rfind('.')?);
        parts -= 1;
    }
    None
}
