//! What happens around a call: it is looked at before, passed on, and counted after. Calls that MPI
//! or the listener make while the program is in one are only passed on.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use unspool_messages::calls::Does;
use unspool_messages::part::Ending;

use crate::args::{Args, Form};
use crate::coding;
use crate::file::{Settings, tell};
use crate::mpi::Mpi;
use crate::recorder::{Looked, Recorder};

/// Whether this process records. Nothing leads back from `Off`.
enum State {
    /// Not yet: no call was made since MPI has begun. The next one asks whether it is to be.
    Waiting,
    /// It does, until the program calls `MPI_Finalize` or `MPI_Abort`.
    On(Box<Recorder>),
    /// It does not: nobody has asked for it, the program has ended MPI, or recording has failed.
    Off,
}

static STATE: Mutex<State> = Mutex::new(State::Waiting);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped, calls of this thread are passed on only.
struct Inside;

impl Inside {
    fn enter() -> Option<Inside> {
        INSIDE.try_with(|inside| !inside.replace(true)).unwrap_or(false).then_some(Inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _gone = INSIDE.try_with(|inside| inside.set(false));
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes a call on with what it takes to count it. `row` is that of the table of calls.
pub(crate) fn around(
    form: Form,
    row: usize,
    words: &[usize],
    real: &dyn Fn(&[usize]) -> c_int,
) -> c_int {
    let Some(_inside) = Inside::enter() else { return real(words) };
    let args = Args::new(form, row, words);
    if coding::is_wanted() {
        return coding::around(&args, real, &|| INSIDE.set(false));
    }
    let Some(looked) = guarded(|| before(&args)).flatten() else {
        // Fortran of MPICH calls the functions of C, which have wrappers of their own.
        INSIDE.set(args.call.does == Does::Init);
        let code = real(words);
        if args.call.does == Does::Init {
            guarded(|| begin(&mut state()));
        }
        return code;
    };
    let start = Instant::now();
    let code = real(words);
    let took = start.elapsed();
    if args.succeeded(code) {
        guarded(|| {
            if let State::On(recorder) = &mut *state() {
                recorder.after(&args, looked, start, took);
            }
        });
    }
    code
}

/// Looks at a call that is about to be made; `None` when it is not recorded.
fn before(args: &Args) -> Option<Looked> {
    let mut state = state();
    begin(&mut state);
    let State::On(recorder) = &mut *state else { return None };
    match args.call.does {
        Does::Finalize | Does::Abort => {
            let finalizes = args.call.does == Does::Finalize;
            recorder.finish(if finalizes { Ending::Finalized } else { Ending::Aborted });
            *state = State::Off;
            return None;
        }
        _ if args.is_heard_in_c(recorder.mpi.abi) => return None,
        _ => {}
    }
    let mut looked = recorder.before(args);
    // Hashing takes long and needs nothing but the bytes.
    drop(state);
    looked.hash();
    Some(looked)
}

/// Begins to record when MPI runs, if it is to be.
fn begin(state: &mut State) {
    if !matches!(state, State::Waiting) {
        return;
    }
    let Some(settings) = Settings::read() else {
        *state = State::Off;
        return;
    };
    let Some(mpi) = Mpi::running() else { return };
    *state = match Recorder::begin(mpi, &settings) {
        Ok(recorder) => State::On(Box::new(recorder)),
        Err(why) => {
            tell(&format!("this rank is not recorded: {why}"));
            State::Off
        }
    };
}

/// Runs something of ours; a panic ends the recording and not the program.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(_) => {
            let mut state = state();
            // What panics once is not called again, nor dropped.
            std::mem::forget(std::mem::replace(&mut *state, State::Off));
            None
        }
    }
}
