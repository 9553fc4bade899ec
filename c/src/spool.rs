//! A spool: opening, saves and restores, the restore order, the end.

use std::ffi::{c_char, c_double, c_int, c_void};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use unspool::gpu::{DeviceArray, Stream};
use unspool::{DiskSettings, Spool, Unflushed, Wait};

use crate::array::{Given, Place, UnspoolArray, given, places, stream_on};
use crate::options::UnspoolOptions;
use crate::status::{Failure, call};
use crate::text::{free, give, handle, slice, text};

/// The compiled kernels that come with the library; nothing where it was built without.
static KERNELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.pack"));

/// One history of checkpoints, with its tiers and workers.
#[derive(Debug)]
pub struct UnspoolSpool {
    pub(crate) spool: Arc<Spool>,
}

/// How long a call waits: `timeout` seconds, or as the spool's option says for 0.
pub(crate) fn wait(timeout: f64) -> Result<Wait<'static>, Failure> {
    Ok(Wait { timeout: longest(timeout)?, ..Wait::default() })
}

/// The longest wait that a call was given; none for 0.
pub(crate) fn longest(timeout: f64) -> Result<Option<Duration>, Failure> {
    let most = 366.0 * 86_400.0;
    if timeout.is_nan() || timeout < 0.0 {
        let why = format!(
            "The timeout {timeout} is not a time: give seconds, or 0 for the option `timeout`."
        );
        return Err(Failure::invalid(why));
    }
    Ok((timeout > 0.0).then(|| Duration::from_secs_f64(timeout.min(most))))
}

/// Opens a spool. Close it with `unspool_close`, and give it back with `unspool_free`.
///
/// Errors: `UNSPOOL_INVALID` when the options make no sense together, `UNSPOOL_IO` when a tier
/// cannot be made, `UNSPOOL_NO_DEVICE`, `UNSPOOL_DEVICE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_open(
    options: *const UnspoolOptions,
    spool: *mut *mut UnspoolSpool,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let options = unsafe { handle(options, "options") }?;
        // A place for the handle is needed before anything is opened.
        // SAFETY: as above.
        unsafe { give(spool, std::ptr::null_mut(), "spool") }?;
        let opened = Box::new(UnspoolSpool { spool: Arc::new(opened(options, None)?) });
        // SAFETY: as above.
        unsafe { give(spool, Box::into_raw(opened), "spool") }
    })
}

/// A spool with these options, and on this disk if one is given.
///
/// # Errors
/// As the header says.
pub(crate) fn opened(
    options: &UnspoolOptions,
    disk: Option<DiskSettings>,
) -> Result<Spool, Failure> {
    unspool::ship_kernels(KERNELS).map_err(unspool::Error::from)?;
    // What was picked keeps the context of the device until the spool has it.
    let (settings, _picks) = options.settings(disk)?;
    Ok(Spool::open(settings)?)
}

/// Saves arrays under `version`, a number that is not saved already.
///
/// Memory of a GPU is copied on `stream` (a `cudaStream_t` or `CUstream`; null: the legacy default
/// stream), after what is on it: the call returns when the copy is enqueued, and what is enqueued
/// on that stream later may change the array. Memory of the host may be changed when the call has
/// returned. It waits while no tier has room, at most for the spool's time-out; with a codec also
/// until the GPU has encoded the arrays, where its tier has room for fewer than eight checkpoints.
///
/// Errors: `UNSPOOL_DUPLICATE`, `UNSPOOL_FULL`, `UNSPOOL_TOO_LARGE`, `UNSPOOL_TIMEOUT`,
/// `UNSPOOL_DEVICE`, `UNSPOOL_WRONG_DEVICE`, `UNSPOOL_CLOSED`. Nothing was saved then, and the same
/// call can be made again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_save(
    spool: *const UnspoolSpool,
    version: i64,
    arrays: *const UnspoolArray,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with_arrays(spool, (arrays, count), |spool, all| save(spool, version, all, stream)) }
}

/// A call with arrays, after they were checked.
///
/// # Safety
/// The spool and the arrays are as the header says.
unsafe fn with_arrays(
    spool: *const UnspoolSpool,
    (arrays, count): (*const UnspoolArray, usize),
    work: impl FnOnce(&Spool, &[Given<'_>]) -> Result<(), Failure>,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (spool, arrays) = unsafe { (handle(spool, "spool")?, given(arrays, count)?) };
        work(&spool.spool, &arrays)
    })
}

