//! Durations as people write them: `"10min"`, `"1h30min"`, `"90s"`.

use std::time::Duration;

/// Units by name, in seconds, longest first: each part of a text has a shorter one than the last.
const UNITS: [(&str, f64); 5] =
    [("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)];

/// The longest duration that is taken: ten years.
const LONGEST: f64 = 10.0 * 366.0 * 86_400.0;

/// The duration that `text` names: numbers with units, longest unit first.
///
/// # Errors
/// A sentence without its full stop that says what to write instead.
pub fn duration(text: &str) -> Result<Duration, String> {
    let none = || {
        format!(
            "{text:?} is not a duration: write numbers and units, such as \"10min\" or \"1h30min\""
        )
    };
    let mut rest = text.trim();
    let (mut seconds, mut units) = (0.0, &UNITS[..]);
    if rest.is_empty() {
        return Err(none());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| none())?;
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let place = units.iter().position(|(name, _)| *name == unit).ok_or_else(|| {
            format!(
                "{text:?} is not a duration: {unit:?} cannot stand there; the units are d, h, \
                 min, s and ms, each at most once and the longest first"
            )
        })?;
        seconds += number * units[place].1;
        units = &units[place + 1..];
        rest = next.trim_start();
    }
    if !(seconds > 0.0 && seconds <= LONGEST) {
        return Err(format!("{text:?} is not a duration above 0 and of at most ten years"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        let seconds = |text| duration(text).unwrap().as_secs_f64();
        assert_eq!(seconds("10min"), 600.0);
        assert_eq!(seconds(" 1h30min "), 5400.0);
        assert_eq!(seconds("23h 50 min"), 85_800.0);
        assert_eq!(seconds("1.5s"), 1.5);
        assert_eq!(seconds("2d"), 172_800.0);
        assert_eq!(seconds("250ms"), 0.25);
    }

    #[test]
    fn what_is_no_duration_is_refused_with_advice() {
        for (text, advice) in [
            ("", "10min"),
            ("10", "units"),
            ("10m", "min"),
            ("min", "numbers"),
            ("1.2.3s", "numbers"),
            ("30min1h", "longest first"),
            ("1s1s", "once"),
            ("0s", "above 0"),
            ("-1s", "numbers"),
            ("99999d", "ten years"),
            ("1é", "unit"),
        ] {
            let message = duration(text).unwrap_err();
            assert!(message.contains(advice), "{text:?}: {message}");
        }
    }
}
