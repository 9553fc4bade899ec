//! The middle layer: one function for each driver call, with values instead of out-parameters and
//! [`CudaError`] instead of codes. Handles are still the driver's own.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::driver::raw::{self, *};
use crate::error::{CudaError, INVALID_VALUE, NOT_READY, STREAM_CAPTURE_IMPLICIT};

type Result<T> = std::result::Result<T, CudaError>;

pub(crate) fn init() -> Result<()> {
    // SAFETY: 0 is the only value allowed.
    unsafe { raw::init(0) }
}

/// The newest version of CUDA that the driver supports: 1000 major + 10 minor.
pub(crate) fn driver_version() -> Result<i32> {
    let mut version = 0;
    // SAFETY: a valid place.
    unsafe { raw::driver_get_version(&raw mut version) }?;
    Ok(version)
}

pub(crate) fn device_count() -> Result<i32> {
    let mut count = 0;
    // SAFETY: a valid place.
    unsafe { raw::device_get_count(&raw mut count) }?;
    Ok(count)
}

pub(crate) fn device(ordinal: i32) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: a valid place; the driver checks the ordinal.
    unsafe { raw::device_get(&raw mut device, ordinal) }?;
    Ok(device)
}

pub(crate) fn device_name(device: CUdevice) -> Result<String> {
    text(|place, len| {
        // SAFETY: `place` has room for `len` bytes.
        unsafe { raw::device_get_name(place, len, device) }
    })
}

/// `domain:bus:device.function`.
pub(crate) fn device_pci(device: CUdevice) -> Result<String> {
    text(|place, len| {
        // SAFETY: `place` has room for `len` bytes.
        unsafe { raw::device_get_pci_bus_id(place, len, device) }
    })
}

fn text(call: impl FnOnce(*mut c_char, c_int) -> Result<()>) -> Result<String> {
    let mut buffer = [0 as c_char; 256];
    call(buffer.as_mut_ptr(), 255)?;
    // SAFETY: the last byte is never written, so there is an end.
    Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
}

pub(crate) fn device_memory(device: CUdevice) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: a valid place.
    unsafe { raw::device_total_mem(&raw mut bytes, device) }?;
    Ok(bytes as u64)
}

pub(crate) fn device_attribute(device: CUdevice, attribute: CUdevice_attribute) -> Result<i32> {
    let mut value = 0;
    // SAFETY: a valid place.
    unsafe { raw::device_get_attribute(&raw mut value, attribute, device) }?;
    Ok(value)
}

pub(crate) fn primary_context(device: CUdevice) -> Result<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: a valid place.
    unsafe { raw::primary_ctx_retain(&raw mut context, device) }?;
    Ok(context)
}

pub(crate) fn release_primary_context(device: CUdevice) -> Result<()> {
    // SAFETY: the driver counts references; the caller has retained it.
    unsafe { raw::primary_ctx_release(device) }
}

pub(crate) fn push_context(context: CUcontext) -> Result<()> {
    // SAFETY: the caller holds the context.
    unsafe { raw::ctx_push(context) }
}

pub(crate) fn pop_context() -> Result<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: a valid place.
    unsafe { raw::ctx_pop(&raw mut context) }?;
    Ok(context)
}

/// The context that is current on this thread, or null.
pub(crate) fn current_context() -> Result<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: a valid place.
    unsafe { raw::ctx_get_current(&raw mut context) }?;
    Ok(context)
}

pub(crate) fn current_device() -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: a valid place.
    unsafe { raw::ctx_get_device(&raw mut device) }?;
    Ok(device)
}

pub(crate) fn synchronize_context() -> Result<()> {
    // SAFETY: no duties.
    unsafe { raw::ctx_synchronize() }
}

/// Free and total bytes of the current device.
pub(crate) fn memory_info() -> Result<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: valid places.
    unsafe { raw::mem_get_info(&raw mut free, &raw mut total) }?;
    Ok((free as u64, total as u64))
}

