//! What ships says what is, not what somebody meant to do: no planning words.

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// Marks that stand alone as words. Written in pieces, so that this file passes its own check.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Phrases, compared without regard to case.
const PHRASES: &[&str] = &[
    concat!("not yet ", "implemented"),
    concat!("to be ", "implemented"),
    concat!("in a later ", "pr"),
    concat!("in a later ", "pull request"),
    concat!("in a future ", "pr"),
    concat!("unimpl", "emented!("),
];

/// Lines with a planning word, in every text file but the lock files.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.files.iter().filter(|file| !file.is(&["lock"]));
    files.flat_map(planned).collect()
}

fn planned(file: &File) -> Vec<Finding> {
    file.lines()
        .filter_map(|(line, text)| Some((line, mark(text).or_else(|| phrase(text))?)))
        .map(|(line, word)| {
            Finding::new(
                &file.path,
                line,
                format!("the words \"{word}\""),
                "shipped text says what is, not what is planned",
                "Do it now, or say plainly what the code does not do",
            )
        })
        .collect()
}

fn mark(text: &str) -> Option<&'static str> {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find_map(|word| MARKS.iter().find(|mark| **mark == word).copied())
}

fn phrase(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    PHRASES.iter().find(|phrase| text.contains(**phrase)).copied()
}

#[cfg(test)]
mod tests {
    use super::{MARKS, PHRASES, check};
    use crate::tree::Tree;

    #[test]
    fn every_mark_and_every_phrase_is_found() {
        for word in MARKS.iter().chain(PHRASES) {
            let text = format!("fine\n# {word}: later\n");
            let found = check(&Tree::of(&[("docs/a.md", &text)]));
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!(found[0].line, 2);
        }
    }

    #[test]
    fn marks_count_as_whole_words_only_and_lock_files_are_left_alone() {
        let inside = format!("a{}b", MARKS[2]);
        assert_eq!(check(&Tree::of(&[("a.rs", &inside), ("Cargo.lock", MARKS[0])])), []);
    }
}
