//! Restart of long jobs: what a run needs to go on, saved now and then over all of its ranks.

use std::cell::RefCell;
use std::ffi::{c_char, c_double, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use unspool::{DiskSettings, ErrorKind, Spool, Unflushed, Wait};
use unspool_restart::{Alone, Checkpointer, Outcome, Ranks, Settings, Stays, Unanswered};

use crate::array::{Given, UnspoolArray, given};
use crate::options::UnspoolOptions;
use crate::spool::{longest, opened, restore, save, wait};
use crate::status::{Failure, call};
use crate::text::{free, give, handle, handle_mut, optional, slice, text};

/// What a rank has heard from the others: `all_gather` of `unspool_ranks` fills it.
#[derive(Debug)]
pub struct UnspoolGathered {
    messages: Vec<Option<Vec<u8>>>,
}

/// The ranks of a job, as the program has them. `unspool_mpi.h` makes them of a communicator of
/// MPI.
///
/// `all_gather` gives `bytes` bytes at `message` to every rank, and calls `unspool_gathered_set`
/// for each rank that has answered within `seconds`, itself included. Every rank calls it
/// equally often. It returns 0 also when ranks are missing, and another number when it failed.
///
/// `pass` gives a message to rank `to` alone, and calls `unspool_gathered_set` for what rank `from`
/// has given to this one. All ranks call it together. When that does not come within `seconds`, it
/// returns 0 without, or calls `unspool_gathered_set` for each rank that is there, itself included.
/// May be null: such messages go to all ranks then.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UnspoolRanks {
    /// Is given to `all_gather`.
    pub context: *mut c_void,
    /// The number of this rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// See above.
    pub all_gather: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            message: *const c_void,
            bytes: usize,
            seconds: c_double,
            gathered: *mut UnspoolGathered,
        ) -> c_int,
    >,
    /// See above.
    pub pass: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            message: *const c_void,
            bytes: usize,
            to: u32,
            from: u32,
            seconds: c_double,
            gathered: *mut UnspoolGathered,
        ) -> c_int,
    >,
}

impl UnspoolRanks {
    /// What a function of the program has gathered.
    fn gathered(
        &self,
        name: &str,
        call: impl FnOnce(*mut UnspoolGathered) -> c_int,
    ) -> Result<Vec<Option<Vec<u8>>>, Unanswered> {
        let mut messages = Vec::new();
        if messages.try_reserve_exact(self.size as usize).is_err() {
            let why = format!("there is no memory for the messages of {} ranks.", self.size);
            return Err(Unanswered::Failed(why));
        }
        messages.resize(self.size as usize, None);
        let mut gathered = UnspoolGathered { messages };
        match call(&raw mut gathered) {
            0 => Ok(gathered.messages),
            code => Err(Unanswered::Failed(format!("{name} returned {code}."))),
        }
    }
}

impl Ranks for UnspoolRanks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, Unanswered> {
        let Some(gather) = self.all_gather else {
            return Err(Unanswered::Failed("there is no all_gather.".to_owned()));
        };
        let (message, seconds) = (mine.as_ptr().cast(), timeout.as_secs_f64());
        Unanswered::unless_all(self.gathered("all_gather", |gathered| {
            // SAFETY: the program's function, with what it takes; both live for the call.
            unsafe { gather(self.context, message, mine.len(), seconds, gathered) }
        })?)
    }

    fn pass(
        &self,
        mine: &[u8],
        to: u32,
        from: u32,
        timeout: Duration,
    ) -> Result<Vec<u8>, Unanswered> {
        let Some(pass) = self.pass else {
            let given = self.all_gather(mine, timeout)?.into_iter().nth(from as usize);
            return given.ok_or_else(|| Unanswered::Late(vec![from]));
        };
        let (message, seconds) = (mine.as_ptr().cast(), timeout.as_secs_f64());
        let mut all = self.gathered("pass", |gathered| {
            // SAFETY: the program's function, with what it takes; both live for the call.
            unsafe { pass(self.context, message, mine.len(), to, from, seconds, gathered) }
        })?;
        if all.get(self.rank as usize).is_some_and(Option::is_some) {
            // It has said which ranks are there.
            Unanswered::unless_all(all)?;
            return Err(Unanswered::Failed("pass has messages of all ranks.".to_owned()));
        }
        let given = all.get_mut(from as usize).and_then(Option::take);
        given.ok_or_else(|| Unanswered::Late(vec![from]))
    }
}

/// Takes in what `rank` has given; the bytes are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_gathered_set(
    gathered: *mut UnspoolGathered,
    rank: u32,
    message: *const c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (gathered, message) = unsafe {
            (handle_mut(gathered, "gathered")?, slice(message.cast::<u8>(), bytes, "message")?)
        };
        let place = gathered.messages.get_mut(rank as usize);
        let place = place.ok_or_else(|| Failure::invalid(format!("There is no rank {rank}.")))?;
        *place = Some(message.to_vec());
        Ok(())
    })
}

