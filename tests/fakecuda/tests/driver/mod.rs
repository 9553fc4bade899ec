//! The driver's functions for tests of the fake: called by name in the shared library, with the
//! driver's code as the error.

// Every test program uses only a part of it.
#![allow(dead_code)]

use std::ffi::c_void;
use std::ops::Deref;

use unspool_fakecuda::Fake;

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_READY: u32 = 600;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const ALREADY_REGISTERED: u32 = 712;
pub const NOT_REGISTERED: u32 = 713;

pub type Answer<T = ()> = Result<T, u32>;

/// Two fake devices; the context of the first is current.
pub struct Driver(Fake);

impl Deref for Driver {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        &self.0
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident ($($arg:ident: $type:ty),*);)*) => {
        impl Driver { $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments)]
            pub fn $name(&self, $($arg: $type),*) -> Answer {
                type Function = unsafe extern "C" fn($($type),*) -> u32;
                let name = stringify!($symbol);
                // SAFETY: the type is that of the driver's header, and the tests meet the
                // preconditions of the function, or test that the fake checks them.
                let code = unsafe {
                    self.driver().get::<Function>(name.as_bytes()).expect(name)($($arg),*)
                };
                if code == 0 { Ok(()) } else { Err(code) }
            }
        )* }
    };
}

functions! {
    init = cuInit(flags: u32);
    retain_raw = cuDevicePrimaryCtxRetain(context: *mut u64, device: i32);
    release_context = cuDevicePrimaryCtxRelease_v2(device: i32);
    set_current = cuCtxSetCurrent(context: u64);
    synchronize = cuCtxSynchronize();
    memory_info_raw = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    alloc_raw = cuMemAlloc_v2(pointer: *mut u64, bytes: usize);
    free = cuMemFree_v2(pointer: u64);
    host_alloc_raw = cuMemHostAlloc(pointer: *mut u64, bytes: usize, flags: u32);
    host_free = cuMemFreeHost(pointer: u64);
    register = cuMemHostRegister_v2(pointer: *const u8, bytes: usize, flags: u32);
    unregister = cuMemHostUnregister(pointer: *const u8);
    reserve_raw = cuMemAddressReserve(
        pointer: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64
    );
    address_free = cuMemAddressFree(pointer: u64, bytes: usize);
    create_raw = cuMemCreate(handle: *mut u64, bytes: usize, properties: *const i32, flags: u64);
    release_memory = cuMemRelease(handle: u64);
    map = cuMemMap(pointer: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    unmap = cuMemUnmap(pointer: u64, bytes: usize);
    set_access_raw = cuMemSetAccess(pointer: u64, bytes: usize, access: *const i32, count: usize);
    to_host = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64);
    to_device = cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64);
    within = cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
    rows = cuMemcpy2DAsync_v2(copy: *const [u64; 16], stream: u64);
    fill = cuMemsetD8Async(to: u64, byte: u8, bytes: usize, stream: u64);
    stream_raw = cuStreamCreate(stream: *mut u64, flags: u32);
    stream_destroy = cuStreamDestroy_v2(stream: u64);
    stream_wait = cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    stream_query = cuStreamQuery(stream: u64);
    stream_synchronize = cuStreamSynchronize(stream: u64);
    begin_capture = cuStreamBeginCapture_v2(stream: u64, mode: u32);
    end_capture = cuStreamEndCapture(stream: u64, graph: *mut u64);
    exchange_mode = cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    event_raw = cuEventCreate(event: *mut u64, flags: u32);
    event_destroy = cuEventDestroy_v2(event: u64);
    record = cuEventRecord(event: u64, stream: u64);
    event_query = cuEventQuery(event: u64);
    event_synchronize = cuEventSynchronize(event: u64);
    elapsed_raw = cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64);
    module_load_raw = cuModuleLoadData(module: *mut u64, image: *const u8);
    function_raw = cuModuleGetFunction(function: *mut u64, module: u64, name: *const u8);
    launch_raw = cuLaunchKernel(
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *const *const u64, extra: *const c_void
    );
    pointer_attribute_raw = cuPointerGetAttribute(data: *mut u32, attribute: u32, pointer: u64);
}

/// The bytes of `CUmemAllocationProp` for a device: pinned, no handles, a device, its number.
fn properties(device: i32) -> [i32; 8] {
    [1, 0, 1, device, 0, 0, 0, 0]
}

impl Driver {
    pub fn start() -> Driver {
        let driver = Driver(Fake::start_with(&[("FAKECUDA_DEVICES", "2")]));
        driver.init(0).unwrap_or_else(|code| panic!("the fake does not start: {code}"));
        driver.pace(std::time::Duration::from_micros(50), 0);
        // Each test begins with new contexts, so that a broken one does not affect the next test.
        (0..2).for_each(|device| while driver.release_context(device).is_ok() {});
        let contexts = [0, 1].map(|device| driver.retain(device));
        let _ = driver.set_current(contexts[0].unwrap_or(0));
        driver
    }

    pub fn retain(&self, device: i32) -> Answer<u64> {
        let mut context = 0;
        self.retain_raw(&raw mut context, device).map(|()| context)
    }

    /// Free and all bytes of the current device.
    pub fn memory_info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        let _ = self.memory_info_raw(&raw mut free, &raw mut total);
        (free as u64, total as u64)
    }

    pub fn alloc(&self, bytes: usize) -> Answer<u64> {
        let mut pointer = 0;
        self.alloc_raw(&raw mut pointer, bytes).map(|()| pointer)
    }

    pub fn host_alloc(&self, bytes: usize) -> Answer<&'static mut [u8]> {
        let mut pointer = 0;
        self.host_alloc_raw(&raw mut pointer, bytes, 0)?;
        // SAFETY: allocated with this length; each test frees it after its last use, or never.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer as *mut u8, bytes) })
    }

    pub fn reserve(&self, bytes: usize) -> Answer<u64> {
        let mut pointer = 0;
        self.reserve_raw(&raw mut pointer, bytes, 0, 0, 0).map(|()| pointer)
    }

    pub fn create(&self, bytes: usize, device: i32) -> Answer<u64> {
        let (mut handle, properties) = (0, properties(device));
        self.create_raw(&raw mut handle, bytes, properties.as_ptr(), 0).map(|()| handle)
    }

    pub fn set_access(&self, pointer: u64, bytes: usize, device: i32) -> Answer {
        let access = [1, device, 3];
        self.set_access_raw(pointer, bytes, access.as_ptr(), 1)
    }

    /// A stream that does not wait for the legacy default stream.
    pub fn stream(&self) -> Answer<u64> {
        self.stream_with(1)
    }

    pub fn stream_with(&self, flags: u32) -> Answer<u64> {
        let mut stream = 0;
        self.stream_raw(&raw mut stream, flags).map(|()| stream)
    }

    pub fn event(&self) -> Answer<u64> {
        let mut event = 0;
        self.event_raw(&raw mut event, 0).map(|()| event)
    }

    /// The current content of device memory.
    pub fn bytes(&self, address: u64, len: u64) -> Vec<u8> {
        self.peek(address, len).unwrap_or_default()
    }
}
