//! Functions are short: in every crate 98 % have at most 70 lines, and none has over 120.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::python::Sources;
use crate::rust::{self, Function};
use crate::tree::Tree;

const LONG: usize = 70;
const CAP: usize = 120;
/// One function in this many may be long.
const ONE_IN: usize = 50;

/// A function and the file it is in.
type Located = (String, Function);

/// Functions over the cap, and long functions in crates with too many of them.
pub fn check(tree: &Tree, python: &Sources) -> Result<Vec<Finding>, String> {
    let by_crate = all(tree, python)?;
    Ok(by_crate.values().flat_map(|functions| judge(functions)).collect())
}

/// The number of functions, and the 50th and 98th percentile of their lengths in lines.
pub fn distribution(tree: &Tree, python: &Sources) -> Result<(usize, usize, usize), String> {
    let mut lines: Vec<usize> =
        all(tree, python)?.values().flatten().map(|(_, function)| function.lines).collect();
    lines.sort_unstable();
    let at = |percent: usize| lines.get(lines.len() * percent / 100).copied().unwrap_or(0);
    Ok((lines.len(), at(50), at(98)))
}

fn judge(functions: &[Located]) -> Vec<Finding> {
    let long = functions.iter().filter(|(_, function)| function.lines > LONG);
    let too_many = long.clone().count() * ONE_IN > functions.len();
    long.filter(|(_, function)| too_many || function.lines > CAP)
        .map(|(path, function)| {
            Finding::new(
                path,
                function.line,
                format!("{} has {} lines", function.name, function.lines),
                "98 % of the functions of a crate have at most 70 lines, and none has over 120",
                "Take out the parts that have a name of their own",
            )
        })
        .collect()
}

/// The functions of all Rust and Python files, by crate.
fn all(tree: &Tree, python: &Sources) -> Result<BTreeMap<String, Vec<Located>>, String> {
    let mut by_crate: BTreeMap<String, Vec<Located>> = BTreeMap::new();
    let mut functions = in_rust(tree)?;
    functions.extend(in_python(python));
    for (path, function) in functions {
        by_crate.entry(crate_of(&path)).or_default().push((path, function));
    }
    Ok(by_crate)
}

/// The folder that counts as one crate: two levels below the districts that hold several, else one.
fn crate_of(path: &str) -> String {
    let several = ["engine/", "packages/", "lab/"].iter().any(|folder| path.starts_with(folder));
    let levels = if several { 2 } else { 1 };
    path.split('/').take(levels).collect::<Vec<_>>().join("/")
}

fn in_rust(tree: &Tree) -> Result<Vec<Located>, String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.is(&["rs"])) {
        let functions = rust::functions(&file.text)
            .map_err(|error| format!("{}:{}: {error}", file.path, error.span().start().line))?;
        found.extend(functions.into_iter().map(|function| (file.path.clone(), function)));
    }
    Ok(found)
}

fn in_python(python: &Sources) -> impl Iterator<Item = Located> {
    python.iter().flat_map(|(path, source)| {
        source.functions.iter().map(|function| (path.clone(), function.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::Finding;
    use crate::python::read;
    use crate::tree::Tree;

    fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
        super::check(tree, &read(tree)?)
    }

    fn rust(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    fn python(name: &str, lines: usize) -> String {
        format!("def {name}(\n):\n{}", "    x()\n".repeat(lines - 2))
    }

    #[test]
    fn one_long_function_in_fifty_is_allowed_and_two_are_not() {
        let short: String = (0..98).map(|index| rust(&format!("s{index}"), 5)).collect();
        let one = short.clone() + &rust("long", 71);
        assert_eq!(check(&Tree::of(&[("engine/a/x.rs", &one)])).unwrap(), []);
        let many = one + &rust("longer", 71) + &rust("longest", 71);
        let found = check(&Tree::of(&[("engine/a/x.rs", &many)])).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].what, "long has 71 lines");
    }

    #[test]
    fn a_function_over_the_cap_is_found_however_many_there_are() {
        let short: String = (0..98).map(|index| rust(&format!("s{index}"), 5)).collect();
        let found = check(&Tree::of(&[("a/x.rs", &(short + &rust("huge", 121)))])).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].what.as_str()), (491, "huge has 121 lines"));
    }

    #[test]
    fn crates_are_judged_apart_and_python_functions_too() {
        let short: String = (0..98).map(|index| rust(&format!("s{index}"), 5)).collect();
        let files = [("engine/a/x.rs", short), ("python/y.py", python("long", 71))];
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (*p, t.as_str())).collect();
        let found = check(&Tree::of(&files)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("python/y.py", 1));
    }

    #[test]
    fn the_distribution_covers_all_files() {
        let text = rust("a", 3) + &rust("b", 4) + &rust("c", 9);
        let tree = Tree::of(&[("a.rs", &text)]);
        let found = super::distribution(&tree, &read(&tree).unwrap()).unwrap();
        assert_eq!(found, (3, 4, 9));
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_an_error_that_names_it() {
        assert!(check(&Tree::of(&[("a.rs", "fn (")])).unwrap_err().starts_with("a.rs:1"));
    }
}
