//! Whether a buffer can be looked at: memory of a GPU cannot. The CUDA driver is asked when the
//! program has loaded it, and never loaded here. Where a library for other GPUs is loaded, nothing
//! is looked at.

use std::ffi::{c_int, c_uint};

use unspool_messages::Place;

use crate::real::{find_in, loaded, loads};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and its answer for memory of a device.
const MEMORY_TYPE: c_int = 2;
const ON_DEVICE: c_uint = 2;

type Ask = unsafe extern "C" fn(*mut c_uint, c_int, u64) -> c_int;

/// Who can be asked.
#[derive(Clone, Copy, Debug, Default)]
enum Driver {
    /// No library for GPUs is loaded.
    #[default]
    None,
    /// CUDA's.
    Cuda(Ask),
    /// Another one.
    Other,
}

/// Tells memory of the host from that of devices.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    driver: Driver,
    loads: u64,
}

impl Devices {
    /// Where the memory at an address is.
    pub(crate) fn place(&mut self, address: usize) -> Place {
        let loads = loads();
        if loads != self.loads {
            (self.loads, self.driver) = (loads, driver());
        }
        match self.driver {
            Driver::None => Place::Host,
            Driver::Other => Place::Unknown,
            Driver::Cuda(ask) => {
                let mut kind = 0;
                // SAFETY: the driver's function, with room for its answer. Of an address that it
                // does not know it returns an error.
                let code = unsafe { ask(&raw mut kind, MEMORY_TYPE, address as u64) };
                if code == 0 && kind == ON_DEVICE { Place::Device } else { Place::Host }
            }
        }
    }
}

fn driver() -> Driver {
    let other =
        |file: &[u8]| file.starts_with(b"libamdhip64.so") || file.starts_with(b"libze_loader.so");
    if !loaded(other).is_empty() {
        return Driver::Other;
    }
    let ask = find_in(c"libcuda.so.1", c"cuPointerGetAttribute");
    if ask.is_null() {
        return Driver::None;
    }
    // SAFETY: the driver's function with this name has this type.
    Driver::Cuda(unsafe { std::mem::transmute::<*mut std::ffi::c_void, Ask>(ask) })
}
