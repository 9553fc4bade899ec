//! Decisions have numbers that are unique across the project, whatever their folder.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::tree::Tree;

/// Decisions with the number of another one.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    let records = tree.files.iter().filter_map(|file| Some((number(&file.path)?, &file.path)));
    let twice = records.filter_map(|(number, path)| {
        let first = *taken.entry(number).or_insert(path);
        (first != path).then(|| {
            Finding::new(
                path,
                1,
                format!("the number {number} is that of {first}"),
                "a decision is named by its number",
                "Take the next number of the whole project",
            )
        })
    });
    twice.collect()
}

/// The number of a decision: what its file's name begins with.
fn number(path: &str) -> Option<&str> {
    let (_, name) = path.rsplit_once("decisions/")?;
    let (number, _) = name.split_once('-')?;
    (name.ends_with(".md") && number.parse::<u32>().is_ok()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    #[test]
    fn a_number_that_two_districts_have_is_found() {
        let two =
            [("engine/decisions/0003-checksum.md", ""), ("restart/decisions/0003-owner.md", "")];
        let found = check(&Tree::of(&two));
        assert_eq!((found.len(), found[0].path.as_str()), (1, two[1].0));
        let apart = [two[0], ("restart/decisions/0004-owner.md", ""), ("docs/0003-a.md", "")];
        assert_eq!(check(&Tree::of(&apart)), []);
    }
}
