//! What `unspool-paging run` was asked for. The command reads these words and hands them on as they
//! are, and the library in the program reads them again: one text, one reader.

use std::path::PathBuf;

use unspool_codec::{Bound, Dtype, Outer};
use unspool_paging::{Coding, PagingError, PagingOptions};

use crate::size::size;

/// The variable that the words are handed on in, one a line.
pub(crate) const VARIABLE: &str = "UNSPOOL_PAGING";

/// The smallest allocation that may be paged. Smaller ones, the codecs' own memory among them, are
/// passed on without a look at anything.
pub(crate) const FLOOR: usize = 4 << 20;

/// Four of the smallest usual chunks.
const LEAST_RESIDENT: u64 = 1 << 20;

/// More bytes than a chunk may have, and few enough to be tried.
const LARGEST: u64 = 1 << 30;

/// The settings of a program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    /// The smallest allocation that is paged here.
    least: usize,
    resident: Resident,
    coding: Coding,
    dtype: Dtype,
    host: Option<u64>,
    /// Where encoded chunks go when there is no room in memory.
    pub(crate) disk: Option<PathBuf>,
    chunk: Option<u64>,
    threads: Option<usize>,
    /// Whether the order of all arrays is a sweep, before it is seen.
    pub(crate) sweep: bool,
    user_mode_only: bool,
    /// Whether what cannot be paged is an error, and not ordinary memory.
    pub(crate) require: bool,
    /// Whether a line is written at the end.
    pub(crate) stats: bool,
}

/// How much of an allocation is in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Resident {
    Bytes(u64),
    Percent(f64),
}

impl Settings {
    /// Reads the words before `--`.
    pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Result<Settings, String> {
        let mut words = words.into_iter();
        let mut resident = None;
        let mut codec = "lossless".to_owned();
        let mut bound = None;
        let mut dtype = None;
        let mut settings = Settings {
            least: 256 << 20,
            resident: Resident::Percent(100.0),
            coding: Coding::Lossless,
            dtype: Dtype::Float64,
            host: None,
            disk: None,
            chunk: None,
            threads: None,
            sweep: false,
            user_mode_only: false,
            require: false,
            stats: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} has no value."));
            match word.as_str() {
                "--match" => settings.least = least(&value()?)?,
                "--resident" => resident = Some(part(&value()?)?),
                "--codec" => codec = value()?,
                "--bound" => bound = Some(value()?),
                "--dtype" => dtype = Some(named(&value()?)?),
                "--host-memory" => settings.host = Some(size(&value()?)?),
                "--disk" => settings.disk = Some(value()?.into()),
                "--chunk" => settings.chunk = Some(size(&value()?)?),
                "--threads" => settings.threads = Some(count(&value()?)?),
                "--order" => settings.sweep = sweeps(&value()?)?,
                "--user-mode" => settings.user_mode_only = true,
                "--require" => settings.require = true,
                "--stats" => settings.stats = true,
                _ => return Err(format!("{word} is not an option here.")),
            }
        }
        settings.resident = resident
            .ok_or("Say how much of each allocation is in memory: --resident 4GiB, or 25%.")?;
        settings.coding = coding(&codec, bound.as_deref(), dtype.is_some())?;
        settings.dtype = dtype.unwrap_or(Dtype::Float64);
        if settings.disk.is_some() && settings.host.is_none() {
            return Err(
                "--disk is for what does not fit --host-memory: say how much that is.".to_owned()
            );
        }
        Ok(settings)
    }

    /// The options of an allocation; `None`: it is ordinary memory, since it is smaller than what
    /// is paged or fits.
    pub(crate) fn options(&self, bytes: usize) -> Result<Option<PagingOptions>, PagingError> {
        let resident = match self.resident {
            Resident::Bytes(resident) => resident,
            Resident::Percent(percent) => (bytes as f64 * percent / 100.0) as u64,
        };
        let resident = resident.max(self.least_resident());
        if bytes < self.least || bytes as u64 <= resident {
            return Ok(None);
        }
        let mut options = PagingOptions::new(resident, self.dtype.clone());
        options.coding = self.coding.clone();
        (options.chunk, options.threads, options.host) = (self.chunk, self.threads, self.host);
        options.user_mode_only = self.user_mode_only;
        if let Some(disk) = &self.disk {
            options.spill_to(disk, None)?;
        }
        Ok(Some(options))
    }

    /// The bytes and the options of an array, to see whether one can be paged so.
    #[allow(dead_code, reason = "for the command")]
    pub(crate) fn trial(&self) -> (usize, PagingOptions) {
        let resident = self.least_resident();
        let mut options = PagingOptions::new(resident, self.dtype.clone());
        options.coding = self.coding.clone();
        (options.chunk, options.user_mode_only) = (self.chunk, self.user_mode_only);
        (2 * resident as usize, options)
    }

    /// The fewest bytes of an allocation that are in memory.
    fn least_resident(&self) -> u64 {
        self.chunk.map_or(LEAST_RESIDENT, |chunk| chunk.saturating_mul(4).min(LARGEST))
    }
}

