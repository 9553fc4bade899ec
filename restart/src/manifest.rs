//! The manifest of a checkpoint: the small file that makes one rank's part of it count. Its bytes
//! are specified in `docs/reference/format.md`.

use std::fmt;

use unspool_codec::checksum;

/// The most bytes of the small values of a checkpoint.
pub const MOST_VALUES: usize = 1 << 20;

/// The most bytes of a manifest.
pub(crate) const MOST_BYTES: usize = MOST_VALUES + 1024;

/// The versions of the format: of a part that is stored in full, of one that is an increment, and
/// of a copy beyond the folder.
const FULL: &str = "1";
const INCREMENT: &str = "2";
const COPY: &str = "3";

const NAME: &str = "unspool-checkpoint";

/// What two runs that write into the same folder differ in: a random number that all ranks share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run(pub u128);

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One rank's part of a checkpoint, as ranks tell each other of it. Parts of the same step that
/// different runs wrote are not parts of one checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    /// The step.
    pub step: u64,
    /// The run that wrote it.
    pub run: Run,
}

/// What a part that is stored as an increment builds on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Increment {
    /// The step before, of the same run.
    pub parent: u64,
    /// The bytes of the frame of the increment.
    pub bytes: u64,
}

/// What a manifest says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// The step of the checkpoint; it is the version of the frame.
    pub step: u64,
    /// The rank whose part it is.
    pub rank: u32,
    /// The number of ranks that have a part.
    pub ranks: u32,
    /// The run that wrote it.
    pub run: Run,
    /// The bytes of its arrays.
    pub bytes: u64,
    /// The milliseconds from the save to where the arrays were durable.
    pub milliseconds: u64,
    /// When it was written, in seconds since 1970.
    pub written: u64,
    /// What it builds on; `None` where it is stored in full.
    pub increment: Option<Increment>,
    /// The checksum of all bytes of the frame, of a copy beyond the folder: there another run may
    /// have put another frame in its place.
    pub frame: Option<u64>,
    /// The small values of the application: JSON, which nothing here looks into.
    pub values: String,
}

