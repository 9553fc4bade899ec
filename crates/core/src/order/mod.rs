//! Is every access to memory ordered with the accesses it depends on?
//!
//! Work on a GPU runs in streams, and only events order one stream with another. A missing wait is
//! silent: the bytes are right on most days. Here every record, wait and access is an [`Op`]; a
//! list of them, in the order in which the host enqueued them, can be checked without a GPU.

mod op;

pub use op::{Agent, Op, Space};
