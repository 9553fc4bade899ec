//! The ranks of a job, as the application has them: MPI, a process group, or none.

use std::fmt;
use std::time::Duration;

/// Why an exchange between ranks did not end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// These ranks had not answered when the time was over.
    Late(Vec<u32>),
    /// It failed, in a sentence.
    Failed(String),
}

/// The ranks of a job.
pub trait Ranks {
    /// The number of this rank, below `size`.
    fn rank(&self) -> u32;

    /// The number of ranks, at least 1.
    fn size(&self) -> u32;

    /// Gives `mine` to every rank and returns what all of them gave, by rank. Every rank calls it
    /// the same number of times.
    ///
    /// # Errors
    /// `Late` names the ranks that did not answer within `timeout`, as far as they are known.
    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, Unanswered>;

    /// Gives `mine` to rank `to` and returns what rank `from` gave to this one. All ranks call it
    /// together, each as `to` and as `from` of one other. Unless it says otherwise, every message
    /// goes to all ranks.
    ///
    /// # Errors
    /// As of [`all_gather`](Self::all_gather).
    fn pass(
        &self,
        mine: &[u8],
        _to: u32,
        from: u32,
        timeout: Duration,
    ) -> Result<Vec<u8>, Unanswered> {
        let all = self.all_gather(mine, timeout)?;
        let given = all.into_iter().nth(from as usize);
        given.ok_or_else(|| Unanswered::Late(vec![from]))
    }
}

impl Unanswered {
    /// The answers of all ranks; `Late` where one of them is missing.
    ///
    /// # Errors
    /// `Late`, with the ranks that are missing.
    pub fn unless_all(answers: Vec<Option<Vec<u8>>>) -> Result<Vec<Vec<u8>>, Unanswered> {
        let missing = (0..).zip(&answers).filter(|(_, answer)| answer.is_none());
        let missing: Vec<u32> = missing.map(|(rank, _)| rank).collect();
        if missing.is_empty() {
            return Ok(answers.into_iter().flatten().collect());
        }
        Err(Unanswered::Late(missing))
    }
}

/// A job of one rank.
#[derive(Clone, Copy, Default, Debug)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn all_gather(&self, mine: &[u8], _timeout: Duration) -> Result<Vec<Vec<u8>>, Unanswered> {
        Ok(vec![mine.to_vec()])
    }
}

/// Ranks in words: `rank 3`, `ranks 3, 5 and 9`.
pub(crate) fn named(ranks: &[u32]) -> impl fmt::Display {
    let words: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match words.as_slice() {
        [] => "a rank".to_owned(),
        [one] => format!("rank {one}"),
        [most @ .., last] => format!("ranks {} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn ranks_are_named_in_words() {
        assert_eq!(named(&[3]).to_string(), "rank 3");
        assert_eq!(named(&[3, 5, 9]).to_string(), "ranks 3, 5 and 9");
        assert_eq!(named(&[]).to_string(), "a rank");
    }
}
