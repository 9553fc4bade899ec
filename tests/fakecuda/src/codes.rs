//! The error codes of the driver that the fake returns.

use std::ffi::CStr;

/// An error of a call; success is the absence of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) u32);

/// The outcome of a call.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal $text:literal;)*) => {
        #[allow(dead_code)]
        impl Code { $(pub(crate) const $name: Code = Code($number);)* }

        /// The driver's name and description of a code.
        pub(crate) fn words(code: u32) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($number => Some((named(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                                   named(concat!($text, "\0")))),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1 "invalid argument";
    OUT_OF_MEMORY = 2 "out of memory";
    NOT_INITIALIZED = 3 "initialization error";
    NO_DEVICE = 100 "no CUDA-capable device is detected";
    INVALID_DEVICE = 101 "invalid device ordinal";
    INVALID_IMAGE = 200 "device kernel image is invalid";
    INVALID_CONTEXT = 201 "invalid device context";
    ECC_UNCORRECTABLE = 214 "uncorrectable ECC error encountered";
    INVALID_HANDLE = 400 "invalid resource handle";
    NOT_FOUND = 500 "named symbol not found";
    NOT_READY = 600 "device not ready";
    ILLEGAL_ADDRESS = 700 "an illegal memory access was encountered";
    LAUNCH_TIMEOUT = 702 "the launch timed out and was terminated";
    HOST_MEMORY_ALREADY_REGISTERED = 712 "part or all of the memory is already registered";
    HOST_MEMORY_NOT_REGISTERED = 713 "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = 716 "misaligned address";
    LAUNCH_FAILED = 719 "unspecified launch failure";
    NOT_SUPPORTED = 801 "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900 "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901 "operation failed due to a previous error during capture";
    UNKNOWN = 999 "unknown error";
}

impl Code {
    /// Whether no context survives this error.
    pub(crate) fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// A string literal with a terminating zero byte as a C string.
const fn named(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}
