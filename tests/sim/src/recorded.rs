//! Check of the stream order of a recorded run of the library.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use unspool_verify::{TextCheck, TextError, Trouble, Verdict};

/// Maximum number of reported violations; one missing wait often causes many.
const MOST_SHOWN: usize = 10;

/// Why a recorded run was not found in order.
#[derive(Debug)]
pub enum RecordedError {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// A line that the format of recorded runs does not allow.
    Malformed(TextError),
    /// The run was not in order.
    Unordered {
        /// The first violations.
        first: Vec<TextError>,
        /// The number of violations.
        count: u64,
        /// The counters of the run.
        verdict: Box<Verdict>,
    },
}

/// Checks the lines of a file to its end.
///
/// # Errors
/// When it cannot be read, is malformed, or records a run that was not in order.
pub fn check_file(path: &Path) -> Result<Verdict, RecordedError> {
    let file = File::open(path).map_err(RecordedError::Unreadable)?;
    check(BufReader::new(file))
}

/// Checks the lines of `text`.
///
/// # Errors
/// As for [`check_file`].
pub fn check(text: impl BufRead) -> Result<Verdict, RecordedError> {
    let mut check = TextCheck::new();
    let (mut first, mut count) = (Vec::new(), 0);
    for line in text.lines() {
        let line = line.map_err(RecordedError::Unreadable)?;
        let Err(error) = check.line(&line) else { continue };
        if matches!(error.trouble, Trouble::Line(_)) {
            return Err(RecordedError::Malformed(error));
        }
        count += 1;
        if first.len() < MOST_SHOWN {
            first.push(error);
        }
    }
    let verdict = check.finish().map_err(RecordedError::Malformed)?;
    if count == 0 {
        return Ok(verdict);
    }
    Err(RecordedError::Unordered { first, count, verdict: Box::new(verdict) })
}

impl fmt::Display for RecordedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => {
                write!(f, "cannot be read: {error}; give the file that a run was recorded into")
            }
            Self::Malformed(error) => {
                write!(f, "is not a recorded run: {error}; record it with this version of unspool")
            }
            Self::Unordered { first, count, verdict } => {
                writeln!(f, "is NOT in order, violations: {count}")?;
                first.iter().try_for_each(|error| writeln!(f, "  {error}"))?;
                write!(f, "{verdict}")
            }
        }
    }
}

impl std::error::Error for RecordedError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(lines: &str) -> Result<Verdict, RecordedError> {
        check(format!("unspool-order 1\n{lines}").as_bytes())
    }

    #[test]
    fn a_run_in_order_is_reported_with_its_counters() {
        let run = "write stream:0x1 device:0 0x0..0x10 save\nrecord 1 stream:0x1\nwait host 1\n\
            read host device:0 0x0..0x8 look\n";
        let verdict = judge(run).unwrap();
        assert_eq!((verdict.counted.ops, verdict.counted.bytes), (4, 24));
    }

    #[test]
    fn every_violation_is_counted_and_the_first_ones_are_shown() {
        let write = |at: usize| format!("write stream:{:#x} host 0x0..0x4 save\n", at % 2);
        let text = judge(&(0..21).map(write).collect::<String>()).unwrap_err().to_string();
        assert!(text.starts_with("is NOT in order, violations: 20\n  line 3: "), "{text}");
        assert_eq!(text.matches("is not ordered after").count(), MOST_SHOWN);
    }

    #[test]
    fn what_is_not_a_recorded_run_is_refused() {
        assert!(matches!(judge("nonsense"), Err(RecordedError::Malformed(e)) if e.line == 2));
        assert!(matches!(check(b"".as_slice()), Err(RecordedError::Malformed(_))));
        assert!(matches!(check(b"\xff".as_slice()), Err(RecordedError::Unreadable(_))));
        let missing = check_file(Path::new("no such file")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot be read"), "{missing}");
    }
}
