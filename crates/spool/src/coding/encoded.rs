//! The encoders of a save, and the payload that they build: in the arena where the checkpoint will
//! be, or in memory of ours when that arena is a device's.

use std::sync::Arc;
use std::time::Duration;

use unspool_codec::{Achieved, CodecId, Head, Region, Spec};
use unspool_core::{CheckpointId, Kept};
use unspool_gpu_codec::CheckpointResult;
use unspool_transfer::{Buffer, Bytes, Frame};

use super::automatic::Lesson;
use super::codecs::Codecs;
use super::figures::RegionCoding;
use super::launch::{Sources, check_formats, is_for_gpu};
use super::plan::{Plan, Planned};
use super::session::Session;
use super::timing::Watched;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Gpu, staged};
use crate::hub::Hub;
use crate::save::{Room, SaveTicket, part};
use crate::state::State;

/// See the module.
#[derive(Debug)]
pub(crate) struct Encoded {
    session: Session,
    /// The payload, where the room is in a device's memory.
    aside: Option<Buffer>,
    /// The values that are on a GPU.
    pub(crate) sources: Sources,
    /// That GPU.
    pub(crate) gpu: Option<Gpu>,
    /// A GPU encodes it, or has done so: all values were given.
    pub(crate) is_launched: bool,
    /// A GPU could encode it, and was found not to.
    pub(crate) on_host: bool,
    /// A check has found that it does not keep its bound.
    pub(crate) is_violated: bool,
    /// What a GPU has made of it, where its bytes are in the room already.
    made: Option<CheckpointResult>,
    /// For how long the host was busy with launches.
    pub(crate) time: Duration,
}

/// A checkpoint whose bytes are all known.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) frame: Arc<Frame>,
    /// By region; `None` where the codec does not tell it.
    pub(crate) achieved: Vec<Option<Achieved>>,
    /// For how long encoders ran.
    pub(crate) time: Duration,
    /// What the choice of its codec learns from it.
    lesson: Option<Lesson>,
}

impl Hub {
    /// The codecs for the regions of `head`, and the head for asking room; `None` when all are kept
    /// as they are. That is so also where the longest streams would not fit into the tier that the
    /// values fit into: a checkpoint that nearly fills a tier can then still be saved there.
    ///
    /// # Errors
    /// `Invalid` when a codec cannot take its region.
    pub(crate) fn plan(&self, head: &Head, codecs: &Codecs) -> Result<Option<(Head, Plan)>, Error> {
        if codecs.is_raw() {
            return Ok(None);
        }
        codecs.check()?;
        if !self.durable_tiers.is_empty() {
            codecs.check_durable()?;
        }
        let Some(plan) = Plan::of(head, codecs, || self.choose(head))? else {
            return Ok(None);
        };
        let worst = plan.worst()?;
        if let Some(gpu) = &self.gpu {
            check_formats(gpu, &plan)?;
        }
        let (most, bytes) = (worst.payload_bytes, head.payload_bytes);
        let fits = self.fastest_for(most) == self.fastest_for(bytes);
        if !fits {
            self.note_kept_raw(bytes, most);
        }
        Ok(fits.then_some((worst, plan)))
    }

    /// Says, once, that a checkpoint is not encoded because there is no room for the most that it
    /// may take.
    fn note_kept_raw(&self, bytes: u64, most: u64) {
        let prefix = "Checkpoints are kept as they are where";
        let note = format!(
            "{prefix} the most that a codec may make of them does not fit into a tier that they \
             themselves fit into; the first one has {} and may take up to {}. Make that tier \
             larger, or save with `codec=None`.",
            Bytes(bytes),
            Bytes(most)
        );
        self.note_first(prefix, note);
    }

    /// The fastest tier that `bytes` fit into when it is empty.
    fn fastest_for(&self, bytes: u64) -> Option<usize> {
        let state = self.state();
        let tiers = &state.brain.core().config().tiers;
        tiers.iter().position(|tier| {
            let unit = tier.alignment;
            let head = if tier.kind.is_arena() { 0 } else { unit };
            let whole = bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            whole.saturating_add(head) <= tier.capacity & !(unit - 1)
        })
    }

