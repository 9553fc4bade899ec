//! Kernels: CUDA C++ as text, compiled for the device at run time by NVRTC and kept in a cache of
//! the user. The texts are in the folder `kernels` of this crate.

mod background;
mod cache;
mod compile;
mod compiler;
mod find;
mod module;
pub mod pattern;
mod shelf;

pub use background::Background;
pub use cache::Cache;
pub use compile::{Arch, Cubin, Nvrtc};
pub(crate) use compiler::Compiler;
pub use module::{Argument, Module};
pub use shelf::take_waited;
pub(crate) use shelf::{Shelf, waited_for, waited_for_some};

/// Every kernel text of this crate by name, for tests that compile them all.
pub const SOURCES: &[(&str, &str)] = &[
    ("pattern.cu", pattern::SOURCE),
    ("strided.cu", crate::strided::SOURCE),
    ("zfp.cu", crate::zfp::SOURCE),
    ("nvcomp.cu", crate::nvcomp::SOURCE),
    crate::twine::SOURCES[0],
    crate::twine::SOURCES[1],
    crate::twine::SOURCES[2],
    crate::twine::SOURCES[3],
    crate::twine::SOURCES[4],
    crate::twine::SOURCES[5],
];
