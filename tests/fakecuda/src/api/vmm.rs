//! Virtual memory management.

use std::ffi::{c_int, c_uint};

use crate::call::{Out, driver_calls};
use crate::codes::{Code, Outcome};
use crate::memory::GRANULARITY;

/// `CU_MEM_LOCATION_TYPE_DEVICE`; `CU_MEM_ALLOCATION_TYPE_PINNED` has the same value.
const DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: c_int = 3;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// The number of the device that it names.
    fn device(self) -> Outcome<u32> {
        let is_device = self.kind == DEVICE && self.id >= 0;
        if is_device { Ok(self.id as u32) } else { Err(Code::INVALID_DEVICE) }
    }
}

/// The first fields of `CUmemAllocationProp`; the fake reads no others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location: Location,
    flags: c_int,
}

/// Reads a structure that the caller points to.
fn read<T: Copy>(place: *const T) -> Outcome<T> {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the exported function guarantees the structure.
    Ok(unsafe { place.read() })
}

fn device_of(properties: *const Properties) -> Outcome<u32> {
    let properties = read(properties)?;
    if properties.kind != DEVICE {
        return Err(Code::INVALID_VALUE);
    }
    properties.location.device()
}

driver_calls! {
    /// The granularity of lengths.
    fn cuMemGetAllocationGranularity(
        world, bytes: Out<usize>, properties: *const Properties, _option: c_uint,
    ) {
        world.device(device_of(properties)? as c_int)?;
        bytes.give(GRANULARITY as usize)
    }

    /// Reserves addresses, without memory.
    fn cuMemAddressReserve(
        world, pointer: Out<u64>, bytes: usize, alignment: usize, _hint: u64, flags: u64,
    ) {
        let is_smaller = alignment.is_power_of_two() && alignment as u64 <= GRANULARITY;
        let fits = alignment == 0 || is_smaller;
        if flags != 0 || !fits {
            return Err(Code::INVALID_VALUE);
        }
        let address = world.memory.vmm.reserve(bytes as u64)?;
        pointer.give(address)
    }

    /// Releases reserved addresses without mapped memory.
    fn cuMemAddressFree(world, pointer: u64, bytes: usize) {
        world.memory.vmm.give_back(pointer, bytes as u64)
    }

    /// Creates memory, without an address.
    fn cuMemCreate(
        world, handle: Out<u64>, bytes: usize, properties: *const Properties, flags: u64,
    ) {
        let device = device_of(properties)?;
        world.device(device as c_int)?;
        world.works(device)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let created = world.memory.create(device, bytes as u64)?;
        handle.give(created)
    }

    /// Releases a handle; mapped memory remains.
    fn cuMemRelease(world, handle: u64) {
        world.memory.release(handle)
    }

    /// Maps memory at reserved addresses.
    fn cuMemMap(world, pointer: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world.memory.vmm.map(pointer, bytes as u64, offset as u64, handle)
    }

    /// Unmaps memory at once: an operation that still uses it breaks the context.
    fn cuMemUnmap(world, pointer: u64, bytes: usize) {
        world.memory.unmap(pointer, bytes as u64)
    }

    /// Lets a device use what is mapped.
    fn cuMemSetAccess(world, pointer: u64, bytes: usize, access: *const Access, count: usize) {
        let access = read(access)?;
        let device = access.location.device()?;
        world.device(device as c_int)?;
        if count != 1 || access.flags != READ_WRITE {
            return Err(Code::NOT_SUPPORTED);
        }
        world.memory.vmm.open(pointer, bytes as u64, device)
    }
}
