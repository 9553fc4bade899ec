//! Sizes in bytes as people write them: `"512MiB"`, `"1.5 GB"`, `4 << 30`.

/// The most digits after the decimal point; the 19th is below a byte of any unit.
const MAX_FRACTION: usize = 18;

/// Units by name in lower case, in bytes. Decimal and binary prefixes are different words.
const UNITS: [(&str, u64); 11] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

/// The bytes that `text` names: a number, with at most one decimal point and `_` between digits,
/// then a unit. A part of a byte is cut off.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(no_size(text));
    }
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
    let (number, unit) = trimmed.split_at(end.unwrap_or(trimmed.len()));
    let factor = factor(text, unit.trim())?;
    let bytes = scaled(number, factor).ok_or_else(|| no_size(text))?;
    u64::try_from(bytes).map_err(|_| format!("{text:?} is more bytes than 64 bits can count"))
}

fn no_size(text: &str) -> String {
    format!("{text:?} is not a size: write a number and a unit, such as \"512MiB\" or \"1.5GB\"")
}

fn factor(text: &str, unit: &str) -> Result<u64, String> {
    let lower = unit.to_ascii_lowercase();
    if let Some((_, bytes)) = UNITS.iter().find(|(name, _)| *name == lower) {
        return Ok(*bytes);
    }
    Err(match lower.as_str() {
        "" => format!("{text:?} has no unit: write \"{text}B\", or an integer, for bytes"),
        "k" | "m" | "g" | "t" | "p" | "ki" | "mi" | "gi" | "ti" | "pi" => {
            let prefix = lower[..1].to_ascii_uppercase();
            format!(
                "{text:?} leaves the unit open: write {prefix}iB for powers of 1024 or {prefix}B \
                 for powers of 1000"
            )
        }
        _ => format!(
            "{text:?} is not a size that is known here: write a number and one of B, kB, MB, GB, \
             TB, PB (powers of 1000), KiB, MiB, GiB, TiB, PiB (powers of 1024)"
        ),
    })
}

/// `number * factor`, exactly; `None` when `number` is not written as one.
fn scaled(number: &str, factor: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole_digits = digits(whole)?;
    let fraction_digits = digits(fraction)?;
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return None;
    }
    let cut = &fraction_digits[..fraction_digits.len().min(MAX_FRACTION)];
    let factor = u128::from(factor);
    let large: u128 = if whole_digits.is_empty() { 0 } else { whole_digits.parse().ok()? };
    let small: u128 = if cut.is_empty() { 0 } else { cut.parse().ok()? };
    let part = small * factor / 10_u128.pow(u32::try_from(cut.len()).ok()?);
    large.checked_mul(factor)?.checked_add(part)
}

/// The digits of `text` without the `_` between them; `None` when there is anything else.
fn digits(text: &str) -> Option<String> {
    let misplaced = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    (!misplaced && plain.chars().all(|c| c.is_ascii_digit())).then_some(plain)
}

/// `bytes` for people: the largest binary unit that leaves at least 1, with at most two decimals.
#[must_use]
pub fn display(bytes: u64) -> String {
    let binary = UNITS[6..].iter().rev().zip(["PiB", "TiB", "GiB", "MiB", "KiB"]);
    for ((_, unit), name) in binary {
        if bytes >= *unit {
            let text = format!("{:.2}", bytes as f64 / *unit as f64);
            let text = text.trim_end_matches('0').trim_end_matches('.');
            return format!("{text} {name}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_and_decimal_units_are_told_apart() {
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("512 MB"), Ok(512_000_000));
        assert_eq!(parse("4GiB"), Ok(4 << 30));
        assert_eq!(parse("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(parse(" 1_000 kB "), Ok(1_000_000));
        assert_eq!(parse("7b"), Ok(7));
        assert_eq!(parse("2tib"), Ok(2 << 40));
    }

    #[test]
    fn fractions_are_exact_and_cut_to_whole_bytes() {
        assert_eq!(parse("0.1GB"), Ok(100_000_000));
        assert_eq!(parse(".5 KiB"), Ok(512));
        assert_eq!(parse("1.0000000000000000000000001 PiB"), Ok(1 << 50));
        assert_eq!(parse("1.9B"), Ok(1));
    }

    #[test]
    fn what_is_no_size_is_refused_with_advice() {
        for (text, advice) in [
            ("4G", "GiB"),
            ("4Gi", "GiB"),
            ("4", "4B"),
            ("", "unit"),
            ("GB", "number"),
            ("1.2.3GB", "number"),
            ("1__0GB", "number"),
            ("-1GB", "number"),
            ("4 furlongs", "KiB"),
            ("99999999999 PiB", "64 bits"),
            ("4GB\u{2003}é", "KiB"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(advice), "{text:?}: {message}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!(display(0), "0 B");
        assert_eq!(display(1023), "1023 B");
        assert_eq!(display(1536), "1.5 KiB");
        assert_eq!(display(4 << 30), "4 GiB");
        assert_eq!(display(u64::MAX), "16384 PiB");
    }
}