/// One rank's hold on the folder of a run. Used by one thread, but for `unspool_checkpointer_stop`.
#[derive(Debug)]
pub struct UnspoolCheckpointer {
    checkpointer: Checkpointer,
    ranks: Option<UnspoolRanks>,
    timeout: Duration,
    /// What was found out about a checkpoint that was not the newest one.
    notes: RefCell<String>,
}

impl UnspoolCheckpointer {
    fn ranks(&self) -> &dyn Ranks {
        self.ranks.as_ref().map_or(&Alone, |ranks| ranks)
    }

    /// Tells what went wrong after an earlier call.
    fn tell(&self) -> Result<(), Failure> {
        self.checkpointer.take_failure().map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// Opens the folder of a run, on all ranks: each has a folder in it. `options` has what a spool is
/// opened with, but for the disk, and when a checkpoint is due:
///
/// | option | value |
/// | --- | --- |
/// | `every` | a time such as `10min`, a number of steps such as `100`, `auto` (default), `never` |
/// | `keep` | how many checkpoints that count stay: 2 |
/// | `mtbf`, `share` | for `auto`: mean time between failures; the most that saves may cost |
/// | `limit` | the time after which the run is asked to stop |
/// | `remote` | where copies go: `s3://bucket/prefix`, `gs://`, `az://`, or a directory |
/// | `remote_every` | which of them: like `every`; `auto` is each one for which there is time |
/// | `increments` | `auto`, or one in how many checkpoints is stored in full; `never` |
/// | `partner` | like `every`: which of them a rank on another machine keeps as well; `never` |
///
/// `ranks` is null for a job of one rank; it is copied, and what its context points to has to stay.
/// A checkpoint counts when all ranks have all of it on the disk. Close it with
/// `unspool_checkpointer_close`, and give it back with `unspool_checkpointer_free`.
///
/// Errors: `UNSPOOL_INVALID` when another number of ranks has left checkpoints there, or an option
/// of a disk was set; `UNSPOOL_IO`; `UNSPOOL_TIMEOUT` when ranks do not answer; the error of
/// another rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_open(
    path: *const c_char,
    options: *const UnspoolOptions,
    ranks: *const UnspoolRanks,
    checkpointer: *mut *mut UnspoolCheckpointer,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (path, options) = unsafe { (text(path, "path")?, handle(options, "options")?) };
        // SAFETY: as above. A place for the handle is needed before anything is opened.
        unsafe { give(checkpointer, std::ptr::null_mut(), "checkpointer") }?;
        // SAFETY: as above.
        let ranks = unsafe { ranks.as_ref() }.copied();
        let opened = Box::new(open(Path::new(path), options, ranks)?);
        // SAFETY: as above.
        unsafe { give(checkpointer, Box::into_raw(opened), "checkpointer") }
    })
}

fn open(
    path: &Path,
    options: &UnspoolOptions,
    ranks: Option<UnspoolRanks>,
) -> Result<UnspoolCheckpointer, Failure> {
    let make = |data: Option<&Path>| -> Result<Arc<Spool>, Failure> {
        // Here, so that all ranks hear of it.
        options.without_disk()?;
        let disk = data.map(|data| DiskSettings { durable: true, ..DiskSettings::new(data) });
        Ok(Arc::new(opened(options, disk)?))
    };
    let timeout = options.timeout();
    let size = ranks.map_or(1, |ranks| ranks.size);
    let settings = Settings {
        path: PathBuf::from(path),
        rule: options.rule(size),
        keep: options.keep(),
        stays: Stays::default(),
        stops: true,
        limit: options.limit(),
        timeout,
        remote: options.remote(),
        partner: options.partner(),
        increments: options.increments(),
    };
    let all: &dyn Ranks = match &ranks {
        Some(ranks) => ranks,
        None => &Alone,
    };
    let checkpointer = Checkpointer::open(settings, all, &Wait::default(), make)?;
    let notes = RefCell::new(checkpointer.warnings().join("\n"));
    Ok(UnspoolCheckpointer { checkpointer, ranks, timeout, notes })
}

/// Writes whether the checkpoint of `step` is due (1 or 0) to `answer`: the same on all ranks,
/// which ask each other about once a second. Errors: `UNSPOOL_TIMEOUT` when a rank does not
/// answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_due(
    checkpointer: *const UnspoolCheckpointer,
    step: i64,
    answer: *mut c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let checkpointer = unsafe { handle(checkpointer, "checkpointer") }?;
        let due = checkpointer.checkpointer.due(number(step)?, checkpointer.ranks())?;
        // SAFETY: as above.
        unsafe { give(answer, c_int::from(due), "answer") }
    })
}

