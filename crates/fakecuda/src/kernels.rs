//! Modules and kernels: an image is any text that begins with [`IMAGE`], and its kernels are the
//! functions of this file, by name.

use std::ffi::CStr;

use crate::codes::{Code, Outcome};
use crate::world::World;

/// How an image of the fake begins.
pub const IMAGE: &[u8] = b"FAKECUDA";

/// A module that was loaded.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) device: u32,
}

/// What a kernel does on the host: it gets its parameters, 8 bytes each, and the device.
type Native = fn(&World, u32, &[u64]) -> Outcome;

/// A kernel of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    name: &'static CStr,
    /// How many parameters it has.
    pub(crate) parameters: usize,
    run: Native,
}

/// A kernel with its parameters.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) parameters: Vec<u64>,
}

impl Launch {
    pub(crate) fn run(&self, world: &World, device: u32) -> Outcome {
        (self.kernel.run)(world, device, &self.parameters)
    }
}

const KERNELS: &[Kernel] = &[Kernel { name: c"fill_pattern", parameters: 4, run: fill_pattern }];

/// The first handle of a kernel; the others follow.
const FIRST_KERNEL: u64 = 0x0f_0000_0000;

/// The handle of the kernel of that name.
pub(crate) fn find(name: &CStr) -> Outcome<u64> {
    let index = KERNELS.iter().position(|kernel| kernel.name == name);
    index.map(|index| FIRST_KERNEL + index as u64).ok_or(Code::NOT_FOUND)
}

/// The kernel of a handle.
pub(crate) fn kernel(handle: u64) -> Outcome<Kernel> {
    let index = handle.checked_sub(FIRST_KERNEL).ok_or(Code::INVALID_HANDLE)?;
    KERNELS.get(index as usize).copied().ok_or(Code::INVALID_HANDLE)
}

/// `to`, length, seed, first position: bytes that tell every place apart.
fn fill_pattern(world: &World, device: u32, parameters: &[u64]) -> Outcome {
    let &[to, len, seed, first] = parameters else {
        return Err(Code::LAUNCH_FAILED);
    };
    crate::executor::is_of_device(world, device, to, len)?;
    for at in 0..len {
        // SAFETY: checked just now, under the lock without which nothing is freed.
        unsafe { ((to + at) as *mut u8).write(pattern(seed, first + at)) };
    }
    Ok(())
}

/// The byte of a pattern at a position (SplitMix64, 8 bytes a word).
fn pattern(seed: u64, position: u64) -> u8 {
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let mut x = seed.wrapping_add((position / 8 + 1).wrapping_mul(step));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).to_le_bytes()[(position % 8) as usize]
}
