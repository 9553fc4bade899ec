//! The library knows nothing of the laboratory, and the laboratory of the library what users know.

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// The Python package that users install, and its extension module.
const LIBRARY: &[&str] = &["python/package", "python/src"];
/// The package of studies beside it, with its tests.
const LABORATORY: &str = "lab/studies";

/// Names of the laboratory in the library, and private names of the library in the laboratory.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let code = |file: &&File| file.is(&["py", "pyi", "rs"]);
    tree.files.iter().filter(code).flat_map(judge).collect()
}

fn judge(file: &File) -> Vec<Finding> {
    if LIBRARY.iter().any(|folder| file.within(folder)) {
        return dependencies(file);
    }
    if file.within(LABORATORY) { intrusions(file) } else { Vec::new() }
}

fn dependencies(file: &File) -> Vec<Finding> {
    let named =
        file.lines().filter(|(_, text)| paths(text).any(|path| root(path) == "unspool_studies"));
    named
        .map(|(line, _)| {
            Finding::new(
                &file.path,
                line,
                "the library names unspool_studies",
                "whoever installs the library does not have the studies",
                "Move what both need into the library, or use an entry point",
            )
        })
        .collect()
}

fn intrusions(file: &File) -> Vec<Finding> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (line, text) in file.lines() {
        let private = paths(text).filter(|path| root(path) == "unspool" && is_private(path));
        found.extend(private.map(|path| (line, path.to_owned())));
    }
    found.extend(imported(file));
    found
        .into_iter()
        .map(|(line, name)| {
            Finding::new(
                &file.path,
                line,
                format!("the studies use {name}, a private name of the library"),
                "they show what users can do with it, and it may change without them",
                "Use a public name, or move what only the studies use to them",
            )
        })
        .collect()
}

/// Private names in statements such as `from unspool.schedules import Revolve, _hidden`.
fn imported(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open = false;
    for (line, text) in file.lines() {
        let begins = text
            .trim_start()
            .strip_prefix("from unspool")
            .filter(|rest| rest.starts_with(['.', ' ']));
        let names = match begins.and_then(|rest| rest.split_once(" import ")) {
            Some((_, names)) => names,
            None if open => text,
            None => continue,
        };
        open = (open || names.contains('(')) && !names.contains(')');
        let names = names.split('#').next().unwrap_or_default();
        let private = paths(names).filter(|name| is_private(name));
        found.extend(private.map(|name| (line, name.to_owned())));
    }
    found
}

/// The names in a line, with the dots in them: `unspool.schedules.Revolve`.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.split(move |c| !part(c)).filter(|path| !path.is_empty())
}

fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}

/// Whether a part of the name begins with one underscore; two are Python's own.
fn is_private(path: &str) -> bool {
    path.split('.').any(|part| part.starts_with('_') && !part.starts_with("__"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    const NONE: [usize; 0] = [];

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_library_that_imports_the_laboratory_is_found_however_it_does() {
        let library = "python/package/unspool/a.py";
        assert_eq!(found(library, "x\n    from unspool_studies.rtm import job\n"), [2]);
        assert_eq!(found(library, "import_module(\"unspool_studies.bench\")\n"), [1]);
        assert_eq!(found("python/src/a.rs", "py.import(\"unspool_studies\")\n"), [1]);
        assert_eq!(found(library, "text = \"pip install unspool-studies\"\n"), NONE);
        assert_eq!(
            found("lab/studies/python/unspool_studies/a.py", "import unspool_studies\n"),
            NONE
        );
    }

    #[test]
    fn private_names_of_the_library_are_found_in_the_laboratory() {
        let study = "lab/studies/python/unspool_studies/a.py";
        assert_eq!(found(study, "from unspool._unspool import Uses\n"), [1]);
        assert_eq!(found(study, "x\nunspool._adjoint.run()\n"), [2]);
        assert_eq!(found(study, "from unspool import _files\n"), [1]);
        assert_eq!(found(study, "from unspool.codecs import (\n    Bound,\n    _b,\n)\n_c\n"), [3]);
        assert_eq!(found("lab/studies/tests/test_a.py", "import unspool._plan.links\n"), [1]);
    }

    #[test]
    fn public_names_and_those_of_the_laboratory_itself_are_fine() {
        let study = "lab/studies/python/unspool_studies/a.py";
        let text = "from unspool import Spool, __version__\nfrom unspool_studies._native import A\n\
                    unspool.advice.plan(_x)\nfrom unspool.cli import (\n    Parser,\n)\n_y = 1\n";
        assert_eq!(found(study, text), NONE);
    }
}
