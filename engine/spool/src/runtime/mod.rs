//! What the parts of a spool share while it runs: the state and its lock, the driver of the core,
//! the waits of calls, and the thread that completes saves.

pub(crate) mod completion;
pub(crate) mod counters;
pub(crate) mod deferred;
pub(crate) mod devices;
pub(crate) mod driver;
mod execute;
pub(crate) mod frame_index;
pub(crate) mod inbox;
pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod rates;
pub(crate) mod reasons;
pub(crate) mod room;
pub(crate) mod shared;
pub(crate) mod stack;
pub(crate) mod state;
pub(crate) mod syncing;
pub(crate) mod timeline;
mod timing;
pub(crate) mod waiting;