/// The number of the device whose memory `address` is in; `None` for memory of the host, pinned or
/// not, and for addresses that the driver does not know.
pub(crate) fn device_of(address: CUdeviceptr) -> Result<Option<u32>> {
    let (mut kind, mut ordinal) = (0u32, -1i32);
    let (kind_place, ordinal_place) = ((&raw mut kind).cast(), (&raw mut ordinal).cast());
    let what = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: a valid place for a number of 32 bits, which this attribute is; any address will do.
    match unsafe { raw::pointer_get_attribute(kind_place, what, address) } {
        Ok(()) if kind != CUmemorytype::CU_MEMORYTYPE_HOST as u32 => {}
        Ok(()) => return Ok(None),
        Err(error) if error.code == INVALID_VALUE => return Ok(None),
        Err(error) => return Err(error),
    }
    let what = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: as above.
    unsafe { raw::pointer_get_attribute(ordinal_place, what, address) }?;
    Ok(u32::try_from(ordinal).ok())
}

pub(crate) fn allocate(bytes: usize) -> Result<CUdeviceptr> {
    let mut pointer = 0;
    // SAFETY: a valid place.
    unsafe { raw::mem_alloc(&raw mut pointer, bytes) }?;
    Ok(pointer)
}

/// # Safety
/// From [`allocate`]; nothing uses it any more.
pub(crate) unsafe fn free(pointer: CUdeviceptr) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::mem_free(pointer) }
}

pub(crate) fn allocate_host(bytes: usize) -> Result<*mut u8> {
    let mut pointer = ptr::null_mut();
    let flags = cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: a valid place.
    unsafe { raw::mem_host_alloc(&raw mut pointer, bytes, flags) }?;
    Ok(pointer.cast())
}

/// # Safety
/// From [`allocate_host`]; nothing uses it any more.
pub(crate) unsafe fn free_host(pointer: *mut u8) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::mem_free_host(pointer.cast()) }
}

/// # Safety
/// The range is mapped and stays so until it is unregistered.
pub(crate) unsafe fn register(pointer: *mut u8, bytes: usize) -> Result<()> {
    let flags = cudarc::driver::sys::CU_MEMHOSTREGISTER_PORTABLE;
    // SAFETY: the caller's duty.
    unsafe { raw::mem_host_register(pointer.cast(), bytes, flags) }
}

/// # Safety
/// No unfinished copy uses the range that begins here.
pub(crate) unsafe fn unregister(pointer: *mut u8) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::mem_host_unregister(pointer.cast()) }
}

/// Device memory of one device, not shared with other processes.
fn properties(device: CUdevice) -> CUmemAllocationProp {
    // SAFETY: a C struct of numbers and pointers for which all zeros is the documented default.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(device);
    properties
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

pub(crate) fn granularity(device: CUdevice) -> Result<u64> {
    const RECOMMENDED: c_uint = 1;
    let (mut bytes, properties) = (0, properties(device));
    // SAFETY: valid places.
    unsafe {
        raw::mem_get_allocation_granularity(&raw mut bytes, &raw const properties, RECOMMENDED)
    }?;
    Ok(bytes as u64)
}

pub(crate) fn reserve(bytes: u64) -> Result<CUdeviceptr> {
    let mut address = 0;
    // SAFETY: a valid place; alignment, hint and flags 0 leave the choice to the driver.
    unsafe { raw::mem_address_reserve(&raw mut address, bytes as usize, 0, 0, 0) }?;
    Ok(address)
}

/// # Safety
/// From [`reserve`], and nothing in it is mapped.
pub(crate) unsafe fn free_address(address: CUdeviceptr, bytes: u64) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::mem_address_free(address, bytes as usize) }
}

/// Maps new device memory at `[address, address + bytes)` and lets the device use it. On an error
/// nothing is mapped there.
///
/// # Safety
/// The range lies in one from [`reserve`] and is not mapped.
pub(crate) unsafe fn map(address: CUdeviceptr, bytes: u64, device: CUdevice) -> Result<()> {
    let (mut handle, properties, len) = (0, properties(device), bytes as usize);
    // SAFETY: valid places.
    unsafe { raw::mem_create(&raw mut handle, len, &raw const properties, 0) }?;
    // SAFETY: the caller guarantees the range; the handle is `len` bytes.
    let mapped = unsafe { raw::mem_map(address, len, 0, handle, 0) };
    // SAFETY: created above. The memory lives on for as long as it is mapped.
    let released = unsafe { raw::mem_release(handle) };
    mapped?;
    let access = CUmemAccessDesc {
        location: location(device),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the range was mapped just now.
    let ready =
        released.and_then(|()| unsafe { raw::mem_set_access(address, len, &raw const access, 1) });
    if ready.is_err() {
        // SAFETY: mapped above, and nothing uses it yet.
        let _ = unsafe { raw::mem_unmap(address, len) };
    }
    ready
}

/// # Safety
/// Mapped as one range by [`map`]; no unfinished operation uses it.
pub(crate) unsafe fn unmap(address: CUdeviceptr, bytes: u64) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::mem_unmap(address, bytes as usize) }
}