/// # Safety
/// The arrays and the stream are as the header says.
pub(crate) unsafe fn save(
    spool: &Spool,
    version: i64,
    arrays: &[Given<'_>],
    stream: *mut c_void,
) -> Result<(), Failure> {
    // SAFETY: the caller's duty.
    let places = arrays.iter().map(|array| unsafe { array.place() });
    let places = places.collect::<Result<Vec<_>, _>>()?;
    // SAFETY: as above.
    let on_gpu = unsafe { on_gpus(spool, &places, stream) }?;
    let specs = arrays.iter().enumerate().map(|(index, array)| array.spec(index)).collect();
    let wait = Wait { stream: on_gpu.first().map(|(_, _, stream)| &**stream), ..Wait::default() };
    let mut checkpoint = spool.checkpoint(version, specs)?;
    for (index, place) in places.iter().enumerate() {
        if let Place::Host(bytes) = place {
            checkpoint.fill_from(index, bytes)?;
        }
    }
    for (index, array, stream) in &on_gpu {
        checkpoint.put(*index, array, stream)?;
    }
    Ok(spool.save_many(&mut vec![checkpoint], &wait)?)
}

/// An array on a GPU, by its number, with the stream for its copy.
type OnGpu<'a> = (usize, &'a DeviceArray, Rc<Stream>);

/// Those of the arrays that are on a GPU.
///
/// # Safety
/// The stream lives until the work on it is done.
unsafe fn on_gpus<'a>(
    spool: &Spool,
    places: &'a [Place<'_>],
    stream: *mut c_void,
) -> Result<Vec<OnGpu<'a>>, Failure> {
    let mut found: Vec<OnGpu<'_>> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        if let Place::Device(array) = place {
            let on = match found.last() {
                Some((_, last, on)) if last.ordinal() == array.ordinal() => Rc::clone(on),
                // SAFETY: the caller's duty.
                _ => Rc::new(unsafe { stream_on(spool, array, stream) }?),
            };
            found.push((index, array, on));
        }
    }
    Ok(found)
}

/// Restores `version` into arrays of the types and shapes that were saved: all of them in the order
/// of the save, or some by name. Memory of the host has its values when the call returns; that of a
/// GPU when what is enqueued on `stream` before the return is done.
///
/// Errors: `UNSPOOL_UNKNOWN`, `UNSPOOL_DISCARDED`, `UNSPOOL_LOST`, `UNSPOOL_CORRUPT`,
/// `UNSPOOL_INVALID` when an array does not fit, `UNSPOOL_TIMEOUT`, `UNSPOOL_DEVICE`,
/// `UNSPOOL_CLOSED`. What the arrays hold is unspecified then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_restore(
    spool: *const UnspoolSpool,
    version: i64,
    arrays: *const UnspoolArray,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's duty.
    unsafe {
        with_arrays(spool, (arrays, count), |spool, all| restore(spool, version, all, stream))
    }
}

/// # Safety
/// The arrays and the stream are as the header says.
pub(crate) unsafe fn restore(
    spool: &Spool,
    version: i64,
    arrays: &[Given<'_>],
    stream: *mut c_void,
) -> Result<(), Failure> {
    // SAFETY: the caller's duty.
    let targets = arrays.iter().map(|array| unsafe { array.place() });
    let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
    let first = targets.iter().find_map(|place| match place {
        Place::Device(array) => Some(array),
        Place::Host(_) => None,
    });
    // SAFETY: as above.
    let first = first.map(|array| unsafe { stream_on(spool, array, stream) }).transpose()?;
    let wait = Wait { stream: first.as_ref(), ..Wait::default() };
    let mut ticket = spool.restore(version, &wait)?;
    let regions = &ticket.head().regions;
    let at = places(arrays, regions)?;
    arrays.iter().zip(&at).try_for_each(|(array, index)| array.check(&regions[*index]))?;
    for (target, index) in targets.iter_mut().zip(&at) {
        if let Place::Host(bytes) = target {
            ticket.read_into(*index, bytes)?;
        }
    }
    // SAFETY: as above.
    let on_gpu = unsafe { on_gpus(spool, &targets, stream) }?;
    let arrays: Vec<_> =
        on_gpu.iter().map(|(index, array, stream)| (at[*index], *array, &**stream)).collect();
    ticket.get_all(&arrays)?;
    Ok(ticket.finish()?)
}

/// Appends `count` versions to the order in which checkpoints will be restored, so that they are
/// brought back before they are asked for. A version may be named before it is saved, and more than
/// once. Advice: a restore in another order is served as well.
///
/// With `once` other than 0, each of them is discarded when the last restore of it that is named
/// here is done; what is not saved yet holds back all that would be brought back before the first
/// restore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_expect(
    spool: *const UnspoolSpool,
    versions: *const i64,
    count: usize,
    once: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (spool, versions) =
            unsafe { (handle(spool, "spool")?, slice(versions, count, "versions")?) };
        if once != 0 {
            return Ok(spool.spool.expect_once(versions)?);
        }
        Ok(spool.spool.expect(versions.iter().copied())?)
    })
}

