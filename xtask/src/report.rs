//! The figures that tidy prints: what the budgets count.

use crate::check::{circles, file_length, function_length, rooms};
use crate::python::Sources;
use crate::tree::Tree;

/// The lines of each room, then median lengths of files and functions, and how many circles of
/// imports there are, those within one room included.
pub fn summary(tree: &Tree, python: &Sources) -> Result<String, String> {
    let (median, files) = file_length::median(tree);
    let (functions, half, most) = function_length::distribution(tree, python)?;
    let circles = circles::count(tree, python);
    Ok(format!(
        "{}tidy: {files} source files, median {median} lines; {functions} functions, median {half} \
         lines, 98 % within {most}; {circles} circles of imports\n",
        rooms::table(tree)
    ))
}

#[cfg(test)]
mod tests {
    use super::summary;
    use crate::python::Sources;
    use crate::tree::Tree;

    #[test]
    fn the_summary_names_files_and_functions() {
        let said = summary(&Tree::of(&[("a.rs", "fn a() {\n}\n")]), &Sources::new()).unwrap();
        assert!(said.contains("1 source files, median 2 lines; 1 functions, median 2"), "{said}");
    }
}
