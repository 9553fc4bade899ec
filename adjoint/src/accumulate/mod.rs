//! Which checkpoints to compress, and which of them together: accumulated compression.
//!
//! A compressor for GPUs has a fixed cost for every call, so that small checkpoints compress slowly
//! one by one; kept for a while and compressed together they cost it once, but then the link to the
//! host lies idle meanwhile, and the cache on the device fills. The problem is that of Maurya,
//! Rafique, Cappello, Nicolae, "Towards Efficient I/O Pipelines using Accumulated Compression"
//! (HiPC 2023), section II; [`plan`] solves it exactly, by dynamic programming.
//!
//! # The model
//! Checkpoints `0..n` appear on a device, each an interval of computing after the end of whatever
//! the application did for the one before. Known of each, from the first run of an ensemble: its
//! interval, its bytes, its bytes compressed. Known of the codec: its time for so many bytes. For
//! every checkpoint one [`CheckpointDecision`] is taken:
//!
//! - [`Raw`](CheckpointDecision::Raw): the application waits for room and for the copy into the
//!   cache; the checkpoint goes to the link as it is.
//! - [`Alone`](CheckpointDecision::Alone): it waits for room, the copy and the codec; the
//!   checkpoint goes to the link compressed.
//! - [`Hold`](CheckpointDecision::Hold): it waits for room and the copy; nothing goes to the link
//!   yet.
//! - [`Together`](CheckpointDecision::Together): it waits for room, the copy, and the codec over
//!   all that is held and this one; they go to the link compressed, in one transfer.
//!
//! - The application is blocked while a checkpoint is copied into the cache and while the codec
//!   runs (compression kernels occupy the device). Transfers to the host run beside it, one after
//!   the other in the order of the decisions.
//! - The cache contains what is held, what the codec needs while it runs, and what waits for the
//!   link. Where there is no room for the next of these, the application waits until the link has
//!   sent enough. Room comes back as bytes are sent, not in whole transfers.
//! - A checkpoint that is compressed is in the cache first, as in the paper, unless the codec
//!   reads it where it is ([`Packer::in_place`]). Meanwhile the output needs room for the worst
//!   case ([`Packer::worst`]), and, where the result is then copied to a place of its own size
//!   ([`Packer::compacts`]: the paper's defragmentation), for that too.
//! - The run ends when the last transfer has arrived, or, with [`End::Application`], when the
//!   application has finished with its last checkpoint.
//!
//! The objective is the share of the run for which the application is blocked. Since the time of
//! computing does not depend on the decisions, the share is smallest where the end is earliest.
//!
//! # The algorithm
//! After a checkpoint with nothing held, all that matters for what follows is two times: `app`, at
//! which the application goes on, and `link`, at which the link has sent everything (what it still
//! has to send occupies `(link - app)` times its rate of the cache, no more). Every decision
//! moves both by maxima and sums alone, so that a state which is not later in both is at least as
//! good in everything that follows, and waiting longer than one must never helps. So the search
//! keeps, for each number of checkpoints done, only the states that no other one dominates, and
//! from each tries `Raw`, `Alone`, and every group of `Hold`s with a `Together` at its end that the
//! cache can hold. Times are integers, so the
//! result is exact. States that cannot end before the best of a few simple schedules
//! ([`Simple`]) are dropped as well.
//!
//! With `n` checkpoints, at most `k` of them in the cache, and `s` states per checkpoint this takes
//! `n s k` steps. `s` can grow with the room in the cache; beyond [`Effort::states`] only some are
//! kept, and a second search, whose states stand for whole cells of what was dropped, bounds by
//! [`AccumulatePlan::at_least`] how far from the optimum the result can be at most.
//!
//! # Where this departs from the paper
//! - Its Algorithm 1 keeps one state for each end of the transfers, with the application's time
//!   and the cache's use; comparing application times alone can drop the state with more room.
//!   Here what is in use follows from the two times, and only dominated states are dropped.
//! - It lets `k` range up to `cache / (raw + worst)` whatever else is in the cache. Here a group
//!   waits for room, and the wait counts.
//! - It returns the plan whose transfers end first; that is [`End::Flushed`].
//! - Checkpoints may have different sizes, transfers may have a latency (while a transfer waits
//!   for it, the model counts the cache as in use), and the codec's time is any measured curve.
//! - As there, a group is contiguous: no checkpoint inside of it goes its own way. Schedules that
//!   send a checkpoint raw while others are held are not searched.

mod curve;
mod follow;
mod frontier;
mod problem;
mod search;
mod simple;
#[cfg(test)]
mod tests;
mod timeline;

pub use curve::Curve;
pub use follow::{RunTimes, follow};
pub use problem::{CheckpointDecision, CheckpointProfile, End, Mistake, Packer, Problem, Worst};
pub use search::{AccumulatePlan, Effort, plan};
pub use simple::Simple;