    /// The encoders for `plan`, whose largest head is that of `frame`.
    pub(crate) fn encoded(&self, plan: Plan, frame: &Frame) -> Box<Encoded> {
        let (worst, check) = (Arc::clone(frame.head()), self.settings.check_codec);
        let session = Session::new(plan, worst, check, &self.buffers);
        Box::new(Encoded {
            session,
            aside: None,
            sources: Sources::default(),
            gpu: None,
            is_launched: false,
            on_host: false,
            is_violated: false,
            made: None,
            time: Duration::ZERO,
        })
    }
}

impl Encoded {
    /// Memory for the values of region `index`, to be filled by the caller.
    ///
    /// # Errors
    /// `Invalid` when the region is encoded already, `Io` when there is no memory.
    pub(crate) fn memory(&mut self, index: usize) -> Result<&mut [u8], Error> {
        if self.is_launched && self.bytes_of(index) > 0 {
            return Err(self.session.filled_already(index));
        }
        self.session.memory(index).map(|buffer| &mut **buffer)
    }

    /// Takes the values of region `index`.
    ///
    /// # Errors
    /// Those of [`memory`](Self::memory), and of the codec.
    pub(crate) fn take(
        &mut self,
        index: usize,
        values: &[u8],
        room: &mut Room,
    ) -> Result<(), Error> {
        let is_on_gpu = matches!(room, Room::Arena(guard) if guard.device().is_some());
        let may_come = (is_on_gpu || self.plan().needs_gpu()) && self.may_launch();
        if self.is_launched || may_come || !self.sources.is_empty() {
            // Arrays of the GPU have come or may come, and then it encodes all of them.
            self.memory(index)?.copy_from_slice(values);
            return Ok(());
        }
        let payload = payload(&self.session, &mut self.aside, room)?;
        self.session.take(index, values, payload)
    }

    /// Whether a GPU may encode all of it.
    pub(crate) fn may_launch(&self) -> bool {
        !self.on_host && self.session.is_empty() && is_for_gpu(self.session.plan())
    }

    /// Whether every region that has bytes is on a GPU or among `others`.
    pub(crate) fn all(&self, others: impl Fn(usize) -> bool) -> bool {
        let is_there =
            |index| self.sources.has(index) || others(index) || self.bytes_of(index) == 0;
        (0..self.regions()).all(is_there)
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.session.plan()
    }

    pub(crate) fn regions(&self) -> usize {
        self.plan().regions.len()
    }

    pub(crate) fn bytes_of(&self, index: usize) -> u64 {
        self.plan().regions[index].bytes
    }

    /// The most bytes of the payload.
    pub(crate) fn most(&self) -> u64 {
        self.session.most()
    }

    /// A GPU has made `result` of it, which is in the room.
    pub(crate) fn set_made(&mut self, result: CheckpointResult) {
        self.made = Some(result);
    }

    /// Decodes region `index` out of `payload`, which a GPU has made, and compares it with
    /// `values`.
    ///
    /// # Errors
    /// `BoundViolated`, and those of [`made_of`](Self::made_of).
    pub(crate) fn look(&self, index: usize, values: &[u8], payload: &[u8]) -> Result<(), Error> {
        let stream = self.made_of(index, payload)?;
        self.session.look(&self.plan().regions[index], values, stream)
    }