/// Saves the checkpoint of `step`, due or not: arrays as for `unspool_save`, and with them
/// `values`, a text of the program's own of at most 1 MiB, or null. When it returns, arrays may
/// be changed; the checkpoint counts later. An error until then is reported by the next call, and
/// the last checkpoint that counts stays.
///
/// Errors: `UNSPOOL_INVALID` when the step does not come after the last one, or after what lies
/// in the folder when nothing was restored; those of `unspool_save`; `UNSPOOL_IO`,
/// `UNSPOOL_FULL` for an earlier checkpoint that does not count; `UNSPOOL_TIMEOUT` when a rank
/// does not answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_save(
    checkpointer: *const UnspoolCheckpointer,
    step: i64,
    arrays: *const UnspoolArray,
    count: usize,
    values: *const c_char,
    stream: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (held, arrays, values) = unsafe {
            let held = handle(checkpointer, "checkpointer")?;
            (held, given(arrays, count)?, optional(values, "values")?)
        };
        held.tell()?;
        let checkpointer = &held.checkpointer;
        let values = values.unwrap_or_default().to_owned();
        checkpointer.begin(number(step)?, values, held.ranks(), &Wait::default())?;
        // SAFETY: as above.
        let saved = unsafe { save(checkpointer.spool(), step, &arrays, stream) };
        let done = saved.and_then(|()| Ok(checkpointer.commit()?));
        done.inspect_err(|_| checkpointer.abandon())
    })
}

/// Writes the step of the newest checkpoint that counts to `step`; -1 when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_latest(
    checkpointer: *const UnspoolCheckpointer,
    step: *mut i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let held = unsafe { handle(checkpointer, "checkpointer") }?;
        let latest = held.checkpointer.latest(held.ranks(), &Wait::default())?;
        // SAFETY: as above.
        unsafe { give(step, latest.map_or(-1, u64::cast_signed), "step") }
    })
}

/// Copies the newest checkpoint that counts into arrays, as `unspool_restore` does, and writes its
/// step to `step`; -1 when there is none. What a rank lacks or has damaged comes from the rank that
/// keeps a copy, or else from the remote place; when there is none, all ranks take the next older
/// checkpoint.
/// `unspool_checkpointer_notes` says why.
///
/// Errors: `UNSPOOL_INVALID` when an array does not fit, here or on another rank; `UNSPOOL_TIMEOUT`
/// when a rank does not answer; `UNSPOOL_DEVICE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_restore(
    checkpointer: *const UnspoolCheckpointer,
    arrays: *const UnspoolArray,
    count: usize,
    stream: *mut c_void,
    step: *mut i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (held, arrays) =
            unsafe { (handle(checkpointer, "checkpointer")?, given(arrays, count)?) };
        let mut unreadable = Vec::new();
        loop {
            let found = held.checkpointer.candidate(&unreadable, held.ranks(), &Wait::default())?;
            let Some(candidate) = found else {
                // SAFETY: as above.
                return unsafe { give(step, -1, "step") };
            };
            let version = candidate.cast_signed();
            // SAFETY: as above.
            let done = unsafe { taken(held, candidate, &arrays, stream) };
            let outcome = outcome_of(&done);
            let reasons = held.checkpointer.restored(candidate, &outcome, held.ranks());
            if matches!(outcome, Outcome::Refused(_)) {
                // The error of this rank says more than what all have heard.
                return done;
            }
            let reasons = reasons?;
            if reasons.is_empty() {
                // SAFETY: as above.
                return unsafe { give(step, version, "step") };
            }
            let mut notes = held.notes.borrow_mut();
            reasons.iter().for_each(|reason| add_line(&mut notes, reason));
            unreadable.push(candidate);
        }
    })
}

/// Copies a checkpoint into arrays. What is not here, or is damaged here, is fetched from the
/// remote place.
///
/// # Safety
/// As for [`restore`].
unsafe fn taken(
    held: &UnspoolCheckpointer,
    step: u64,
    arrays: &[Given<'_>],
    stream: *mut c_void,
) -> Result<(), Failure> {
    let (checkpointer, wait) = (&held.checkpointer, Wait::default());
    checkpointer.ready(step, &wait)?;
    let copy = || {
        let spool = checkpointer.reading(step, &wait)?;
        // SAFETY: the caller's duty.
        unsafe { restore(&spool, step.cast_signed(), arrays, stream) }
    };
    let done = copy();
    let Outcome::Unreadable(why) = outcome_of(&done) else { return done };
    if !checkpointer.fetch(step, &wait)? {
        return done;
    }
    let note = format!("Step {step} was damaged here, and was fetched: {why}");
    add_line(&mut held.notes.borrow_mut(), &note);
    copy()
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

fn outcome_of(done: &Result<(), Failure>) -> Outcome {
    use ErrorKind::{Corrupt, Io, Lost, Unknown};
    match done {
        Ok(()) => Outcome::Restored,
        Err(failure) if failure.is_one_of(&[Corrupt, Io, Lost, Unknown]) => {
            Outcome::Unreadable(failure.message().to_owned())
        }
        Err(failure) => Outcome::Refused(failure.message().to_owned()),
    }
}

/// Writes the text that was saved with `step` to `values`, which has room for `room` bytes, its
/// zero byte included, and its length without that to `length`. With less room than that it is
/// cut off.
///
/// Errors: `UNSPOOL_UNKNOWN` when the step does not count on this rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_values(
    checkpointer: *const UnspoolCheckpointer,
    step: i64,
    values: *mut c_char,
    room: usize,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let held = unsafe { handle(checkpointer, "checkpointer") }?;
        let found = held.checkpointer.values(number(step)?, &Wait::default())?;
        // SAFETY: as above.
        unsafe { copy_text(&found, values, room, length) }
    })
}

