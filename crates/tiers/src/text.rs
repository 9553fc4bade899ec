//! Numbers for people.

use std::fmt;

/// A number of bytes, shown with the largest unit that fits and three digits: "1.50 GiB".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let power = self.0.ilog2() as usize / 10;
        let value = self.0 as f64 / (1u64 << (10 * power)) as f64;
        let decimals = if value >= 100.0 { 0 } else { if value >= 10.0 { 1 } else { 2 } };
        write!(f, "{value:.decimals$} {}", UNITS[power - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn bytes_are_shown_with_the_largest_unit_that_fits() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!(shown(0), "0 bytes");
        assert_eq!(shown(1023), "1023 bytes");
        assert_eq!(shown(1536), "1.50 KiB");
        assert_eq!(shown(32 << 30), "32.0 GiB");
        assert_eq!(shown(u64::MAX), "16.0 EiB");
    }
}
