//! The figures that tidy prints: the budgets that are aims and not limits.

use crate::check::{file_length, function_length};
use crate::tree::Tree;

/// Median lengths of files and functions, in one sentence.
pub fn summary(tree: &Tree) -> Result<String, String> {
    let (median, files) = file_length::median(tree);
    let (functions, half, most) = function_length::distribution(tree)?;
    Ok(format!(
        "tidy: {files} source files, median {median} lines; {functions} functions, median {half} \
         lines, 98 % within {most}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::summary;
    use crate::tree::Tree;

    #[test]
    fn the_summary_names_files_and_functions() {
        let said = summary(&Tree::of(&[("a.rs", "fn a() {\n}\n")])).unwrap();
        assert!(said.contains("1 source files, median 2 lines; 1 functions, median 2"), "{said}");
    }
}
