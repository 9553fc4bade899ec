//! Primary contexts, and the current context of a thread.

use std::ffi::c_int;

use crate::call::{Out, driver_calls};
use crate::codes::Code;
use crate::executor;
use crate::world::{World, contexts};

driver_calls! {
    /// Retains the primary context of a device; the first call starts it.
    fn cuDevicePrimaryCtxRetain(world, context: Out<u64>, device: c_int) {
        let entry = world.device(device)?;
        let is_first = entry.retained == 0;
        entry.retained += 1;
        let device = device as u32;
        if is_first {
            world.begin_context(device);
            executor::start(world, device)?;
        }
        context.give(World::context_of(device))
    }

    /// Releases a primary context; the last call ends it, with everything that belongs to it.
    fn cuDevicePrimaryCtxRelease_v2(world, device: c_int) {
        let entry = world.device(device)?;
        entry.retained = entry.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if entry.retained == 0 {
            world.end_context(device as u32);
            world.changed();
        }
        Ok(())
    }

    /// Pushes a context on the stack of this thread.
    fn cuCtxPushCurrent_v2(world, context: u64) {
        world.device_of(context)?;
        contexts(|list| list.push(context));
        Ok(())
    }

    /// Pops the current context of this thread.
    fn cuCtxPopCurrent_v2(_world, context: Out<u64>) {
        let popped = contexts(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        context.give_if_wanted(popped);
        Ok(())
    }

    /// Replaces the current context; 0 for none.
    fn cuCtxSetCurrent(world, context: u64) {
        if context != 0 {
            world.device_of(context)?;
        }
        contexts(|list| {
            list.pop();
            if context != 0 {
                list.push(context);
            }
        });
        Ok(())
    }

    /// The current context, or 0.
    fn cuCtxGetCurrent(_world, context: Out<u64>) {
        context.give(contexts(|list| list.last().copied()).unwrap_or(0))
    }

    /// The device of the current context.
    fn cuCtxGetDevice(world, device: Out<c_int>) {
        device.give(world.current_device()? as c_int)
    }

    /// Waits for everything on the device.
    fn cuCtxSynchronize(world) {
        let device = world.current()?;
        world.wait_for_all(device)
    }
}
