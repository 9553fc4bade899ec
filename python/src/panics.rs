//! Panics end here: they become `unspool.Error`, and nothing is printed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Mutex;

use pyo3::prelude::*;

use crate::errors::{Class, error};

/// Where the last panic happened: the payload that unwinding carries does not say.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Keeps the standard library of this extension from printing panics.
pub fn keep_quiet() {
    set_hook(Box::new(note));
}

fn note(info: &PanicHookInfo<'_>) {
    // A poisoned or busy lock costs the place of the panic, nothing else.
    if let Ok(mut last) = LAST.try_lock() {
        *last = info.location().map(ToString::to_string).unwrap_or_default();
    }
}

/// Runs `work`; a panic in it becomes an exception.
pub fn guarded<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|payload| Err(error(py, Class::Internal, text(payload.as_ref()))))
}

/// What is to be said of the last panic, whose payload this is.
pub fn text(payload: &(dyn Any + Send)) -> String {
    let place = LAST.lock().map(|last| last.clone()).unwrap_or_default();
    sentence(payload, &place)
}

fn sentence(payload: &(dyn Any + Send), place: &str) -> String {
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    format!(
        "Unspool found itself in a state that must not be ({said}, at {place}). This is a \
         mistake in Unspool, not in your program: please report it with this message."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_sentence_with_its_text_and_its_place() {
        for payload in [
            catch_unwind(|| panic!("slot {} is taken", 7)),
            catch_unwind(|| panic!("slot 7 is taken")),
        ] {
            let text = sentence(payload.unwrap_err().as_ref(), "core.rs:12:5");
            assert!(text.contains("slot 7 is taken, at core.rs:12:5"), "{text}");
        }
        let odd = catch_unwind(|| std::panic::panic_any(3_u8));
        assert!(sentence(odd.unwrap_err().as_ref(), "x").contains("no message"));
    }
}
