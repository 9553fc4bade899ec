//! The configuration file: lines of `key = value`, as VELOC has them. Pure: bytes in, values out.
//!
//! Keys that are not known are left alone, as other versions of VELOC have others. A value that
//! makes no sense is an error that names the file, the line and an example.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use unspool::sizes;
use unspool_restart::duration;

/// The most bytes of a configuration file.
pub const MOST_BYTES: usize = 1 << 20;

/// Keys that VELOC knows and that have no effect here, with the reason.
const WITHOUT_EFFECT: [(&str, &str); 8] = [
    ("meta", "nothing is kept apart from the checkpoints"),
    ("ec_interval", "checkpoints are not copied to other nodes"),
    ("failure_domain", "checkpoints are not copied to other nodes"),
    ("watchdog_interval", "there is no back-end process"),
    ("axl_type", "files are copied by a thread of the program"),
    ("threaded", "files are copied by a thread of the program"),
    ("score_eviction", "room is always made by Score's rule"),
    ("premature_eviction", "what is not in a slower tier is never evicted"),
];

/// When `VELOC_Checkpoint_end` returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When the checkpoint is durable, in persistent too if it goes there.
    Sync,
    /// When the copies are done.
    Async,
}

/// Which checkpoints are copied to persistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persist {
    /// All of them.
    All,
    /// Those that come so long after the last one that was.
    Every(Duration),
    /// None.
    Never,
}

/// The size of a tier in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// There is none.
    None,
    /// A share of what is free.
    Auto,
    /// So many bytes.
    Bytes(u64),
}

/// What becomes of a checkpoint that a restart has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// It stays until newer ones take its place.
    Stays,
    /// It is removed from scratch.
    Goes,
}

/// What a configuration file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The folder on a disk of the node.
    pub scratch: PathBuf,
    /// The folder of a parallel file system, or the address of an object store.
    pub persistent: String,
    /// When a checkpoint has ended.
    pub mode: Mode,
    /// How many checkpoints of a name stay in persistent; 0 is all.
    pub max_versions: usize,
    /// How many checkpoints of a name stay in scratch; 0 is all.
    pub scratch_versions: usize,
    /// Which checkpoints are copied to persistent.
    pub persist: Persist,
    /// Whether checkpoints outlive the process. Else scratch is where those go that memory has no
    /// room for.
    pub durable: bool,
    /// What becomes of a checkpoint that a restart has read.
    pub read: Read,
    /// Whether regions are compressed without loss.
    pub lossless: bool,
    /// Whether checksums of what comes back are compared.
    pub chksum: bool,
    /// Where lines about what went wrong go besides standard error.
    pub log_prefix: Option<PathBuf>,
    /// The tier in a GPU's memory.
    pub device: Tier,
    /// The tier in main memory.
    pub host: Tier,
    /// The longest that a call waits.
    pub timeout: Duration,
    /// Sentences about keys that have no effect.
    pub notes: Vec<String>,
}

/// A value and the line that it is in.
#[derive(Clone, Copy)]
struct Entry<'a> {
    value: &'a str,
    line: usize,
}

/// The entries of a file, and what it is called.
struct Entries<'a> {
    name: &'a str,
    by_key: BTreeMap<&'a str, Entry<'a>>,
}

/// What the bytes of the configuration file `name` say.
///
/// # Errors
/// A sentence that names the file, the line or the key, and an example.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Config, String> {
    if bytes.len() > MOST_BYTES {
        return Err(format!("{name} has more than {MOST_BYTES} bytes: it is not a configuration."));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        format!("{name}:{line}: this is not text in UTF-8. Write lines such as `mode = async`.")
    })?;
    let entries = Entries { name, by_key: entries(name, text)? };
    let durable = entries.value("durable", "true", truth)?.unwrap_or(true);
    Ok(Config {
        scratch: PathBuf::from(entries.required("scratch", "/local/scratch")?.value),
        persistent: entries.required("persistent", "/lustre/project/checkpoints")?.value.to_owned(),
        mode: entries.taken("mode", entries.required("mode", "async")?, "async", mode)?,
        max_versions: entries.value("max_versions", "2", count)?.unwrap_or(0),
        scratch_versions: entries.value("scratch_versions", "2", count)?.unwrap_or(0),
        persist: entries.persist(durable)?,
        durable,
        read: entries.value("discard", "false", read)?.unwrap_or(Read::Stays),
        lossless: entries.value("codec", "lossless", codec)?.unwrap_or(false),
        chksum: entries.value("chksum", "true", truth)?.unwrap_or(true),
        log_prefix: entries.value("log_prefix", "/tmp/veloc", |text| Ok(PathBuf::from(text)))?,
        device: entries.tier("device_memory", "gpu_cache_size")?.unwrap_or(Tier::None),
        host: entries.tier("host_memory", "host_cache_size")?.unwrap_or(Tier::Auto),
        timeout: entries.value("timeout", "300", time)?.unwrap_or(Duration::from_secs(300)),
        notes: entries.notes(),
    })
}

