//! Figures for people.

use std::fmt;

pub(crate) use unspool_tiers::Bytes;

use crate::doctor::PciPort;

/// Bytes per second: `55.1 GB/s`.
pub(super) struct Rate(pub(super) f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 1e9 => write!(f, "{:.1} GB/s", rate / 1e9),
            rate => write!(f, "{:.0} MB/s", rate / 1e6),
        }
    }
}

/// A link: `PCIe 5.0 x16`.
pub(super) struct Port(pub(super) PciPort);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.generation() {
            Some(generation) => write!(f, "PCIe {generation}.0 x{}", self.0.lanes),
            None => write!(f, "{} GT/s x{}", self.0.gigatransfers, self.0.lanes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_with_the_unit_that_fits() {
        assert_eq!(Bytes(1000).to_string(), "1000 bytes");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16.0 EiB");
        assert_eq!(Rate(55.12e9).to_string(), "55.1 GB/s");
        assert_eq!(Rate(3e8).to_string(), "300 MB/s");
    }

    #[test]
    fn a_link_is_written_with_its_generation() {
        let port = |gigatransfers| Port(PciPort { gigatransfers, lanes: 16 }).to_string();
        assert_eq!(port(32.0), "PCIe 5.0 x16");
        assert_eq!(port(7.0), "7 GT/s x16");
    }
}
