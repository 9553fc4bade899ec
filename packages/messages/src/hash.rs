//! The hashes that tell payloads apart, and that find small keys in tables.

use twox_hash::XxHash3_128;

/// The hash of a payload: XXH3 with 128 bits. It is not a defence against payloads that are made to
/// collide: nothing but a count depends on it.
#[must_use]
pub fn hash(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// Odd numbers with about as many ones as zeros: the first digits of pi after the point.
const KEYS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345];

/// The hash of small keys in tables, for `HashMap`: quick, as each message is looked up in a few.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quick(u64);

/// Makes them.
pub type Quickly = std::hash::BuildHasherDefault<Quick>;

impl std::hash::Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_i32(&mut self, value: i32) {
        self.write_u64(u64::from(value as u32));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value ^ KEYS[0], KEYS[1]);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

/// Both halves of the product of two numbers.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
