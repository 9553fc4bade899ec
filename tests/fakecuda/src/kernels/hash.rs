//! The kernel of `engine/gpu_codec/kernels/chunk_hash.cu`, computed by the hash of the processor.
//! The keys in the launch are those of a seed, which is found by taking the secret of XXH3 off.

use unspool_codec::increment::{CHUNK_BYTES, chunk_hash};

use super::touch::{Parameters, Touch};
use crate::codes::{Code, Outcome};
use crate::memory::Memory;

/// Words of a `HashLaunch`: three, and the keys.
pub(super) const LAUNCH: &[usize] = &[3 + 24 + 3 * 8];

/// The first words of the secret of XXH3.
const SECRET: [u64; 2] = [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c];

/// The longest chunk that the kernel does not take.
const SHORT: u64 = 240;

/// Parameter: the launch.
pub(super) fn chunks(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (touch, mut parameters) = (Touch::new(memory, device), Parameters(words));
    let (from, bytes, hashes) = (parameters.next()?, parameters.next()?, parameters.next()?);
    let keys = parameters.take(24)?;
    let seed = keys[0].wrapping_sub(SECRET[0]);
    if keys[1] != SECRET[1].wrapping_sub(seed) || !from.is_multiple_of(16) {
        return Err(Code::LAUNCH_FAILED);
    }
    let all = touch.bytes(from, bytes)?;
    for (at, chunk) in (0..).zip(all.chunks(CHUNK_BYTES)) {
        if chunk.len() as u64 <= SHORT {
            return Err(Code::LAUNCH_FAILED);
        }
        touch.write(hashes + 16 * at, &chunk_hash(seed, chunk).to_le_bytes())?;
    }
    Ok(())
}