/// # Safety
/// Both ranges hold `bytes` bytes until the copy is done.
pub(crate) unsafe fn copy_dtoh(to: *mut u8, from: u64, bytes: u64, stream: CUstream) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::memcpy_dtoh(to.cast::<c_void>(), from, bytes as usize, stream) }
}

/// # Safety
/// Both ranges hold `bytes` bytes until the copy is done.
pub(crate) unsafe fn copy_htod(
    to: u64,
    from: *const u8,
    bytes: u64,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::memcpy_htod(to, from.cast::<c_void>(), bytes as usize, stream) }
}

/// # Safety
/// Both ranges hold `bytes` bytes until the copy is done.
pub(crate) unsafe fn copy_dtod(to: u64, from: u64, bytes: u64, stream: CUstream) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::memcpy_dtod(to, from, bytes as usize, stream) }
}

/// Copies `rows` rows of `bytes` bytes; each side is the address of its first row and the distance
/// in bytes between rows.
///
/// # Safety
/// Both sides hold the rows until the copy is done.
pub(crate) unsafe fn copy_rows(
    (to, to_pitch): (u64, u64),
    (from, from_pitch): (u64, u64),
    bytes: u64,
    rows: u64,
    stream: CUstream,
) -> Result<()> {
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        srcPitch: from_pitch as usize,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: to,
        dstArray: ptr::null_mut(),
        dstPitch: to_pitch as usize,
        WidthInBytes: bytes as usize,
        Height: rows as usize,
    };
    // SAFETY: the caller's duty; a valid place.
    unsafe { raw::memcpy_2d(&raw const copy, stream) }
}

/// A plain blocking copy: the baseline that the other copies are measured against.
///
/// # Safety
/// Both ranges hold `bytes` bytes.
pub(crate) unsafe fn copy_dtod_blocking(to: u64, from: u64, bytes: u64) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::memcpy_dtod_blocking(to, from, bytes as usize) }
}

/// # Safety
/// The range holds `bytes` bytes until the operation is done.
pub(crate) unsafe fn set_bytes(to: u64, byte: u8, bytes: u64, stream: CUstream) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::memset_d8(to, byte, bytes as usize, stream) }
}

/// A stream that does not wait for the legacy default stream. A lower number is a higher priority.
pub(crate) fn create_stream(priority: i32) -> Result<CUstream> {
    const NON_BLOCKING: c_uint = 1;
    let mut stream = ptr::null_mut();
    // SAFETY: a valid place.
    unsafe { raw::stream_create(&raw mut stream, NON_BLOCKING, priority) }?;
    Ok(stream)
}

/// # Safety
/// From [`create_stream`], not used after this.
pub(crate) unsafe fn destroy_stream(stream: CUstream) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::stream_destroy(stream) }
}

/// # Safety
/// A stream that lives.
pub(crate) unsafe fn stream_context(stream: CUstream) -> Result<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: the caller's duty; a valid place.
    unsafe { raw::stream_get_ctx(stream, &raw mut context) }?;
    Ok(context)
}

/// The number of a stream, which no other stream of the process has or had.
///
/// # Safety
/// A stream that lives.
pub(crate) unsafe fn stream_id(stream: CUstream) -> Result<u64> {
    let mut id = 0;
    // SAFETY: the caller's duty; a valid place.
    unsafe { raw::stream_get_id(stream, &raw mut id) }?;
    Ok(id)
}

/// Sets what this thread may do while streams are captured into graphs, and returns the old mode.
pub(crate) fn exchange_capture_mode(mode: u32) -> Result<u32> {
    let mut mode = mode;
    // SAFETY: a valid place; the driver checks the mode.
    unsafe { raw::thread_exchange_capture_mode(&raw mut mode) }?;
    Ok(mode)
}

