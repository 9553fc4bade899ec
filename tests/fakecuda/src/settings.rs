//! What the environment says about the fake: read once, when the first call is made; tests of one
//! process change the most of it later by `fakecuda_set`.

use std::time::Duration;

/// The settings, with the environment variables that set them.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `FAKECUDA_DEVICES`: how many there are; default 1.
    pub(crate) devices: u32,
    /// `FAKECUDA_MEMORY`: bytes of memory of each device; default 256 MiB.
    pub(crate) memory: u64,
    /// `FAKECUDA_LATENCY_US`: what an operation waits before it begins, on average; default 20.
    pub(crate) latency: Duration,
    /// `FAKECUDA_BANDWIDTH`: bytes a second of one copy; default 0, which is no limit.
    pub(crate) bandwidth: u64,
    /// `FAKECUDA_LINK`: that of copies from and to main memory; default 0, which is as all others.
    pub(crate) link: u64,
    /// `FAKECUDA_SEED`: which of the possible orders; default 0.
    pub(crate) seed: u64,
    /// `FAKECUDA_VMM`: whether address ranges can be mapped piece by piece; default 1.
    pub(crate) maps_in_pieces: bool,
    /// `FAKECUDA_NVCOMP`: the version that the fake's nvCOMP tells; default 6000, which is 6.0.0.
    pub(crate) nvcomp: u32,
    /// `FAKECUDA_COMPILE_MS`: how long the compiler takes for a text; default 0.
    pub(crate) compile: Duration,
    /// `FAKECUDA_FAIL`: faults, as `cuMemAlloc_v2:1:2,...`: call, which one from now, code.
    pub(crate) faults: String,
}

impl Settings {
    pub(crate) fn from_environment() -> Settings {
        Settings {
            devices: number("FAKECUDA_DEVICES", 1) as u32,
            memory: number("FAKECUDA_MEMORY", 256 << 20),
            latency: Duration::from_micros(number("FAKECUDA_LATENCY_US", 20)),
            bandwidth: number("FAKECUDA_BANDWIDTH", 0),
            link: number("FAKECUDA_LINK", 0),
            seed: number("FAKECUDA_SEED", 0),
            maps_in_pieces: number("FAKECUDA_VMM", 1) != 0,
            nvcomp: number("FAKECUDA_NVCOMP", 6000) as u32,
            compile: Duration::from_millis(number("FAKECUDA_COMPILE_MS", 0)),
            faults: std::env::var("FAKECUDA_FAIL").unwrap_or_default(),
        }
    }

    /// The time that `bytes` take.
    pub(crate) fn time_of(&self, bytes: u64, crosses_the_link: bool) -> Duration {
        let link = if crosses_the_link { self.link } else { 0 };
        match if link > 0 { link } else { self.bandwidth } {
            0 => Duration::ZERO,
            rate => {
                Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64)
            }
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(default)
}
