//! How a spool is opened: what `"auto"` picks, and what came of the settings, in words.

use std::fmt::Write;

use pyo3::prelude::*;
use unspool::{Error, Settings, Spool, TierKind, auto};

use crate::energy::Energy;
use crate::options::SizeOption;
use crate::sizes;
use crate::waiting::detached;

/// The most frames that a warning names.
const MOST_NAMED: usize = 3;

/// What errors of a GPU without room say.
const NO_ROOM: &str = "not enough memory";

/// The sizes of the arenas as they were given.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The option `device_memory`.
    pub device: Option<SizeOption>,
    /// The option `host_memory`.
    pub host: Option<SizeOption>,
}

/// An open spool and what there is to say about it.
#[derive(Debug)]
pub struct Opened {
    /// The spool.
    pub spool: Spool,
    /// Its tiers in words.
    pub tiers: String,
    /// The energy that the machine takes from now on.
    pub energy: Energy,
    /// What its user has to know: a device tier that is smaller than it was asked to be, frames of
    /// an earlier run that did not come back.
    pub warnings: Vec<String>,
}

/// Picks what is to be picked, opens the spool, and begins to count what it takes.
///
/// # Errors
/// Those of [`open`]; where a GPU has no room, they say what JAX takes of it.
pub fn opened(py: Python<'_>, settings: Settings, asked: Sizes) -> PyResult<Opened> {
    let opened = detached(py, None, || open(settings, asked));
    let (spool, tiers, warnings) = opened.map_err(|raised| match asked.device {
        Some(_) if has_preallocated(py) => explained(py, raised),
        _ => raised,
    })?;
    let energy = Energy::since_now(py, &spool)?;
    Ok(Opened { spool, tiers, energy, warnings })
}

/// Whether JAX is in this process, and takes most of a GPU when it first uses it.
fn has_preallocated(py: Python<'_>) -> bool {
    let loaded = || py.import("sys")?.getattr("modules")?.contains("jax");
    let refused = std::env::var("XLA_PYTHON_CLIENT_PREALLOCATE")
        .is_ok_and(|set| matches!(set.to_ascii_lowercase().as_str(), "0" | "false"));
    !refused && loaded().unwrap_or(false)
}

fn explained(py: Python<'_>, raised: PyErr) -> PyErr {
    let text = raised.value(py).to_string();
    if !text.contains(NO_ROOM) {
        return raised;
    }
    let more = format!(
        "{text} JAX is in this process, and takes 75 % of the GPU when it first uses it: start \
         Python with XLA_PYTHON_CLIENT_PREALLOCATE=false, or with \
         XLA_PYTHON_CLIENT_MEM_FRACTION=0.5 or so."
    );
    // The error matters more than a text that cannot be set.
    let _ = raised.value(py).setattr("args", (more,));
    raised
}

/// A spool, its tiers in words, and its warnings.
///
/// # Errors
/// Those of [`auto`] and of [`Spool::open`].
fn open(mut settings: Settings, asked: Sizes) -> Result<(Spool, String, Vec<String>), Error> {
    let mut picks = Vec::new();
    let asked = if is_given(&settings, asked) { asked } else { by_default(&mut settings) };
    settings.device = asked.device.and_then(SizeOption::bytes);
    settings.host = asked.host.and_then(SizeOption::bytes);
    if asked.device == Some(SizeOption::Auto) {
        let picked = auto::device(&settings.on)?;
        settings.device = Some(picked.bytes);
        settings.picked.push((TierKind::Device, picked.sentence.clone()));
        picks.push(picked);
    }
    if asked.host == Some(SizeOption::Auto) {
        let picked = auto::host(&settings)?;
        settings.host = Some(picked.bytes);
        settings.picked.push((TierKind::Host, picked.sentence.clone()));
        picks.push(picked);
    }
    let disk = settings.disk.as_ref().map(|disk| format!("{:?}", disk.path));
    let wanted = settings.device;
    let spool = Spool::open(settings)?;
    // They kept the device's context until the spool has it.
    drop(picks);
    let warnings = [shrunk(&spool, wanted)?, left_out(&spool)?].into_iter().flatten().collect();
    let tiers = in_words(&spool, asked, disk)?;
    Ok((spool, tiers, warnings))
}

fn is_given(settings: &Settings, asked: Sizes) -> bool {
    asked.device.is_some() || asked.host.is_some() || settings.disk.is_some()
}

/// The tiers of a spool for which none was given.
fn by_default(settings: &mut Settings) -> Sizes {
    if let Some((disk, sentence)) = auto::disk() {
        settings.disk = Some(disk);
        settings.picked.push((TierKind::Disk, sentence));
    }
    Sizes { device: None, host: Some(SizeOption::Auto) }
}

/// Where the arenas of a spool are: `cpu`, or `cuda:` and a number.
pub fn place(spool: &Spool) -> String {
    spool.gpu().map_or_else(|| "cpu".to_owned(), |gpu| format!("cuda:{}", gpu.ordinal()))
}

/// The bytes that an arena got.
fn capacity(spool: &Spool, kind: TierKind) -> Result<Option<u64>, Error> {
    let tiers = spool.stats()?.tiers;
    Ok(tiers.iter().find(|tier| tier.kind == kind).map(|tier| tier.capacity))
}

fn shrunk(spool: &Spool, wanted: Option<u64>) -> Result<Option<String>, Error> {
    let got = capacity(spool, TierKind::Device)?;
    let (Some(wanted), Some(got)) = (wanted, got) else { return Ok(None) };
    Ok((got < wanted).then(|| {
        format!(
            "The device tier has {} instead of {}: the GPU has no more memory free.",
            sizes::display(got),
            sizes::display(wanted)
        )
    }))
}

/// What of an earlier run did not come back, which is all that a new spool has noted.
fn left_out(spool: &Spool) -> Result<Option<String>, Error> {
    let notes = spool.stats()?.application.notes;
    let (named, others) = notes.split_at(notes.len().min(MOST_NAMED));
    let mut text = named.join(" ");
    if !others.is_empty() {
        let more = others.len();
        // Writing to a string cannot fail.
        let _ = write!(text, " And {more} more: `stats().notes` names them.");
    }
    Ok((!text.is_empty()).then_some(text))
}

fn in_words(spool: &Spool, asked: Sizes, disk: Option<String>) -> Result<String, Error> {
    let mut words = Vec::new();
    let arenas = [(TierKind::Device, asked.device), (TierKind::Host, asked.host)];
    for (kind, asked) in arenas {
        let (Some(asked), Some(bytes)) = (asked, capacity(spool, kind)?) else { continue };
        let mut word = format!("{}_memory={:?}", kind.name(), sizes::display(bytes));
        if asked == SizeOption::Auto {
            // Writing to a string cannot fail.
            let _ = write!(word, " (auto)");
        }
        words.push(word);
    }
    words.extend(disk.map(|path| format!("disk={path}")));
    if spool.gpu().is_some() {
        words.push(format!("device={:?}", place(spool)));
    }
    Ok(words.join(" "))
}