    /// The bytes of region `index` in `payload`, which a GPU has made.
    ///
    /// # Errors
    /// Those of [`sealed_as`](Self::sealed_as).
    pub(crate) fn made_of<'a>(&self, index: usize, payload: &'a [u8]) -> Result<&'a [u8], Error> {
        let Some(made) = &self.made else { return Ok(&[]) };
        let sealed = self.sealed_as(made)?;
        Ok(&payload[part(&sealed.frame.head().regions[index]).range()])
    }

    /// What a GPU has made of it.
    ///
    /// # Errors
    /// `Device` when that contradicts the format.
    pub(crate) fn sealed_as(&self, result: &CheckpointResult) -> Result<Sealed, Error> {
        let stored: Vec<u64> = result.jobs.iter().map(|job| job.stored).collect();
        let head = self.session.worst().with_stored(&stored).ok();
        let Some(head) = head.filter(|head| head.payload_bytes == result.bytes) else {
            let message = format!(
                "Version {} was not saved: the sizes that the GPU reports make no checkpoint. \
                 Report this with the regions of the save.",
                self.plan().version
            );
            return Err(Error::new(ErrorKind::Device, message));
        };
        let jobs = self.plan().regions.iter().zip(&result.jobs);
        let coded = |region: &Planned| region.codec != Spec::Raw;
        let achieved = jobs.map(|(region, job)| coded(region).then_some(job.achieved)).collect();
        let lesson = self.lesson(&head, None);
        Ok(Sealed { frame: Arc::new(Frame::new(head)), achieved, time: self.time, lesson })
    }

    /// Encodes what is left.
    pub(super) fn seal(&mut self, room: &mut Room) -> Result<Sealed, Error> {
        if let Some(made) = &self.made {
            return self.sealed_as(made);
        }
        let payload = payload(&self.session, &mut self.aside, room)?;
        let frame = Frame::new(self.session.finish(payload)?);
        if let (Some(aside), Room::Arena(guard)) = (&self.aside, room) {
            gpu::store(guard, 0, &aside[..self.session.end() as usize])?;
        }
        let (achieved, time) = self.session.achieved();
        let lesson = self.lesson(frame.head(), Some(time));
        Ok(Sealed { frame: Arc::new(frame), achieved, time, lesson })
    }

    /// What a checkpoint with this head shows of the codec that the run has chosen for it.
    fn lesson(&self, head: &Head, time: Option<Duration>) -> Option<Lesson> {
        self.plan().auto?;
        let pairs = || self.plan().regions.iter().zip(&head.regions).filter(|(r, _)| r.is_auto);
        Some(Lesson {
            bytes: pairs().map(|(region, _)| region.bytes).sum(),
            stored: pairs().map(|(_, region)| region.stored).sum(),
            time,
        })
    }

    /// Whose time is taken when a GPU encodes it.
    pub(super) fn watched(&self) -> Option<Watched> {
        self.plan().auto.filter(|picked| picked.is_timed)?;
        let bytes = self.plan().regions.iter().map(|region| region.bytes).sum();
        Some(Watched { bytes, is_decoder: false })
    }
}

/// The memory in which the payload is built.
fn payload<'a>(
    session: &Session,
    aside: &'a mut Option<Buffer>,
    room: &'a mut Room,
) -> Result<&'a mut [u8], Error> {
    match room {
        Room::Staged(buffer) => Ok(buffer),
        Room::Arena(guard) if guard.device().is_none() => Ok(guard.bytes().unwrap_or_default()),
        Room::Arena(_) | Room::Encoding(_) => {
            let buffer = match aside.take() {
                Some(buffer) => buffer,
                None => staged(session.buffers(), session.most())?,
            };
            Ok(aside.insert(buffer))
        }
    }
}

impl SaveTicket {
    /// Encodes what is not encoded yet: from now on the checkpoint has its true size.
    ///
    /// # Errors
    /// Those of the codecs, and `BoundViolated` when the settings ask for a check.
    pub(crate) fn seal(&mut self) -> Result<Option<Sealed>, Error> {
        let (Some(encoded), Some(room)) = (&mut self.encoded, &mut self.room) else {
            return Ok(None);
        };
        let sealed = encoded.seal(room)?;
        self.frame = Arc::clone(&sealed.frame);
        Ok(Some(sealed))
    }
}

impl Sealed {
    /// What it takes of the room at `offset`.
    pub(crate) fn kept(&self, offset: u64) -> Kept {
        Kept { offset, bytes: self.frame.head().payload_bytes }
    }
}

impl State {
    /// A checkpoint has got its true size.
    pub(crate) fn sealed(&mut self, id: CheckpointId, sealed: Sealed) {
        let Sealed { frame, achieved, time, lesson } = sealed;
        let regions = codings(frame.head(), Some(&achieved));
        self.tally.codecs.saved(&regions, time);
        if let Some(lesson) = lesson {
            self.tally.experience.learn(&lesson);
        }
        self.catalogue.seal(id, frame, achieved);
    }
}

/// What became of the regions of `head`.
pub(crate) fn codings(head: &Head, achieved: Option<&[Option<Achieved>]>) -> Vec<RegionCoding> {
    let known = |index: usize| achieved.and_then(|all| all.get(index).copied().flatten());
    let coding = |(index, region): (usize, &Region)| RegionCoding {
        name: region.name.clone(),
        codec: region.codec,
        bytes: region.bytes,
        stored: region.stored,
        achieved: known(index).filter(|_| region.codec != CodecId::Raw),
    };
    head.regions.iter().enumerate().map(coding).collect()
}
