//! What an error of a store means: to who asked, and to a person. The texts of clients and servers
//! may hold addresses with signatures and names of keys, so only what is known to be harmless is
//! taken from them.

use std::error::Error as _;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use unspool_core::Failure;
use unspool_tiers::TierError;

/// What to do about a refusal.
const RIGHTS: &str = "Check the credentials in the environment (AWS_*, GOOGLE_* or AZURE_*), and \
                      what they may do there.";

/// What to do about a server that cannot be had.
const REACH: &str = "Check the network, the address of the server, and its state; it can be tried \
                     again.";

/// The error of a server that has not answered.
pub(crate) fn late(operation: &'static str, place: String, seconds: f64) -> TierError {
    let reason = format!("the server has not answered within {seconds:.1} s");
    TierError::new(Failure::Io, operation, place, reason).with_advice(REACH)
}

/// The error of a client that cannot be made of its settings, of which some are secret.
pub(crate) fn of_settings(place: String, cause: &Error, secrets: &[String]) -> TierError {
    let root = root(cause);
    let shown = !secrets.iter().any(|secret| root.contains(secret.as_str()));
    let why = if shown { format!(": {}", root.trim_end_matches('.')) } else { String::new() };
    let reason = format!("the environment has no sensible settings for it{why}");
    TierError::new(Failure::Permanent, "open", place, reason)
        .with_advice("Look at the variables AWS_*, GOOGLE_* or AZURE_*.")
}

/// The error of a store.
pub(crate) fn of_store(operation: &'static str, place: String, cause: &Error) -> TierError {
    let (failure, reason, advice) = meaning(operation, cause);
    TierError::new(failure, operation, place, reason).with_advice(advice)
}

/// The codes of stores for a bucket that does not exist.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

fn meaning(operation: &str, cause: &Error) -> (Failure, String, &'static str) {
    let root = root(cause);
    let is_missing = matches!(cause, Error::NotFound { .. }) || status_of(&root) == Some(404);
    // A list needs no object: what can be missing is the bucket.
    if is_missing && (operation == "list" || NO_BUCKET.iter().any(|code| root.contains(code))) {
        let reason = format!("the bucket does not exist{}", code_of(&root));
        return (Failure::Permanent, reason, "Check its name, or make it: no bucket is made here.");
    }
    if let Some(name) = odd_name(cause) {
        let reason = format!("it has an object that no client can name: {name}");
        let advice = "Remove that object, or give this run a prefix of its own.";
        return (Failure::Permanent, reason, advice);
    }
    match cause {
        Error::NotFound { .. } => (
            Failure::Missing,
            format!("it is not there{}", code_of(&root)),
            "Check the name of the bucket, and whether something else has removed the object.",
        ),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            (Failure::Permanent, format!("access is refused{}", code_of(&root)), RIGHTS)
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } | Error::InvalidPath { .. } => {
            (Failure::Permanent, "the store does not support this".into(), "Use another place.")
        }
        Error::UnknownConfigurationKey { key, .. } => (
            Failure::Permanent,
            format!("{key:?} is not a setting of it"),
            "Look at the environment variables of the store.",
        ),
        _ => unnamed(cause, &root),
    }
}

/// What is in the error of a request: how it failed, or what the server said.
fn unnamed(cause: &Error, root: &str) -> (Failure, String, &'static str) {
    if let Some(kind) = kind_of(cause) {
        let what = match kind {
            HttpErrorKind::Connect => "the server cannot be reached",
            HttpErrorKind::Timeout => "the server has not answered in time",
            _ => "the connection to the server broke",
        };
        return (Failure::Io, format!("{what}{}", system(root)), REACH);
    }
    match status_of(root) {
        Some(507) => full(root),
        Some(_) if root.contains("Quota") || root.contains("StorageFull") => full(root),
        Some(400 | 401 | 403) => {
            (Failure::Permanent, format!("the request is refused{}", code_of(root)), RIGHTS)
        }
        Some(status) => {
            let reason = format!("the server answered {status}{}", code_of(root));
            (Failure::Io, reason, REACH)
        }
        None => (Failure::Io, "the server gave no sensible answer".into(), REACH),
    }
}

