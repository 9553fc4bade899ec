//! A check that every access to memory is ordered with the accesses it depends on.
//!
//! Work on a GPU runs in streams, and only events order one stream with another. A missing wait is
//! silent: the bytes are right on most days. Here every record, wait and access is an [`Op`]; a
//! list of them, in the order in which the host enqueued them, can be checked without a GPU.
//!
//! ```
//! use unspool_verify::{Agent, Checker, Op, Space};
//!
//! let (one, two) = (Agent::Stream(1), Agent::Stream(2));
//! let touch = |by, write, what| {
//!     Op::Access { by, space: Space::Device(0), first: 0, end: 4096, write, what }
//! };
//! let mut checker = Checker::new();
//! assert!(checker.see(&touch(one, true, "save")).is_ok());
//! assert!(checker.see(&Op::Record { event: 7, on: one }).is_ok());
//! let mut forgetful = checker.clone();
//!
//! assert!(checker.see(&Op::Wait { by: two, event: 7 }).is_ok());
//! assert!(checker.see(&touch(two, false, "flush")).is_ok());
//!
//! let violation = forgetful.see(&touch(two, false, "flush")).unwrap_err();
//! assert!(violation.to_string().starts_with("\"flush\" (operation 2, stream 0x2 reads) is not"));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bytes;
mod checker;
mod clock;
mod numbers;
mod op;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod violation;

pub use checker::{Checker, Counted};
pub use op::{Agent, Op, Space};
pub use text::{HEADER, LineError, parse_op, write_header, write_op};
pub use verdict::{TextCheck, TextError, Trouble, Verdict, check_text};
pub use violation::{Fault, Race, Touch, Violation};
