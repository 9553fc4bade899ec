//! Failed assertions of the core become violations with their text, without output on the screen.

use std::cell::{Cell, RefCell};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs `work`; a panic in it on this thread is recorded and not printed.
pub(crate) fn silenced<T>(work: impl FnOnce() -> T) -> T {
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| if SILENT.get() { remember(info) } else { usual(info) }));
    });
    SILENT.set(true);
    let result = work();
    SILENT.set(false);
    result
}

fn remember(info: &PanicHookInfo<'_>) {
    MESSAGE.set(info.to_string());
}

/// Text and location of the last panic recorded on this thread.
pub(crate) fn last_message() -> String {
    MESSAGE.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_remembered_with_its_text_and_place() {
        let caught = silenced(|| std::panic::catch_unwind(|| panic!("no {}", "room")));
        assert!(caught.is_err());
        assert!(last_message().contains("no room") && last_message().contains("panics.rs"));
    }
}
