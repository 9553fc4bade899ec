//! Host memory that the driver allocates or registers.

use std::ffi::{c_uint, c_void};

use crate::call::{Out, driver_calls};
use crate::codes::Code;

/// All existing flags.
const FLAGS: c_uint = 0xf;

driver_calls! {
    /// Allocates pinned memory.
    fn cuMemHostAlloc(world, pointer: Out<u64>, bytes: usize, flags: c_uint) {
        world.current()?;
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = world.memory.hosts.allocate(bytes as u64)?;
        pointer.give(address)
    }

    /// Frees pinned memory, after everything on the device, as the driver does.
    fn cuMemFreeHost(world, pointer: *mut c_void) {
        let device = world.current()?;
        world.wait_for_all(device)?;
        world.memory.hosts.free(pointer as u64)
    }

    /// Pins memory of the caller.
    fn cuMemHostRegister_v2(world, pointer: *mut c_void, bytes: usize, flags: c_uint) {
        world.current()?;
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world.memory.hosts.register(pointer as u64, bytes as u64)
    }

    /// Unpins memory. A copy that still uses it breaks the context.
    fn cuMemHostUnregister(world, pointer: *mut c_void) {
        world.current()?;
        world.memory.hosts.unregister(pointer as u64)
    }
}
