//! The driver and its devices.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr;

use crate::call::{Out, driver_calls};
use crate::codes::{Code, Outcome, words};

/// CUDA 12.9, as 1000 major + 10 minor.
const VERSION: c_int = 12_090;

driver_calls! {
    /// Starts the driver.
    fn cuInit(world, flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if world.devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        world.initialized = true;
        Ok(())
    }

    /// The newest supported CUDA version.
    fn cuDriverGetVersion(_world, version: Out<c_int>) {
        version.give(VERSION)
    }

    /// How many devices there are.
    fn cuDeviceGetCount(world, count: Out<c_int>) {
        count.give(world.devices.len() as c_int)
    }

    /// A device by its number, which is also its handle.
    fn cuDeviceGet(world, device: Out<c_int>, ordinal: c_int) {
        world.device(ordinal)?;
        device.give(ordinal)
    }

    /// Its name.
    fn cuDeviceGetName(world, name: *mut c_char, len: c_int, device: c_int) {
        world.device(device)?;
        write_text("Fake CUDA device", name, len)
    }

    /// Its place on the bus.
    fn cuDeviceGetPCIBusId(world, id: *mut c_char, len: c_int, device: c_int) {
        world.device(device)?;
        write_text(&format!("0000:{device:02x}:00.0"), id, len)
    }

    /// Its memory.
    fn cuDeviceTotalMem_v2(world, bytes: Out<usize>, device: c_int) {
        world.device(device)?;
        bytes.give(world.memory.budget(device as u32).total as usize)
    }

    /// An attribute of a device.
    fn cuDeviceGetAttribute(world, value: Out<c_int>, attribute: c_int, device: c_int) {
        world.device(device)?;
        let vmm = c_int::from(world.settings.maps_in_pieces);
        value.give(attribute_of(attribute, vmm)?)
    }
}

/// Commonly used attributes, by their numbers in the driver's header.
fn attribute_of(attribute: c_int, vmm: c_int) -> Outcome<c_int> {
    match attribute {
        // Threads of a block, of a warp; largest grid.
        1 | 2 => Ok(1024),
        10 => Ok(32),
        5 => Ok(c_int::MAX),
        // Multiprocessors.
        16 => Ok(132),
        // Maps host memory; unified addresses; copy engines.
        19 | 41 => Ok(1),
        40 => Ok(3),
        // Compute capability 9.0.
        75 => Ok(9),
        102 => Ok(vmm),
        3..=200 => Ok(0),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Writes a C string, truncated if necessary.
fn write_text(text: &str, place: *mut c_char, len: c_int) -> Outcome {
    let room = usize::try_from(len).ok().filter(|&len| len > 0 && !place.is_null());
    let len = text.len().min(room.ok_or(Code::INVALID_VALUE)? - 1);
    // SAFETY: the caller of the exported function guarantees the place and its length, to which the
    // text with its terminator is truncated.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), place, len);
        place.add(len).write(0);
    }
    Ok(())
}

/// The name of a code.
///
/// # Safety
/// `name` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: u32, name: Out<*const c_char>) -> u32 {
    give_text(words(code).map(|(name, _)| name.as_ptr()), name)
}

/// The description of a code.
///
/// # Safety
/// `text` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: u32, text: Out<*const c_char>) -> u32 {
    give_text(words(code).map(|(_, text)| text.as_ptr()), text)
}

fn give_text(text: Option<*const c_char>, place: Out<*const c_char>) -> u32 {
    let known = text.is_some();
    let given = place.give(text.unwrap_or(ptr::null()));
    if known && given.is_ok() { 0 } else { Code::INVALID_VALUE.0 }
}