fn least(text: &str) -> Result<usize, String> {
    let least = size(text)? as usize;
    if least >= FLOOR {
        return Ok(least);
    }
    Err(format!("--match {text}: give at least 4MiB. Smaller allocations are not paged."))
}

fn part(text: &str) -> Result<Resident, String> {
    let Some(number) = text.strip_suffix('%') else { return Ok(Resident::Bytes(size(text)?)) };
    let percent = number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent
        .map(Resident::Percent)
        .ok_or_else(|| format!("--resident {text}: give a size, or 0% to 100%."))
}

fn named(text: &str) -> Result<Dtype, String> {
    let dtype = Dtype::from_name(text).filter(|dtype| !matches!(dtype, Dtype::Opaque { .. }));
    dtype.ok_or_else(|| format!("--dtype {text}: give one such as float64, float32 or int32."))
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=64).contains(count));
    count.ok_or_else(|| format!("--threads {text}: give 1 to 64."))
}

fn sweeps(text: &str) -> Result<bool, String> {
    match text {
        "sweep" => Ok(true),
        "detect" => Ok(false),
        _ => Err(format!("--order {text}: give sweep or detect.")),
    }
}

fn coding(codec: &str, bound: Option<&str>, has_dtype: bool) -> Result<Coding, String> {
    if let Some(text) = bound {
        let bound = text.parse().ok().filter(|bound: &f64| bound.is_finite() && *bound > 0.0);
        let bound = bound.ok_or_else(|| format!("--bound {text}: give a number above 0."))?;
        return match (codec, has_dtype) {
            ("lossless", true) => Ok(Coding::Bounded(Bound::Absolute(bound))),
            ("lossless", false) => Err("--bound is for every allocation that is paged, and says \
                                        nothing without its --dtype: give that too."
                .to_owned()),
            _ => Err(format!("--codec {codec} keeps every bit: leave --bound out.")),
        };
    }
    match codec {
        "lossless" => Ok(Coding::Lossless),
        "lz4" => Ok(Coding::Packed(Outer::Lz4)),
        "zstd" => Ok(Coding::Packed(Outer::default())),
        "none" => Ok(Coding::Raw),
        _ => Err(format!("--codec {codec}: give lossless, lz4, zstd or none.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Settings, String> {
        Settings::read(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_part_of_each_allocation_is_in_memory_and_what_fits_is_ordinary() {
        let settings = of("--match 8MiB --resident 25%").unwrap();
        assert_eq!(settings.options(40 << 20).unwrap().unwrap().resident, 10 << 20);
        assert!(settings.options((8 << 20) - 1).unwrap().is_none());
        let settings = of("--match 4MiB --resident 16MiB --order sweep").unwrap();
        assert!(settings.sweep && settings.options(16 << 20).unwrap().is_none());
        assert_eq!(settings.options(17 << 20).unwrap().unwrap().resident, 16 << 20);
        let settings = of("--match 4MiB --resident 1%").unwrap();
        assert_eq!(settings.options(4 << 20).unwrap().unwrap().resident, 1 << 20);
    }

    #[test]
    fn a_bound_needs_its_dtype() {
        let settings = of("--resident 1GiB --bound 1e-3 --dtype float32").unwrap();
        assert_eq!(settings.coding, Coding::Bounded(Bound::Absolute(1e-3)));
        assert_eq!(settings.dtype, Dtype::Float32);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, told) in [
            ("", "--resident"),
            ("--resident", "has no value"),
            ("--resident much", "`much` is not a size"),
            ("--resident 101%", "0% to 100%"),
            ("--resident 1GiB --match 4095KiB", "at least 4MiB"),
            ("--resident 1GiB --codec gif", "--codec gif"),
            ("--resident 1GiB --bound 1e-3", "--dtype"),
            ("--resident 1GiB --bound -1 --dtype float32", "above 0"),
            ("--resident 1GiB --bound 1 --dtype float32 --codec lz4", "leave --bound out"),
            ("--resident 1GiB --dtype text", "--dtype text"),
            ("--resident 1GiB --disk /scratch", "--host-memory"),
            ("--resident 1GiB --threads 0", "--threads 0"),
            ("--resident 1GiB --order random", "--order random"),
            ("--resident 1GiB --colour", "--colour is not"),
        ] {
            let why = of(text).expect_err(text);
            assert!(why.contains(told), "{text}: {why}");
        }
    }
}
