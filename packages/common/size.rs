//! Numbers of bytes on the command lines of the programs beside this folder, which include this
//! file.

/// Reads a number of bytes, such as `16MiB` or `1000`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: write it as `256MiB`, `64kB` or `1000`.");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(wrong)
}