/// The entries before the first section, by key. Sections belong to others.
fn entries<'a>(name: &str, text: &'a str) -> Result<BTreeMap<&'a str, Entry<'a>>, String> {
    let mut found: BTreeMap<&str, Entry<'_>> = BTreeMap::new();
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
    for (index, line) in lines.enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if line.starts_with('[') {
            break;
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            let line = shortened(line);
            return Err(format!(
                "{name}:{index}: {line:?} has no `=`. Write `key = value`, such as `mode = async`."
            ));
        };
        let (key, value) = (key.trim(), without_comment(value));
        if let Some(earlier) = found.insert(key, Entry { value, line: index }) {
            let (first, key) = (earlier.line, shortened(key));
            return Err(format!(
                "{name}:{index}: `{key}` is set in line {first} already. Leave one of both."
            ));
        }
    }
    Ok(found)
}

/// A value without the comment after it, which begins with a space and a semicolon.
fn without_comment(value: &str) -> &str {
    let starts = value.match_indices(';').map(|(at, _)| at);
    let comment = starts.into_iter().find(|at| value[..*at].ends_with([' ', '\t']));
    value[..comment.unwrap_or(value.len())].trim()
}

/// What fits into a message.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

impl<'a> Entries<'a> {
    /// The value of a key that has to be there.
    fn required(&self, key: &str, example: &str) -> Result<Entry<'a>, String> {
        let name = self.name;
        let found = self.by_key.get(key).copied().ok_or_else(|| {
            format!("{name} has no `{key}`. Add a line such as `{key} = {example}`.")
        })?;
        if found.value.is_empty() {
            let line = found.line;
            return Err(format!(
                "{name}:{line}: `{key}` is empty. Write a value, such as `{key} = {example}`."
            ));
        }
        Ok(found)
    }

    /// The value of a key that may be left out.
    fn value<T>(
        &self,
        key: &str,
        example: &str,
        take: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let entry = self.by_key.get(key);
        entry.map(|entry| self.taken(key, *entry, example, take)).transpose()
    }

    fn taken<T>(
        &self,
        key: &str,
        entry: Entry<'_>,
        example: &str,
        take: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        take(entry.value).map_err(|why| {
            let (name, line, value) = (self.name, entry.line, shortened(entry.value));
            format!("{name}:{line}: `{key} = {value}`: {why}; an example: `{key} = {example}`.")
        })
    }

    /// The size of a tier: by its key, or by the one that Score has for it, a number of GiB.
    fn tier(&self, key: &str, of_score: &str) -> Result<Option<Tier>, String> {
        if let (Some(_), Some(entry)) = (self.by_key.get(key), self.by_key.get(of_score)) {
            let (name, line) = (self.name, entry.line);
            return Err(format!("{name}:{line}: `{of_score}` says what `{key}` says: leave one."));
        }
        let found = self.value(key, "4GiB", tier)?;
        Ok(found.or(self.value(of_score, "4", gibibytes)?))
    }

    /// Which checkpoints are copied to persistent: of those that do not outlive the process, none.
    fn persist(&self, durable: bool) -> Result<Persist, String> {
        let found = self.value("persistent_interval", "600", persist)?;
        match (durable, found, self.by_key.get("persistent_interval")) {
            (false, Some(Persist::All | Persist::Every(_)), Some(entry)) => Err(format!(
                "{}:{}: `persistent_interval` copies checkpoints, and with `durable = false` none \
                 outlives the process. Leave one of both.",
                self.name, entry.line
            )),
            (false, ..) => Ok(Persist::Never),
            (true, ..) => Ok(found.unwrap_or(Persist::All)),
        }
    }

    /// Sentences about keys that have no effect.
    fn notes(&self) -> Vec<String> {
        let set = WITHOUT_EFFECT.iter().filter_map(|(key, why)| {
            let entry = self.by_key.get(key)?;
            Some(format!("{}:{}: `{key}` has no effect: {why}.", self.name, entry.line))
        });
        set.collect()
    }
}

