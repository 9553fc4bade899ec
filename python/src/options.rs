//! The options of `Spool(...)` as settings, with errors that say what to write.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyString, PyTuple};
use unspool::{DiskMode, DiskSettings, On, PolicyKind};
use unspool_codec::Outer;

use crate::errors::{Class, error};
use crate::sizes;

/// The names of all options, for the error about one that does not exist.
const OPTIONS: &str = "device_memory, host_memory, disk, device, shrink_ok, codec, learn, timeout, \
                       verify, debug";

/// The longest time-out: a year; every wait has an end.
const LONGEST: f64 = 366.0 * 86_400.0;

/// Refuses options that do not exist.
///
/// # Errors
/// `OptionError`.
pub fn no_others(py: Python<'_>, others: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some((name, _)) = others.and_then(|others| others.iter().next()) else {
        return Ok(());
    };
    let message = format!("Spool has no option {name}; it has {OPTIONS}.");
    Err(error(py, Class::Option, message))
}

pub fn wrong(py: Python<'_>, name: &str, why: &str) -> PyErr {
    error(py, Class::Option, format!("Spool({name}=...): {why}."))
}

/// The size of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeOption {
    /// A share of what is free.
    Auto,
    /// These bytes.
    Bytes(u64),
}

impl SizeOption {
    /// The bytes, when they are known already.
    pub fn bytes(self) -> Option<u64> {
        match self {
            SizeOption::Auto => None,
            SizeOption::Bytes(bytes) => Some(bytes),
        }
    }
}

/// The size of an arena: a size, `"auto"`, or nothing for no arena.
///
/// # Errors
/// `OptionError`.
pub fn arena(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<SizeOption>> {
    let Some(value) = value else { return Ok(None) };
    if value.cast::<PyString>().is_ok_and(|text| text == "auto") {
        return Ok(Some(SizeOption::Auto));
    }
    Ok(size(name, value)?.map(SizeOption::Bytes))
}

/// The place of the arenas: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:1"`.
///
/// # Errors
/// `OptionError`.
pub fn device(py: Python<'_>, text: &str) -> PyResult<On> {
    On::named(text).ok_or_else(|| {
        let why = format!(
            "there is no place {text:?}; write \"auto\", \"cpu\", \"cuda\" or \"cuda:\" and the \
             number of a GPU. The size of its tier is device_memory"
        );
        wrong(py, "device", &why)
    })
}

/// The bytes of a size: a string with a unit, or a whole number.
///
/// # Errors
/// `OptionError`.
pub fn size(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = value.py();
    if value.is_none() {
        return Ok(None);
    }
    let bytes = if let Ok(text) = value.cast::<PyString>() {
        sizes::parse(&text.to_string_lossy()).map_err(|why| wrong(py, name, &why))?
    } else {
        whole(value).ok_or_else(|| {
            let shown = value.repr().map_or_else(|_| "this".to_owned(), |repr| repr.to_string());
            let advice = "write a string such as \"512MiB\" or \"1.5GB\", or a whole number of \
                          bytes";
            wrong(py, name, &format!("{shown} is not a size; {advice}"))
        })?
    };
    if bytes == 0 {
        return Err(wrong(py, name, "a tier of 0 bytes holds nothing; leave it out instead"));
    }
    Ok(Some(bytes))
}

/// A whole number: `int`, anything with `__index__`, and floats such as `4e9`.
pub fn whole(value: &Bound<'_, PyAny>) -> Option<u64> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        let float = float.value();
        let exact = float.fract() == 0.0 && (0.0..9e15).contains(&float);
        return exact.then_some(float as u64);
    }
    value.extract().ok()
}

/// The disk tier: a path, a path and a size, or an `unspool.Disk`.
///
/// Each argument of a `Disk` that makes no sense is named.
///
/// # Errors
/// `OptionError`.
pub fn disk(value: &Bound<'_, PyAny>) -> PyResult<Option<DiskSettings>> {
    let py = value.py();
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(pair) = value.cast::<PyTuple>() {
        if pair.len() != 2 {
            return Err(wrong(py, "disk", DISK_ADVICE));
        }
        let capacity = size("disk", &pair.get_item(1)?)?;
        let path = path("disk", &pair.get_item(0)?)?;
        return Ok(Some(DiskSettings { capacity, ..DiskSettings::new(path) }));
    }
    if value.hasattr(intern!(py, "capacity"))? {
        return described_disk(value).map(Some);
    }
    Ok(Some(DiskSettings::new(path("disk", value)?)))
}

const DISK_ADVICE: &str = "write a path, a pair such as (\"/scratch\", \"100GiB\"), or \
                           unspool.Disk(path, capacity=..., durable=..., mode=..., \
                           permissions=..., compress=...)";

