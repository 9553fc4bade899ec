//! What a spool is opened with, as names and texts: a program that was compiled against an older
//! library can be linked with a newer one that knows more options.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use unspool::{DiskMode, DiskSettings, On, Settings, TierKind, auto, sizes};
use unspool_codec::Outer;
use unspool_restart::{Every, Fulls, RemoteSettings, Rule, duration};

use crate::codec;
use crate::status::{Failure, call};
use crate::text::{free, give, handle_mut, text};

const NAMES: &str = "device_memory, host_memory, device, shrink_ok, disk, disk.capacity, \
                     disk.durable, disk.mode, disk.permissions, disk.compress, codec, codec.NAME, \
                     learn, timeout, verify, trace; of a checkpointer also every, keep, mtbf, \
                     share, limit, remote, remote_every, partner, increments";

/// The options of a spool.
#[derive(Debug, Default)]
pub struct UnspoolOptions {
    settings: Settings,
    device_is_picked: bool,
    host_is_picked: bool,
    disk: Disk,
    run: Run,
}

/// The options of a checkpointer.
#[derive(Debug)]
struct Run {
    every: Every,
    keep: u32,
    mtbf: Option<Duration>,
    share: Option<f64>,
    limit: Option<Duration>,
    remote: Option<String>,
    remote_every: Every,
    partner: Option<Every>,
    increments: Option<Fulls>,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            every: Every::Auto,
            keep: 2,
            mtbf: None,
            share: None,
            limit: None,
            remote: None,
            remote_every: Every::Auto,
            partner: None,
            increments: None,
        }
    }
}

/// The options of the disk, of which the path may come last.
#[derive(Debug, Default, PartialEq, Eq)]
struct Disk {
    path: Option<String>,
    capacity: Option<u64>,
    durable: bool,
    mode: DiskMode,
    permissions: Option<u32>,
    compress: Option<Outer>,
}