/// Whether everything enqueued on the stream is done.
///
/// # Safety
/// A stream that lives.
pub(crate) unsafe fn is_idle(stream: CUstream) -> Result<bool> {
    // SAFETY: the caller's duty.
    answer(unsafe { raw::stream_query(stream) })
}

/// The answer of a query: an error that says "not ready" becomes `false`.
fn answer(queried: Result<()>) -> Result<bool> {
    match queried {
        Ok(()) => Ok(true),
        Err(error) if error.code == NOT_READY => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether operations enqueued on the stream go into a graph instead of being executed.
///
/// # Safety
/// A stream that lives.
pub(crate) unsafe fn is_capturing(stream: CUstream) -> Result<bool> {
    let mut status = 0;
    // SAFETY: the caller's duty; a valid place.
    match unsafe { raw::stream_is_capturing(stream, &raw mut status) } {
        // An invalid capture counts too: nothing may be enqueued until it has been ended.
        Ok(()) => Ok(status != 0),
        // The legacy default stream during the capture of a stream that it waits for.
        Err(error) if error.code == STREAM_CAPTURE_IMPLICIT => Ok(true),
        Err(error) => Err(error),
    }
}

/// # Safety
/// A stream and an event that live.
pub(crate) unsafe fn stream_wait(stream: CUstream, event: CUevent) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::stream_wait_event(stream, event, 0) }
}

pub(crate) fn create_event(timing: bool) -> Result<CUevent> {
    const DISABLE_TIMING: c_uint = 2;
    let mut event = ptr::null_mut();
    let flags = if timing { 0 } else { DISABLE_TIMING };
    // SAFETY: a valid place.
    unsafe { raw::event_create(&raw mut event, flags) }?;
    Ok(event)
}

/// # Safety
/// From [`create_event`], not used after this.
pub(crate) unsafe fn destroy_event(event: CUevent) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::event_destroy(event) }
}

/// # Safety
/// An event and a stream that live.
pub(crate) unsafe fn record(event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::event_record(event, stream) }
}

/// Whether everything before the event is done.
///
/// # Safety
/// An event that lives.
pub(crate) unsafe fn is_done(event: CUevent) -> Result<bool> {
    // SAFETY: the caller's duty.
    answer(unsafe { raw::event_query(event) })
}

/// The time between two events in milliseconds.
///
/// # Safety
/// Events that live, made with timing.
pub(crate) unsafe fn elapsed(start: CUevent, end: CUevent) -> Result<f32> {
    let mut milliseconds = 0.0;
    // SAFETY: the caller's duty; a valid place.
    unsafe { raw::event_elapsed_time(&raw mut milliseconds, start, end) }?;
    Ok(milliseconds)
}

/// # Safety
/// `image` is a whole cubin, or PTX that ends with a zero byte.
pub(crate) unsafe fn load_module(image: &[u8]) -> Result<CUmodule> {
    let mut module = ptr::null_mut();
    // SAFETY: the caller's duty; a valid place.
    unsafe { raw::module_load_data(&raw mut module, image.as_ptr().cast()) }?;
    Ok(module)
}

/// # Safety
/// From [`load_module`]; none of its kernels runs or will be launched.
pub(crate) unsafe fn unload_module(module: CUmodule) -> Result<()> {
    // SAFETY: the caller's duty.
    unsafe { raw::module_unload(module) }
}

/// # Safety
/// A module that lives.
pub(crate) unsafe fn function(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = ptr::null_mut();
    // SAFETY: the caller's duty; a valid place.
    unsafe { raw::module_get_function(&raw mut function, module, name.as_ptr()) }?;
    Ok(function)
}

/// # Safety
/// `parameters` point to values of the kernel's parameter types; memory that they name stays
/// allocated until the kernel is done.
pub(crate) unsafe fn launch(
    function: CUfunction,
    grid: u32,
    block: u32,
    stream: CUstream,
    parameters: &mut [*mut c_void],
) -> Result<()> {
    let (extra, list) = (ptr::null_mut(), parameters.as_mut_ptr());
    // SAFETY: the caller's duty.
    unsafe { raw::launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream, list, extra) }
}
