//! The lowest layer: the driver's functions as they are, found at run time.
//!
//! Types and the search for the library come from cudarc's `sys`. The functions are looked up here,
//! all at once when the driver is loaded, for two reasons: a function that an old driver lacks is
//! then an error and not a panic in the middle of a transfer; and a result is a plain number, so a
//! code that only a newer driver knows is not undefined behaviour in an enum.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub(crate) use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUmemorytype, CUmodule,
    CUpointer_attribute, CUstream,
};

use crate::error::CudaError;

macro_rules! driver_table {
    ($($name:ident = $symbol:literal ($($arg:ident: $type:ty),*);)*) => {
        /// The functions of the driver that this crate uses.
        struct Calls { $($name: unsafe extern "C" fn($($type),*) -> u32,)* }

        impl Calls {
            /// # Safety
            /// `library` must be a CUDA driver.
            unsafe fn find(library: &'static libloading::Library) -> Result<Calls, CudaError> {
                // SAFETY: the signatures below are those of the driver's own header, for symbols
                // whose version is part of their name.
                unsafe { Ok(Calls { $($name: *symbol(library, $symbol)?,)* }) }
            }
        }

        $(
            /// # Safety
            /// Those of the driver's function of this name.
            // `describe` calls the two functions that name errors through the table. The driver
            // determines the number of parameters.
            #[allow(dead_code, clippy::too_many_arguments)]
            pub(crate) unsafe fn $name($($arg: $type),*) -> Result<(), CudaError> {
                let calls = CALLS.get().ok_or_else(|| not_loaded($symbol))?;
                // SAFETY: the caller meets the preconditions of the function.
                match unsafe { (calls.$name)($($arg),*) } {
                    0 => Ok(()),
                    code => Err(describe(calls, $symbol, code)),
                }
            }
        )*
    };
}