/// Writes what was found damaged, and which copies did not get to the remote place, in sentences,
/// one in a line, as `unspool_checkpointer_values` does for its text; empty when nothing was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_notes(
    checkpointer: *const UnspoolCheckpointer,
    notes: *mut c_char,
    room: usize,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let held = unsafe { handle(checkpointer, "checkpointer") }?;
        if let Some(failure) = held.checkpointer.take_copy_failure() {
            add_line(&mut held.notes.borrow_mut(), &failure.to_string());
        }
        // SAFETY: as above.
        unsafe { copy_text(&held.notes.borrow(), notes, room, length) }
    })
}

/// # Safety
/// There is room for so many bytes, and for the length.
pub(crate) unsafe fn copy_text(
    found: &str,
    target: *mut c_char,
    room: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    let fits = found.len().min(room.saturating_sub(1));
    for (index, byte) in found.bytes().take(fits).chain([0]).enumerate().take(room) {
        // SAFETY: the index is below the room.
        unsafe { give(target.cast::<u8>().wrapping_add(index), byte, "values") }?;
    }
    // SAFETY: the caller's duty.
    unsafe { give(length, found.len(), "length") }
}

/// Asks the run to stop: a checkpoint is due then, once, on all ranks. May be called from any
/// thread and from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_stop(checkpointer: *const UnspoolCheckpointer) {
    // SAFETY: the caller's duty.
    if let Some(held) = unsafe { checkpointer.as_ref() } {
        held.checkpointer.stop();
    }
}

/// Whether the run is to stop (1 or 0), as it was asked to, or its limit was reached, on any rank.
/// This is what the last `unspool_checkpointer_due` or `unspool_checkpointer_save` found. With one
/// rank the call also looks itself, unless the last step that was asked for was not due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_stopping(
    checkpointer: *const UnspoolCheckpointer,
) -> c_int {
    // SAFETY: the caller's duty.
    let held = unsafe { checkpointer.as_ref() };
    c_int::from(held.is_some_and(|held| held.checkpointer.stopping()))
}

/// Waits until everything that was saved is durable on this rank, at most `timeout` seconds; 0
/// stands for the option `timeout`. An error says what is not durable, and why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_flush(
    checkpointer: *const UnspoolCheckpointer,
    timeout: c_double,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let held = unsafe { handle(checkpointer, "checkpointer") }?;
        Ok(held.checkpointer.flush(&wait(timeout)?)?)
    })
}

/// Waits until everything that was saved counts, deletes what is not kept, and ends, on all ranks.
/// What cannot be made durable is tried once more; then this is an error, and it is open as before
/// and can be closed again. Every call after it has ended is `UNSPOOL_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_close(
    checkpointer: *const UnspoolCheckpointer,
    timeout: c_double,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let held = unsafe { handle(checkpointer, "checkpointer") }?;
        let wait = Wait { timeout: longest(timeout)?.or(Some(held.timeout)), ..Wait::default() };
        let ended = held.checkpointer.close(Some(held.ranks()), &wait);
        if held.checkpointer.is_closed() {
            // What is not durable now does not count, and an error has said so.
            let _ = held.checkpointer.spool().close_as(Unflushed::Discard, &wait);
        }
        Ok(ended?)
    })
}

/// Gives it back, once; null is fine. What is not closed gives up what does not count yet, without
/// a word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_checkpointer_free(checkpointer: *mut UnspoolCheckpointer) {
    // SAFETY: the caller's duty.
    if let Some(held) = unsafe { checkpointer.as_ref() }
        && !held.checkpointer.is_closed()
    {
        held.checkpointer.give_up();
    }
    // SAFETY: as above.
    unsafe { free(checkpointer) };
}

pub(crate) fn number(step: i64) -> Result<u64, Failure> {
    u64::try_from(step).map_err(|_| Failure::invalid(format!("The step {step} is negative.")))
}
