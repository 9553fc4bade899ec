//! What is missing or poor, judged from what was found and from nothing else.

mod cuda;
mod disk;
mod memory;
mod text;

use super::Diagnosis;
pub(crate) use text::Bytes;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Something does not work at all.
    Missing,
    /// Something works, and much slower or with less room than it could.
    Poor,
    /// Nothing is wrong; it is good to know.
    Note,
}

impl Level {
    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Missing => "missing",
            Level::Poor => "poor",
            Level::Note => "note",
        }
    }
}

/// One thing that is missing or poor, in full sentences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about, in a word or two: `"CUDA"`, `"device 0"`, `"main memory"`, `"disk"`.
    pub about: String,
    /// What was found.
    pub what: String,
    /// What that means for a spool.
    pub meaning: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    fn new(level: Level, about: &str, texts: [String; 3]) -> Finding {
        let [what, meaning, remedy] = texts;
        debug_assert!(!what.is_empty() && !meaning.is_empty() && !remedy.is_empty());
        Finding { level, about: about.to_owned(), what, meaning, remedy }
    }
}

/// Everything that is missing or poor in `diagnosis`, the worst first.
pub(super) fn all(diagnosis: &Diagnosis) -> Vec<Finding> {
    let mut findings = cuda::judge(diagnosis);
    findings.extend(memory::judge(diagnosis));
    findings.extend(diagnosis.disk.iter().flat_map(disk::judge));
    findings.sort_by_key(|finding| finding.level);
    findings
}

#[cfg(test)]
mod tests;
