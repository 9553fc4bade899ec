//! Modules and kernels.

use std::ffi::{CStr, c_char, c_uint, c_void};

use crate::call::{Out, driver_calls};
use crate::codes::{Code, Outcome};
use crate::kernels::{self, IMAGE, Kernel, Launch, Module};
use crate::stream::Work;

const ELF: &[u8] = b"\x7fELF";
/// Offset of the machine type in an ELF file, and its value for GPUs.
const MACHINE_AT: usize = 18;
const CUDA_MACHINE: u8 = 190;

driver_calls! {
    /// Loads an image of the fake; one for a GPU is loaded as if it were an image of the fake.
    fn cuModuleLoadData(world, module: Out<u64>, image: *const c_void) {
        let device = world.current()?;
        if !is_image(image.cast()) {
            return Err(Code::INVALID_IMAGE);
        }
        let handle = world.handle();
        world.modules.insert(handle, Module { device });
        module.give(handle)
    }

    /// Unloads a module.
    fn cuModuleUnload(world, module: u64) {
        world.current()?;
        world.modules.remove(&module).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    /// A kernel by its name.
    fn cuModuleGetFunction(world, function: Out<u64>, module: u64, name: *const c_char) {
        world.current()?;
        if !world.modules.contains_key(&module) {
            return Err(Code::INVALID_HANDLE);
        }
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of the exported function guarantees the text.
        function.give(kernels::find(unsafe { CStr::from_ptr(name) })?)
    }

    /// Enqueues a kernel. Its parameters are read before this returns.
    fn cuLaunchKernel(
        world, function: u64, _grid_x: c_uint, _grid_y: c_uint, _grid_z: c_uint, _block_x: c_uint,
        _block_y: c_uint, _block_z: c_uint, _shared: c_uint, stream: u64,
        parameters: *const *const u64, _extra: *const *const c_void,
    ) {
        let stream = world.stream(stream)?;
        let kernel = kernels::kernel(function)?;
        let parameters = read_parameters(kernel, parameters)?;
        world.enqueue(stream, Work::Kernel(Launch { kernel, parameters }))?;
        world.changed();
        Ok(())
    }
}

/// Whether it is an image of the fake, or machine code for a GPU, for which the fake has kernels of
/// the same names.
fn is_image(image: *const u8) -> bool {
    // SAFETY: the caller of the exported function passes an image, which is read only as long as it
    // looks like one of the fake's.
    let begins = |index: usize| unsafe { image.add(index).read() } == IMAGE[index];
    if image.is_null() || !(0..ELF.len()).all(begins) {
        return false;
    }
    // SAFETY: the head of an ELF file is longer than this.
    let machine = || unsafe { image.add(MACHINE_AT).read() };
    (0..IMAGE.len()).all(begins) || machine() == CUDA_MACHINE
}

fn read_parameters(kernel: Kernel, list: *const *const u64) -> Outcome<Vec<u64>> {
    if list.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut words = Vec::new();
    for (index, &len) in kernel.parameters.iter().enumerate() {
        // SAFETY: the caller of the exported function guarantees a parameter of this many words for
        // each of the kernel's.
        words.extend(
            (0..len).map(|word| unsafe { list.add(index).read().add(word).read_unaligned() }),
        );
    }
    Ok(words)
}
