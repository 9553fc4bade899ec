//! A checkpoint on its way into an arena of a device: the borrowed bytes of the arena, together
//! with the encoders that write to them.
//!
//! Such a checkpoint has the bytes of its guard, and those that the checkpoint that it begins after
//! leaves of its own. Nobody else has a guard for either: the one before is an [`Encoding`] as
//! well, which gives its bytes away only with its result, and encodings are ended in the order in
//! which they were begun.

use std::fmt;
use std::time::Duration;

use unspool_core::{CheckpointId, RequestId};
use unspool_cuda::{DeviceError, DeviceSpan, Stream};
use unspool_gpu_codec::{
    After, CheckpointResult, DecodeStatus, EncodeError, GpuCodecs, GpuLayout, Items, JobResult,
    PendingParts, Request,
};
use unspool_tiers::{TierError, WriteGuard};

use super::encoded::Encoded;
use super::sources::Predecessor;

/// A checkpoint to be encoded.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its room.
    pub(crate) guard: WriteGuard,
    /// Where that begins in its arena.
    pub(crate) offset: u64,
    pub(crate) request: RequestId,
    /// Its values, all of which are on the device.
    pub(crate) encoded: Box<Encoded>,
    /// What it may begin after.
    pub(crate) after: Option<Predecessor>,
}

/// A checkpoint that a device encodes into its arena. See the module.
#[must_use = "dropping it forgets the entry"]
pub(crate) struct Encoding {
    guard: WriteGuard,
    parts: PendingParts,
    /// The place of the first byte of the guard in the arena.
    offset: u64,
    pub(crate) encoded: Box<Encoded>,
}

/// Where an encoded checkpoint lies in its arena.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placed {
    /// Its first byte.
    pub(crate) offset: u64,
    /// Its bytes and its regions.
    pub(crate) result: CheckpointResult,
}

impl Encoding {
    /// Enqueues the encoders of `members` on `stream`, on which their values are ready: neighbours
    /// that one codec takes are encoded by one call of it. The results are in their order.
    ///
    /// # Errors
    /// When one of them cannot be enqueued: all members come back, and nothing is on its way, or
    /// their rooms refuse to be filled in another way.
    pub(crate) fn begin(
        codecs: &GpuCodecs,
        stream: &Stream,
        mut members: Vec<Member>,
    ) -> Result<Vec<Encoding>, Box<(Vec<Member>, DeviceError)>> {
        match enqueue(codecs, stream, &members) {
            Ok(all) => Ok(members.into_iter().zip(all).map(begun).collect()),
            Err(error) => {
                end(stream, &mut members, &error);
                Err(Box::new((members, error)))
            }
        }
    }

    /// Whose entry it is.
    pub(crate) fn id(&self) -> CheckpointId {
        self.guard.id()
    }

    /// What is still to come.
    pub(crate) fn parts(&self) -> &PendingParts {
        &self.parts
    }

    /// Where the checkpoint lies, once that is known. Makes no call of the driver.
    pub(crate) fn try_result(&self) -> Option<Result<Placed, EncodeError>> {
        self.parts.try_result().map(|result| result.map(|result| self.placed(result)))
    }

    /// The same, after at most `limit`.
    ///
    /// # Errors
    /// When the checkpoint could not be encoded, the device failed, or the limit has passed.
    pub(crate) fn wait(&self, limit: Duration) -> Result<Placed, EncodeError> {
        self.parts.wait(limit).map(|result| self.placed(result))
    }

    fn placed(&self, result: CheckpointResult) -> Placed {
        let offset = (self.offset + result.start).wrapping_sub(self.parts.room());
        Placed { offset, result }
    }

    /// Decodes one region of it to `target`, which has room for its values.
    ///
    /// # Errors
    /// Those of [`PendingParts::decode`].
    pub(crate) fn decode(
        &self,
        codecs: &GpuCodecs,
        stream: &Stream,
        (placed, job): (&Placed, &JobResult),
        (layout, target): (&GpuLayout, &Items),
    ) -> Result<DecodeStatus, DeviceError> {
        self.parts.decode(codecs, stream, (&placed.result, job), (layout, target))
    }

    /// The checkpoint is there: its entry can be read from now on.
    ///
    /// # Errors
    /// Those of [`WriteGuard::commit_at`].
    pub(crate) fn commit(self, placed: &Placed) -> Result<(), TierError> {
        self.guard.commit_at(placed.offset, placed.result.bytes)
    }

    /// Forgets the entry of a checkpoint that could not be encoded. Where the device may still
    /// write to its bytes, others get them only once it was seen to have nothing left to do.
    pub(crate) fn forget(mut self) {
        if self.parts.try_result().is_none() {
            self.guard.stick();
        }
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoding").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// Waits for what was launched before `error`, as the rooms are then filled in another way.
fn end(stream: &Stream, members: &mut [Member], error: &DeviceError) {
    let limit = members.first().and_then(|one| one.guard.gpu()).map(|gpu| gpu.limit());
    if error.leaves_work() && limit.is_none_or(|limit| stream.drain(limit).is_err()) {
        members.iter_mut().for_each(|one| one.guard.lose(error));
    }
}

fn begun((member, parts): (Member, PendingParts)) -> Encoding {
    let Member { mut guard, offset, encoded, .. } = member;
    guard.leave_fence(parts.fence().clone());
    Encoding { guard, parts, offset, encoded }
}

fn enqueue(
    codecs: &GpuCodecs,
    stream: &Stream,
    members: &[Member],
) -> Result<Vec<PendingParts>, DeviceError> {
    let mut values = Vec::with_capacity(members.iter().map(|one| one.encoded.regions()).sum());
    for one in members {
        one.encoded.values(stream, one.room(), &mut values)?;
    }
    let (mut requests, mut left) = (Vec::with_capacity(members.len()), &values[..]);
    let mut before = None;
    for one in members {
        one.guard.order(stream)?;
        let (values, rest) = left.split_at(one.encoded.regions());
        requests.push(Request { values, room: one.room().clone(), after: one.after(before) });
        (left, before) = (rest, Some(one.request));
    }
    codecs.encode(stream, &requests)
}

impl Member {
    fn room(&self) -> &DeviceSpan {
        let room = self.guard.device();
        room.unwrap_or_else(|| unreachable!("a device encodes into the arena of a device"))
    }

    /// Where it begins; `before` is the member before it.
    fn after(&self, before: Option<RequestId>) -> After<'_> {
        let Some(Predecessor { end, request, alignment }) = &self.after else {
            return After::Nothing;
        };
        if before == Some(*request) {
            return After::Before(*alignment);
        }
        end.get().map_or(After::Nothing, |last| After::Earlier(last, *alignment))
    }
}
