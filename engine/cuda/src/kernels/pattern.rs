//! A pattern in which every byte of a transfer is recognisable, on the device and on the host: for
//! tests of everything that moves bytes.

use std::sync::Arc;
use std::time::Duration;

use crate::access::AccessedBytes;
use crate::context::Context;
use crate::copy;
use crate::error::DeviceError;
use crate::kernels::{Argument, Kernels, Module};
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::span::DeviceSpan;
use crate::stream::Stream;

/// The names of the kernels in the text.
pub(crate) const KERNELS: &[&str] = &["fill_pattern", "count_wrong"];
pub(crate) const SOURCE: &str = include_str!("../../kernels/pattern.cu");

const LAUNCH: (u32, u32) = (528, 256);

/// The pattern's kernels on one device.
#[derive(Debug)]
pub struct Pattern {
    module: Arc<Module>,
    wrong: DeviceMemory,
    answer: PinnedMemory,
}

impl Pattern {
    /// Loads the kernels.
    ///
    /// # Errors
    /// When the kernels are not available or memory is missing.
    pub fn new(context: &Context) -> Result<Pattern, DeviceError> {
        Ok(Pattern {
            module: Kernels::new(context, Vec::new()).get((), "pattern.cu", || SOURCE)?,
            wrong: DeviceMemory::new(context, 8)?,
            answer: PinnedMemory::new(context, 8)?,
        })
    }

    /// Fills `span` with the bytes of `seed` from position `first` on.
    ///
    /// # Errors
    /// When the device is another one, or the driver refuses.
    pub fn fill(
        &self,
        stream: &Stream,
        span: &DeviceSpan,
        seed: u64,
        first: u64,
    ) -> Result<(), DeviceError> {
        stream.context().require(span.ordinal(), "the memory")?;
        let arguments = [span.address(), span.len(), seed, first].map(Argument::U64);
        // SAFETY: the kernel writes `len` bytes from the address, which the span has.
        unsafe { self.module.launch(stream, "fill_pattern", LAUNCH, &arguments) }?;
        stream.saw_write("filling with the pattern", AccessedBytes::of(span));
        Ok(())
    }

    /// The number of bytes of `span` that differ from the pattern. Waits for the stream.
    ///
    /// # Errors
    /// When the device is another one, the driver refuses, or it takes longer than `limit`.
    pub fn count_wrong(
        &mut self,
        stream: &Stream,
        span: &DeviceSpan,
        (seed, first): (u64, u64),
        limit: Duration,
    ) -> Result<u64, DeviceError> {
        stream.context().require(span.ordinal(), "the memory")?;
        let counter = self.wrong.span();
        copy::fill(stream, &counter, 0)?;
        let numbers = [span.address(), span.len(), seed, first, counter.address()];
        let arguments = numbers.map(Argument::U64);
        // SAFETY: the kernel reads the span and adds to the counter's 8 bytes.
        unsafe { self.module.launch(stream, "count_wrong", LAUNCH, &arguments) }?;
        stream.saw_read("comparing with the pattern", AccessedBytes::of(span));
        stream.saw_write("comparing with the pattern", AccessedBytes::of(&counter));
        copy::device_to_pinned(stream, &self.answer, 0, &counter)?;
        stream.record()?.wait(limit)?;
        // SAFETY: the only copy that writes it is done.
        let answer = unsafe { self.answer.bytes() };
        Ok(answer.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }
}

/// SplitMix64 of word `word` of the stream of `seed`; the kernels compute the same.
fn mixed(seed: u64, word: u64) -> u64 {
    let x = seed.wrapping_add(word.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The byte at `position` of the stream of `seed`.
#[must_use]
pub fn byte(seed: u64, position: u64) -> u8 {
    mixed(seed, position / 8).to_le_bytes()[(position % 8) as usize]
}

/// Fills `bytes` with the stream of `seed` from position `first` on.
pub fn fill(bytes: &mut [u8], seed: u64, first: u64) {
    for (position, place) in (first..).zip(bytes) {
        *place = byte(seed, position);
    }
}

/// The first position at which `bytes` differ from the stream of `seed` from `first` on.
#[must_use]
pub fn first_wrong(bytes: &[u8], seed: u64, first: u64) -> Option<u64> {
    (first..)
        .zip(bytes)
        .find(|&(position, &found)| found != byte(seed, position))
        .map(|pair| pair.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_splitmix64() {
        // The first outputs of SplitMix64 from seed 0, as published with the algorithm.
        assert_eq!(mixed(0, 0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(0, 1), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_part_of_the_pattern_is_that_part_of_the_whole() {
        let (mut whole, mut part) = ([0; 64], [0; 20]);
        fill(&mut whole, 3, 0);
        fill(&mut part, 3, 13);
        assert_eq!(whole[13..33], part);
        assert_eq!(first_wrong(&whole, 3, 0), None);
        whole[40] ^= 1;
        assert_eq!(first_wrong(&whole[8..], 3, 8), Some(40));
    }
}
