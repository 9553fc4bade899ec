//! Kernels on a device: loaded, looked up by name, launched on a stream.

use std::ffi::{CString, c_void};
use std::sync::{Mutex, PoisonError};

use crate::context::Context;
use crate::driver::raw::{CUfunction, CUmodule};
use crate::driver::result;
use crate::error::{DeviceError, DeviceErrorKind};
use crate::kernels::image::{Arch, Image};
use crate::release::{self, AfterUse};
use crate::stream::Stream;

/// Compiled kernels on one device.
#[derive(Debug)]
pub struct Module {
    context: Context,
    handle: CUmodule,
    /// The kernels that were looked up so far, by name.
    functions: Mutex<Vec<(String, Function)>>,
}

/// A kernel, valid while its module lives.
#[derive(Clone, Copy, Debug)]
struct Function(CUfunction);

// SAFETY: the driver accepts the handle on any thread.
unsafe impl Send for Function {}

// SAFETY: the driver allows a module to be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; it does not change after it is loaded.
unsafe impl Sync for Module {}

/// A value for a kernel's parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Argument {
    /// A 64-bit number or an address.
    U64(u64),
    /// A 32-bit number.
    U32(u32),
    /// A float of single precision.
    F32(f32),
    /// A float of double precision.
    F64(f64),
}

impl Argument {
    /// The argument as a 64-bit word whose first bytes are the value, as a kernel reads it.
    fn word(self) -> u64 {
        match self {
            Argument::U64(value) => value,
            Argument::U32(value) => u64::from_ne_bytes(padded(value.to_ne_bytes())),
            Argument::F32(value) => u64::from_ne_bytes(padded(value.to_ne_bytes())),
            Argument::F64(value) => value.to_bits(),
        }
    }
}

fn padded(bytes: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = bytes;
    [a, b, c, d, 0, 0, 0, 0]
}

impl Module {
    /// Loads compiled kernels.
    ///
    /// # Errors
    /// When they are for another architecture.
    pub fn load(context: &Context, image: &Image) -> Result<Module, DeviceError> {
        let _scope = context.enter()?;
        // SAFETY: an image is whole: it comes from the compiler, or from a pack whose checksums
        // were compared; PTX ends with a zero byte.
        let handle = unsafe { result::load_module(image.bytes()) }.map_err(|cause| {
            let arch = Arch::of(context.device());
            let message = format!("device {} ({arch}) takes no such kernels", context.ordinal());
            DeviceError::new(DeviceErrorKind::Kernel, message).with_cause(cause)
        })?;
        Ok(Module { context: context.clone(), handle, functions: Mutex::default() })
    }

    /// Launches the kernel `name` with `blocks` blocks of `threads` threads.
    ///
    /// # Errors
    /// When there is no such kernel, the stream belongs to another device, or the driver refuses.
    ///
    /// # Safety
    /// `arguments` fit the kernel's parameters, and memory that they name is large enough and stays
    /// allocated until the kernel is done.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        name: &str,
        (blocks, threads): (u32, u32),
        arguments: &[Argument],
    ) -> Result<(), DeviceError> {
        let mut words: Vec<u64> = arguments.iter().map(|argument| argument.word()).collect();
        let mut list: Vec<*mut c_void> = words.iter_mut().map(ptr_to).collect();
        // SAFETY: the caller guarantees the arguments, and the list points to them.
        unsafe { self.launch_with(stream, name, (blocks, threads), &mut list) }
    }

    /// As [`launch`](Self::launch), with a pointer to each parameter's value, of any type.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn launch_with(
        &self,
        stream: &Stream,
        name: &str,
        (blocks, threads): (u32, u32),
        list: &mut [*mut c_void],
    ) -> Result<(), DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let _scope = self.context.enter()?;
        let function = self.function(name)?;
        // SAFETY: the caller guarantees the arguments; the driver copies them during the call.
        let launched = unsafe { result::launch(function, blocks, threads, stream.raw(), list) };
        launched.map_err(|cause| failed(name, "was not launched").with_cause(cause))
    }

    /// The kernel `name`. The result is kept, because the driver's search costs as much as other
    /// calls of a launch.
    fn function(&self, name: &str) -> Result<CUfunction, DeviceError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, function)) = functions.iter().find(|(known, _)| known == name) {
            return Ok(function.0);
        }
        let function = self.look_up(name)?;
        functions.push((name.to_owned(), Function(function)));
        Ok(function)
    }

    fn look_up(&self, name: &str) -> Result<CUfunction, DeviceError> {
        let text = CString::new(name).map_err(|_| failed(name, "has no such name"))?;
        // SAFETY: the module lives as long as this value.
        unsafe { result::function(self.handle, &text) }
            .map_err(|cause| failed(name, "is not in the module").with_cause(cause))
    }
}

fn ptr_to(word: &mut u64) -> *mut c_void {
    std::ptr::from_mut(word).cast()
}

fn failed(name: &str, why: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Kernel, format!("the kernel {name} {why}"))
}

impl Drop for Module {
    fn drop(&mut self) {
        let (context, handle) = (self.context.clone(), self.handle as usize);
        release::now_or_later(AfterUse::Everything(context.clone()), move || {
            if let Ok(_scope) = context.enter() {
                // SAFETY: owned by this value, and everything on the device is done.
                let _ = unsafe { result::unload_module(handle as CUmodule) };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_argument_lies_at_the_start_of_its_word() {
        assert_eq!(Argument::U32(7).word().to_ne_bytes()[..4], 7u32.to_ne_bytes());
        assert_eq!(Argument::F32(1.5).word().to_ne_bytes()[..4], 1.5f32.to_ne_bytes());
        assert_eq!(Argument::U64(u64::MAX).word(), u64::MAX);
    }
}
