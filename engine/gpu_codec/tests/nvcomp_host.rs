//! The real nvCOMP, where it is installed: its version and the requirements of its formats, for
//! which no device is needed. `UNSPOOL_NVCOMP` names it.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use unspool_codec::{Dtype, NvComp};
use unspool_cuda::DeviceErrorKind;
use unspool_gpu_codec::NvCompLibrary;

/// nvCOMP, or `None` with the reason printed. A machine that names one should have it, so there its
/// absence is a failure.
fn library() -> Option<Arc<NvCompLibrary>> {
    match NvCompLibrary::find_in(&[]) {
        Ok(library) => Some(library),
        Err(error) => {
            assert!(std::env::var_os("UNSPOOL_NVCOMP").is_none(), "{error}");
            assert_eq!(error.kind(), DeviceErrorKind::Missing);
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn every_format_takes_every_type_without_loss() {
    let Some(library) = library() else { return };
    assert!([5, 6].contains(&library.version().0), "{library:?}");
    let formats = [
        NvComp::Bitcomp,
        NvComp::Ans,
        NvComp::Lz4,
        NvComp::Cascaded,
        NvComp::Gdeflate,
        NvComp::Zstd,
    ];
    for codec in formats {
        for dtype in Dtype::ALL {
            assert!(library.takes(codec, dtype), "{library:?} {codec:?} {dtype}");
        }
    }
}

#[test]
fn a_bound_is_taken_by_version_six_for_floats() {
    let Some(library) = library() else { return };
    let six = library.version().0 == 6;
    for dtype in [Dtype::Float16, Dtype::Float32, Dtype::Float64, Dtype::Complex64] {
        assert_eq!(library.takes(NvComp::BitcompLossy(1e-3), &dtype), six, "{library:?} {dtype}");
    }
    for dtype in [Dtype::BFloat16, Dtype::Int32, Dtype::UInt8] {
        assert!(!library.takes(NvComp::BitcompLossy(1e-3), &dtype), "{library:?} {dtype}");
    }
}
