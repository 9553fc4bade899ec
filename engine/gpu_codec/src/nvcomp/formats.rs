//! The formats of nvCOMP as one table, with their options in versions 5 and 6, and the functions of
//! one format. Names are looked up only for these versions: version 4 had other options and other
//! parameters under the same names.

use std::ffi::{c_int, c_void};

use libloading::os::unix::Library;
use unspool_codec::{Dtype, NvComp};
use unspool_cuda::{DeviceError, DeviceErrorKind, Stream};

/// Bytes of a chunk: NVIDIA's recommendation, and a multiple of every item size.
pub(super) const CHUNK: u64 = 1 << 16;

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

/// The versions whose interface is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Major {
    /// 5.0 to 5.3.
    Five = 5,
    /// 6.0.
    Six = 6,
}

/// Options of any format, passed by value: the bytes of its structure, which has this size.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Options([u64; 8]);

const NONE: Options = words([]);

/// One row of the table.
struct Row {
    /// The format in the names of the functions.
    name: &'static str,
    /// The format in the head of a container.
    number: u64,
    compress: Options,
    decompress: Options,
}

/// The table: the row of a format for values of `dtype`, with the fields of its options as the
/// header of the version has them. `None` where the version lacks the format.
fn row(major: Major, codec: NvComp, dtype: &Dtype) -> Option<Row> {
    use Major::{Five, Six};
    let whole = unsigned(dtype);
    let (name, number, compress, decompress) = match (codec, major) {
        // The algorithm (0: the default one) and the type; version 6 has a delta and a mode more.
        (NvComp::Bitcomp, _) => ("Bitcomp", 1, words([pair(0, whole)]), NONE),
        (NvComp::BitcompLossy(bound), Six) => {
            let lossy = words([pair(0, float(dtype)?.kind), delta(bound).to_bits(), 1]);
            ("Bitcomp", 2, lossy, NONE)
        }
        // The kind (0: rANS) and the type. To decompress: the backend, and "as in the stream", for
        // which each version has its own type.
        (NvComp::Ans, Five) => ("ANS", 3, words([pair(0, CHAR)]), words([pair(0, CHAR)])),
        (NvComp::Ans, Six) => ("ANS", 3, words([pair(0, split(dtype))]), words([pair(0, BITS)])),
        // The type, of up to 4 bytes, at multiples of whose size it finds matches; bit shuffling.
        (NvComp::Lz4, _) => ("LZ4", 4, words([pair(whole.min(UINT), 0)]), NONE),
        // The bytes of an inner chunk, the type, run lengths, differences, bit packing.
        (NvComp::Cascaded, Five) => {
            ("Cascaded", 5, words([4096, pair(whole, 2), pair(1, 1)]), NONE)
        }
        // The type and the mode (1: asymmetric), terminal codecs (1: bit packing), coarse and fine
        // encodings (7: differences, run lengths, frame of reference), the level.
        (NvComp::Cascaded, Six) => ("Cascaded", 5, words([pair(whole, 1), 1, 0, 7, 3]), NONE),
        // The algorithm (1: fast).
        (NvComp::Gdeflate, _) => ("Gdeflate", 6, words([1]), NONE),
        (NvComp::Zstd, _) => ("Zstd", 7, NONE, NONE),
        _ => return None,
    };
    Some(Row { name, number, compress, decompress })
}

/// Options whose first words are these.
const fn words<const N: usize>(first: [u64; N]) -> Options {
    let (mut all, mut index) = ([0; 8], 0);
    while index < N {
        all[index] = first[index];
        index += 1;
    }
    Options(all)
}

/// Two fields of 4 bytes as they lie in memory.
fn pair(first: i32, second: i32) -> u64 {
    const { assert!(cfg!(target_endian = "little"), "as all hosts of NVIDIA's devices") };
    u64::from(first as u32) | u64::from(second as u32) << 32
}

