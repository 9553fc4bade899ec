//! Modules and kernels: an image is any text that begins with [`IMAGE`], and its kernels are the
//! functions of this module, by name.

use std::ffi::CStr;

use crate::codes::{Code, Outcome};
use crate::memory::Memory;

mod hash;
pub(crate) mod nvcomp;
mod touch;
mod twine;
mod walk;
mod zfp;

/// The first bytes of an image of the fake, like those of machine code.
pub const IMAGE: &[u8] = b"\x7fELF-FAKECUDA";

/// A module that was loaded.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) device: u32,
}

/// A kernel's function on the host: it gets the device, and its parameters one after the other as
/// words of 8 bytes.
type Native = fn(&Memory, u32, &[u64]) -> Outcome;

/// A kernel of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    name: &'static CStr,
    /// Number of words of each parameter.
    pub(crate) parameters: &'static [usize],
    run: Native,
}

/// A kernel with its parameters.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) parameters: Vec<u64>,
}

impl Launch {
    pub(crate) fn run(&self, memory: &Memory, device: u32) -> Outcome {
        (self.kernel.run)(memory, device, &self.parameters)
    }
}

/// Two addresses and a walk.
const COPY: &[usize] = &[1, 1, walk::WORDS];

/// The number of copies and the bytes of a tile, and 168 copies of three words each.
const MANY: usize = 1 + 3 * 168;

const KERNELS: &[Kernel] = &[
    Kernel { name: c"fill_pattern", parameters: &[1; 4], run: fill_pattern },
    Kernel { name: c"count_wrong", parameters: &[1; 5], run: count_wrong },
    Kernel { name: c"copy_units_1_32", parameters: COPY, run: walk::copy::<1> },
    Kernel { name: c"copy_units_2_32", parameters: COPY, run: walk::copy::<2> },
    Kernel { name: c"copy_units_4_32", parameters: COPY, run: walk::copy::<4> },
    Kernel { name: c"copy_units_8_32", parameters: COPY, run: walk::copy::<8> },
    Kernel { name: c"copy_units_16_32", parameters: COPY, run: walk::copy::<16> },
    Kernel { name: c"copy_many", parameters: &[MANY], run: copy_many },
    Kernel { name: c"twine_encode", parameters: &[twine::ENCODE_WORDS], run: twine::encode },
    Kernel { name: c"twine_decode", parameters: &[twine::DECODE_WORDS], run: twine::decode },
    Kernel { name: c"chunk_hash", parameters: hash::LAUNCH, run: hash::chunks },
    Kernel { name: c"nvcomp_arrays", parameters: nvcomp::ARRAYS, run: nvcomp::arrays },
    Kernel { name: c"nvcomp_table", parameters: nvcomp::TABLE, run: nvcomp::table },
    Kernel { name: c"nvcomp_pack", parameters: nvcomp::PACK, run: nvcomp::pack },
    Kernel { name: c"nvcomp_finish", parameters: nvcomp::FINISH, run: nvcomp::finish },
    Kernel { name: c"nvcomp_sum", parameters: nvcomp::SUMMED, run: nvcomp::add_up },
    Kernel { name: c"nvcomp_unpack", parameters: nvcomp::UNPACK, run: nvcomp::unpack },
    Kernel { name: c"nvcomp_decoded", parameters: nvcomp::DECODED, run: nvcomp::decoded },
    Kernel { name: c"nvcomp_copied", parameters: nvcomp::COPIED, run: nvcomp::copied },
    Kernel { name: c"zfp_finish", parameters: zfp::FINISH, run: zfp::finish },
    Kernel { name: c"zfp_decoded", parameters: zfp::DECODED, run: zfp::decoded },
    Kernel { name: c"zfp_encode_f32_1", parameters: zfp::ENCODE, run: zfp::encode::<false, 1> },
    Kernel { name: c"zfp_decode_f32_1", parameters: zfp::DECODE, run: zfp::decode::<false, 1> },
    Kernel { name: c"zfp_encode_f32_2", parameters: zfp::ENCODE, run: zfp::encode::<false, 2> },
    Kernel { name: c"zfp_decode_f32_2", parameters: zfp::DECODE, run: zfp::decode::<false, 2> },
    Kernel { name: c"zfp_encode_f32_3", parameters: zfp::ENCODE, run: zfp::encode::<false, 3> },
    Kernel { name: c"zfp_decode_f32_3", parameters: zfp::DECODE, run: zfp::decode::<false, 3> },
    Kernel { name: c"zfp_encode_f64_1", parameters: zfp::ENCODE, run: zfp::encode::<true, 1> },
    Kernel { name: c"zfp_decode_f64_1", parameters: zfp::DECODE, run: zfp::decode::<true, 1> },
    Kernel { name: c"zfp_encode_f64_2", parameters: zfp::ENCODE, run: zfp::encode::<true, 2> },
    Kernel { name: c"zfp_decode_f64_2", parameters: zfp::DECODE, run: zfp::decode::<true, 2> },
    Kernel { name: c"zfp_encode_f64_3", parameters: zfp::ENCODE, run: zfp::encode::<true, 3> },
    Kernel { name: c"zfp_decode_f64_3", parameters: zfp::DECODE, run: zfp::decode::<true, 3> },
];

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

/// Parameters: `to`, length, seed, first position. Writes bytes in which every position is
/// recognisable.
fn fill_pattern(memory: &Memory, device: u32, parameters: &[u64]) -> Outcome {
    let &[to, len, seed, first] = parameters else {
        return Err(Code::LAUNCH_FAILED);
    };
    memory.check_of(device, to, len)?;
    for at in 0..len {
        // SAFETY: checked just now, under the lock that prevents freeing.
        unsafe { ((to + at) as *mut u8).write(pattern(seed, first + at)) };
    }
    Ok(())
}

/// Parameters: how many copies, and the places, bytes and first tiles of all; from 0 come zeros.
fn copy_many(memory: &Memory, device: u32, parameters: &[u64]) -> Outcome {
    let [head, copies @ ..] = parameters else { return Err(Code::LAUNCH_FAILED) };
    let count = (head & u64::from(u32::MAX)) as usize;
    for copy in copies.chunks_exact(3).take(count) {
        let &[to, from, size] = copy else { return Err(Code::LAUNCH_FAILED) };
        let bytes = size & u64::from(u32::MAX);
        memory.check_of(device, to, bytes)?;
        if from == 0 {
            // SAFETY: the range was checked just now, under the lock that prevents freeing.
            unsafe { std::ptr::write_bytes(to as *mut u8, 0, bytes as usize) };
            continue;
        }
        memory.check_of(device, from, bytes)?;
        // SAFETY: as above, for both ranges.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
    }
    Ok(())
}

/// Parameters: address, length, seed, first position, address of a count. Adds the number of
/// differing bytes to the count.
fn count_wrong(memory: &Memory, device: u32, parameters: &[u64]) -> Outcome {
    let &[bytes, len, seed, first, count] = parameters else { return Err(Code::LAUNCH_FAILED) };
    memory.check_of(device, bytes, len)?;
    memory.check_of(device, count, 8)?;
    // SAFETY: checked just now, under the lock that prevents freeing.
    let differs =
        |&at: &u64| unsafe { ((bytes + at) as *const u8).read() } != pattern(seed, first + at);
    let wrong = (0..len).filter(differs).count() as u64;
    let count = count as *mut u64;
    // SAFETY: as above.
    unsafe { count.write_unaligned(count.read_unaligned() + wrong) };
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
