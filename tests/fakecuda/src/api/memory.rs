//! Plain device memory, and attributes of addresses.

use std::ffi::{c_int, c_uint, c_void};

use crate::call::{Out, driver_calls};
use crate::codes::{Code, Outcome};
use crate::memory::Owner;
use crate::world::World;

driver_calls! {
    /// Free and all bytes of the current device.
    fn cuMemGetInfo_v2(world, free: Out<usize>, total: Out<usize>) {
        let device = world.current()?;
        let budget = world.memory.budget(device);
        free.give(budget.free() as usize)?;
        total.give(budget.total as usize)
    }

    /// Allocates device memory.
    fn cuMemAlloc_v2(world, pointer: Out<u64>, bytes: usize) {
        let device = world.current()?;
        let address = world.memory.allocate(device, bytes as u64)?;
        pointer.give(address)
    }

    /// Frees device memory, after everything on the device, as the driver does.
    fn cuMemFree_v2(world, pointer: u64) {
        let device = world.current()?;
        if pointer == 0 {
            return Ok(());
        }
        world.wait_for_all(device)?;
        world.memory.free(device, pointer)
    }

    /// Begin and length of the allocation around an address.
    fn cuMemGetAddressRange_v2(world, begin: Out<u64>, bytes: Out<usize>, pointer: u64) {
        world.current()?;
        let (address, len) = world.memory.blocks.around(pointer).ok_or(Code::NOT_FOUND)?;
        begin.give_if_wanted(address);
        bytes.give_if_wanted(len as usize);
        Ok(())
    }

    /// An attribute of an address.
    fn cuPointerGetAttribute(world, data: *mut c_void, attribute: c_uint, pointer: u64) {
        let owner = world.memory.owner(pointer, 1)?;
        answer(world, data, attribute, (pointer, owner))
    }
}

/// The attributes by their numbers in the driver's header.
fn answer(
    world: &World,
    data: *mut c_void,
    attribute: c_uint,
    (pointer, owner): (u64, Owner),
) -> Outcome {
    let device = match owner {
        Owner::Device(device) => device,
        Owner::Pinned => world.current_device()?,
        Owner::Pageable => return Err(Code::INVALID_VALUE),
    };
    let around = world.memory.blocks.around(pointer);
    match attribute {
        1 => give(data, World::context_of(device)),
        // Host memory, device memory.
        2 => give::<c_uint>(data, if owner == Owner::Pinned { 1 } else { 2 }),
        3 | 4 => give(data, pointer),
        8 => give::<c_uint>(data, 0),
        9 => give::<c_int>(data, device as c_int),
        11 => give(data, around.ok_or(Code::INVALID_VALUE)?.0),
        12 => give(data, around.ok_or(Code::INVALID_VALUE)?.1),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn give<T>(place: *mut c_void, value: T) -> Outcome {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the exported function guarantees the place of the attribute.
    unsafe { place.cast::<T>().write_unaligned(value) };
    Ok(())
}
