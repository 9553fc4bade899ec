//! The speeds of the links of a machine, remembered from one spool to the next, so that the core
//! need not begin with guesses. A link is known by what it joins: a GPU by name and PCI address, a
//! disk by the number of its file system.
//!
//! The file is text: a first line, then a line for each direction of a link, with its rate in bytes
//! per second, a tab, and its name. What cannot be understood is ignored, and a rate that no link
//! has is not believed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use unspool_core::{Config, TierKind};
use unspool_cuda::user_cache;

use crate::gpu::Gpu;
use crate::runtime::shared::Shared;
use crate::settings::Settings;

const FIRST_LINE: &str = "unspool-rates 1";
/// Bytes of the largest file that is read.
const LARGEST: u64 = 64 << 10;
/// The most directions that are remembered.
const MOST: usize = 256;
/// What has to have been moved before a rate is worth remembering.
const ENOUGH: (u64, u64) = (8, 64 << 20);
/// Bytes per second that a link may have.
const SANE: RangeInclusive<f64> = 1e6..=1e12;

/// Rates in bytes per second by name.
type Rates = BTreeMap<String, f64>;

/// The file in the user's cache folder, for [`Settings::rates`].
#[must_use]
pub fn rates_file() -> Option<PathBuf> {
    Some(user_cache::folder()?.join("rates"))
}

/// Takes the rates of the links from what earlier spools have left.
pub(crate) fn recall(settings: &Settings, gpu: Option<&Gpu>, config: &mut Config) {
    let Some(known) = settings.rates.as_deref().map(read) else { return };
    let kinds: Vec<TierKind> = config.tiers.iter().map(|tier| tier.kind).collect();
    for (link, [flush, prefetch]) in config.links.iter_mut().zip(names(&kinds, settings, gpu)) {
        link.flush_rate = known.get(&flush).copied().unwrap_or(link.flush_rate);
        link.prefetch_rate = known.get(&prefetch).copied().unwrap_or(link.prefetch_rate);
    }
}

/// Leaves the rates of the links that have moved enough for later spools. What cannot be written is
/// measured again.
pub(crate) fn remember(shared: &Shared) {
    let Some(file) = shared.settings.rates.as_deref() else { return };
    let stats = shared.state().driver.core().stats();
    let names = names(&shared.kinds, &shared.settings, shared.gpu.as_ref());
    let rates = names
        .into_iter()
        .zip(&stats.links)
        .flat_map(|([flush, prefetch], link)| [(flush, link.flush), (prefetch, link.prefetch)]);
    let learned: Rates = rates
        .filter(|(_, link)| link.transfers >= ENOUGH.0 && link.bytes >= ENOUGH.1)
        .filter(|(_, link)| SANE.contains(&link.rate))
        .map(|(name, link)| (name, link.rate))
        .collect();
    if learned.is_empty() {
        return;
    }
    let mut known = read(file);
    if known.len() + learned.len() > MOST {
        known.clear();
    }
    known.extend(learned);
    let mut text = format!("{FIRST_LINE}\n");
    for (name, rate) in known {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rate:.0}\t{name}");
    }
    let _ = user_cache::write(file, text.as_bytes());
}

fn read(file: &Path) -> Rates {
    let bytes = user_cache::read(file, LARGEST).unwrap_or_default();
    parse(&String::from_utf8_lossy(&bytes))
}

fn parse(text: &str) -> Rates {
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Rates::new();
    }
    let rates = lines.filter_map(|line| {
        let (rate, name) = line.split_once('\t')?;
        let rate = rate.parse().ok().filter(|rate| SANE.contains(rate))?;
        Some((name.to_owned(), rate))
    });
    rates.take(MOST).collect()
}

/// The names of both directions of each link: towards the slower tier and back.
fn names(kinds: &[TierKind], settings: &Settings, gpu: Option<&Gpu>) -> Vec<[String; 2]> {
    let place = |kind: TierKind| match (kind, gpu, &settings.disk) {
        (TierKind::Device, Some(gpu), _) => {
            let device = gpu.context().device();
            format!("{} {}", device.name, device.pci).replace(char::is_control, " ")
        }
        (TierKind::Device | TierKind::Host, ..) => "memory".to_owned(),
        (_, _, Some(disk)) => {
            let number = std::fs::metadata(&disk.path).map_or(0, |found| found.dev());
            format!("disk {number}")
        }
        (_, _, None) => kind.to_string(),
    };
    let places: Vec<String> = kinds.iter().map(|kind| place(*kind)).collect();
    let both = |pair: &[String]| {
        [format!("{} > {}", pair[0], pair[1]), format!("{} > {}", pair[1], pair[0])]
    };
    // Two arenas in main memory have one name, and both directions of their link the same rate.
    places.windows(2).map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_rate_is_ignored() {
        let text = "unspool-rates 1\n5000000000\ta > b\nnan\tb > a\n1e300\tc > d\n-3\te\n7\tf\n\
                    \n9e9 g\n2e9\th > i";
        let rates = parse(text);
        assert_eq!(rates, Rates::from([("a > b".into(), 5e9), ("h > i".into(), 2e9)]));
        for text in ["", "junk", "unspool-rates 2\n5000000000\ta > b\n", "\0\0\0"] {
            assert!(parse(text).is_empty(), "{text:?}");
        }
    }
}
