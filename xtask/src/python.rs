//! What the checks need to know about Python files: asked of Python, which knows its syntax best.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::rust::Function;
use crate::tree::{File, Tree};

/// An import that runs: within functions too, not those for type checkers alone.
#[derive(Clone, Debug)]
pub struct Import {
    /// The module, with the dots of a relative import before it.
    pub module: String,
    /// The names that are taken from it; none for `import module`.
    pub names: Vec<String>,
}

/// One file of Python.
#[derive(Clone, Default, Debug)]
pub struct Source {
    /// Its functions; the name of a method has its class before a dot.
    pub functions: Vec<Function>,
    /// How many parameters a caller of each function sees.
    pub parameters: Vec<usize>,
    /// Its imports.
    pub imports: Vec<Import>,
    /// What `__all__` lists.
    pub all: Option<Vec<String>>,
}

/// The Python files of a tree, by path.
pub type Sources = BTreeMap<String, Source>;

/// Reads all Python files of the tree, stubs included.
pub fn read(tree: &Tree) -> Result<Sources, String> {
    let files: Vec<&File> = tree.files.iter().filter(|file| file.is(&["py", "pyi"])).collect();
    if files.is_empty() {
        return Ok(Sources::new());
    }
    let answer = asked(&files)?;
    let facts = answer.as_object().ok_or("python3 did not answer with an object")?;
    facts.iter().map(|(path, facts)| Ok((path.clone(), source(path, facts)?))).collect()
}

fn asked(files: &[&File]) -> Result<Value, String> {
    let texts = files.iter().map(|file| (file.path.clone(), Value::from(file.text.as_str())));
    let question = Value::Object(texts.collect()).to_string();
    let failed = |error: std::io::Error| format!("cannot run python3: {error}; install it");
    let mut python = Command::new("python3")
        .args(["-I", "-c", include_str!("python.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = python.stdin.take() {
        input.write_all(question.as_bytes()).map_err(failed)?;
    }
    let output = python.wait_with_output().map_err(failed)?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("python3 did not say what its files have: {error}"))
}

fn source(path: &str, facts: &Value) -> Result<Source, String> {
    if let Some(reason) = facts.as_str() {
        return Err(format!("{path}: {reason}"));
    }
    let functions = list(&facts["functions"]);
    Ok(Source {
        functions: functions.iter().map(function).collect(),
        parameters: functions.iter().map(|one| number(&one[3])).collect(),
        imports: list(&facts["imports"]).iter().map(import).collect(),
        all: facts["all"].as_array().map(|names| names.iter().map(text).collect()),
    })
}

fn function(value: &Value) -> Function {
    Function { name: text(&value[0]), line: number(&value[1]), lines: number(&value[2]) }
}

fn import(value: &Value) -> Import {
    let names = list(&value[1]).iter().map(text).collect();
    Import { module: text(&value[0]), names }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or(0) as usize
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::tree::Tree;

    #[test]
    fn functions_have_the_parameters_that_a_caller_sees() {
        let text = "class A:\n    def b(self, c, *, d): ...\ndef e(self, /, *f, **g):\n    pass\n";
        let found = &read(&Tree::of(&[("a.py", text)])).unwrap()["a.py"];
        let names: Vec<&str> = found.functions.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((names, &found.parameters), (vec!["A.b", "e"], &vec![2, 3]));
    }

    #[test]
    fn imports_that_only_type_checkers_read_do_not_count() {
        let text = "import a.b\nif TYPE_CHECKING:\n    import c\nelse:\n    import d\n\
                    def f():\n    from ..e import g, h\n__all__ = [\"x\"]\n";
        let found = &read(&Tree::of(&[("a.py", text)])).unwrap()["a.py"];
        let modules: Vec<&str> = found.imports.iter().map(|one| one.module.as_str()).collect();
        assert_eq!(modules, ["a.b", "d", "..e"]);
        assert_eq!(found.imports[2].names, ["g", "h"]);
        assert_eq!(found.all, Some(vec!["x".to_owned()]));
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_an_error_that_names_it() {
        assert!(read(&Tree::of(&[("b.py", "def (")])).unwrap_err().starts_with("b.py"));
    }
}
