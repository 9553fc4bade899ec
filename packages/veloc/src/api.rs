//! The functions of the interface. The header says what they do.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::guard::{FAILURE, SUCCESS, drain_at_exit, text, with_client, with_place};
use crate::mpi::Mpi;
use crate::open;
use crate::regions::{Protected, Selection, bytes};

/// `VELOC_MAX_NAME` of the header: the room for a path in `VELOC_Route_file`.
const MAX_NAME: usize = 1024;

/// The longest wait for the ranks of a communicator, before the configuration says another one.
const FIRST_WAIT: Duration = Duration::from_secs(300);

fn done(result: Result<(), String>) -> Result<c_int, String> {
    result.map(|()| SUCCESS)
}

fn fresh(is_there: bool) -> Result<(), String> {
    let why = "VELOC is initialised already: call VELOC_Finalize first.";
    if is_there { Err(why.to_owned()) } else { Ok(()) }
}

/// See the header. A communicator is a number or a pointer, which both come in a register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Init(comm: usize, cfg_file: *const c_char) -> c_int {
    with_place("VELOC_Init", |place| {
        fresh(place.is_some())?;
        // SAFETY: the caller's duty.
        let (path, mpi) = unsafe { (text(cfg_file, "cfg_file")?, Mpi::of(comm, FIRST_WAIT)?) };
        *place = Some(open::ranks(mpi, path)?);
        drain_at_exit();
        Ok(SUCCESS)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Init_single(id: c_uint, cfg_file: *const c_char) -> c_int {
    with_place("VELOC_Init_single", |place| {
        fresh(place.is_some())?;
        // SAFETY: the caller's duty.
        let path = unsafe { text(cfg_file, "cfg_file") }?;
        *place = Some(open::single(id, path)?);
        drain_at_exit();
        Ok(SUCCESS)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Finalize(_cleanup: c_int) -> c_int {
    with_place("VELOC_Finalize", |place| {
        let mut client = place.take().ok_or("VELOC is not initialised.")?;
        done(client.finalize())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Mem_protect(
    id: c_int,
    ptr: *mut c_void,
    count: usize,
    base_size: usize,
) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { protect("VELOC_Mem_protect", id, ptr, (count, base_size), None) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Region_protect(
    id: c_int,
    ptr: *mut c_void,
    count: usize,
    base_size: usize,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { protect("VELOC_Region_protect", id, ptr, (count, base_size), Some(name)) }
}

/// # Safety
/// `name` is a text, if it is there.
unsafe fn protect(
    call: &str,
    id: c_int,
    ptr: *mut c_void,
    (count, size): (usize, usize),
    name: Option<*const c_char>,
) -> c_int {
    with_client(call, |client| {
        let region = Protected { address: ptr as usize, bytes: bytes(count, size)?, item: size };
        if ptr.is_null() && region.bytes > 0 {
            return Err(format!("The pointer of region {id} is null."));
        }
        // SAFETY: the caller's duty.
        let name = name.map(|name| unsafe { text(name, "name") }).transpose()?;
        client.regions.protect(id, region, name);
        Ok(SUCCESS)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Mem_unprotect(id: c_int) -> c_int {
    with_client("VELOC_Mem_unprotect", |client| {
        client.regions.unprotect(id, None).then_some(SUCCESS).ok_or_else(|| unprotected(id))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Region_unprotect(id: c_int, name: *const c_char) -> c_int {
    with_client("VELOC_Region_unprotect", |client| {
        // SAFETY: the caller's duty.
        let name = unsafe { text(name, "name") }?;
        client.regions.unprotect(id, Some(name)).then_some(SUCCESS).ok_or_else(|| unprotected(id))
    })
}

fn unprotected(id: c_int) -> String {
    format!("No region {id} is protected.")
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Mem_clear() -> c_int {
    with_client("VELOC_Mem_clear", |client| {
        client.regions.clear(None);
        Ok(SUCCESS)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Region_clear(name: *const c_char) -> c_int {
    with_client("VELOC_Region_clear", |client| {
        // SAFETY: the caller's duty.
        client.regions.clear(Some(unsafe { text(name, "name") }?));
        Ok(SUCCESS)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Route_file(_original: *const c_char, routed: *mut c_char) -> c_int {
    with_client("VELOC_Route_file", |client| {
        if routed.is_null() {
            return Err("The argument `routed` is null: give room for VELOC_MAX_NAME bytes.".into());
        }
        let path = client.route()?;
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= MAX_NAME {
            return Err(format!("The path is longer than {MAX_NAME} bytes: shorten `scratch`."));
        }
        // SAFETY: the caller has room for `MAX_NAME` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), routed.cast(), bytes.len());
            routed.add(bytes.len()).write(0);
        }
        Ok(SUCCESS)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Cleanup(name: *const c_char) -> c_int {
    // SAFETY: the caller's duty.
    with_client("VELOC_Cleanup", |client| done(client.cleanup(unsafe { text(name, "name") }?)))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_begin(name: *const c_char, version: c_int) -> c_int {
    with_client("VELOC_Checkpoint_begin", |client| {
        // SAFETY: the caller's duty.
        done(client.checkpoint_begin(unsafe { text(name, "name") }?, version))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_selective(
    mode: c_int,
    ids: *mut c_int,
    count: c_int,
) -> c_int {
    with_client("VELOC_Checkpoint_selective", |client| {
        // SAFETY: the caller's duty.
        let selection = unsafe { selection(mode, ids, count) }?;
        // SAFETY: as above.
        done(unsafe { client.checkpoint_mem(&selection) })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_mem() -> c_int {
    with_client("VELOC_Checkpoint_mem", |client| {
        // SAFETY: the caller's duty.
        done(unsafe { client.checkpoint_mem(&Selection::All) })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_end(success: c_int) -> c_int {
    with_client("VELOC_Checkpoint_end", |client| done(client.checkpoint_end(success != 0)))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_wait() -> c_int {
    with_client("VELOC_Checkpoint_wait", |client| done(client.checkpoint_wait()))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_finished() -> c_int {
    with_client("VELOC_Checkpoint_finished", |client| {
        Ok(if client.checkpoint_finished() { SUCCESS } else { FAILURE })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint(name: *const c_char, version: c_int) -> c_int {
    with_client("VELOC_Checkpoint", |client| {
        // SAFETY: the caller's duty.
        done(unsafe { client.checkpoint(text(name, "name")?, version) })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart_test(name: *const c_char, version: c_int) -> c_int {
    with_client("VELOC_Restart_test", |client| {
        // SAFETY: the caller's duty.
        let found = client.restart_test(unsafe { text(name, "name") }?, version)?;
        Ok(found.and_then(|version| c_int::try_from(version).ok()).unwrap_or(-1))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart_begin(name: *const c_char, version: c_int) -> c_int {
    with_client("VELOC_Restart_begin", |client| {
        // SAFETY: the caller's duty.
        done(client.restart_begin(unsafe { text(name, "name") }?, version))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Recover_selective(
    mode: c_int,
    ids: *mut c_int,
    count: c_int,
) -> c_int {
    with_client("VELOC_Recover_selective", |client| {
        // SAFETY: the caller's duty.
        let selection = unsafe { selection(mode, ids, count) }?;
        // SAFETY: as above.
        done(unsafe { client.recover(&selection) })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Recover_mem() -> c_int {
    // SAFETY: the caller's duty.
    with_client("VELOC_Recover_mem", |client| done(unsafe { client.recover(&Selection::All) }))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Recover_size(id: c_int) -> c_int {
    with_client("VELOC_Recover_size", |client| {
        let Some(bytes) = client.recover_size(id)? else { return Ok(-1) };
        c_int::try_from(bytes).map_err(|_| {
            format!("Region {id} has {bytes} bytes, more than an int can say: protect as many.")
        })
    })
}

/// See the header. The argument is not looked at: there are callers that give none.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Restart_end(_success: c_int) -> c_int {
    with_client("VELOC_Restart_end", |client| done(client.restart_end()))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart(name: *const c_char, version: c_int) -> c_int {
    with_client("VELOC_Restart", |client| {
        // SAFETY: the caller's duty.
        done(unsafe { client.restart(text(name, "name")?, version) })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Prefetch_enqueue(name: *const c_char, version: c_int) -> c_int {
    with_client("VELOC_Prefetch_enqueue", |client| {
        // SAFETY: the caller's duty.
        done(client.prefetch_enqueue(unsafe { text(name, "name") }?, version))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Prefetch_start() -> c_int {
    with_client("VELOC_Prefetch_start", |client| done(client.prefetch_start()))
}

/// See the header of Score's interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Recover_ckpt_size(
    name: *const c_char,
    version: c_int,
    region_id: c_int,
) -> usize {
    let mut bytes = usize::MAX;
    with_client("VELOC_Recover_ckpt_size", |client| {
        // SAFETY: the caller's duty.
        let found = client.size_in(unsafe { text(name, "name") }?, version, region_id)?;
        bytes = usize::try_from(found).unwrap_or(usize::MAX);
        Ok(SUCCESS)
    });
    bytes
}

/// See the header of Score's interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Next_prefetched(
    name: *const c_char,
    version: c_int,
    _region_id: c_int,
) -> bool {
    let mut near = false;
    with_client("VELOC_Next_prefetched", |client| {
        // SAFETY: the caller's duty.
        near = client.is_near(unsafe { text(name, "name") }?, version)?;
        Ok(SUCCESS)
    });
    near
}

/// See the header of Score's interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Get_trf_metrics(metrics: *mut c_char) {
    with_client("VELOC_Get_trf_metrics", |client| {
        if metrics.is_null() {
            return Err("The argument `metrics` is null.".to_owned());
        }
        let mut said = client.moved()?;
        said.truncate(MAX_NAME - 1);
        // SAFETY: the caller has room for MAX_NAME bytes there.
        unsafe {
            metrics.copy_from_nonoverlapping(said.as_ptr().cast(), said.len());
            metrics.add(said.len()).write(0);
        }
        Ok(SUCCESS)
    });
}

/// Which regions a call means.
///
/// # Safety
/// There are `count` numbers at `ids`.
unsafe fn selection(mode: c_int, ids: *const c_int, count: c_int) -> Result<Selection, String> {
    let count = usize::try_from(count).map_err(|_| format!("There are {count} numbers."))?;
    if mode == 0 || count == 0 {
        return Selection::of(mode, Vec::new());
    }
    if ids.is_null() {
        return Err("The argument `ids` is null.".to_owned());
    }
    // SAFETY: the caller's duty.
    Selection::of(mode, unsafe { std::slice::from_raw_parts(ids, count) }.to_vec())
}
