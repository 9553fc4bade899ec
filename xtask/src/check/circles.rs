//! Files of different rooms do not import each other in a circle, in any crate and in the packages
//! of Python: such files can only be read together.
//!
//! A room is what lies right below the sources: a folder, or a file that stands there alone. An
//! import counts wherever it is written, within functions too; the tests of a file do not.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::graph::{Graph, circles};
use crate::python::Sources;
use crate::tree::Tree;
use crate::{python_imports, rust_imports};

/// The circles of all crates and packages.
pub fn check(tree: &Tree, python: &Sources) -> Vec<Finding> {
    let mut found = Vec::new();
    for (source, graph) in graphs(tree, python) {
        let between = circles(&graph).into_iter().filter(|files| rooms(&source, files).len() > 1);
        found.extend(between.map(finding));
    }
    found
}

/// How many circles there are, those within one room included.
pub fn count(tree: &Tree, python: &Sources) -> usize {
    graphs(tree, python).values().map(|graph| circles(graph).len()).sum()
}

fn graphs(tree: &Tree, python: &Sources) -> BTreeMap<String, Graph> {
    let mut graphs = rust_imports::graphs(tree);
    graphs.extend(python_imports::graphs(python));
    graphs
}

/// The rooms that these files lie in.
fn rooms<'a>(source: &str, files: &'a [String]) -> BTreeSet<&'a str> {
    let below = |path: &'a str| path.strip_prefix(source).unwrap_or(path).trim_start_matches('/');
    files.iter().filter_map(|path| below(path).split(['/', '.']).next()).collect()
}

fn finding(files: Vec<String>) -> Finding {
    Finding::new(
        &files[0],
        1,
        format!("a circle of imports: {}", files.join(", ")),
        "files that import each other in a circle can only be read together",
        "Move what both need into one of them or below both, or hand it in from above",
    )
}

#[cfg(test)]
mod tests {
    use super::{check, count};
    use crate::python::read;
    use crate::tree::Tree;

    fn found(files: &[(&str, &str)]) -> (usize, usize) {
        let tree = Tree::of(files);
        let python = read(&tree).unwrap();
        (check(&tree, &python).len(), count(&tree, &python))
    }

    const MANIFEST: (&str, &str) = ("engine/a/Cargo.toml", "");

    #[test]
    fn a_circle_of_two_rooms_of_a_crate_is_found_however_it_is_written() {
        let b = ("engine/a/src/b.rs", "use crate::c::{self, d::E};\n");
        for text in ["use super::b::F;\n", "fn x() {\n    crate::b::f()\n}\n"] {
            assert_eq!(found(&[MANIFEST, b, ("engine/a/src/c.rs", text)]), (1, 1), "{text}");
        }
        let inner = ("engine/a/src/c/mod.rs", "mod d;\n");
        let d = ("engine/a/src/c/d.rs", "use crate::b::F;\n");
        assert_eq!(found(&[MANIFEST, b, inner, d]), (1, 1));
    }

    #[test]
    fn a_circle_within_a_room_is_counted_and_allowed() {
        let x = ("engine/a/src/c/x.rs", "use super::y::Y;\n");
        let y = ("engine/a/src/c/y.rs", "use super::x::X;\n");
        assert_eq!(found(&[MANIFEST, ("engine/a/src/c/mod.rs", "mod x;\n"), x, y]), (0, 1));
    }

    #[test]
    fn what_tests_comments_and_visibilities_name_is_no_import() {
        let b = ("engine/a/src/b.rs", "use crate::c::D;\n");
        let inner = ("engine/a/src/c/mod.rs", "use crate::b::E;\n");
        let d = ("engine/a/src/c/d.rs", "pub(super) struct D;\npub(in crate::c) struct E;\n");
        let b_of_d = ("engine/a/src/b.rs", "use crate::c::d::D;\n");
        assert_eq!(found(&[MANIFEST, b_of_d, inner, d]), (0, 0));
        let c = "// crate::b\n#[cfg(test)]\nmod tests {\n    use crate::b::F;\n}\n";
        assert_eq!(found(&[MANIFEST, b, ("engine/a/src/c.rs", c)]), (0, 0));
        let tests = ("engine/a/src/c_tests.rs", "use crate::b::F;\n");
        let c = ("engine/a/src/c.rs", "#[cfg(test)]\n#[path = \"c_tests.rs\"]\nmod tests;\n");
        assert_eq!(found(&[MANIFEST, b, c, tests]), (0, 0));
    }

    #[test]
    fn modules_of_python_are_rooms_and_lazy_imports_count() {
        let package = "python/package/unspool";
        let files = |a: &str, b: &str, text: &str| {
            let other = format!("{package}/{b}.py");
            found(&[
                (&format!("{package}/__init__.py"), ""),
                (&format!("{package}/{a}.py"), text),
                (&other, "def f():\n    from unspool import a\n"),
            ])
        };
        assert_eq!(files("a", "b", "from . import b\n"), (1, 1));
        assert_eq!(files("a", "b", "if TYPE_CHECKING:\n    from . import b\n"), (0, 0));
    }
}
