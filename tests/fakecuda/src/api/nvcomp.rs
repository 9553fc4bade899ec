//! A fake nvCOMP: LZ4 and Bitcomp by name, with an encoding of the fake's own
//! (`kernels/nvcomp.rs`), stream-ordered like the real one. It reports the version of the settings,
//! and has the functions of versions 5 and 6.

use std::ffi::c_int;

use crate::call::{Held, Out, driver_calls};
use crate::kernels::nvcomp;
use crate::stream::Work;

/// `nvcompErrorInvalidValue`.
const INVALID_VALUE: c_int = 10;

/// Marks this nvCOMP as one that works on the memory of the fake.
#[unsafe(no_mangle)]
pub static fakecuda_nvcomp: u64 = 1;

/// `nvcompProperties_t`.
#[repr(C)]
pub struct NvcompProperties {
    version: u32,
    cudart: u32,
}

/// Options of a format, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options([u64; 8]);

/// `nvcompAlignmentRequirements_t`.
#[repr(C)]
pub struct Alignments {
    input: usize,
    output: usize,
    temporary: usize,
}

fn answer<T>(place: Out<T>, value: T) -> c_int {
    if place.give(value).is_ok() { 0 } else { INVALID_VALUE }
}

/// The version.
///
/// # Safety
/// A place for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvcompGetProperties(properties: Out<NvcompProperties>) -> c_int {
    let version = Held::by_caller().settings.nvcomp;
    answer(properties, NvcompProperties { version, cudart: 0 })
}

macro_rules! format_of_nvcomp {
    ($alignment:literal, $compress_alignments:ident, $decompress_alignments:ident, $most:ident,
     $compress_temporary:ident, $compress_temporary_5:ident, $decompress_temporary:ident,
     $decompress_temporary_5:ident, $compress:ident, $decompress:ident) => {
        /// Alignments for compressing.
        ///
        /// # Safety
        /// A place for three numbers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $compress_alignments(_: Options, at: Out<Alignments>) -> c_int {
            answer(at, Alignments { input: $alignment, output: 1, temporary: 1 })
        }

        /// Alignments for decompressing.
        ///
        /// # Safety
        /// A place for three numbers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $decompress_alignments(_: Options, at: Out<Alignments>) -> c_int {
            answer(at, Alignments { input: 1, output: $alignment, temporary: 1 })
        }

        /// Maximum size of an encoded chunk.
        ///
        /// # Safety
        /// A place for a number.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $most(chunk: usize, _: Options, bytes: Out<usize>) -> c_int {
            answer(bytes, chunk + 6)
        }

        format_of_nvcomp!(temporary $compress_temporary, stream: u64);
        format_of_nvcomp!(temporary $decompress_temporary, stream: u64);
        format_of_nvcomp!(temporary $compress_temporary_5,);
        format_of_nvcomp!(temporary $decompress_temporary_5,);

        driver_calls! {
            /// Enqueues the compression of a batch.
            fn $compress(
                world, from: u64, lengths: u64, _most: usize, count: usize, _temporary: u64,
                _bytes: usize, to: u64, found: u64, _options: Options, failures: u64, stream: u64,
            ) {
                let stream = world.stream(stream)?;
                let list = [from, lengths, count as u64, to, found, failures];
                world.enqueue(stream, Work::Kernel(nvcomp::compress(list)))?;
                world.changed();
                Ok(())
            }

            /// Enqueues the decompression of a batch.
            fn $decompress(
                world, from: u64, lengths: u64, rooms: u64, found: u64, count: usize,
                _temporary: u64, _bytes: usize, to: u64, _options: Options, failures: u64,
                stream: u64,
            ) {
                let stream = world.stream(stream)?;
                let list = [from, lengths, rooms, found, count as u64, to, failures];
                world.enqueue(stream, Work::Kernel(nvcomp::decompress(list)))?;
                world.changed();
                Ok(())
            }
        }
    };
    (temporary $name:ident, $($stream:ident: $type:ty)?) => {
        /// Size of the temporary memory.
        ///
        /// # Safety
        /// A place for a number.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _chunks: usize,
            _most: usize,
            _: Options,
            bytes: Out<usize>,
            _all: usize,
            $(_: $type)?
        ) -> c_int {
            answer(bytes, 64)
        }
    };
}

format_of_nvcomp!(
    1,
    nvcompBatchedLZ4CompressGetRequiredAlignments,
    nvcompBatchedLZ4DecompressGetRequiredAlignments,
    nvcompBatchedLZ4CompressGetMaxOutputChunkSize,
    nvcompBatchedLZ4CompressGetTempSize,
    nvcompBatchedLZ4CompressGetTempSizeAsync,
    nvcompBatchedLZ4DecompressGetTempSize,
    nvcompBatchedLZ4DecompressGetTempSizeAsync,
    nvcompBatchedLZ4CompressAsync,
    nvcompBatchedLZ4DecompressAsync
);
format_of_nvcomp!(
    8,
    nvcompBatchedBitcompCompressGetRequiredAlignments,
    nvcompBatchedBitcompDecompressGetRequiredAlignments,
    nvcompBatchedBitcompCompressGetMaxOutputChunkSize,
    nvcompBatchedBitcompCompressGetTempSize,
    nvcompBatchedBitcompCompressGetTempSizeAsync,
    nvcompBatchedBitcompDecompressGetTempSize,
    nvcompBatchedBitcompDecompressGetTempSizeAsync,
    nvcompBatchedBitcompCompressAsync,
    nvcompBatchedBitcompDecompressAsync
);
