//! Saves. A single one is a batch of one: each step below is there once, for any number of them.
//!
//! | step | where | what it does |
//! | --- | --- | --- |
//! | plan | `planning` | the regions, their codecs and the most bytes |
//! | room | `room` | asks the core, under one lock for a batch; waits; borrows |
//! | values | `ticket`, `checkpoint` | the caller gives them: into the room, or to encoders |
//! | launch | `launch`, `group` | one encoder, or one copy kernel, for all that go together |
//! | commit | `commit` | encodes and writes what is left, and reports all under one lock |
//!
//! Where room is scarce, a save asks for what it will [probably need](expected).
//!
//! `many` takes a list of checkpoints through these steps. `given` and `adopt` have another source
//! of the bytes: an array whose owner gives it away, and the frame of another store.

mod adopt;
mod checkpoint;
mod commit;
mod expected;
mod given;
mod group;
mod launch;
mod many;
mod planning;
mod room;
mod ticket;

pub(crate) use adopt::adopt;
pub use checkpoint::Checkpoint;
pub(crate) use given::{save_given, takes};
pub(crate) use group::MOST_REGIONS;
pub(crate) use many::save_many;
pub(crate) use planning::Prepared;
pub(crate) use room::save;
pub use ticket::SaveTicket;
