//! A fake of the CUDA driver, for tests on machines without a GPU: a shared library with the
//! driver's functions, which `engine/cuda` loads when `UNSPOOL_CUDA_DRIVER` names it.
//!
//! ```text
//! cargo build -p unspool-fakecuda
//! UNSPOOL_CUDA_DRIVER=target/debug/libunspool_fakecuda.so FAKECUDA_SEED=7 ...
//! ```
//!
//! It behaves like a GPU where order matters. Operations are executed later, by a thread for each
//! device, piece by piece; the next stream is drawn from a seed, within what streams and events
//! allow. So a missing wait corrupts data with some seeds. Memory is that of the process: tests can
//! read it. Bytes that were not written, or were freed, are `0xDB`; memory that is not mapped
//! cannot be accessed at all.
//!
//! It also replaces the compiler of kernels, when `UNSPOOL_NVRTC` names it: it compiles to images
//! whose kernels are those of `kernels.rs`.
//!
//! It is stricter than the driver on purpose: freed and unregistered memory is checked when an
//! operation is executed, and not only when it is enqueued; a copy that uses memory of another
//! device is refused; so are streams of another context than the current one. Not implemented:
//! graphs, peer access, memory pools, textures, and all kernels but those of `kernels.rs`.
//!
//! - `world`: the whole state under one lock; `call`: one call of it; `api`: the driver's
//!   functions.
//! - `executor`: execution of operations; `stream`: their queues; `capture`: captures into graphs.
//! - `memory`: the owner of every byte; `pages`: where the bytes come from.
//! - [`control`]: functions that control the fake; [`Fake`]: the same for Rust, without unsafe
//!   code.

mod api;
mod call;
mod capture;
mod codes;
pub mod control;
mod executor;
mod faults;
mod handle;
mod kernels;
mod memory;
mod pages;
mod rng;
mod settings;
mod stream;
mod world;

pub use api::*;
pub use handle::{Fake, LIBRARY};
pub use kernels::IMAGE;
