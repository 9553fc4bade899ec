//! What a check has to say about one line of one file.

use std::fmt;

/// One violation: where it is, what is wrong, why that matters, and how to mend it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Path from the root of the project.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// Why the project minds.
    pub why: &'static str,
    /// What to do about it.
    pub fix: &'static str,
}

impl Finding {
    /// A finding about line `line` of `path`.
    pub fn new(
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        why: &'static str,
        fix: &'static str,
    ) -> Finding {
        Finding { path: path.into(), line, what: what.into(), why, fix }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { path, line, what, why, fix } = self;
        write!(f, "{path}:{line}: {what}: {why}. {fix}.")
    }
}

#[cfg(test)]
mod tests {
    use super::Finding;

    #[test]
    fn a_finding_reads_as_place_what_why_and_remedy() {
        let finding = Finding::new("a/b.rs", 7, "x is wrong", "y minds", "Do z");
        assert_eq!(finding.to_string(), "a/b.rs:7: x is wrong: y minds. Do z.");
    }
}
