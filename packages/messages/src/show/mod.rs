//! A report as text for a terminal, as one page, and as JSON for programs; a forecast as text and
//! as JSON.

mod forecast;
mod html;
mod json;
mod text;

pub use forecast::{forecast_json, forecast_text};
pub use html::html;
pub use json::json;
pub use text::text;

/// A number of bytes, as people read it.
#[must_use]
pub fn bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "kB", "MB", "GB"] {
        if value.abs() < 1000.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.3} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.3} TB")
}

/// Bytes a second, as people read them.
#[must_use]
pub fn rate(rate: f64) -> String {
    let (value, unit) = match rate {
        rate if rate >= 1e9 => (rate / 1e9, "GB/s"),
        rate if rate >= 1e6 => (rate / 1e6, "MB/s"),
        rate => (rate / 1e3, "kB/s"),
    };
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// A part of a whole in percent.
fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A share of something that may be nothing.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.3} %", part as f64 / whole as f64 * 100.0) }
}

/// Reads a network's speed: a number with `GB/s`, `MB/s`, `Gb/s` (bits) or `Mb/s`.
///
/// # Errors
/// What would be right, in a sentence.
pub fn network(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("`{text}` is not a speed: write it as `10GB/s`, or in bits as `100Gb/s`.");
    let number = text.find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?;
    let (value, unit) = text.split_at(number);
    let scale = match unit {
        "GB/s" => 1e9,
        "MB/s" => 1e6,
        "Gb/s" | "Gbit/s" => 1e9 / 8.0,
        "Mb/s" | "Mbit/s" => 1e6 / 8.0,
        _ => return Err(wrong()),
    };
    let value: f64 = value.trim().parse().map_err(|_| wrong())?;
    if value > 0.0 && value.is_finite() { Ok(value * scale) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::{bytes, network, rate};

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(bytes(12.0), "12 B");
        assert_eq!(bytes(1_234_567.0), "1.235 MB");
        assert_eq!(rate(25e9), "25 GB/s");
        assert_eq!(rate(0.1e9), "100 MB/s");
    }

    #[test]
    fn a_network_is_named_in_bytes_or_bits() {
        assert_eq!(network("10GB/s"), Ok(10e9));
        assert_eq!(network("100 Gb/s"), Ok(12.5e9));
        assert_eq!(network("1.5MB/s"), Ok(1.5e6));
        for wrong in ["", "10", "GB/s", "-1GB/s", "10 parsecs", "infGB/s"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