/// Forgets the restore order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_forget_expected(spool: *const UnspoolSpool) -> c_int {
    // SAFETY: the caller's duty.
    call(|| Ok(unsafe { handle(spool, "spool") }?.spool.forget_hints()?))
}

/// Discards a checkpoint: its room is free for others, and its version may be saved again.
///
/// Errors: `UNSPOOL_UNKNOWN`, `UNSPOOL_DISCARDED`, `UNSPOOL_READ_ONLY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_discard(spool: *const UnspoolSpool, version: i64) -> c_int {
    // SAFETY: the caller's duty.
    call(|| Ok(unsafe { handle(spool, "spool") }?.spool.discard(version)?))
}

/// Brings every checkpoint to its slowest tier; those of a durable disk survive a crash from then
/// on. Waits at most `timeout` seconds; 0 stands for the option `timeout`.
///
/// Errors: `UNSPOOL_FULL`, `UNSPOOL_IO`, `UNSPOOL_TOO_LARGE`, `UNSPOOL_TIMEOUT`. What is not
/// flushed stays where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_flush(spool: *const UnspoolSpool, timeout: c_double) -> c_int {
    // SAFETY: the caller's duty.
    call(|| Ok(unsafe { handle(spool, "spool") }?.spool.flush(&wait(timeout)?)?))
}

/// Writes the versions that can be restored, in ascending order, to `versions`, which has room for
/// `room` of them, and how many there are to `count`. With less room than that, those that fit are
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_versions(
    spool: *const UnspoolSpool,
    versions: *mut i64,
    room: usize,
    count: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let found = unsafe { handle(spool, "spool") }?.spool.versions()?;
        for (index, version) in found.iter().take(room).enumerate() {
            // SAFETY: there is room for `room` of them.
            unsafe { give(versions.wrapping_add(index), *version, "versions") }?;
        }
        // SAFETY: the caller's duty.
        unsafe { give(count, found.len(), "count") }
    })
}

/// Writes whether `version` can be restored (1 or 0) to `answer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_contains(
    spool: *const UnspoolSpool,
    version: i64,
    answer: *mut c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let is_there = unsafe { handle(spool, "spool") }?.spool.contains(version)?;
        // SAFETY: as above.
        unsafe { give(answer, c_int::from(is_there), "answer") }
    })
}

/// Writes whether `version` survives a crash of the machine (1 or 0) to `answer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_durable(
    spool: *const UnspoolSpool,
    version: i64,
    answer: *mut c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let is_durable = unsafe { handle(spool, "spool") }?.spool.durable(version)?;
        // SAFETY: as above.
        unsafe { give(answer, c_int::from(is_durable), "answer") }
    })
}

/// Writes what happened when to a file that https://ui.perfetto.dev shows; the spool was opened with
/// the option `trace`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_write_trace(
    spool: *const UnspoolSpool,
    path: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let (spool, path) = unsafe { (handle(spool, "spool")?, text(path, "path")?) };
        Ok(spool.spool.write_trace(Path::new(path))?)
    })
}

/// Ends the work. A durable spool brings everything to the disk first; when that fails, or takes
/// longer than `timeout` seconds (0 stands for the option `timeout`), the spool stays open and can
/// be closed again. With `discard_unflushed` other than 0 it is closed in any case, and what was
/// not durable is given up and named by the error. A closed spool may be closed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_close(
    spool: *const UnspoolSpool,
    timeout: c_double,
    discard_unflushed: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let spool = unsafe { handle(spool, "spool") }?;
        let unflushed = if discard_unflushed == 0 { Unflushed::Keep } else { Unflushed::Discard };
        Ok(spool.spool.close_as(unflushed, &wait(timeout)?)?)
    })
}

/// Gives a spool back. One that is not closed is closed first, and what it cannot make durable is
/// given up without a word: close it before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_free(spool: *mut UnspoolSpool) {
    // SAFETY: the caller's duty. Dropping a spool catches what goes wrong in it.
    unsafe { free(spool) };
}
