//! A fake of the CUDA driver, for tests on machines without a GPU: a shared library with the
//! driver's functions, which `crates/cuda` loads when `UNSPOOL_CUDA_DRIVER` names it.
//!
//! ```text
//! cargo build -p unspool-fakecuda
//! UNSPOOL_CUDA_DRIVER=target/debug/libunspool_fakecuda.so FAKECUDA_SEED=7 ...
//! ```
//!
//! It behaves like a GPU where order matters. Operations are done later, by a thread for each
//! device, piece by piece; which stream goes on is drawn from a seed, within what streams and
//! events allow. So a wait that is missing corrupts data in some of the seeds. Memory is that of
//! the process: tests can look at it. What was not written, or was freed, holds `0xDB`; memory
//! that is not mapped cannot be touched at all.
//!
//! It stands for the compiler of kernels too, when `UNSPOOL_NVRTC` names it: what it compiles are
//! images whose kernels are those of `kernels.rs`.
//!
//! Stricter than the driver, on purpose: freed and unregistered memory is checked when an
//! operation is done, and not only when it is enqueued; a copy that touches memory of another
//! device is refused; so are streams of another context than the current one. Left out: graphs,
//! peer access, memory pools, textures, and all kernels but those of `kernels.rs`.
//!
//! - `world`: everything behind one lock; `call`: one call of it; `api`: the driver's functions.
//! - `executor`: the devices at work; `stream`: what they work on; `capture`: what is not.
//! - `memory`: whose every byte is; `pages`: where the bytes come from.
//! - [`control`]: what tests tell it; [`Fake`]: the same for Rust, without unsafe code.

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
