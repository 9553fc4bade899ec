//! What a library with an interface in C does about its own panics: the libraries beside this
//! folder include this file, each with a flag of its own.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is in a call of this library.
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Runs the body of a call; a panic in it becomes a sentence.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    keep_quiet();
    let outer = IN_CALL.try_with(|is| is.replace(true));
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let _ = IN_CALL.try_with(|is| is.set(outer.unwrap_or(false)));
    outcome.map_err(|panic| panicked(&*panic))
}

/// Keeps the standard library from printing panics that become sentences. Those of a Rust program
/// that links this library are printed as before.
fn keep_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let ours =
                std::thread::current().name().is_some_and(|name| name.starts_with("unspool"));
            if !ours && !IN_CALL.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!(
        "Unspool found itself in a state that must not be ({}). This is a mistake in Unspool, not \
         in your program: please report it with this message.",
        text.as_deref().unwrap_or("no message")
    )
}
