//! Memory of the process for what is known of checkpoints. It is asked for before a call begins, so
//! that a limit (`ulimit -v`, strict overcommit) is an error of that call and not the end of the
//! process.

use unspool_codec::memory::has_memory;

use crate::error::{Error, ErrorKind};
use crate::runtime::shared::Shared;
use crate::runtime::state::State;

/// What any call needs at most, besides tables that grow with the history.
const CALL: usize = 256 << 10;

/// What all tables have for a checkpoint, when they are as large again as they were.
const CHECKPOINT: usize = 2 << 10;

/// As that, for an entry of the restore order.
const HINT: usize = 256;

/// What the system takes for a thread: its stack, and what it has of its own as it begins, without
/// which the process would end.
const THREAD: usize = (2 << 20) + CALL;

/// A table doubles at a power of two or at seven eighths of one: among so many steps on the way
/// from one power to the next.
const STEPS: usize = 16;

/// Whether there is memory for any call.
///
/// # Errors
/// `Full`.
pub(crate) fn check() -> Result<(), Error> {
    ask(CALL)
}

/// Whether there is memory for one more checkpoint.
///
/// # Errors
/// `Full`, `Forked`.
pub(crate) fn check_for_save(shared: &Shared) -> Result<(), Error> {
    shared.check_process()?;
    let known = shared.state().frames.len();
    let step = (known.next_power_of_two() / STEPS).max(1);
    let grows = known.is_multiple_of(step);
    ask(CALL + if grows { known.saturating_mul(CHECKPOINT) } else { 0 })
}

/// Whether there is memory for more entries of the restore order.
///
/// # Errors
/// `Full`.
pub(crate) fn check_for_hints(state: &State) -> Result<(), Error> {
    let known = state.driver.core().hints();
    ask(CALL + known.saturating_mul(HINT))
}

/// Whether there is memory to list all checkpoints.
///
/// # Errors
/// `Full`.
pub(crate) fn check_for_list(state: &State) -> Result<(), Error> {
    ask(CALL + state.frames.len().saturating_mul(HINT))
}

/// Whether there is memory for one more thread.
pub(crate) fn has_room_for_thread() -> bool {
    has_memory(THREAD)
}

fn ask(bytes: usize) -> Result<(), Error> {
    if has_memory(bytes) { Ok(()) } else { Err(exhausted()) }
}

/// The error of a call that this process has no memory for.
pub(crate) fn exhausted() -> Error {
    let message = "This process has no memory left to keep account of more. Nothing that is saved \
                   is lost: free memory, discard checkpoints or forget hints, or raise the limit \
                   of the process (`ulimit -v`).";
    Error::new(ErrorKind::Full, message)
}
