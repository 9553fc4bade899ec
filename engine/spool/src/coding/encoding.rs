//! A checkpoint on its way into an arena of a device: the borrowed bytes of the arena, together
//! with the encoders that write to them.
//!
//! Such a checkpoint has the bytes of its guard, and those that the checkpoint that it begins after
//! leaves of its own. Nobody else has a guard for either: the one before is an [`Encoding`] as
//! well, which gives its bytes away only with its result, and encodings are ended in the order in
//! which they were begun.

use std::fmt;
use std::time::Duration;

use unspool_core::CheckpointId;
use unspool_cuda::{DeviceError, DeviceSpan, Stream};
use unspool_gpu_codec::{
    After, CheckpointResult, DecodeStatus, EncodeError, GpuCodecs, GpuLayout, JobResult,
    PendingParts, Request, Values,
};
use unspool_tiers::{TierError, WriteGuard};

/// A checkpoint to be encoded.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// Its room.
    pub(crate) guard: WriteGuard,
    /// Where that begins in its arena.
    pub(crate) offset: u64,
    /// Its regions; at least one.
    pub(crate) values: Vec<Values>,
    /// What it begins after.
    pub(crate) after: After<'a>,
}

/// A checkpoint that a device encodes into its arena. See the module.
#[must_use = "dropping it forgets the entry"]
pub(crate) struct Encoding {
    guard: WriteGuard,
    parts: PendingParts,
    /// The place of the first byte of the guard in the arena.
    offset: u64,
}

/// Where an encoded checkpoint lies in its arena.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placed {
    /// Its first byte.
    pub(crate) offset: u64,
    /// Its bytes and its regions.
    pub(crate) result: CheckpointResult,
}

type Refused<T> = Box<(T, DeviceError)>;

impl Encoding {
    /// Enqueues the encoders of one checkpoint on `stream`, on which its values are ready.
    ///
    /// # Errors
    /// When it cannot be enqueued: the guard comes back, and nothing is on its way, or it refuses
    /// to be filled in another way.
    pub(crate) fn begin(
        codecs: &GpuCodecs,
        stream: &Stream,
        member: Member<'_>,
    ) -> Result<Encoding, Refused<WriteGuard>> {
        match Encoding::begin_all(codecs, stream, vec![member]) {
            Ok(mut all) => Ok(all.pop().unwrap_or_else(|| unreachable!("there is one for each"))),
            Err(refused) => {
                let (mut guards, cause) = *refused;
                let guard = guards.pop().unwrap_or_else(|| unreachable!("there is one for each"));
                Err(Box::new((guard, cause)))
            }
        }
    }

    /// As [`begin`](Self::begin), for several checkpoints: neighbours that one codec takes are
    /// encoded by one call of it. The results are in the order of the members.
    ///
    /// # Errors
    /// When one of them cannot be enqueued: all guards come back, and nothing is on its way, or
    /// they refuse to be filled in another way.
    pub(crate) fn begin_all(
        codecs: &GpuCodecs,
        stream: &Stream,
        members: Vec<Member<'_>>,
    ) -> Result<Vec<Encoding>, Refused<Vec<WriteGuard>>> {
        match enqueue(codecs, stream, &members) {
            Ok(all) => Ok(members.into_iter().zip(all).map(begun).collect()),
            Err(error) => {
                let mut guards: Vec<_> = members.into_iter().map(|member| member.guard).collect();
                end(stream, &mut guards, &error);
                Err(Box::new((guards, error)))
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
        (layout, target): (&GpuLayout, &DeviceSpan),
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
fn end(stream: &Stream, guards: &mut [WriteGuard], error: &DeviceError) {
    let limit = guards.first().and_then(|guard| guard.gpu()).map(|gpu| gpu.limit());
    if error.leaves_work() && limit.is_none_or(|limit| stream.drain(limit).is_err()) {
        guards.iter_mut().for_each(|guard| guard.lose(error));
    }
}

fn begun((member, parts): (Member<'_>, PendingParts)) -> Encoding {
    let Member { mut guard, offset, .. } = member;
    guard.leave_fence(parts.fence().clone());
    Encoding { guard, parts, offset }
}

fn enqueue(
    codecs: &GpuCodecs,
    stream: &Stream,
    members: &[Member<'_>],
) -> Result<Vec<PendingParts>, DeviceError> {
    let mut requests = Vec::with_capacity(members.len());
    for Member { guard, values, after, .. } in members {
        let Some(room) = guard.device() else {
            unreachable!("a device encodes into the arena of a device")
        };
        guard.order(stream)?;
        requests.push(Request { values, room: room.clone(), after: *after });
    }
    codecs.encode(stream, &requests)
}