fn full(root: &str) -> (Failure, String, &'static str) {
    let reason = format!("the store has no room{}", code_of(root));
    (Failure::NoSpace, reason, "Free space there, or raise the quota.")
}

/// What is wrong with the name of an object that is listed, such as `p//x`.
fn odd_name(cause: &Error) -> Option<String> {
    let mut next: Option<&dyn std::error::Error> = Some(cause);
    while let Some(error) = next {
        if let Some(odd) = error.downcast_ref::<object_store::path::Error>() {
            return Some(odd.to_string());
        }
        next = error.source();
    }
    None
}

/// The kind of a failure of the connection.
fn kind_of(cause: &Error) -> Option<HttpErrorKind> {
    let mut next = cause.source();
    while let Some(error) = next {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        next = error.source();
    }
    None
}

/// The text of the innermost cause.
fn root(cause: &Error) -> String {
    let mut last: &dyn std::error::Error = cause;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

/// The error of the system in a text, in brackets.
fn system(root: &str) -> String {
    if root.contains("(os error ") { format!(" ({root})") } else { String::new() }
}

/// The status of an answer in the text of an error.
fn status_of(root: &str) -> Option<u16> {
    let (_, after) = root.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

/// The word with which a store names an error, in brackets.
fn code_of(root: &str) -> String {
    let code = root.split_once("<Code>").and_then(|(_, after)| after.split_once("</Code>"));
    let word = code.map(|(word, _)| word).filter(|word| {
        (1..=64).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    word.map_or(String::new(), |word| format!(" ({word})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn the_text_of_a_server_is_not_repeated() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>\
                    SignatureDoesNotMatch</Code><AccessKeyId>AKIASECRET</AccessKeyId></Error>";
        let text = of_store("put", "s3://b/x".into(), &generic(body)).to_string();
        assert!(text.contains("(SignatureDoesNotMatch)"), "{text}");
        assert!(text.contains("AWS_*") && !text.contains("AKIA"), "{text}");
        let odd = "status code: 500 <Code>no word at all</Code> http://x/?sig=AKIASECRET";
        let error = of_store("get", "s3://b/x".into(), &generic(odd));
        assert_eq!(error.kind(), Failure::Io);
        assert!(!error.to_string().contains("AKIA") && error.to_string().contains("500"));
    }

    #[test]
    fn a_missing_bucket_and_an_object_with_an_odd_name_are_told_apart_from_a_network() {
        let body = "Server returned non-2xx status code: 404 Not Found: <Code>NoSuchBucket</Code>";
        for operation in ["list", "put", "get"] {
            let error = of_store(operation, "s3://b".into(), &generic(body));
            assert_eq!(error.kind(), Failure::Permanent);
            let text = error.to_string();
            assert!(text.contains("the bucket does not exist (NoSuchBucket)"), "{text}");
            assert!(!text.contains("network"), "{text}");
        }
        let path = object_store::path::Path::parse("p//x").unwrap_err();
        let error = of_store("list", "s3://b".into(), &Error::from(path));
        assert_eq!(error.kind(), Failure::Permanent);
        let text = error.to_string();
        assert!(text.contains("p//x") && text.contains("Remove that object"), "{text}");
    }

    #[test]
    fn errors_mean_what_the_caller_can_act_on() {
        let of = |text: &str| of_store("put", String::new(), &generic(text)).kind();
        assert_eq!(of("status code: 507 Insufficient Storage"), Failure::NoSpace);
        assert_eq!(of("status code: 400 <Code>QuotaExceeded</Code>"), Failure::NoSpace);
        assert_eq!(of("status code: 503 <Code>StorageFull</Code>"), Failure::NoSpace);
        assert_eq!(of("status code: 503 Slow"), Failure::Io);
        assert_eq!(of("nonsense"), Failure::Io);
    }
}
