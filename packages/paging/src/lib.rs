//! Arrays larger than memory: ordinary memory of which a part is there at a time, and the rest is
//! encoded, in main memory or on a disk.
//!
//! The kernel gives the page faults of such a range to this process (`userfaultfd`). What comes
//! from it: a program needs no change; it waits only when it is faster than what is loaded ahead;
//! and who knows the order of accesses can say so ([`Paged::expect`]).
//!
//! Deciding is apart from doing: `decide` is pure and says what is loaded and evicted; `pager`
//! moves the bytes, `handlers` are its threads, `coder` and `store` what becomes of a chunk that is
//! put aside, and `sys` the kernel.

#[cfg(not(target_os = "linux"))]
compile_error!("userfaultfd is of Linux");

mod coder;
mod decide;
mod error;
mod handlers;
mod options;
mod paged;
mod pager;
mod stats;
mod store;
mod sys;
mod table;

pub use coder::Coding;
pub use error::{PagingError, PagingErrorKind};
pub use options::PagingOptions;
pub use paged::{Paged, Pinned};
pub use stats::{OrderSource, PagingStats};