/// The quantum for an absolute bound. The error is at most half of it, and nvCOMP uses the largest
/// power of two that is not above it.
pub(super) fn delta(bound: f64) -> f64 {
    2.0 * bound
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

/// Bytes, except for types that ANS splits into exponents and mantissas since version 6.
fn split(dtype: &Dtype) -> i32 {
    match dtype {
        Dtype::Float32 => FLOAT32,
        Dtype::Float16 | Dtype::BFloat16 => FLOAT16,
        _ => CHAR,
    }
}

/// A type that Bitcomp takes bounds for, and its normal numbers, of which a delta has to be one.
pub(super) struct Float {
    kind: i32,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// The floating-point numbers in values of `dtype`, if Bitcomp takes bounds for them.
pub(super) fn float(dtype: &Dtype) -> Option<Float> {
    let (kind, least, most) = match dtype {
        Dtype::Float16 => (FLOAT16, 2f64.powi(-14), 65_504.0),
        Dtype::Float32 | Dtype::Complex64 => {
            (FLOAT32, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))
        }
        Dtype::Float64 | Dtype::Complex128 => (FLOAT64, f64::MIN_POSITIVE, f64::MAX),
        _ => return None,
    };
    Some(Float { kind, least, most })
}

/// Required alignments of buffers.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Alignments {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) temporary: usize,
}

/// An address on the device.
type Address = u64;

type GetAlignments = unsafe extern "C" fn(Options, *mut Alignments) -> c_int;
type GetMost = unsafe extern "C" fn(usize, Options, *mut usize) -> c_int;
type GetTemporary5 = unsafe extern "C" fn(usize, usize, Options, *mut usize, usize) -> c_int;
type GetTemporary6 =
    unsafe extern "C" fn(usize, usize, Options, *mut usize, usize, *mut c_void) -> c_int;

/// Parameters: chunks, their sizes, the maximum size, the number of chunks, temporary memory and
/// its size, outputs, their sizes, options, statuses, stream.
pub(super) type Compress = unsafe extern "C" fn(
    Address,
    Address,
    usize,
    usize,
    Address,
    usize,
    Address,
    Address,
    Options,
    Address,
    *mut c_void,
) -> c_int;

/// Parameters: chunks, their sizes, space for each, resulting sizes, the number of chunks,
/// temporary memory and its size, outputs, options, statuses, stream.
pub(super) type Decompress = unsafe extern "C" fn(
    Address,
    Address,
    Address,
    Address,
    usize,
    Address,
    usize,
    Address,
    Options,
    Address,
    *mut c_void,
) -> c_int;

#[derive(Clone, Copy)]
enum GetTemporary {
    Five(GetTemporary5),
    Six(GetTemporary6),
}

/// The options of one direction, and the functions that report its requirements.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) options: Options,
    alignments: GetAlignments,
    temporary: GetTemporary,
}

/// The functions and options of one format for values of one type.
#[derive(Clone, Copy)]
pub(super) struct Format {
    codec: NvComp,
    /// The version and the format in the head of a container.
    pub(super) major: Major,
    pub(super) number: u64,
    pub(super) compressing: Way,
    pub(super) decompressing: Way,
    most: GetMost,
    pub(super) compress: Compress,
    pub(super) decompress: Decompress,
}

impl Format {
    /// `None` where the version lacks the format, or the library a function of it.
    ///
    /// # Safety
    /// `library` is nvCOMP of the version `major`.
    pub(super) unsafe fn find(
        library: &Library,
        major: Major,
        codec: NvComp,
        dtype: &Dtype,
    ) -> Option<Format> {
        let row = row(major, codec, dtype)?;
        let full = |what: &str| format!("nvcompBatched{}{what}", row.name);
        // SAFETY: the types are those of the headers of this version, as the caller guarantees.
        unsafe {
            let way = |name: &str, options| {
                let temporary = |what| full(&format!("{name}{what}"));
                Some(Way {
                    options,
                    alignments: symbol(library, &full(&format!("{name}GetRequiredAlignments")))?,
                    temporary: match major {
                        Major::Five => {
                            GetTemporary::Five(symbol(library, &temporary("GetTempSizeAsync"))?)
                        }
                        Major::Six => {
                            GetTemporary::Six(symbol(library, &temporary("GetTempSize"))?)
                        }
                    },
                })
            };
            Some(Format {
                codec,
                major,
                number: row.number,
                compressing: way("Compress", row.compress)?,
                decompressing: way("Decompress", row.decompress)?,
                most: symbol(library, &full("CompressGetMaxOutputChunkSize"))?,
                compress: symbol(library, &full("CompressAsync"))?,
                decompress: symbol(library, &full("DecompressAsync"))?,
            })
        }
    }

