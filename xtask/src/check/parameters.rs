//! A public call of the Python package has at most 12 parameters, and the package at most 20 names.

use crate::finding::Finding;
use crate::python::{Source, Sources};

const PACKAGE: &str = "python/package/unspool/";
const PARAMETERS: usize = 12;
const NAMES: usize = 20;

/// Calls with the parameters of another project, which they stand for.
const FOREIGN: &[&str] = &["SingleLevelRevolver.__init__"];

/// Calls that take what a program has, by the program's own names, beside their options.
const OPEN: &[&str] = &["Checkpointer.__init__"];

/// Public calls with too many parameters, and a package with too many names.
pub fn check(python: &Sources) -> Vec<Finding> {
    let own = python.iter().filter(|(path, _)| path.starts_with(PACKAGE));
    own.flat_map(|(path, source)| {
        let mut found = calls(path, source);
        found.extend(names(path, source));
        found
    })
    .collect()
}

fn calls(path: &str, source: &Source) -> Vec<Finding> {
    let counted = source.functions.iter().zip(&source.parameters);
    counted
        .filter(|(function, count)| is_public(&function.name) && **count > most(&function.name))
        .map(|(function, count)| {
            Finding::new(
                path,
                function.line,
                format!("{} has {count} parameters", function.name),
                "a public call has at most 12, so that its page can be read",
                "Put those that belong together into a record of options",
            )
        })
        .collect()
}

fn most(name: &str) -> usize {
    match name {
        _ if FOREIGN.contains(&name) => usize::MAX,
        _ if OPEN.contains(&name) => PARAMETERS + 1,
        _ => PARAMETERS,
    }
}

/// Whether users call it: no part of its name is private, but constructors are called.
fn is_public(name: &str) -> bool {
    name.split('.').all(|part| !part.starts_with('_') || ["__init__", "__new__"].contains(&part))
}

fn names(path: &str, source: &Source) -> Option<Finding> {
    let all = source.all.as_ref().filter(|_| path == format!("{PACKAGE}__init__.py"))?;
    (all.len() > NAMES).then(|| {
        Finding::new(
            path,
            1,
            format!("{} names in __all__", all.len()),
            "a public name is a promise, and the package makes at most 20",
            "Leave the name in its module",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{NAMES, check};
    use crate::python::read;
    use crate::tree::Tree;

    fn found(path: &str, text: &str) -> Vec<String> {
        let python = read(&Tree::of(&[(path, text)])).unwrap();
        check(&python).into_iter().map(|finding| finding.what).collect()
    }

    fn call(name: &str, count: usize) -> String {
        let parameters: Vec<String> = (0..count).map(|index| format!("p{index}")).collect();
        format!("def {name}({}): ...\n", parameters.join(", "))
    }

    #[test]
    fn a_public_call_with_thirteen_parameters_is_found() {
        let file = "python/package/unspool/_a/b.py";
        assert_eq!(found(file, &call("save", 13)), ["save has 13 parameters"]);
        assert!(found(file, &call("save", 12)).is_empty());
        assert!(found(file, &call("_save", 13)).is_empty());
        assert!(found("python/tests/test_a.py", &call("save", 13)).is_empty());
    }

    #[test]
    fn a_constructor_is_a_call_of_its_class() {
        let text = format!("class Run:\n    {}", call("__init__", 14));
        assert_eq!(found("python/package/unspool/a.pyi", &text).len(), 1);
        assert!(found("python/package/unspool/a.pyi", &text.replace("Run", "_Run")).is_empty());
    }

    #[test]
    fn a_call_that_takes_what_a_program_has_may_have_one_more() {
        let text = |count| format!("class Checkpointer:\n    {}", call("__init__", count));
        assert!(found("python/package/unspool/a.py", &text(13)).is_empty());
        assert_eq!(found("python/package/unspool/a.py", &text(14)).len(), 1);
    }

    #[test]
    fn a_package_with_too_many_names_is_found() {
        let names: Vec<String> = (0..=NAMES).map(|index| format!("\"n{index}\"")).collect();
        let text = format!("__all__ = [{}]\n", names.join(", "));
        assert_eq!(found("python/package/unspool/__init__.py", &text).len(), 1);
        assert!(found("python/package/unspool/torch/__init__.py", &text).is_empty());
    }
}