driver_table! {
    init = "cuInit"(flags: c_uint);
    driver_get_version = "cuDriverGetVersion"(version: *mut c_int);
    get_error_name = "cuGetErrorName"(code: u32, name: *mut *const c_char);
    get_error_string = "cuGetErrorString"(code: u32, text: *mut *const c_char);
    device_get_count = "cuDeviceGetCount"(count: *mut c_int);
    device_get = "cuDeviceGet"(device: *mut CUdevice, ordinal: c_int);
    device_get_name = "cuDeviceGetName"(name: *mut c_char, len: c_int, device: CUdevice);
    device_total_mem = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: CUdevice);
    device_get_attribute = "cuDeviceGetAttribute"(
        value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice
    );
    device_get_pci_bus_id = "cuDeviceGetPCIBusId"(id: *mut c_char, len: c_int, device: CUdevice);
    primary_ctx_retain = "cuDevicePrimaryCtxRetain"(context: *mut CUcontext, device: CUdevice);
    primary_ctx_release = "cuDevicePrimaryCtxRelease_v2"(device: CUdevice);
    ctx_push = "cuCtxPushCurrent_v2"(context: CUcontext);
    ctx_pop = "cuCtxPopCurrent_v2"(context: *mut CUcontext);
    ctx_get_current = "cuCtxGetCurrent"(context: *mut CUcontext);
    ctx_get_device = "cuCtxGetDevice"(device: *mut CUdevice);
    ctx_synchronize = "cuCtxSynchronize"();
    mem_get_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    pointer_get_attribute = "cuPointerGetAttribute"(
        value: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr
    );
    mem_alloc = "cuMemAlloc_v2"(pointer: *mut CUdeviceptr, bytes: usize);
    mem_free = "cuMemFree_v2"(pointer: CUdeviceptr);
    mem_host_alloc = "cuMemHostAlloc"(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    mem_free_host = "cuMemFreeHost"(pointer: *mut c_void);
    mem_host_register = "cuMemHostRegister_v2"(pointer: *mut c_void, bytes: usize, flags: c_uint);
    mem_host_unregister = "cuMemHostUnregister"(pointer: *mut c_void);
    mem_address_reserve = "cuMemAddressReserve"(
        pointer: *mut CUdeviceptr, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64
    );
    mem_address_free = "cuMemAddressFree"(pointer: CUdeviceptr, bytes: usize);
    mem_create = "cuMemCreate"(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize,
        properties: *const CUmemAllocationProp, flags: u64
    );
    mem_release = "cuMemRelease"(handle: CUmemGenericAllocationHandle);
    mem_map = "cuMemMap"(
        pointer: CUdeviceptr, bytes: usize, offset: usize,
        handle: CUmemGenericAllocationHandle, flags: u64
    );
    mem_unmap = "cuMemUnmap"(pointer: CUdeviceptr, bytes: usize);
    mem_set_access = "cuMemSetAccess"(
        pointer: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize
    );
    mem_get_allocation_granularity = "cuMemGetAllocationGranularity"(
        granularity: *mut usize, properties: *const CUmemAllocationProp, option: c_uint
    );
    memcpy_dtoh = "cuMemcpyDtoHAsync_v2"(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream
    );
    memcpy_htod = "cuMemcpyHtoDAsync_v2"(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream
    );
    memcpy_dtod = "cuMemcpyDtoDAsync_v2"(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    );
    memcpy_dtod_blocking = "cuMemcpyDtoD_v2"(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    memcpy_2d = "cuMemcpy2DAsync_v2"(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    memset_d8 = "cuMemsetD8Async"(to: CUdeviceptr, byte: u8, bytes: usize, stream: CUstream);
    stream_create = "cuStreamCreateWithPriority"(
        stream: *mut CUstream, flags: c_uint, priority: c_int
    );
    stream_destroy = "cuStreamDestroy_v2"(stream: CUstream);
    stream_get_ctx = "cuStreamGetCtx"(stream: CUstream, context: *mut CUcontext);
    thread_exchange_capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut c_uint);
    stream_query = "cuStreamQuery"(stream: CUstream);
    stream_get_id = "cuStreamGetId"(stream: CUstream, id: *mut u64);
    stream_is_capturing = "cuStreamIsCapturing"(stream: CUstream, status: *mut c_uint);
    stream_wait_event = "cuStreamWaitEvent"(stream: CUstream, event: CUevent, flags: c_uint);
    event_create = "cuEventCreate"(event: *mut CUevent, flags: c_uint);
    event_destroy = "cuEventDestroy_v2"(event: CUevent);
    event_record = "cuEventRecord"(event: CUevent, stream: CUstream);
    event_query = "cuEventQuery"(event: CUevent);
    event_elapsed_time = "cuEventElapsedTime"(
        milliseconds: *mut f32, start: CUevent, end: CUevent
    );
    module_load_data = "cuModuleLoadData"(module: *mut CUmodule, image: *const c_void);
    module_unload = "cuModuleUnload"(module: CUmodule);
    module_get_function = "cuModuleGetFunction"(
        function: *mut CUfunction, module: CUmodule, name: *const c_char
    );
    launch_kernel = "cuLaunchKernel"(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream,
        parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
}

static CALLS: OnceLock<Calls> = OnceLock::new();

/// Finds the driver's library and all functions in it. A second call does nothing.
pub(crate) fn load() -> Result<(), CudaError> {
    if CALLS.get().is_some() {
        return Ok(());
    }
    let library = library()?;
    // SAFETY: the library is the CUDA driver by its name, or a test's replacement.
    let calls = unsafe { Calls::find(library) }?;
    let _ = CALLS.set(calls);
    Ok(())
}

/// The environment variable that names a library to load instead of `libcuda.so.1`: for tests on
/// machines without a GPU, which use a fake (`tests/fakecuda`).
const OTHER_DRIVER: &str = "UNSPOOL_CUDA_DRIVER";

/// The driver's library, loaded once.
fn library() -> Result<&'static libloading::Library, CudaError> {
    static OTHER: OnceLock<libloading::Library> = OnceLock::new();
    let Some(path) = std::env::var_os(OTHER_DRIVER) else { return installed() };
    if let Some(library) = OTHER.get() {
        return Ok(library);
    }
    // SAFETY: naming a library as the driver asks for its initialisers to run.
    let library = unsafe { libloading::Library::new(&path) }.map_err(|error| {
        let text = format!("{OTHER_DRIVER} names {}: {error}", path.display());
        CudaError::before_any_call("no CUDA driver", text)
    })?;
    Ok(OTHER.get_or_init(|| library))
}

/// The installed driver of this machine.
fn installed() -> Result<&'static libloading::Library, CudaError> {
    // SAFETY: loading the driver runs its initialisers, as in every CUDA program.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(CudaError::before_any_call(
            "no CUDA driver",
            "libcuda.so.1 was not found; install the NVIDIA driver, or in a container start it \
             with GPU access (docker: --gpus all), or add its folder to LD_LIBRARY_PATH",
        ));
    }
    // SAFETY: as above; the library was found just now, so this does not panic.
    Ok(unsafe { cudarc::driver::sys::culib() })
}

/// # Safety
/// `T` must be the function's type.
unsafe fn symbol<T>(
    library: &'static libloading::Library,
    name: &'static str,
) -> Result<libloading::Symbol<'static, T>, CudaError> {
    // SAFETY: the caller guarantees the type.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| {
        CudaError::before_any_call(
            "the CUDA driver is too old",
            format!("it has no function {name}; install a driver for CUDA 12.0 (525) or newer"),
        )
    })
}

fn not_loaded(call: &'static str) -> CudaError {
    CudaError { call, ..CudaError::before_any_call("no CUDA driver", "it has not been loaded") }
}

/// The error of a code, with the driver's own name and text for it.
fn describe(calls: &Calls, call: &'static str, code: u32) -> CudaError {
    let words = |function: unsafe extern "C" fn(u32, *mut *const c_char) -> u32| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `text` is a valid place for a pointer; the driver's strings are static.
        let known = unsafe { function(code, &raw mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = words(calls.get_error_name).unwrap_or_else(|| format!("CUDA error {code}"));
    let text = words(calls.get_error_string).unwrap_or_else(|| "unknown to this driver".into());
    CudaError { call, code, name, text }
}
