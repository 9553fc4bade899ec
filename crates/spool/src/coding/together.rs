//! Launching all that is held: one call of an encoder for as many checkpoints as it takes.
//!
//! Where that cannot be done the values are still there: each checkpoint is then tried alone, and
//! in the end encoded by the host, if it can.

use std::time::Instant;

use unspool_codec::CodecId;
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, DeviceSpan, Mark, Stream};
use unspool_gpu_codec::{After, Values};
use unspool_tiers::WriteGuard;
use unspool_transfer::sync::lock;

use super::batch::{Held, MOST_REGIONS};
use super::encoded::Sealed;
use super::encoding::{Encoding, Member};
use super::launch::{Chain, values};
use super::plan::Plan;
use crate::error::{Error, ErrorKind};
use crate::gpu::Gpu;
use crate::hand::Work;
use crate::hub::Hub;
use crate::save::Room;

/// One that was taken out of the queue to be launched.
pub(crate) struct Taken {
    pub(crate) request: RequestId,
    pub(crate) offset: u64,
    pub(crate) held: Held,
}

/// The codec that encodes all regions of `plan` on a GPU; `None` where nothing is gained by holding
/// it. Twine takes the bytes that are kept as they are as well.
pub(super) fn together(plan: &Plan) -> Option<CodecId> {
    let mut all = plan.regions.iter().map(|region| match region.layout.as_ref()?.id() {
        CodecId::Raw | CodecId::Twine => Some(CodecId::Twine),
        CodecId::Zfp => None,
        other => Some(other),
    });
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

impl Hub {
    /// Launches all that is held. What cannot be encoded in any way was not saved, which the calls
    /// that follow tell.
    pub(crate) fn launch_held(&self) {
        let Some(gpu) = self.gpu.as_ref().filter(|_| self.settings.accumulate.is_some()) else {
            return;
        };
        let mut lane = lock(&self.holding.lane);
        let held = self.settler.take_held();
        if held.is_empty() {
            return;
        }
        if lane.is_none() {
            *lane = Stream::new(gpu.context()).ok();
        }
        let stream = lane.as_ref().unwrap_or(gpu.stream());
        groups(held).into_iter().for_each(|group| self.launch_group(gpu, stream, group));
    }

    /// Launches what one call of an encoder takes.
    fn launch_group(&self, gpu: &Gpu, stream: &Stream, mut group: Vec<Taken>) {
        let began = Instant::now();
        let cause = match begin(gpu, stream, &mut group) {
            Ok(encodings) => {
                let time = began.elapsed() / group.len().max(1) as u32;
                self.state().tally.launches.add(group.len() as u64);
                for (mut one, encoding) in group.into_iter().zip(encodings) {
                    one.held.encoded.time += time;
                    self.under_way(gpu, one, encoding);
                }
                return;
            }
            Err(cause) => cause,
        };
        self.note_once(&format!("Checkpoints could not be encoded together: {cause}"));
        if group.len() > 1 {
            return group.into_iter().for_each(|one| self.launch_group(gpu, stream, vec![one]));
        }
        for one in group {
            self.settler.launched(one.request, without_gpu(gpu, one.held, cause.clone()));
        }
    }

    /// The GPU encodes it from now on.
    fn under_way(&self, gpu: &Gpu, one: Taken, encoding: Encoding) {
        let Taken { request, held: Held { mut encoded, .. }, .. } = one;
        let mark: Mark = encoding.parts().mark().clone();
        std::mem::take(&mut encoded.sources).done(gpu, &mark);
        self.settler.launched(request, Work::Encoding(encoding, encoded));
    }

    /// Encodes one in this thread, which the GPU did not take because of `cause`. Where its values
    /// do not come before `until`, those of the others will not either.
    pub(crate) fn encode_refused(&self, one: Taken, cause: DeviceError, until: Instant) {
        let Taken { request, held: Held { guard, encoded, .. }, .. } = one;
        let work = match self.gpu.as_ref().zip(guard) {
            None => Work::Failed(cause, None),
            Some((gpu, guard)) => match self.on_host(gpu, encoded, guard, until) {
                Ok((guard, sealed)) => Work::Sealed(guard, Box::new(sealed)),
                Err(error) => {
                    if error.kind() == ErrorKind::Timeout {
                        self.settler.fail_refused(error.message());
                    }
                    Work::Failed(cause, Some(error.to_string()))
                }
            },
        };
        self.settler.launched(request, work);
    }

    /// Encodes one in this thread, from the values that were set aside.
    fn on_host(
        &self,
        gpu: &Gpu,
        mut encoded: Box<super::Encoded>,
        guard: WriteGuard,
        until: Instant,
    ) -> Result<(WriteGuard, Sealed), Error> {
        encoded.is_launched = false;
        encoded.wait_for_sources(until, || self.settler.is_over())?;
        encoded.download(gpu, until.saturating_duration_since(Instant::now()))?;
        let mut room = Room::Arena(guard);
        let sealed = encoded.seal(&mut room)?;
        match room {
            Room::Arena(guard) => Ok((guard, sealed)),
            _ => unreachable!("it was made an arena"),
        }
    }
}

/// What becomes of one that the GPU does not take, because of `cause`: nobody waits here until the
/// host has encoded it.
fn without_gpu(gpu: &Gpu, held: Held, cause: DeviceError) -> Work {
    if held.encoded.plan().needs_gpu() {
        return Work::Failed(cause, None);
    }
    gpu.coder_failed(&cause);
    Work::Refused(Box::new(held), cause)
}

/// Enqueues the encoder of a group, whose rooms are taken then.
fn begin(gpu: &Gpu, stream: &Stream, group: &mut [Taken]) -> Result<Vec<Encoding>, DeviceError> {
    let places: Vec<_> = group.iter_mut().filter_map(|one| one.held.guard.take()).collect();
    let begun = match sources(stream, group, &places) {
        Ok(values) => {
            let mut before = None;
            let members =
                values.into_iter().zip(places).zip(&*group).map(|((values, guard), one)| {
                    let chain = one.held.chain.as_ref();
                    let after = chain.map_or(After::Nothing, |chain| after(chain, before));
                    before = Some(one.request);
                    Member { guard, offset: one.offset, values, after }
                });
            Encoding::begin_all(gpu.own_coders(), stream, members.collect())
        }
        Err(cause) => Err(Box::new((places, cause))),
    };
    begun.map_err(|refused| {
        let (guards, cause) = *refused;
        let rooms = group.iter_mut().zip(guards);
        rooms.for_each(|(one, guard)| one.held.guard = Some(guard));
        cause
    })
}

/// The values of each, behind the copies that went before.
fn sources(
    stream: &Stream,
    group: &[Taken],
    rooms: &[WriteGuard],
) -> Result<Vec<Vec<Values>>, DeviceError> {
    let each = group.iter().zip(rooms).map(|(one, guard)| {
        let Some(nothing): Option<&DeviceSpan> = guard.device() else {
            unreachable!("what is held has room on a device")
        };
        values(&one.held.encoded, stream, &one.held.encoded.sources, nothing)
    });
    each.collect()
}

fn after(chain: &Chain, before: Option<RequestId>) -> After<'_> {
    if before == Some(chain.request) {
        return After::Before(chain.alignment);
    }
    chain.behind.get().map_or(After::Nothing, |last| After::Earlier(last, chain.alignment))
}

/// Cut where another encoder has to be called, or where one launch would take too much.
fn groups(held: Vec<Taken>) -> Vec<Vec<Taken>> {
    let mut groups: Vec<Vec<Taken>> = Vec::new();
    let mut last = (None, 0);
    for one in held {
        let plan = one.held.encoded.plan();
        let (own, regions) = (together(plan), plan.regions.len());
        let fits = own == last.0 && last.1 + regions <= MOST_REGIONS;
        match groups.last_mut().filter(|_| fits) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
        last = (own, if fits { last.1 + regions } else { regions });
    }
    groups
}
