//! C functions that control the fake, for tests in Rust and, with `ctypes`, in Python.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use crate::call::Held;
use crate::codes::{Code, Outcome};
use crate::memory::Owner;
use crate::rng::Rng;
use crate::world::World;

/// The text of a caller.
///
/// # Safety
/// Null, or a terminated text.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: the caller's duty.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

fn code_of(outcome: Outcome) -> u32 {
    outcome.err().map_or(0, |code| code.0)
}

/// Changes a setting: `seed`, `latency_us`, `bandwidth`, `link`, `nvcomp`, `compile_ms`, or
/// `memory` of all devices. Returns 0, or 1 for an unknown name.
///
/// # Safety
/// `name` is a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_set(name: *const c_char, value: u64) -> u32 {
    // SAFETY: the caller's duty.
    let name = unsafe { text(name) };
    let mut world = Held::by_caller();
    let outcome = set(&mut world, name, value);
    world.changed();
    code_of(outcome)
}

fn set(world: &mut World, name: &str, value: u64) -> Outcome {
    match name {
        "seed" => world.rng = Rng::new(value),
        "latency_us" => world.settings.latency = Duration::from_micros(value),
        "bandwidth" => world.settings.bandwidth = value,
        "link" => world.settings.link = value,
        "compile_ms" => world.settings.compile = Duration::from_millis(value),
        "nvcomp" => world.settings.nvcomp = value as u32,
        "memory" => {
            for device in 0..world.devices.len() as u32 {
                world.memory.budget(device).total = value;
            }
        }
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

/// Stops all devices: calls are executed, operations are not.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_hold() {
    Held::by_caller().held = true;
}

/// Stops the operations of one stream. Returns 0, or the driver's code for an invalid stream.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_hold_stream(stream: u64) -> u32 {
    let mut world = Held::by_caller();
    // Other handles need no context; the numbers of default streams refer to the current one.
    let found = if stream > 2 { Ok(stream) } else { world.stream(stream) };
    let outcome = found.and_then(|handle| {
        world.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?.held = true;
        Ok(())
    });
    code_of(outcome)
}

/// Continues all devices and streams.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_release() {
    let mut world = Held::by_caller();
    world.held = false;
    world.streams.values_mut().for_each(|stream| stream.held = false);
    world.changed();
}

/// Makes the `nth` call of `name` from now on (1 is the next, 0 stands for every one) fail with
/// `code`; with code 0 it does nothing but returns success. The name `execute` stands for the
/// operations of the devices: such a fault breaks the context. So does a code that no context
/// survives, such as 700.
///
/// # Safety
/// `name` is a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_fail(name: *const c_char, nth: u64, code: u32) {
    // SAFETY: the caller's duty.
    let name = unsafe { text(name) };
    Held::by_caller().faults.order(name, nth, Code(code));
}

/// Takes device memory away, as another process would; 0 returns it. Returns 0, or 101 for an
/// unknown device.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_take(device: u32, bytes: u64) -> u32 {
    let mut world = Held::by_caller();
    if device as usize >= world.devices.len() {
        return Code::INVALID_DEVICE.0;
    }
    world.memory.budget(device).taken = bytes;
    0
}

/// Breaks the context of a device permanently, as an access to unmapped memory does. Returns 0, or
/// 101 for an unknown device.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_break(device: u32, code: u32) -> u32 {
    let mut world = Held::by_caller();
    if device as usize >= world.devices.len() {
        return Code::INVALID_DEVICE.0;
    }
    world.break_context(device, Code(code));
    world.changed();
    0
}

/// Resets faults, held devices, broken contexts and memory that was taken away; timing is that of
/// the environment again.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_reset() {
    fakecuda_release();
    let mut world = Held::by_caller();
    let fresh = crate::settings::Settings::from_environment();
    world.faults.clear();
    world.devices.iter_mut().for_each(|device| device.broken = None);
    world.rng = Rng::new(fresh.seed);
    for device in 0..world.devices.len() as u32 {
        let budget = world.memory.budget(device);
        (budget.taken, budget.total) = (0, fresh.memory);
    }
    world.settings = fresh;
}

/// Calls of `name` so far, including failed ones; `execute` counts operations that began.
///
/// # Safety
/// `name` is a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller's duty.
    let name = unsafe { text(name) };
    Held::by_caller().faults.calls(name)
}

/// A count: `pending` (operations that are not done), `executed`, `bytes_to_device`,
/// `bytes_to_host`, `bytes_within`, or the number of existing `streams`, `events`, `blocks`,
/// `reservations`, `mappings`, `handles`, `host_blocks`, `registrations`, `contexts`, `modules`.
/// All bits are set for an unknown name.
///
/// # Safety
/// `name` is a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_count(name: *const c_char) -> u64 {
    // SAFETY: the caller's duty.
    let name = unsafe { text(name) };
    count(&Held::by_caller(), name).unwrap_or(u64::MAX)
}

fn count(world: &World, name: &str) -> Option<u64> {
    let (reservations, mappings, handles) = world.memory.vmm.counts();
    let (host_blocks, registrations) = world.memory.hosts.counts();
    Some(match name {
        "pending" => world.streams.values().map(|stream| stream.queue.len() as u64).sum(),
        "executed" => world.executed,
        "bytes_to_device" => world.moved.to_device,
        "bytes_to_host" => world.moved.to_host,
        "bytes_within" => world.moved.within,
        "streams" => world.streams.len() as u64,
        "events" => world.events.len() as u64,
        "blocks" => world.memory.blocks.count(),
        "reservations" => reservations,
        "mappings" => mappings,
        "handles" => handles,
        "host_blocks" => host_blocks,
        "registrations" => registrations,
        "contexts" => world.devices.iter().filter(|device| device.retained > 0).count() as u64,
        "modules" => world.modules.len() as u64,
        _ => return None,
    })
}

/// Copies the current content of device memory to the host, bypassing streams. Returns 0, or 1 when
/// the range is not usable device memory.
///
/// # Safety
/// `to` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_peek(to: *mut u8, from: u64, len: u64) -> u32 {
    let world = Held::by_caller();
    let Ok(Owner::Device(_)) = world.memory.owner(from, len) else {
        return Code::INVALID_VALUE.0;
    };
    // SAFETY: checked just now, under the lock; the caller guarantees `to`.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to, len as usize) };
    0
}

/// Writes device memory at once, bypassing streams. Returns 0, or 1 when the range is not usable
/// device memory.
///
/// # Safety
/// `from` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_poke(to: u64, from: *const u8, len: u64) -> u32 {
    let world = Held::by_caller();
    let Ok(Owner::Device(_)) = world.memory.owner(to, len) else {
        return Code::INVALID_VALUE.0;
    };
    // SAFETY: checked just now, under the lock; the caller guarantees `from`.
    unsafe { std::ptr::copy_nonoverlapping(from, to as *mut u8, len as usize) };
    0
}
