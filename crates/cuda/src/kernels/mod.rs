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
pub use compiler::Compiler;
pub use module::{Argument, Module};
pub use shelf::{Shelf, take_waited, waited_for, waited_for_some};

/// Every kernel text of this crate by name, for tests that compile them all.
pub const SOURCES: &[(&str, &str)] =
    &[("pattern.cu", pattern::SOURCE), ("strided.cu", crate::strided::SOURCE)];
