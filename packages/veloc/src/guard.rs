//! What every function of the interface does: it takes the one client of the process, prints what
//! went wrong, and lets no panic out.

use std::ffi::{CStr, c_char, c_int};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::client::Client;
use crate::console::Console;
use crate::panics::caught;

/// The codes of the interface.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const FAILURE: c_int = -1;

/// The client of this process.
static CLIENT: Mutex<Option<Client>> = Mutex::new(None);

fn client() -> MutexGuard<'static, Option<Client>> {
    CLIENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call with the client, whose value is returned; `FAILURE` after a line on standard error.
pub(crate) fn with_client(
    call: &str,
    body: impl FnOnce(&mut Client) -> Result<c_int, String>,
) -> c_int {
    with_place(call, |place| {
        let none = "VELOC is not initialised: call VELOC_Init or VELOC_Init_single first.";
        body(place.as_mut().ok_or(none)?)
    })
}

/// As [`with_client`], for calls that make or end the client.
pub(crate) fn with_place(
    call: &str,
    body: impl FnOnce(&mut Option<Client>) -> Result<c_int, String>,
) -> c_int {
    let outcome = caught(|| {
        let mut place = client();
        let console = place.as_ref().map_or_else(Console::default, |client| client.console.clone());
        body(&mut place).unwrap_or_else(|why| {
            console.say(&format!("{call}: {why}"));
            FAILURE
        })
    });
    outcome.unwrap_or_else(|text| {
        // Whatever it is that panicked, it is not to do so here again.
        let _ = catch_unwind(|| Console::default().say(&format!("{call}: {text}")));
        FAILURE
    })
}

/// Makes everything durable when the process ends in order without `VELOC_Finalize`.
pub(crate) fn drain_at_exit() {
    static ONCE: Once = Once::new();
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn drain() {
        // The thread that does it is not in the children of this process.
        if PROCESS.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        let _ = catch_unwind(|| {
            // Another thread may be in a call.
            if let Ok(place) = CLIENT.try_lock()
                && let Some(client) = place.as_ref()
            {
                client.drain();
            }
        });
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    ONCE.call_once(|| {
        // SAFETY: a function without arguments that lets no panic out. When it cannot be kept,
        // nothing is drained.
        unsafe { libc::atexit(drain) };
    });
}

/// The text at `pointer`; `what` names the argument.
///
/// # Safety
/// It is null or a text that ends with a zero byte, and stays for as long as it is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, String> {
    if pointer.is_null() {
        return Err(format!("The argument `{what}` is null: give a text."));
    }
    // SAFETY: it is not null, and the rest is the caller's duty.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| format!("The argument `{what}` is not UTF-8."))
}
