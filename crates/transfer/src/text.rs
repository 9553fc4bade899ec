//! Numbers as people read them.

use std::fmt;

/// A number of bytes as people read it: `"4.0 MiB (4194304 bytes)"`; small ones `"17 bytes"`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {} ({} bytes)", UNITS[unit], self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_a_unit_that_fits_and_exactly() {
        assert_eq!(Bytes(17).to_string(), "17 bytes");
        assert_eq!(Bytes(4 << 20).to_string(), "4.0 MiB (4194304 bytes)");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB (1536 bytes)");
        assert_eq!(Bytes(u64::MAX).to_string(), "16.0 EiB (18446744073709551615 bytes)");
    }
}
