//! Numbers of bytes in messages.

use std::fmt;

/// A number of bytes in a readable unit: `4 GiB`, `1.75 GiB`; with `{:#}` also exactly:
/// `1.75 GiB (1879048192 bytes)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let Some(power) = self.0.checked_ilog2().map(|bits| bits / 10).filter(|power| *power > 0)
        else {
            return write!(f, "{} bytes", self.0);
        };
        let (size, unit) = (1u64 << (10 * power), UNITS[power as usize - 1]);
        if self.0.is_multiple_of(size) {
            write!(f, "{} {unit}", self.0 / size)?;
        } else {
            let value = self.0 as f64 / size as f64;
            let decimals = if value >= 100.0 { 0 } else { if value >= 10.0 { 1 } else { 2 } };
            write!(f, "{value:.decimals$} {unit}")?;
        }
        if f.alternate() {
            write!(f, " ({} bytes)", self.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_in_the_largest_unit_that_fits() {
        let text = |bytes| Bytes(bytes).to_string();
        assert_eq!(text(0), "0 bytes");
        assert_eq!(text(1023), "1023 bytes");
        assert_eq!(text(4 << 30), "4 GiB");
        assert_eq!(text((7 << 30) / 4), "1.75 GiB");
        assert_eq!(text((157 << 30) / 2), "78.5 GiB");
        assert_eq!(text(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn alternate_form_has_the_exact_number_too() {
        assert_eq!(format!("{:#}", Bytes(17)), "17 bytes");
        assert_eq!(format!("{:#}", Bytes(1536)), "1.50 KiB (1536 bytes)");
    }
}
