//! The options of nvCOMP's formats in versions 5 and 6: structures of 64 bytes that are passed by
//! value. Version 4 had others of 4 to 24 bytes under the same names, so no function is called
//! before the version is known.

use unspool_codec::{Dtype, NvComp};

use super::table::Major;

/// `nvcompType_t`.
const CHAR: i32 = 0;
const UCHAR: i32 = 1;
const USHORT: i32 = 3;
const UINT: i32 = 5;
const ULONGLONG: i32 = 7;
const FLOAT16: i32 = 10;
const FLOAT32: i32 = 11;
const FLOAT64: i32 = 12;
const BITS: i32 = 255;

/// Options of any format; all have this size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Options {
    words: [u64; 8],
    bitcomp: Bitcomp,
    ans: Ans,
    lz4: Lz4,
    cascaded_5: Cascaded5,
    cascaded_6: Cascaded6,
    gdeflate: Gdeflate,
    decompress_ans: DecompressAns,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Bitcomp {
    /// 0: the default one.
    algorithm: i32,
    data_type: i32,
    /// From here on, reserved in version 5.
    delta: f64,
    /// 0 lossless, 1 lossy.
    mode: i32,
    reserved: [u8; 44],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Ans {
    /// 0: rANS.
    kind: i32,
    data_type: i32,
    reserved: [u8; 56],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Lz4 {
    data_type: i32,
    bit_shuffle: i32,
    reserved: [u8; 56],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Cascaded5 {
    internal_chunk_bytes: usize,
    data_type: i32,
    run_lengths: i32,
    differences: i32,
    bit_packing: i32,
    reserved: [u8; 40],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Cascaded6 {
    data_type: i32,
    /// 1: asymmetric.
    mode: i32,
    /// 1: bit packing.
    terminal_codecs: u64,
    coarse_encodings: u64,
    /// 7: differences, run lengths, frame of reference.
    fine_encodings: u64,
    level: u8,
    reserved: [u8; 31],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Gdeflate {
    /// 1: fast.
    algorithm: i32,
    reserved: [u8; 60],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DecompressAns {
    backend: i32,
    data_type: i32,
    reserved: [u8; 56],
}

const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<Options>() == 64 && align_of::<Options>() == 8);
    assert!(size_of::<Bitcomp>() == 64 && align_of::<Bitcomp>() == 8);
    assert!(offset_of!(Bitcomp, data_type) == 4 && offset_of!(Bitcomp, delta) == 8);
    assert!(offset_of!(Bitcomp, mode) == 16 && offset_of!(Bitcomp, reserved) == 20);
    assert!(size_of::<Ans>() == 64 && offset_of!(Ans, data_type) == 4);
    assert!(size_of::<Lz4>() == 64 && offset_of!(Lz4, bit_shuffle) == 4);
    assert!(size_of::<Cascaded5>() == 64 && offset_of!(Cascaded5, data_type) == 8);
    assert!(offset_of!(Cascaded5, bit_packing) == 20 && offset_of!(Cascaded5, reserved) == 24);
    assert!(size_of::<Cascaded6>() == 64 && offset_of!(Cascaded6, terminal_codecs) == 8);
    assert!(offset_of!(Cascaded6, fine_encodings) == 24 && offset_of!(Cascaded6, level) == 32);
    assert!(size_of::<Gdeflate>() == 64 && size_of::<DecompressAns>() == 64);
    assert!(offset_of!(DecompressAns, data_type) == 4);
};

/// The options for one array, to compress and to decompress it.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) compress: Options,
    pub(super) decompress: Options,
}

const NONE: Options = Options { words: [0; 8] };

/// The options for values of `dtype`; `None` where this version lacks the format.
pub(super) fn options(major: Major, codec: NvComp, dtype: &Dtype) -> Option<Pair> {
    let plain = |compress| Some(Pair { compress, decompress: NONE });
    match codec {
        NvComp::Bitcomp => plain(bitcomp(unsigned(dtype), 0.0, 0)),
        NvComp::BitcompLossy(bound) if major == Major::Six => {
            plain(bitcomp(float(dtype)?, delta(bound), 1))
        }
        NvComp::Ans => {
            Some(Pair { compress: ans(major, dtype), decompress: decompress_ans(major) })
        }
        NvComp::Lz4 => plain(lz4(dtype)),
        NvComp::Cascaded => plain(cascaded(major, unsigned(dtype))),
        NvComp::Gdeflate => {
            plain(Options { gdeflate: Gdeflate { algorithm: 1, reserved: [0; 60] } })
        }
        NvComp::Zstd => plain(NONE),
        _ => None,
    }
}

/// The quantum for an absolute bound. The error is at most half of it, and nvCOMP uses the largest
/// power of two that is not above it.
pub(super) fn delta(bound: f64) -> f64 {
    2.0 * bound
}

fn bitcomp(data_type: i32, delta: f64, mode: i32) -> Options {
    let reserved = [0; 44];
    Options { bitcomp: Bitcomp { algorithm: 0, data_type, delta, mode, reserved } }
}

/// ANS over bytes, except for types that version 6 splits into exponents and mantissas.
fn ans(major: Major, dtype: &Dtype) -> Options {
    let data_type = match (major, dtype) {
        (Major::Six, Dtype::Float32) => FLOAT32,
        (Major::Six, Dtype::Float16 | Dtype::BFloat16) => FLOAT16,
        _ => CHAR,
    };
    Options { ans: Ans { kind: 0, data_type, reserved: [0; 56] } }
}

/// The type is read from the stream; each version has its own value for that.
fn decompress_ans(major: Major) -> Options {
    let data_type = if major == Major::Six { BITS } else { CHAR };
    Options { decompress_ans: DecompressAns { backend: 0, data_type, reserved: [0; 56] } }
}

/// LZ4 finds matches at multiples of the type's size, and knows types of up to 4 bytes.
fn lz4(dtype: &Dtype) -> Options {
    let data_type = unsigned(dtype).min(UINT);
    Options { lz4: Lz4 { data_type, bit_shuffle: 0, reserved: [0; 56] } }
}

fn cascaded(major: Major, data_type: i32) -> Options {
    match major {
        Major::Five => Options {
            cascaded_5: Cascaded5 {
                internal_chunk_bytes: 4096,
                data_type,
                run_lengths: 2,
                differences: 1,
                bit_packing: 1,
                reserved: [0; 40],
            },
        },
        Major::Six => Options {
            cascaded_6: Cascaded6 {
                data_type,
                mode: 1,
                terminal_codecs: 1,
                coarse_encodings: 0,
                fine_encodings: 7,
                level: 3,
                reserved: [0; 31],
            },
        },
    }
}

/// The unsigned integer of the items' size, or of the size of the parts of complex and wider items.
fn unsigned(dtype: &Dtype) -> i32 {
    match dtype {
        Dtype::Complex32 => USHORT,
        Dtype::Complex64 => UINT,
        _ => match dtype.itemsize() {
            2 => USHORT,
            4 => UINT,
            8 | 16 => ULONGLONG,
            _ => UCHAR,
        },
    }
}

fn float(dtype: &Dtype) -> Option<i32> {
    match dtype {
        Dtype::Float16 => Some(FLOAT16),
        Dtype::Float32 | Dtype::Complex64 => Some(FLOAT32),
        Dtype::Float64 | Dtype::Complex128 => Some(FLOAT64),
        _ => None,
    }
}
