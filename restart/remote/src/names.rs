//! Names of objects: words of letters, digits, `.`, `_` and `-`, with `/` between them, which every
//! kind of store takes as they are.

use unspool_core::Failure;
use unspool_tiers::TierError;

/// The longest name.
const LONGEST: usize = 512;

/// Whether a name is one.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let word = |word: &str| !word.is_empty() && !word.starts_with('.') && word.bytes().all(plain);
    name.len() <= LONGEST && name.split('/').all(word)
}

/// Refuses what is not a name.
///
/// # Errors
/// `Permanent`.
pub(crate) fn check(operation: &'static str, name: &str) -> Result<(), TierError> {
    if is_name(name) {
        return Ok(());
    }
    let reason = format!("{name:?} is not the name of an object");
    Err(TierError::new(Failure::Permanent, operation, "a remote place", reason).with_advice(
        "Use letters, digits, '.', '_', '-' and '/', and no word that begins with a dot.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for name in ["a", "rank-0003-of-0016/step-300.manifest", "A/b_c/d.e"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        for name in ["", "/a", "a/", "a//b", "../a", "a/..", ".a", "a b", "a%2e", "é", &long] {
            assert!(!is_name(name), "{name}");
        }
    }
}
