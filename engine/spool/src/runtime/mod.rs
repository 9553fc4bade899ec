//! What the parts of a spool share while it runs: the state and its lock, the driver of the core,
//! the waits of calls, and the thread that completes saves.
//!
//! All of it hangs on one `Shared`. Its methods are here alone, those of one subject in one file:
//!
//! | file | what its methods do |
//! | --- | --- |
//! | `shared` | open it; its lock, process, tiers, GPUs and notes |
//! | `execute` | step the core, and carry out its commands |
//! | `waiting` | ask the core, and wait for its answer |
//! | `inbox` | take in what workers report |
//! | `completion` | take over a save that a GPU encodes, and report or give it up |
//! | `room` | follow the sizes of the arenas |
//! | `timeline`, `timing` | put calls on the timeline; take the times of codecs on a GPU |

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
