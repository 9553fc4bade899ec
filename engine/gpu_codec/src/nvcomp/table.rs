//! The functions of nvCOMP, one table for each format. Names are looked up only for versions that
//! are known to have these signatures.

use std::ffi::{c_int, c_void};

use libloading::os::unix::Library;
use unspool_codec::NvComp;

use super::options::Options;

/// The versions whose interface is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Major {
    /// 5.0 to 5.3.
    Five,
    /// 6.0.
    Six,
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
pub(super) type Address = u64;

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

/// The functions that report requirements of one format in one direction.
#[derive(Clone, Copy)]
pub(super) struct Questions {
    alignments: GetAlignments,
    temporary: GetTemporary,
}

/// The functions of one format.
#[derive(Clone, Copy)]
pub(super) struct FormatFunctions {
    pub(super) compressing: Questions,
    pub(super) decompressing: Questions,
    most: GetMost,
    pub(super) compress: Compress,
    pub(super) decompress: Decompress,
}

/// The result of a call: 0, or `nvcompStatus_t`.
pub(super) type Status<T> = Result<T, c_int>;

impl Questions {
    pub(super) fn alignments(&self, options: Options) -> Status<Alignments> {
        let mut answer = Alignments::default();
        // SAFETY: a valid place, and options of this version.
        status(unsafe { (self.alignments)(options, &raw mut answer) }).map(|()| answer)
    }

    /// Size of the temporary memory for `chunks` chunks of at most `chunk` bytes, `all` bytes in
    /// total. The context has to be current.
    pub(super) fn temporary(
        &self,
        (chunks, chunk, all): (usize, usize, usize),
        options: Options,
        stream: *mut c_void,
    ) -> Status<usize> {
        let mut bytes = 0;
        // SAFETY: a valid place, and options of this version; nothing is enqueued.
        status(unsafe {
            match self.temporary {
                GetTemporary::Five(get) => get(chunks, chunk, options, &raw mut bytes, all),
                GetTemporary::Six(get) => get(chunks, chunk, options, &raw mut bytes, all, stream),
            }
        })
        .map(|()| bytes)
    }
}

impl FormatFunctions {
    /// `None` where the library lacks a function of the format.
    ///
    /// # Safety
    /// `library` is nvCOMP of the version `major`.
    pub(super) unsafe fn find(
        library: &Library,
        major: Major,
        codec: NvComp,
    ) -> Option<FormatFunctions> {
        let format = name(codec)?;
        let full = |what: &str| format!("nvcompBatched{format}{what}");
        let sizes = if major == Major::Six { "GetTempSize" } else { "GetTempSizeAsync" };
        // SAFETY: the types are those of the headers of this version, as the caller guarantees.
        unsafe {
            let questions = |way: &str| {
                let temporary = full(&format!("{way}{sizes}"));
                Some(Questions {
                    alignments: symbol(library, &full(&format!("{way}GetRequiredAlignments")))?,
                    temporary: match major {
                        Major::Five => GetTemporary::Five(symbol(library, &temporary)?),
                        Major::Six => GetTemporary::Six(symbol(library, &temporary)?),
                    },
                })
            };
            Some(FormatFunctions {
                compressing: questions("Compress")?,
                decompressing: questions("Decompress")?,
                most: symbol(library, &full("CompressGetMaxOutputChunkSize"))?,
                compress: symbol(library, &full("CompressAsync"))?,
                decompress: symbol(library, &full("DecompressAsync"))?,
            })
        }
    }

    /// Maximum size of a compressed chunk of `chunk` bytes.
    pub(super) fn most(&self, chunk: usize, options: Options) -> Status<usize> {
        let mut bytes = 0;
        // SAFETY: a valid place, and options of this version.
        status(unsafe { (self.most)(chunk, options, &raw mut bytes) }).map(|()| bytes)
    }
}

/// The format in the names of the functions.
fn name(codec: NvComp) -> Option<&'static str> {
    match codec {
        NvComp::Bitcomp | NvComp::BitcompLossy(_) => Some("Bitcomp"),
        NvComp::Ans => Some("ANS"),
        NvComp::Lz4 => Some("LZ4"),
        NvComp::Cascaded => Some("Cascaded"),
        NvComp::Gdeflate => Some("Gdeflate"),
        NvComp::Zstd => Some("Zstd"),
        _ => None,
    }
}

/// # Safety
/// `T` is the type of the function.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the caller's duty.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|found| *found)
}

fn status(code: c_int) -> Status<()> {
    if code == 0 { Ok(()) } else { Err(code) }
}
