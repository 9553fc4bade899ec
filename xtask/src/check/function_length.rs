//! Functions are short: in every crate 98 % have at most 70 lines, and none has over 120.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::rust::{self, Function};
use crate::tree::{File, Tree};

const LONG: usize = 70;
const CAP: usize = 120;
/// One function in this many may be long.
const ONE_IN: usize = 50;

/// A function and the file it is in.
type Located = (String, Function);

/// Functions over the cap, and long functions in crates with too many of them.
pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let by_crate = all(tree)?;
    Ok(by_crate.values().flat_map(|functions| judge(functions)).collect())
}

/// The number of functions, and the 50th and 98th percentile of their lengths in lines.
pub fn distribution(tree: &Tree) -> Result<(usize, usize, usize), String> {
    let mut lines: Vec<usize> =
        all(tree)?.values().flatten().map(|(_, function)| function.lines).collect();
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
fn all(tree: &Tree) -> Result<BTreeMap<String, Vec<Located>>, String> {
    let mut by_crate: BTreeMap<String, Vec<Located>> = BTreeMap::new();
    let mut functions = in_rust(tree)?;
    functions.extend(in_python(tree)?);
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

fn in_python(tree: &Tree) -> Result<Vec<Located>, String> {
    let files: Vec<&File> = tree.files.iter().filter(|file| file.is(&["py", "pyi"])).collect();
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (path, functions) in &parse_python(&files)? {
        let functions = functions.as_array().ok_or(format!("{path}: {functions}"))?;
        found.extend(functions.iter().map(|function| (path.clone(), python_function(function))));
    }
    Ok(found)
}

fn python_function(value: &Value) -> Function {
    let number = |index: usize| value[index].as_u64().unwrap_or(0) as usize;
    Function {
        name: value[0].as_str().unwrap_or_default().to_owned(),
        line: number(1),
        lines: number(2),
    }
}

/// Asks Python, which knows its own syntax best.
fn parse_python(files: &[&File]) -> Result<Map<String, Value>, String> {
    let texts = files.iter().map(|file| (file.path.clone(), Value::from(file.text.as_str())));
    let question = Value::Object(texts.collect()).to_string();
    let failed = |error: std::io::Error| format!("cannot run python3: {error}; install it");
    let mut python = Command::new("python3")
        .args(["-I", "-c", include_str!("functions.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = python.stdin.take() {
        input.write_all(question.as_bytes()).map_err(failed)?;
    }
    let output = python.wait_with_output().map_err(failed)?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("python3 did not list its functions: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{check, distribution};
    use crate::tree::Tree;

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
        assert_eq!(distribution(&Tree::of(&[("a.rs", &text)])).unwrap(), (3, 4, 9));
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_an_error_that_names_it() {
        assert!(check(&Tree::of(&[("a.rs", "fn (")])).unwrap_err().starts_with("a.rs:1"));
        assert!(check(&Tree::of(&[("b.py", "def (")])).unwrap_err().starts_with("b.py"));
    }
}
