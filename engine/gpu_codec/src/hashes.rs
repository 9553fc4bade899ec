//! The hashes of the chunks of bytes on a device, by which changes are found: those that
//! `unspool_codec::increment` computes on the host, from one kernel that reads the bytes once.
//!
//! What comes back of some bytes is an *answer*: the hash of each chunk, and in place of that of a
//! short last chunk its bytes, which the host hashes.

use std::path::PathBuf;

use unspool_codec::increment::{CHUNK_BYTES, chunk_hash};
use unspool_cuda::kernels::Kernels;
use unspool_cuda::{
    AccessedBytes, Context, DeviceError, DeviceErrorKind, DeviceSpan, Stream, copy,
};

/// The names of the kernels in the text.
pub(crate) const KERNELS: &[&str] = &["chunk_hash"];
pub(crate) const SOURCE: &str = include_str!("../kernels/chunk_hash.cu");

const CHUNK: u64 = CHUNK_BYTES as u64;
const THREADS: u32 = 256;

/// The bytes of a hash.
const HASH: u64 = 16;

/// The longest chunk for which XXH3 has other ways than the kernel.
const SHORT: u64 = 240;

/// The secret of XXH3.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// Where in the secret the keys of the last stripe, and those of both halves of a hash, begin.
const ACROSS: [usize; 3] = [121, 11, 117];

/// The kernels' `HashLaunch`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct HashLaunch {
    from: u64,
    bytes: u64,
    hashes: u64,
    secret: [u64; 24],
    across: [[u64; 8]; 3],
}

impl HashLaunch {
    fn new((from, bytes): (u64, u64), hashes: u64, seed: u64) -> HashLaunch {
        let mut secret = SECRET;
        for (at, word) in secret.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (plain, even) = (u64::from_le_bytes(*word), at.is_multiple_of(2));
            let seeded = if even { plain.wrapping_add(seed) } else { plain.wrapping_sub(seed) };
            *word = seeded.to_le_bytes();
        }
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&secret[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let across = ACROSS.map(|begin| std::array::from_fn(|index| word(begin + 8 * index)));
        let secret = std::array::from_fn(|index| word(8 * index));
        HashLaunch { from, bytes, hashes, secret, across }
    }
}

/// Hashes chunks on one device.
#[derive(Debug)]
pub struct ChunkHasher {
    context: Context,
    kernels: Kernels<()>,
}

impl ChunkHasher {
    /// Nothing is loaded before the first use. The compiler is searched for in `folders` first,
    /// such as Python's `sys.path`.
    #[must_use]
    pub fn looking_in(context: &Context, folders: Vec<PathBuf>) -> ChunkHasher {
        ChunkHasher { context: context.clone(), kernels: Kernels::new(context, folders) }
    }

    /// The bytes of the answer for so many bytes.
    #[must_use]
    pub fn answer_bytes(bytes: u64) -> u64 {
        let (chunks, tail) = cut(bytes);
        HASH * chunks + if tail > 0 { SHORT } else { 0 }
    }

    /// Enqueues the answer for `from`, with this seed, to `to`, which has as many bytes as it. Both
    /// begin at multiples of 16.
    ///
    /// # Errors
    /// When places or devices are wrong, there is no kernel for the device, or the driver refuses.
    pub fn enqueue(
        &self,
        stream: &Stream,
        from: &DeviceSpan,
        seed: u64,
        to: &DeviceSpan,
    ) -> Result<(), DeviceError> {
        for (ordinal, what) in [(from.ordinal(), "the bytes"), (to.ordinal(), "the answer")] {
            self.context.require(ordinal, what)?;
        }
        let aligned = (from.address() | to.address()).is_multiple_of(16);
        if !aligned || to.len() != ChunkHasher::answer_bytes(from.len()) {
            let message = "bytes at an odd place, or an answer of another length";
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, message));
        }
        let (chunks, tail) = cut(from.len());
        if tail > 0 {
            let rest = from.slice(from.len() - tail, tail)?;
            copy::device_to_device(stream, &to.slice(HASH * chunks, tail)?, &rest)?;
        }
        if chunks == 0 {
            return Ok(());
        }
        let blocks = i32::try_from(chunks).map_err(|_| {
            let message = format!("{chunks} chunks are more than one launch takes");
            DeviceError::new(DeviceErrorKind::OutOfRange, message)
        })?;
        let module = self.kernels.get((), "chunk_hash.cu", || SOURCE)?;
        let place = (from.address(), from.len() - tail);
        let mut launch = HashLaunch::new(place, to.address(), seed);
        let mut list = [std::ptr::from_mut(&mut launch).cast()];
        let shape = (blocks.unsigned_abs(), THREADS);
        // SAFETY: the parameter is that of the kernel, which reads `from` and writes a hash a chunk
        // to `to`; spans keep their memory in place, and the caller has both until it is done.
        unsafe { module.launch_with(stream, "chunk_hash", shape, &mut list) }?;
        stream.saw_read("hashing chunks", AccessedBytes::of(from));
        stream.saw_write("hashing chunks", AccessedBytes::of(&to.slice(0, HASH * chunks)?));
        Ok(())
    }

    /// The hashes in the answer for so many bytes.
    #[must_use]
    pub fn hashes(bytes: u64, seed: u64, answer: &[u8]) -> Vec<u128> {
        let (chunks, tail) = cut(bytes);
        let (hashes, rest) = answer.split_at((HASH * chunks) as usize);
        let short = (tail > 0).then(|| chunk_hash(seed, &rest[..tail as usize]));
        let hashes = hashes.as_chunks::<16>().0.iter().map(|bytes| u128::from_le_bytes(*bytes));
        hashes.chain(short).collect()
    }
}

/// The number of chunks that the kernel hashes, and the bytes of a short one after them.
fn cut(bytes: u64) -> (u64, u64) {
    let tail = bytes % CHUNK;
    if tail > SHORT { (bytes / CHUNK + 1, 0) } else { (bytes / CHUNK, tail) }
}

#[cfg(test)]
#[path = "hashes_tests.rs"]
mod tests;
