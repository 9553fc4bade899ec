//! Codecs: as Python writes them, and on arrays by themselves.

mod bytes;
mod lone;
mod named;
mod spec;

pub use bytes::ByteBuffer;
pub use lone::register;
pub use named::{UnseenNames, check};
pub use spec::{codecs, made_by, spec};