impl UnspoolOptions {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let settings = &mut self.settings;
        match name {
            "device_memory" => (settings.device, self.device_is_picked) = arena(value)?,
            "host_memory" => (settings.host, self.host_is_picked) = arena(value)?,
            "device" => settings.on = on(value)?,
            "shrink_ok" => settings.shrink_ok = truth(value)?,
            "disk" => self.disk.path = Some(value.to_owned()).filter(|path| !path.is_empty()),
            "disk.capacity" => self.disk.capacity = Some(sizes::parse(value)?),
            "disk.durable" => self.disk.durable = truth(value)?,
            "disk.mode" => self.disk.mode = mode(value)?,
            "disk.permissions" => self.disk.permissions = Some(permissions(value)?),
            "disk.compress" => self.disk.compress = Some(compress(value)?),
            "codec" => settings.codec.default = codec::parse(value)?,
            "learn" => settings.learn = truth(value)?,
            "timeout" => settings.timeout = time(value)?,
            "verify" => settings.verify = truth(value)?,
            "trace" => settings.trace = truth(value)?,
            "every" => self.run.every = every(value)?,
            "keep" => self.run.keep = count(value)?,
            "mtbf" => self.run.mtbf = Some(time(value)?),
            "share" => self.run.share = Some(share(value)?),
            "limit" => self.run.limit = Some(time(value)?),
            "remote" => self.run.remote = Some(value.to_owned()).filter(|place| !place.is_empty()),
            "remote_every" => self.run.remote_every = every(value)?,
            "increments" => self.run.increments = increments(value)?,
            "partner" => {
                let every = every(value)?;
                self.run.partner = Some(every).filter(|every| *every != Every::Never);
            }
            _ => {
                let array = name.strip_prefix("codec.").filter(|array| !array.is_empty());
                let Some(array) = array else {
                    return Err(format!("there is no such option; there are {NAMES}"));
                };
                settings.codec.by_region.insert(array.to_owned(), codec::parse(value)?);
            }
        }
        Ok(())
    }

    /// When a checkpoint is due, in a job of so many ranks.
    pub(crate) fn rule(&self, ranks: u32) -> Rule {
        let usual = Rule::of(self.run.every, ranks);
        let (mtbf, share) = (self.run.mtbf, self.run.share);
        Rule { mtbf: mtbf.unwrap_or(usual.mtbf), share: share.unwrap_or(usual.share), ..usual }
    }

    /// How many checkpoints that count stay.
    pub(crate) fn keep(&self) -> u32 {
        self.run.keep
    }

    /// The time after which a run is asked to stop.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.run.limit
    }

    /// Copies beyond the machine.
    pub(crate) fn remote(&self) -> Option<RemoteSettings> {
        let place = self.run.remote.as_ref()?;
        Some(RemoteSettings { every: self.run.remote_every, ..RemoteSettings::new(place) })
    }

    /// How often a checkpoint is stored in full.
    pub(crate) fn increments(&self) -> Option<Fulls> {
        self.run.increments
    }

    /// Which checkpoints a rank on another machine keeps as well.
    pub(crate) fn partner(&self) -> Option<Every> {
        self.run.partner
    }

    /// The longest wait of a call.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Refuses options of a disk, for a checkpointer.
    ///
    /// # Errors
    /// `Invalid` when there are any.
    pub(crate) fn without_disk(&self) -> Result<(), Failure> {
        match self.disk == Disk::default() {
            true => Ok(()),
            false => Err(Failure::invalid(
                "A checkpointer has a disk of its own, in the folder of the run, so that `disk`, \
                 `disk.compress` and the like cannot be set for it. Leave them out; `codec` makes \
                 checkpoints smaller.",
            )),
        }
    }

    /// The settings of a spool, with what is picked now, and on this disk if one is given.
    ///
    /// # Errors
    /// Those of picking a size; options of a disk without its path.
    pub(crate) fn settings(
        &self,
        disk: Option<DiskSettings>,
    ) -> Result<(Settings, Vec<auto::Picked>), Failure> {
        let mut settings = self.settings.clone();
        settings.disk = match disk {
            Some(disk) => Some(disk),
            None => self.disk.settings()?,
        };
        settings.rates = unspool::rates_file();
        let mut picks = Vec::new();
        if self.device_is_picked {
            let picked = auto::device(&settings.on)?;
            settings.device = Some(picked.bytes);
            settings.picked.push((TierKind::Device, picked.sentence.clone()));
            picks.push(picked);
        }
        if self.host_is_picked {
            let picked = auto::host(&settings)?;
            settings.host = Some(picked.bytes);
            settings.picked.push((TierKind::Host, picked.sentence.clone()));
            picks.push(picked);
        }
        Ok((settings, picks))
    }
}

impl Disk {
    fn settings(&self) -> Result<Option<DiskSettings>, Failure> {
        let Some(path) = &self.path else {
            let asked = self.capacity.is_some() || self.durable || self.compress.is_some();
            return match asked || self.mode == DiskMode::ReadOnly {
                true => Err(Failure::invalid(
                    "Options of the disk were set, but not the disk: set `disk` to a path.",
                )),
                false => Ok(None),
            };
        };
        let mut disk = DiskSettings::new(path);
        (disk.capacity, disk.durable, disk.mode) = (self.capacity, self.durable, self.mode);
        disk.compress = self.compress;
        disk.permissions = self.permissions.unwrap_or(disk.permissions);
        Ok(Some(disk))
    }
}

/// A size, or whether it is picked; neither for an empty text.
fn arena(value: &str) -> Result<(Option<u64>, bool), String> {
    match value {
        "" => Ok((None, false)),
        "auto" => Ok((None, true)),
        _ => match sizes::parse(value)? {
            0 => Err("a tier of 0 bytes holds nothing; leave it out instead".to_owned()),
            bytes => Ok((Some(bytes), false)),
        },
    }
}

fn on(value: &str) -> Result<On, String> {
    let none = || "write auto, cpu, cuda, or cuda: and the number of a GPU".to_owned();
    On::named(value).ok_or_else(none)
}

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

fn mode(value: &str) -> Result<DiskMode, String> {
    match value {
        "a" => Ok(DiskMode::ReadWrite),
        "r" => Ok(DiskMode::ReadOnly),
        _ => Err("write a to read and add checkpoints, or r to change nothing".to_owned()),
    }
}

fn permissions(value: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(value, 8).ok();
    let bits = bits.filter(|bits| bits & !0o777 == 0 && bits & 0o600 == 0o600);
    bits.ok_or_else(|| "write those of a file in octal digits, such as 640".to_owned())
}