/// What is wrong with a manifest, as the end of a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError(String);

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// The part that it makes count.
    #[must_use]
    pub fn part(&self) -> Part {
        Part { step: self.step, run: self.run }
    }

    /// The bytes of the file.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let Manifest { step, rank, ranks, run, bytes, milliseconds, written, values, .. } = self;
        let (format, more) = match (self.increment, self.frame) {
            (Some(Increment { parent, bytes }), _) => {
                (INCREMENT, format!("parent {parent}\nstored {bytes}\n"))
            }
            (None, Some(sum)) => (COPY, format!("frame {sum:016x}\n")),
            (None, None) => (FULL, String::new()),
        };
        let text = format!(
            "{NAME} {format}\nstep {step}\nrank {rank}\nranks {ranks}\nrun {run}\nbytes {bytes}\n\
             milliseconds {milliseconds}\nwritten {written}\n{more}values {}\n{values}\n",
            values.len()
        );
        let sum = checksum(text.as_bytes());
        format!("{text}checksum {sum:016x}\n").into_bytes()
    }

    /// What the bytes of a file say.
    ///
    /// # Errors
    /// They are cut off, changed, of another format, or no manifest at all.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let wrong = |why: &str| ManifestError(why.to_owned());
        if bytes.len() > MOST_BYTES {
            return Err(wrong("it is longer than a manifest may be"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is not a text"))?;
        let first = text.lines().next().and_then(|line| line.strip_prefix(NAME));
        let Some(version) = first.map(str::trim_start) else {
            return Err(wrong("it does not begin as a manifest does"));
        };
        if ![FULL, INCREMENT, COPY].contains(&version) {
            let why = format!(
                "it has format {version:?}, and only {FULL} to {COPY} are read here: use the \
                 Unspool that wrote it"
            );
            return Err(ManifestError(why));
        }
        let found = fields(text, version).ok_or_else(|| wrong("it is cut off or changed"))?;
        // There is one way to write each manifest: whatever else it holds is found here.
        if found.render() != bytes {
            return Err(wrong("its checksum is another one: it was changed"));
        }
        let late = found.increment.is_some_and(|increment| increment.parent >= found.step);
        if found.rank >= found.ranks || i64::try_from(found.step).is_err() || late {
            return Err(wrong("its numbers make no sense"));
        }
        Ok(found)
    }
}

/// The fields of a text, without any check of what they say.
fn fields(text: &str, version: &str) -> Option<Manifest> {
    let mut rest = text.split_once('\n')?.1;
    let mut next = |name: &str| -> Option<&str> {
        let (line, after) = rest.split_once('\n')?;
        rest = after;
        line.strip_prefix(name)?.strip_prefix(' ')
    };
    let step = next("step")?.parse().ok()?;
    let rank = next("rank")?.parse().ok()?;
    let ranks = next("ranks")?.parse().ok()?;
    let run = Run(u128::from_str_radix(next("run")?, 16).ok()?);
    let bytes = next("bytes")?.parse().ok()?;
    let milliseconds = next("milliseconds")?.parse().ok()?;
    let written = next("written")?.parse().ok()?;
    let (mut increment, mut frame) = (None, None);
    if version == INCREMENT {
        let parent = next("parent")?.parse().ok()?;
        increment = Some(Increment { parent, bytes: next("stored")?.parse().ok()? });
    } else if version == COPY {
        frame = Some(u64::from_str_radix(next("frame")?, 16).ok()?);
    }
    let length: usize = next("values")?.parse().ok()?;
    let values = rest.get(..length)?.to_owned();
    Some(Manifest {
        step,
        rank,
        ranks,
        run,
        bytes,
        milliseconds,
        written,
        increment,
        frame,
        values,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn sample(step: u64) -> Manifest {
        Manifest {
            step,
            rank: 3,
            ranks: 16,
            run: Run(7),
            bytes: 800,
            milliseconds: 53,
            written: 1_795_401_488,
            increment: None,
            frame: None,
            values: "{\"note\": \"a\\nb é\"}".into(),
        }
    }

    pub(crate) fn increment(step: u64, parent: u64) -> Manifest {
        Manifest { increment: Some(Increment { parent, bytes: 40 }), ..sample(step) }
    }

    #[test]
    fn an_increment_names_its_parent() {
        let bytes = increment(300, 200).render();
        assert!(bytes.starts_with(b"unspool-checkpoint 2\nstep 300\n"));
        assert_eq!(Manifest::parse(&bytes), Ok(increment(300, 200)));
        assert!(Manifest::parse(&increment(300, 300).render()).is_err());
    }

    #[test]
    fn a_copy_has_the_checksum_of_its_frame() {
        let copy = Manifest { frame: Some(0xfeed), ..sample(300) };
        let bytes = copy.render();
        assert!(bytes.starts_with(b"unspool-checkpoint 3\nstep 300\n"));
        assert_eq!(Manifest::parse(&bytes), Ok(copy));
    }

    #[test]
    fn a_manifest_comes_back_as_it_was_written() {
        let bytes = sample(300).render();
        assert!(bytes.starts_with(b"unspool-checkpoint 1\nstep 300\nrank 3\nranks 16\n"));
        assert_eq!(Manifest::parse(&bytes), Ok(sample(300)));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        every_change_is_noticed(&sample(300).render());
        every_change_is_noticed(&increment(300, 200).render());
        every_change_is_noticed(&Manifest { frame: Some(0xfeed), ..sample(300) }.render());
    }

    fn every_change_is_noticed(whole: &[u8]) {
        for end in 0..whole.len() {
            assert!(Manifest::parse(&whole[..end]).is_err(), "{end}");
        }
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.to_vec();
                changed[place] ^= 1 << bit;
                assert!(Manifest::parse(&changed).is_err(), "{place} {bit}");
            }
        }
        let longer = [whole, b"\n"].concat();
        assert!(Manifest::parse(&longer).is_err());
    }

    #[test]
    fn a_later_format_is_told_by_its_name() {
        let text = String::from_utf8(sample(1).render()).unwrap();
        let later = text.replacen("checkpoint 1", "checkpoint 4", 1);
        let why = Manifest::parse(later.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("format \"4\""), "{why}");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for odd in [Manifest { rank: 16, ..sample(1) }, sample(u64::MAX)] {
            assert!(Manifest::parse(&odd.render()).is_err());
        }
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Manifest::parse(&bytes).is_err());
        }

        #[test]
        fn any_values_come_back(values in "\\PC{0,200}", step in 0..u64::MAX / 2) {
            let written = Manifest { values, ..sample(step) };
            prop_assert_eq!(Manifest::parse(&written.render()), Ok(written));
        }
    }
}
