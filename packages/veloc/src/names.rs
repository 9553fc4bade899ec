//! Names of checkpoints, files and objects, made from numbers and read back into them, and the
//! small text that a manifest carries. Pure.

use unspool_codec::checksum;
use unspool_restart::{Part, Run};

/// The longest name of a checkpoint: names of files have at most 255 bytes, and ours say more.
pub(crate) const LONGEST: usize = 200;

/// Refuses what is not the name of a checkpoint, as the end of a sentence that begins with it. No
/// name that is taken can lead out of a folder.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) || name.bytes().all(|byte| byte == b'.') {
        return Err("is not the name of a checkpoint: use letters, digits, `_` and `.`, such as \
                    heat.2d"
            .to_owned());
    }
    if name.len() > LONGEST {
        return Err(format!("is too long for the name of a checkpoint: use at most {LONGEST}"));
    }
    Ok(())
}

/// The number under which a spool and a manifest have a checkpoint: the number of its name, and its
/// version.
pub(crate) fn step(name: u32, version: u32) -> u64 {
    u64::from(name) << 32 | u64::from(version)
}

/// The number of the name, and the version, of a step.
pub(crate) fn unstep(step: u64) -> (u32, u32) {
    ((step >> 32) as u32, step as u32)
}

/// The file that a program writes by itself.
pub(crate) fn routed(name: &str, id: u32, version: u32) -> String {
    format!("{name}-{id}-{version}.dat")
}

/// What a manifest says about a part beside its numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    /// The name of the checkpoint.
    pub(crate) name: String,
    /// Whether it has regions of memory.
    pub(crate) memory: bool,
    /// The bytes of the file that the program wrote, if it wrote one, and their checksum.
    pub(crate) file: Option<(u64, u64)>,
}

impl Content {
    /// As JSON, in one way.
    pub(crate) fn render(&self) -> String {
        let Content { name, memory, file } = self;
        let file = file.map_or("null".to_owned(), |(bytes, sum)| format!("[{bytes}, \"{sum:x}\"]"));
        format!("{{\"name\": \"{name}\", \"memory\": {memory}, \"file\": {file}}}")
    }

    /// What a manifest says; `None` when it is not one of these.
    pub(crate) fn parse(text: &str) -> Option<Content> {
        let rest = text.strip_prefix("{\"name\": \"")?;
        let (name, rest) = rest.split_once("\", \"memory\": ")?;
        let (memory, rest) = rest.split_once(", \"file\": ")?;
        let file = match rest.strip_suffix('}')? {
            "null" => None,
            file => {
                let (bytes, sum) =
                    file.strip_prefix('[')?.strip_suffix("\"]")?.split_once(", \"")?;
                Some((bytes.parse().ok()?, u64::from_str_radix(sum, 16).ok()?))
            }
        };
        let found = Content { name: name.to_owned(), memory: memory.parse().ok()?, file };
        (check(name).is_ok() && found.render() == text).then_some(found)
    }
}

/// The folder of a name in persistent, which has one for each client.
pub(crate) fn folder(name: &str) -> String {
    format!("veloc-{name}/")
}

/// The word with which the names of a part's objects begin; the step is the version.
pub(crate) fn word(part: Part) -> String {
    format!("{}-{}", part.step, part.run)
}

/// The part that a word is of.
pub(crate) fn parse_word(text: &str) -> Option<Part> {
    let (version, run) = text.split_once('-')?;
    let run = Run(u128::from_str_radix(run, 16).ok()?);
    let part = Part { step: u64::from(version.parse::<u32>().ok()?), run };
    (word(part) == text).then_some(part)
}

/// A number of a run that later runs exceed: the time at which it began, and chance.
pub(crate) fn run(nanoseconds: u64, chance: u64) -> Run {
    Run(u128::from(nanoseconds) << 64 | u128::from(checksum(&chance.to_le_bytes())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_name_leads_out_of_a_folder() {
        for name in ["heat", "heat.2d", "A_1", ".hidden", "..a"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        for name in ["", ".", "..", "...", "a/b", "../a", "a b", "a-b", "é", "a\0", &long] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn steps_and_parts_come_back() {
        assert_eq!(unstep(step(3, u32::MAX)), (3, u32::MAX));
        assert_eq!(step(0, 300), 300);
        let part = Part { step: 300, run: run(7, 8) };
        assert_eq!(parse_word(&word(part)), Some(part));
        assert_eq!(word(Part { run: Run(0xab), ..part }), format!("300-{:032x}", 0xab));
        assert_eq!(parse_word(&word(part).replace("300-", "0300-")), None);
        assert_eq!(parse_word(&word(Part { step: 1 << 32, ..part })), None);
        assert!(run(8, 0) > run(7, u64::MAX));
    }

    #[test]
    fn content_has_one_way_to_be_written() {
        for file in [None, Some((0, 0)), Some((u64::MAX, u64::MAX))] {
            for memory in [false, true] {
                let content = Content { name: "heat".into(), memory, file };
                assert_eq!(Content::parse(&content.render()), Some(content.clone()));
                for end in 0..content.render().len() {
                    assert_eq!(Content::parse(&content.render()[..end]), None);
                }
            }
        }
        assert_eq!(Content::parse("{}"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in "\\PC{0,60}") {
            prop_assert!(Content::parse(&text).is_none());
            prop_assert!(parse_word(&text).is_none());
        }
    }
}
