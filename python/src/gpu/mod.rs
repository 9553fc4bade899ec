//! Arrays on a GPU: the stream of a call, copies that are only enqueued, and what they still need
//! when the call has returned.

mod kept;
mod piece;
mod stream;

pub use kept::KeptArrays;
pub use piece::{AfterCopy, DevicePiece};
pub use stream::handle;