    /// The direction of decoding, or that of encoding.
    pub(super) fn way(&self, decodes: bool) -> &Way {
        if decodes { &self.decompressing } else { &self.compressing }
    }

    /// Maximum size of a compressed chunk.
    pub(super) fn most(&self) -> Result<u64, DeviceError> {
        let mut bytes = 0;
        // SAFETY: a valid place, and options of this version.
        let code = unsafe { (self.most)(CHUNK as usize, self.compressing.options, &raw mut bytes) };
        self.done("the size of a chunk", code).map(|()| bytes as u64)
    }

    pub(super) fn alignments(&self, way: &Way) -> Result<Alignments, DeviceError> {
        let mut answer = Alignments::default();
        // SAFETY: a valid place, and options of this version.
        let code = unsafe { (way.alignments)(way.options, &raw mut answer) };
        self.done("alignments", code).map(|()| answer)
    }

    /// Size of the temporary memory for `chunks` chunks. The context has to be current.
    pub(super) fn temporary(
        &self,
        way: &Way,
        chunks: u64,
        stream: &Stream,
    ) -> Result<u64, DeviceError> {
        let (chunk, all, options) = (CHUNK as usize, (chunks * CHUNK) as usize, way.options);
        let (chunks, stream, mut bytes) = (chunks as usize, stream.raw().cast(), 0);
        // SAFETY: a valid place, and options of this version; nothing is enqueued.
        let code = unsafe {
            match way.temporary {
                GetTemporary::Five(get) => get(chunks, chunk, options, &raw mut bytes, all),
                GetTemporary::Six(get) => get(chunks, chunk, options, &raw mut bytes, all, stream),
            }
        };
        self.done("temporary memory", code).map(|()| bytes as u64)
    }

    /// The result of a call: 0, or `nvcompStatus_t`.
    pub(super) fn done(&self, what: &str, code: c_int) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        let message = format!("nvCOMP refused ({what}, {:?}): status {code}", self.codec);
        Err(DeviceError::new(DeviceErrorKind::Kernel, message)
            .with_advice("Use another codec for this array, and tell us its dtype and shape."))
    }
}

/// # Safety
/// `T` is the type of the function.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the caller's duty.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|found| *found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of the options that are not 0, as (offset, number of 4 bytes).
    fn fields(major: Major, codec: NvComp, dtype: &Dtype) -> Option<Vec<(usize, u32)>> {
        let Options(words) = row(major, codec, dtype)?.compress;
        let halves = words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]);
        Some((0..).step_by(4).zip(halves).filter(|&(_, field)| field != 0).collect())
    }

    #[test]
    fn options_lie_as_in_the_header_of_each_version() {
        use Major::{Five, Six};
        let of = |major, codec| fields(major, codec, &Dtype::Float32).unwrap();
        assert_eq!(of(Five, NvComp::Bitcomp), [(4, 5)]);
        assert_eq!(of(Six, NvComp::BitcompLossy(0.5)), [(4, 11), (12, 0x3ff0_0000), (16, 1)]);
        assert_eq!(of(Five, NvComp::Ans), []);
        assert_eq!(of(Six, NvComp::Ans), [(4, 11)]);
        assert_eq!(of(Six, NvComp::Lz4), [(0, 5)]);
        assert_eq!(of(Five, NvComp::Cascaded), [(0, 4096), (8, 5), (12, 2), (16, 1), (20, 1)]);
        let cascaded = [(0, 5), (4, 1), (8, 1), (24, 7), (32, 3)];
        assert_eq!(of(Six, NvComp::Cascaded), cascaded);
        assert_eq!(of(Six, NvComp::Gdeflate), [(0, 1)]);
        assert_eq!(of(Six, NvComp::Zstd), []);
        assert_eq!(fields(Six, NvComp::Lz4, &Dtype::Float64), Some(vec![(0, 5)]));
        let ans = row(Six, NvComp::Ans, &Dtype::Int8).map(|row| row.decompress);
        assert_eq!(ans, Some(words([255 << 32])));
    }

    #[test]
    fn a_format_that_a_version_lacks_has_no_row() {
        let lossy = NvComp::BitcompLossy(0.5);
        assert_eq!(fields(Major::Five, lossy, &Dtype::Float32), None);
        assert_eq!(fields(Major::Six, lossy, &Dtype::Int32), None);
    }
}
