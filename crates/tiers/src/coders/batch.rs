//! Several checkpoints by one call of their encoder, each with a room and a result of its own.

use unspool_cuda::{DeviceError, DeviceSpan, Stream};
use unspool_gpu_codec::NvCompJob;
use unspool_gpu_codec::pending::{Pending, Start};
use unspool_gpu_codec::twine::{Checkpoint, EncodeJob};

use super::{Coders, Encoding, LIMIT, Parts, Spec, UNIT, Values, enqueue, job};
use crate::arena::WriteGuard;

/// One checkpoint of a batch.
#[derive(Debug)]
pub struct Member<'a> {
    /// Its room.
    pub guard: WriteGuard,
    /// Where that begins in its arena.
    pub offset: u64,
    /// Its regions; at least one.
    pub values: Vec<Values<'a>>,
    /// What it begins behind.
    pub behind: Behind<'a>,
}

/// What a checkpoint begins behind. Its room begins where that of the other ends, and it begins at
/// a multiple of the number.
#[derive(Clone, Copy, Debug)]
pub enum Behind<'a> {
    /// Nothing: with its own room.
    Nothing,
    /// A checkpoint of an earlier call.
    Earlier(&'a Pending, u64),
    /// The member before it.
    Before(u64),
}

impl Member<'_> {
    fn span(&self) -> &DeviceSpan {
        let Some(span) = self.guard.device() else {
            panic!("a device encodes into the arena of a device")
        };
        span
    }

    fn limit(&self) -> u64 {
        self.span().address() + self.guard.len()
    }

    /// Where it begins, if `before` is what the member before it may write up to.
    fn start(&self, before: Option<u64>) -> Start<'_> {
        let own = self.span().address();
        match self.behind {
            Behind::Earlier(pending, align) if pending.limit() <= own => {
                Start::After { pending, align }
            }
            Behind::Before(align) if before.is_some_and(|limit| limit <= own) => {
                Start::Next { align }
            }
            _ => Start::At(own),
        }
    }

    fn is_for_twine(&self) -> bool {
        let takes = |values: &Values<'_>| matches!(values.spec, Spec::Raw { .. } | Spec::Twine(_));
        self.values.iter().all(takes)
    }
}

