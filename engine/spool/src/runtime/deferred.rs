//! Checkpoints that turned out not to be saved after their calls had returned: all that are known
//! are told at once, by the next call that can fail or by close.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The most versions that a sentence lists.
const MOST_NAMES: usize = 32;

/// One of them.
#[derive(Debug)]
pub(crate) struct Unsaved {
    pub(crate) version: i64,
    pub(crate) error: Error,
}

impl Unsaved {
    /// Its cause, without its version.
    fn why(&self) -> String {
        let text = self.error.message();
        let head = format!("Version {} was not saved: ", self.version);
        text.strip_prefix(&head).unwrap_or(text).to_owned()
    }
}

/// One error for all of them, each cause with its versions; `None` when there are none.
pub(crate) fn as_one_error(all: Vec<Unsaved>) -> Option<Error> {
    let mut causes: Vec<(String, Vec<i64>)> = Vec::new();
    for one in &all {
        let why = one.why();
        match causes.iter_mut().find(|(known, _)| *known == why) {
            Some((_, versions)) => versions.push(one.version),
            None => causes.push((why, vec![one.version])),
        }
    }
    let sentence = |(why, versions): &(String, Vec<i64>)| match versions[..] {
        [one] if tells_of(why, one) => why.clone(),
        _ => format!("{} not saved: {why}", named(versions, "was", "were")),
    };
    let sentences: Vec<String> = causes.iter().map(sentence).collect();
    let unsaved = all.iter().map(|one| (one.version, one.error.kind())).collect();
    let first = all.into_iter().next()?;
    Some(first.error.saying(sentences.join(" ")).about(unsaved))
}

/// Whether a sentence names this version.
fn tells_of(text: &str, version: i64) -> bool {
    let name = format!("ersion {version}");
    let mut rests = text.split(&name).skip(1);
    rests.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

/// The error of a call that waited for these in vain.
pub(crate) fn late(versions: &[i64], waited: Duration) -> Error {
    let message = format!(
        "{}: the GPU has not finished encoding within {:.1} s, and goes on with it. Look at what \
         it computes, or raise `timeout`.",
        names(versions),
        waited.as_secs_f64()
    );
    Error::new(ErrorKind::Timeout, message)
}

/// The error of a spool that was closed before these were encoded.
pub(crate) fn given_up(versions: &[i64], timeout: Duration) -> Error {
    let message = format!(
        "{} not saved: the GPU had not encoded all checkpoints within {:.1} s, when the spool was \
         closed. Look at what it computes, or raise `timeout`.",
        named(versions, "was", "were"),
        timeout.as_secs_f64()
    );
    Error::new(ErrorKind::Timeout, message)
}

/// "Version 0 was", "Versions 0 and 1 were".
pub(crate) fn named(versions: &[i64], one: &str, more: &str) -> String {
    format!("{} {}", names(versions), if versions.len() == 1 { one } else { more })
}

/// "Versions 0, 1 and 2".
pub(crate) fn names(versions: &[i64]) -> String {
    let text = |all: &[i64]| all.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    match versions {
        [] => "No version".to_owned(),
        [one] => format!("Version {one}"),
        all if all.len() > MOST_NAMES => {
            let (listed, more) = all.split_at(MOST_NAMES);
            format!("Versions {} and {} more", text(listed), more.len())
        }
        [all @ .., last] => format!("Versions {} and {last}", text(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsaved(version: i64, why: &str) -> Unsaved {
        let message = format!("Version {version} was not saved: {why}");
        Unsaved { version, error: Error::new(ErrorKind::Device, message) }
    }

    #[test]
    fn versions_of_one_cause_share_a_sentence() {
        assert!(as_one_error(Vec::new()).is_none());
        let all = [(0, "it fell."), (1, "it rose."), (2, "it fell."), (3, "it fell.")];
        let error = as_one_error(all.map(|(version, why)| unsaved(version, why)).into()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Device);
        let expected = "Versions 0, 2 and 3 were not saved: it fell. Version 1 was not saved: it \
                        rose.";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn a_cause_that_names_its_version_is_told_as_it_is() {
        let text = |version, why| as_one_error(vec![unsaved(version, why)]).unwrap();
        let why = "There is no room for version 12.";
        assert_eq!(text(12, why).message(), why);
        assert_eq!(text(1, why).message(), format!("Version 1 was not saved: {why}"));
    }

    #[test]
    fn a_long_list_is_cut() {
        let text = names(&(0..40).collect::<Vec<_>>());
        assert!(text.ends_with("30, 31 and 8 more"), "{text}");
    }
}
