//! Settings of the fake from the environment: read once, at the first call; tests of one process
//! change most of them later with `fakecuda_set`.

use std::time::Duration;

/// The settings, with the environment variables that set them.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `FAKECUDA_DEVICES`: number of devices; default 1.
    pub(crate) devices: u32,
    /// `FAKECUDA_MEMORY`: bytes of memory of each device; default 256 MiB.
    pub(crate) memory: u64,
    /// `FAKECUDA_LATENCY_US`: average delay before an operation begins; default 20.
    pub(crate) latency: Duration,
    /// `FAKECUDA_BANDWIDTH`: bytes per second of one copy; default 0, without a limit.
    pub(crate) bandwidth: u64,
    /// `FAKECUDA_LINK`: bytes per second of copies from and to main memory; default 0, for the
    /// speed of other copies.
    pub(crate) link: u64,
    /// `FAKECUDA_SEED`: selects the order of operations; default 0.
    pub(crate) seed: u64,
    /// `FAKECUDA_VMM`: whether address ranges can be mapped piece by piece; default 1.
    pub(crate) maps_in_pieces: bool,
    /// `FAKECUDA_NVCOMP`: the reported version of the fake's nvCOMP; default 6000, which is 6.0.0.
    pub(crate) nvcomp: u32,
    /// `FAKECUDA_COMPILE_MS`: duration of a compilation; default 0.
    pub(crate) compile: Duration,
    /// `FAKECUDA_FAIL`: faults, such as `cuMemAlloc_v2:1:2,...`: call, number of the call from now
    /// on, code.
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

    /// Duration of a copy of `bytes` bytes.
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