fn described_disk(value: &Bound<'_, PyAny>) -> PyResult<DiskSettings> {
    let py = value.py();
    let path = path("disk", &value.getattr(intern!(py, "path"))?)?;
    let capacity = size("disk", &value.getattr(intern!(py, "capacity"))?)?;
    let durable = durable(&value.getattr(intern!(py, "durable"))?)?;
    let mode = mode(&value.getattr(intern!(py, "mode"))?)?;
    let permissions = permissions(&value.getattr(intern!(py, "permissions"))?)?;
    let compress = compress(&value.getattr(intern!(py, "compress"))?)?;
    let disk = DiskSettings::new(path);
    Ok(DiskSettings { capacity, durable, mode, permissions, compress, ..disk })
}

/// The error for an argument of `Disk` that makes no sense.
fn wrong_disk(name: &str, value: &Bound<'_, PyAny>, advice: &str) -> PyErr {
    let shown = value.repr().map_or_else(|_| "something".to_owned(), |repr| repr.to_string());
    wrong(value.py(), "disk", &format!("Disk({name}={shown}) makes no sense; {advice}"))
}

/// Whether the frames outlive the spool. A text is not a truth value here: `"no"` would be a yes.
fn durable(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| wrong_disk("durable", value, "write True or False"))
}

/// What may be done with the directory.
fn mode(value: &Bound<'_, PyAny>) -> PyResult<DiskMode> {
    match value.cast::<PyString>().ok().map(|name| name.to_string_lossy().into_owned()).as_deref() {
        Some("a") => Ok(DiskMode::ReadWrite),
        Some("r") => Ok(DiskMode::ReadOnly),
        _ => {
            let advice = "write \"a\" to read and add checkpoints, or \"r\" to read a durable \
                          directory and change nothing";
            Err(wrong_disk("mode", value, advice))
        }
    }
}

/// The permissions of files.
fn permissions(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let bits = whole(value).and_then(|bits| u32::try_from(bits).ok());
    let bits = bits.filter(|bits| bits & !0o777 == 0 && bits & 0o600 == 0o600);
    bits.ok_or_else(|| {
        let advice = "write those of a file that its owner can read and write, such as 0o640";
        wrong_disk("permissions", value, advice)
    })
}

/// What frames go through on their way to the disk.
fn compress(value: &Bound<'_, PyAny>) -> PyResult<Option<Outer>> {
    if value.is_none() {
        return Ok(None);
    }
    let name = value.cast::<PyString>().ok().map(|name| name.to_string_lossy().into_owned());
    let outer = name.as_deref().and_then(Outer::named);
    outer.map(Some).ok_or_else(|| {
        let shown = value.repr().map_or_else(|_| "this".to_owned(), |repr| repr.to_string());
        let why = format!(
            "there is no way {shown} to compress frames; write compress=\"zstd\", \"lz4\", \
             \"archive\" or None"
        );
        wrong(value.py(), "disk", &why)
    })
}

/// A path: `str`, `bytes` or `os.PathLike`.
///
/// # Errors
/// `OptionError`.
pub fn path(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let py = value.py();
    let decoded = py.import("os")?.call_method1("fsdecode", (value,));
    match decoded.and_then(|text| text.extract::<PathBuf>()) {
        Ok(path) if !path.as_os_str().is_empty() => Ok(path),
        _ if name == "disk" => Err(wrong(py, name, DISK_ADVICE)),
        _ => Err(wrong(py, name, "write a path")),
    }
}

/// The policy by its name.
///
/// # Errors
/// `OptionError`.
pub fn policy(py: Python<'_>, name: &str) -> PyResult<PolicyKind> {
    match name {
        "score" => Ok(PolicyKind::Score),
        "lru" => Ok(PolicyKind::Lru),
        "fifo" => Ok(PolicyKind::Fifo),
        "belady" => Ok(PolicyKind::Belady),
        _ => {
            let why = format!("there is no policy {name:?}; write score, lru, fifo or belady");
            Err(wrong(py, "policy", &why))
        }
    }
}

/// The longest wait of one call.
///
/// # Errors
/// `OptionError`.
pub fn timeout(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    if seconds > 0.0 && seconds <= LONGEST {
        return Ok(Duration::from_secs_f64(seconds));
    }
    let why = format!("{seconds} is not a time-out; write seconds above 0 and at most {LONGEST}");
    Err(wrong(py, "timeout", &why))
}

/// Where the compiler for kernels may be besides the usual places: where Python packages are.
pub fn compiler_folders(py: Python<'_>) -> Vec<PathBuf> {
    let path = py.import("sys").and_then(|sys| sys.getattr("path"));
    let folders = path.and_then(|path| path.extract::<Vec<Bound<'_, PyAny>>>());
    // What is not text is not a folder, and without any the usual places remain.
    let folders = folders.unwrap_or_default();
    folders.iter().filter_map(|folder| folder.extract().ok()).collect()
}
