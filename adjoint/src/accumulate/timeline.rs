//! How each decision changes the two times of a run.

use super::{CheckpointProfile, Problem};
use crate::forecast::Rate;

/// The state between two decisions, in nanoseconds from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Times {
    /// When the application goes on.
    pub app: u64,
    /// When the link has sent everything that it was given.
    pub link: u64,
}

/// What the application waited for, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Waits {
    /// For room in the cache.
    pub room: u64,
    /// For copies within the device.
    pub copies: u64,
    /// For the codec.
    pub codec: u64,
}

/// The state inside of a group: what is held, and the times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BatchTimes {
    pub times: Times,
    /// Bytes that are held, as they are and compressed.
    pub raw: u64,
    pub packed: u64,
    pub count: u32,
    pub waits: Waits,
}

impl BatchTimes {
    /// The state with nothing held.
    pub fn at(times: Times) -> BatchTimes {
        BatchTimes { times, ..BatchTimes::default() }
    }
}

/// [`Raw`](super::CheckpointDecision::Raw), with nothing held. The room is there for every
/// checkpoint of a problem that was checked.
pub(super) fn raw(
    problem: &Problem,
    group: BatchTimes,
    one: &CheckpointProfile,
) -> Option<BatchTimes> {
    let there = batch(problem, group, one)?;
    let app = there.times.app;
    let link = there.times.link.max(app) + nanos(&problem.link, one.raw);
    Some(BatchTimes { waits: there.waits, ..BatchTimes::at(Times { app, link }) })
}

/// [`Hold`](super::CheckpointDecision::Hold): the group with one more; `None` where the cache can
/// never hold them.
pub(super) fn batch(
    problem: &Problem,
    group: BatchTimes,
    one: &CheckpointProfile,
) -> Option<BatchTimes> {
    let ready = group.times.app + one.interval.0;
    let begin = with_room(problem, ready, group.times.link, group.raw + one.raw)?;
    let copies = nanos(&problem.copy, one.raw);
    let waits = Waits {
        room: group.waits.room + (begin - ready),
        copies: group.waits.copies + copies,
        ..group.waits
    };
    Some(BatchTimes {
        times: Times { app: begin + copies, ..group.times },
        raw: group.raw + one.raw,
        packed: group.packed + one.packed,
        count: group.count + 1,
        waits,
    })
}

/// [`Together`](super::CheckpointDecision::Together), or
/// [`Alone`](super::CheckpointDecision::Alone) of an empty group; `None` where the cache can never
/// hold it all.
pub(super) fn pack(
    problem: &Problem,
    group: BatchTimes,
    one: &CheckpointProfile,
) -> Option<BatchTimes> {
    let packer = &problem.packer;
    let (raw, packed) = (group.raw + one.raw, group.packed + one.packed);
    let staged = if packer.in_place { group.raw } else { raw };
    let result = if packer.compacts { packed } else { 0 };
    let needed = staged.checked_add(packer.worst.of(raw))?.checked_add(result)?;
    let ready = group.times.app + one.interval.0;
    let begin = with_room(problem, ready, group.times.link, needed)?;
    let staging = if packer.in_place { 0 } else { nanos(&problem.copy, one.raw) };
    let moving = if packer.compacts { nanos(&problem.copy, packed) } else { 0 };
    let (copies, codec) = (staging + moving, packer.time.time(raw).0);
    let app = begin + copies + codec;
    let waits = Waits {
        room: group.waits.room + (begin - ready),
        copies: group.waits.copies + copies,
        codec: group.waits.codec + codec,
    };
    let link = group.times.link.max(app) + nanos(&problem.link, packed);
    Some(BatchTimes { waits, ..BatchTimes::at(Times { app, link }) })
}

/// The first time from `ready` on at which so many bytes are free beside what the link still has.
fn with_room(problem: &Problem, ready: u64, link: u64, needed: u64) -> Option<u64> {
    let spare = problem.cache.checked_sub(needed)?;
    let sending = spare as f64 / problem.link.bytes_per_second * 1e9;
    Some(ready.max(link.saturating_sub(sending as u64)))
}

/// The time that so many bytes take, rounded to the nearest.
pub(super) fn nanos(rate: &Rate, bytes: u64) -> u64 {
    rate.latency.0 + (bytes as f64 / rate.bytes_per_second * 1e9 + 0.5) as u64
}