fn gibibytes(text: &str) -> Result<Tier, String> {
    let bytes = text.parse::<f64>().ok().map(|count| count * (1_u64 << 30) as f64);
    match bytes.filter(|bytes| (0.0..1e18).contains(bytes)) {
        None => Err("write a number of GiB".to_owned()),
        Some(0.0) => Ok(Tier::None),
        Some(bytes) => Ok(Tier::Bytes(bytes as u64)),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "sync" => Ok(Mode::Sync),
        "async" => Ok(Mode::Async),
        _ => Err("write sync or async".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse::<u32>().ok().map(|count| count as usize);
    count.ok_or_else(|| "write how many checkpoints stay, or 0 for all".to_owned())
}

fn persist(text: &str) -> Result<Persist, String> {
    match text.parse::<i64>() {
        Ok(seconds) if seconds < 0 => Ok(Persist::Never),
        Ok(0) => Ok(Persist::All),
        _ => time(text).map(Persist::Every),
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

fn read(text: &str) -> Result<Read, String> {
    truth(text).map(|goes| if goes { Read::Goes } else { Read::Stays })
}

fn codec(text: &str) -> Result<bool, String> {
    match text {
        "none" => Ok(false),
        "lossless" => Ok(true),
        _ => {
            Err("write none or lossless. VELOC's calls do not say which regions are numbers that \
                  may change within a bound"
                .to_owned())
        }
    }
}

fn tier(text: &str) -> Result<Tier, String> {
    match text {
        "none" | "0" => Ok(Tier::None),
        "auto" => Ok(Tier::Auto),
        _ => match sizes::parse(text)? {
            0 => Ok(Tier::None),
            bytes => Ok(Tier::Bytes(bytes)),
        },
    }
}

/// Seconds, or a duration such as `10min`.
fn time(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(_) => duration(&format!("{text}s")),
        Err(_) => duration(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAST: &str = "scratch = /tmp/scratch\npersistent = /tmp/persistent\nmode = async\n";

    fn parsed(more: &str) -> Result<Config, String> {
        parse("veloc.cfg", format!("{LEAST}{more}").as_bytes())
    }

    #[test]
    fn sizes_of_tiers_are_those_of_score_too() {
        let config = parsed("gpu_cache_size=4\nhost_cache_size = 0.5\n").unwrap();
        assert_eq!((config.device, config.host), (Tier::Bytes(4 << 30), Tier::Bytes(1 << 29)));
        assert_eq!(parsed("gpu_cache_size=0\n").unwrap().device, Tier::None);
        for (wrong, why) in [
            ("gpu_cache_size=4\ndevice_memory=4GiB\n", "says what `device_memory` says"),
            ("host_cache_size=4GiB\n", "write a number of GiB"),
            ("host_cache_size=-1\n", "write a number of GiB"),
            ("host_cache_size=nan\n", "write a number of GiB"),
        ] {
            assert!(parsed(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_history_is_not_durable_and_goes_when_it_is_read() {
        let config = parsed("durable = false\ndiscard = true\ncodec = lossless\n").unwrap();
        assert_eq!((config.durable, config.persist), (false, Persist::Never));
        assert_eq!((config.read, config.lossless), (Read::Goes, true));
        assert!(parsed("durable = no\npersistent_interval = -1\n").is_ok());
        let told = parsed("durable = no\npersistent_interval = 0\n").unwrap_err();
        assert!(told.starts_with("veloc.cfg:5: ") && told.contains("Leave one"), "{told}");
        let told = parsed("codec = abs=1e-3").unwrap_err();
        assert!(told.contains("write none or lossless"), "{told}");
    }

    #[test]
    fn three_keys_are_enough() {
        let config = parsed("").unwrap();
        assert_eq!(config.scratch, PathBuf::from("/tmp/scratch"));
        assert_eq!((config.persistent.as_str(), config.mode), ("/tmp/persistent", Mode::Async));
        assert_eq!((config.max_versions, config.scratch_versions), (0, 0));
        assert_eq!((config.persist, config.chksum), (Persist::All, true));
        assert_eq!((config.device, config.host), (Tier::None, Tier::Auto));
        assert_eq!((config.durable, config.read, config.lossless), (true, Read::Stays, false));
        assert_eq!((config.timeout.as_secs(), config.notes.len()), (300, 0));
    }

    #[test]
    fn values_comments_and_what_belongs_to_others() {
        let config = parsed(
            "; a comment\n# another\n\n max_versions=3 ; as many\nscratch_versions = 1\n\
             persistent_interval = 600\nchksum = False\nunknown = 7\ndevice_memory = 1MiB\n\
             host_memory = none\ntimeout = 2min\nlog_prefix = /tmp/a;b\nec_interval = 0\n\
             [section]\nmode = nonsense\n",
        )
        .unwrap();
        assert_eq!((config.max_versions, config.scratch_versions), (3, 1));
        assert_eq!(config.persist, Persist::Every(Duration::from_secs(600)));
        assert!(!config.chksum);
        assert_eq!((config.device, config.host), (Tier::Bytes(1 << 20), Tier::None));
        assert_eq!(config.timeout, Duration::from_secs(120));
        assert_eq!(config.log_prefix, Some(PathBuf::from("/tmp/a;b")));
        assert_eq!(config.notes.len(), 1);
        assert!(config.notes[0].starts_with("veloc.cfg:16: `ec_interval` has no effect"));
        assert_eq!(parsed("persistent_interval = -1").unwrap().persist, Persist::Never);
    }

    #[test]
    fn a_missing_key_is_named_with_the_file_and_an_example() {
        for key in ["scratch", "persistent", "mode"] {
            let without: Vec<&str> = LEAST.lines().filter(|line| !line.starts_with(key)).collect();
            let told = parse("veloc.cfg", without.join("\n").as_bytes()).unwrap_err();
            assert!(told.starts_with(&format!("veloc.cfg has no `{key}`")), "{told}");
            assert!(told.contains(&format!("`{key} = ")), "{told}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_and_an_example() {
        for (line, example) in [
            ("max_versions = -1", "max_versions = 2"),
            ("max_versions = two", "max_versions = 2"),
            ("persistent_interval = soon", "persistent_interval = 600"),
            ("chksum = maybe", "chksum = true"),
            ("device_memory = 4G", "device_memory = 4GiB"),
            ("timeout = 0", "timeout = 300"),
        ] {
            let told = parsed(line).unwrap_err();
            assert!(told.starts_with("veloc.cfg:4: ") && told.contains(example), "{told}");
        }
        let told = parsed("mode").unwrap_err();
        assert!(told.starts_with("veloc.cfg:4: ") && told.contains("`key = value`"), "{told}");
        let told = parsed("mode = sync").unwrap_err();
        assert!(told.starts_with("veloc.cfg:4: ") && told.contains("line 3"), "{told}");
        let told = parse("veloc.cfg", b"scratch = /tmp\nmode =\npersistent = /x").unwrap_err();
        assert!(told.starts_with("veloc.cfg:2: ") && told.contains("mode = async"), "{told}");
        let told = parse("veloc.cfg", b"scratch = /tmp\nmode = \xff\n").unwrap_err();
        assert!(told.starts_with("veloc.cfg:2: "), "{told}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse("f", &bytes);
        }

        #[test]
        fn any_value_is_an_answer(value in "\\PC{0,40}") {
            for key in
                ["max_versions", "persistent_interval", "chksum", "device_memory", "timeout"]
            {
                let _ = parsed(&format!("{key} = {value}\n"));
            }
        }
    }
}
