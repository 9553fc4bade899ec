//! The C interface of Unspool: `include/unspool.h` is made from these sources.
//!
//! What holds for every function:
//! - It returns a code of `unspool_status`, 0 when all went well. After
//!   another code `unspool_last_error` says on the same thread what failed, why, and what to do.
//! - Handles are opaque. Each is made by one function and given back by another; giving back a null
//!   pointer does nothing.
//! - A spool may be used by several threads at once, every other handle by one at a time.
//! - Texts are UTF-8 and end with a zero byte. Pointers that must not be null are checked.
//! - No panic crosses the border.

#![allow(clippy::missing_safety_doc)]

mod array;
mod checkpointer;
mod codec;
#[path = "../../engine/codec/hidden.rs"]
mod hidden;
mod info;
mod options;
#[path = "../../packages/common/panics.rs"]
mod panics;
mod parts;
mod schedule;
mod spool;
mod stats;
mod status;
mod text;
