//! How a spool is opened: what `"auto"` picks, and what came of the settings, in words.

use std::fmt::Write;

use unspool::{Error, Settings, Spool, TierKind, auto};

use crate::options::Size;
use crate::sizes;

/// The sizes of the arenas as they were given.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The option `device`.
    pub device: Option<Size>,
    /// The option `host`.
    pub host: Option<Size>,
}

/// An open spool and what there is to say about it.
#[derive(Debug)]
pub struct Opened {
    /// The spool.
    pub spool: Spool,
    /// Its tiers in words.
    pub tiers: String,
    /// Why the device tier is smaller than it was asked to be.
    pub shrunk: Option<String>,
}

/// Picks what is to be picked and opens the spool.
///
/// # Errors
/// Those of [`auto`] and of [`Spool::open`].
pub fn open(mut settings: Settings, asked: Sizes) -> Result<Opened, Error> {
    let mut picks = Vec::new();
    settings.device = asked.device.and_then(Size::bytes);
    settings.host = asked.host.and_then(Size::bytes);
    if asked.device == Some(Size::Auto) {
        let picked = auto::device(&settings.on)?;
        settings.device = Some(picked.bytes);
        settings.picked.push((TierKind::Device, picked.sentence.clone()));
        picks.push(picked);
    }
    if asked.host == Some(Size::Auto) {
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
    let shrunk = shrunk(&spool, wanted)?;
    let tiers = in_words(&spool, asked, disk)?;
    Ok(Opened { spool, tiers, shrunk })
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

fn in_words(spool: &Spool, asked: Sizes, disk: Option<String>) -> Result<String, Error> {
    let mut words = Vec::new();
    let arenas = [(TierKind::Device, asked.device), (TierKind::Host, asked.host)];
    for (kind, asked) in arenas {
        let (Some(asked), Some(bytes)) = (asked, capacity(spool, kind)?) else { continue };
        let mut word = format!("{}={:?}", kind.name(), sizes::display(bytes));
        if asked == Size::Auto {
            // Writing to a string cannot fail.
            let _ = write!(word, " (auto)");
        }
        words.push(word);
    }
    words.extend(disk.map(|path| format!("disk={path}")));
    if spool.gpu().is_some() {
        words.push(format!("on={:?}", place(spool)));
    }
    Ok(words.join(" "))
}