impl Coders {
    /// Finds or compiles the kernels of Twine for so many checkpoints of regions like these, so
    /// that a later launch does not have to.
    ///
    /// # Errors
    /// When there is no compiler, or it refuses.
    pub fn prepare(&self, regions: &[Spec<'_>], checkpoints: usize) -> Result<(), DeviceError> {
        let jobs = regions.iter().map(|&spec| EncodeJob { source: 0, spec: job(spec) });
        let jobs: Vec<_> = jobs.collect();
        let one = Checkpoint { jobs: &jobs, start: Start::At(0), limit: u64::MAX };
        self.twine.prepare(&vec![one; checkpoints])
    }
}

impl Encoding {
    /// As [`begin`](Self::begin), for several checkpoints: Twine encodes all of them with one
    /// launch, nvCOMP arrays of one layout with one call, other encoders one behind the other. The
    /// results are in the order of the members.
    ///
    /// # Errors
    /// When one of them cannot be enqueued: all guards come back, and nothing is on its way.
    ///
    /// # Panics
    /// When a guard is of an arena in main memory, and when a member has no values.
    pub fn begin_all(
        coders: &Coders,
        stream: &Stream,
        members: Vec<Member<'_>>,
    ) -> Result<Vec<Encoding>, Box<(Vec<WriteGuard>, DeviceError)>> {
        match enqueue_all(coders, stream, &members) {
            Ok(all) => Ok(members.into_iter().zip(all).map(begun).collect()),
            Err(error) => {
                let guards = members.into_iter().map(|member| member.guard).collect();
                Err(Box::new((guards, error)))
            }
        }
    }
}

fn begun((member, parts): (Member<'_>, Parts)) -> Encoding {
    let first = (member.span().address(), member.offset);
    let mut guard = member.guard;
    guard.leave_mark(parts.mark().clone());
    Encoding { guard, parts, first }
}

fn enqueue_all(
    coders: &Coders,
    stream: &Stream,
    members: &[Member<'_>],
) -> Result<Vec<Parts>, DeviceError> {
    for member in members {
        assert!(!member.values.is_empty(), "a checkpoint that is encoded has a region");
        member.values.iter().try_for_each(|v| v.span.slice(0, v.spec.bytes()).map(drop))?;
        member.guard.order(stream)?;
    }
    if members.iter().all(Member::is_for_twine) {
        return in_one_launch(coders, stream, members);
    }
    match containers(members) {
        Some(jobs) => in_one_call(coders, stream, members, &jobs),
        None => one_by_one(coders, stream, members),
    }
}

/// The arrays of all members, if one call of nvCOMP takes them.
fn containers<'a>(members: &'a [Member<'_>]) -> Option<Vec<NvCompJob<'a>>> {
    let all = members.iter().flat_map(|member| &member.values);
    let jobs = all.map(|values| match values.spec {
        Spec::NvComp(layout) => Some(NvCompJob { source: values.span.address(), layout }),
        _ => None,
    });
    let jobs: Vec<_> = jobs.collect::<Option<_>>()?;
    jobs.iter().all(|job| job.layout == jobs[0].layout).then_some(jobs)
}

fn in_one_call(
    coders: &Coders,
    stream: &Stream,
    members: &[Member<'_>],
    jobs: &[NvCompJob<'_>],
) -> Result<Vec<Parts>, DeviceError> {
    let (mut before, mut places) = (None, Vec::with_capacity(jobs.len()));
    for member in members {
        let (start, limit) = (member.start(before), member.limit());
        let rest = member.values[1..].iter().map(|_| (Start::Next { align: UNIT }, limit));
        places.push((start, limit));
        places.extend(rest);
        before = Some(limit);
    }
    // SAFETY: as for Twine above.
    let mut pending = unsafe { coders.nvcomp.encode_all(stream, jobs, &places) }?.into_iter();
    let parts = members.iter().map(|member| pending.by_ref().take(member.values.len()).collect());
    Ok(parts.map(Parts).collect())
}

fn in_one_launch(
    coders: &Coders,
    stream: &Stream,
    members: &[Member<'_>],
) -> Result<Vec<Parts>, DeviceError> {
    let jobs: Vec<Vec<EncodeJob<'_>>> = members
        .iter()
        .map(|member| {
            let values = member.values.iter();
            values.map(|v| EncodeJob { source: v.span.address(), spec: job(v.spec) }).collect()
        })
        .collect();
    let mut before = None;
    let checkpoints = members.iter().zip(&jobs).map(|(member, jobs)| {
        let (start, limit) = (member.start(before), member.limit());
        before = Some(limit);
        Checkpoint { jobs, start, limit }
    });
    let checkpoints: Vec<_> = checkpoints.collect();
    // SAFETY: as in `encode_run`: each checkpoint has a guard for its bytes, and those that the one
    // before it leaves.
    let pending = unsafe { coders.twine.encode(stream, &checkpoints) }?;
    Ok(pending.into_iter().map(|pending| Parts(vec![pending])).collect())
}

fn one_by_one(
    coders: &Coders,
    stream: &Stream,
    members: &[Member<'_>],
) -> Result<Vec<Parts>, DeviceError> {
    let mut all: Vec<Parts> = Vec::new();
    for member in members {
        let before = all.last().map(Parts::last);
        let start = match (member.start(before.map(Pending::limit)), before) {
            (Start::Next { align }, Some(pending)) => Start::After { pending, align },
            (start, _) => start,
        };
        match enqueue(coders, stream, &member.values, start, member.limit()) {
            Ok(parts) => all.push(parts),
            Err(error) => {
                // Whoever gets the bytes now must not meet the members before.
                all.iter().for_each(|parts| drop(parts.wait(LIMIT)));
                return Err(error);
            }
        }
    }
    Ok(all)
}