fn compress(value: &str) -> Result<Outer, String> {
    Outer::named(value).ok_or_else(|| "write zstd, lz4 or archive".to_owned())
}

/// A duration such as `10min`, or seconds.
fn time(value: &str) -> Result<Duration, String> {
    match value.parse::<f64>() {
        Ok(_) => duration(&format!("{value}s")),
        Err(_) => duration(value),
    }
}

fn increments(value: &str) -> Result<Option<Fulls>, String> {
    match (value, value.parse()) {
        ("auto", _) => Ok(Some(Fulls::Auto)),
        ("never", _) => Ok(None),
        (_, Ok(every)) if every > 0 => Ok(Some(Fulls::OneIn(every))),
        _ => Err("write `auto`, `never`, or in how many checkpoints one is stored in full".into()),
    }
}

fn every(value: &str) -> Result<Every, String> {
    // A number alone is one of steps, as in Python.
    let is_number = value.parse::<u64>().is_ok();
    let steps = value.strip_suffix("steps").or(Some(value).filter(|_| is_number));
    let steps = steps.map(|steps| steps.trim().parse::<u64>());
    match (value, steps) {
        ("auto", _) => Ok(Every::Auto),
        ("never", _) => Ok(Every::Never),
        (_, Some(Ok(steps))) if steps > 0 => Ok(Every::Steps(steps)),
        (_, Some(_)) => Err("write a number of steps above 0, such as 100 steps".to_owned()),
        _ => duration(value).map(Every::Time),
    }
}

fn count(value: &str) -> Result<u32, String> {
    let count = value.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "write how many checkpoints stay, at least 1".to_owned())
}

fn share(value: &str) -> Result<f64, String> {
    let share = value.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "write the largest share of the run time, such as 0.05".to_owned())
}

/// Makes options, all of them as they are by default: no tier yet. Give them back with
/// `unspool_options_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_options_new(options: *mut *mut UnspoolOptions) -> c_int {
    // SAFETY: the caller's duty.
    call(|| unsafe { give(options, Box::into_raw(Box::default()), "options") })
}

/// Sets an option to a value that is written as text.
///
/// | option | value |
/// | --- | --- |
/// | `device_memory`, `host_memory` | the size of a tier, such as `4GiB`, or `auto` |
/// | `device` | where the device tier is: `auto`, `cpu`, `cuda`, `cuda:1` |
/// | `shrink_ok` | whether a smaller device tier will do: `true`, `false` |
/// | `disk` | the directory of the disk tier |
/// | `disk.capacity` | the most bytes there, such as `100GiB` |
/// | `disk.durable` | whether checkpoints outlive the spool |
/// | `disk.mode` | `a` to read and add, `r` to read only |
/// | `disk.permissions` | of durable files, octal: `600` |
/// | `disk.compress` | `zstd`, `lz4`, `archive` |
/// | `codec` | `none`, `lossless`, `auto`, a bound such as `abs=1e-3`, `zfp-rate=8` |
/// | `codec.NAME` | the same for the arrays of this name |
/// | `learn` | whether restores are announced from what earlier iterations restored |
/// | `timeout` | the longest that one call waits, such as `30s`: 300 s; ranks add up to 11 s |
/// | `verify` | whether checksums of what comes from the disk are compared: `true` |
/// | `trace` | whether what happens is kept for `unspool_write_trace` |
///
/// Those of a checkpointer are at `unspool_checkpointer_open`.
///
/// Returns `UNSPOOL_INVALID`, and leaves the options as they were, when there is no such option or
/// the value makes no sense.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_options_set(
    options: *mut UnspoolOptions,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (options, name, value) = unsafe {
            (handle_mut(options, "options")?, text(name, "name")?, text(value, "value")?)
        };
        let wrong = |why: String| {
            let why = why.trim_end_matches('.');
            Failure::invalid(format!("The option {name}={value:?}: {why}."))
        };
        options.set(name, value).map_err(wrong)
    })
}

/// Gives options back. Spools that were opened with them are not concerned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_options_free(options: *mut UnspoolOptions) {
    // SAFETY: the caller's duty.
    unsafe { free(options) };
}
