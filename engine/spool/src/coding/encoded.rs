//! The encoders of a save, and the payload that they build: in the arena where the checkpoint will
//! be, or in the spool's own memory when that arena is a device's.

use std::sync::Arc;
use std::time::Duration;

use unspool_codec::{Achieved, CodecId, Head, Region, Spec};
use unspool_core::Kept;
use unspool_gpu_codec::CheckpointResult;
use unspool_transfer::{Buffer, Frame, Pool};

use super::automatic::Lesson;
use super::figures::RegionCoding;
use super::plan::{EncodingPlan, Planned};
use super::room::Room;
use super::session::Session;
use super::sources::{Source, Sources, is_for_gpu};
use super::timing::Watched;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Fence, Gpu, ScratchLease, part, staged};

/// See the module.
#[derive(Debug)]
pub(crate) struct Encoded {
    session: Session,
    encoder: Encoder,
    /// For how long the host was busy with launches.
    pub(crate) time: Duration,
}

/// Who encodes a checkpoint, and how far that has come.
#[derive(Debug)]
enum Encoder {
    /// Not decided yet: no value is encoded, and none is on a GPU.
    Open,
    /// This GPU encodes all regions once the last values are there; some are.
    Gathering(Gpu, Sources),
    /// The host encodes region after region: into memory aside where the room is a device's.
    Host { aside: Option<Buffer> },
    /// A GPU has encoded it, and its bytes are in the room.
    Made(CheckpointResult),
}

/// A checkpoint whose bytes are all known.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) frame: Arc<Frame>,
    /// The errors by region; `None` where the codec does not report one.
    pub(crate) achieved: Vec<Option<Achieved>>,
    /// For how long encoders ran.
    pub(crate) time: Duration,
    /// What the choice of its codec learns from it.
    pub(crate) lesson: Option<Lesson>,
}

impl Encoded {
    /// The encoders for `plan`, whose largest head is that of `frame`; `check` decodes at once.
    pub(crate) fn of(
        plan: EncodingPlan,
        frame: &Frame,
        check: bool,
        buffers: &Arc<Pool>,
    ) -> Box<Encoded> {
        let encoder = if is_for_gpu(&plan) { Encoder::Open } else { Encoder::Host { aside: None } };
        let session = Session::new(plan, Arc::clone(frame.head()), check, buffers);
        Box::new(Encoded { session, encoder, time: Duration::ZERO })
    }

    /// Memory for the values of region `index`, to be filled by the caller.
    ///
    /// # Errors
    /// `Invalid` when the region is encoded already, `Io` when there is no memory.
    pub(crate) fn memory(&mut self, index: usize) -> Result<&mut [u8], Error> {
        if matches!(self.encoder, Encoder::Made(_)) {
            self.check_nothing(index)?;
        }
        self.session.memory(index).map(|buffer| &mut **buffer)
    }

    /// Refuses values of region `index` after all regions were encoded, unless it has no bytes.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check_nothing(&self, index: usize) -> Result<(), Error> {
        if self.bytes_of(index) > 0 { Err(self.session.filled_already(index)) } else { Ok(()) }
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
        let waits = match &self.encoder {
            // Arrays of the GPU may come, and then it encodes all of them.
            Encoder::Open => is_on_gpu || self.plan().needs_gpu(),
            Encoder::Gathering(..) | Encoder::Made(_) => true,
            Encoder::Host { .. } => false,
        };
        if waits {
            self.memory(index)?.copy_from_slice(values);
            return Ok(());
        }
        let (session, payload) = self.on_host(room)?;
        session.take(index, values, payload)
    }

    /// The host encodes from now on: its session, and the memory in which it builds the payload.
    fn on_host<'a>(
        &'a mut self,
        room: &'a mut Room,
    ) -> Result<(&'a mut Session, &'a mut [u8]), Error> {
        if !matches!(self.encoder, Encoder::Host { .. }) {
            self.encoder = Encoder::Host { aside: None };
        }
        let Encoder::Host { aside } = &mut self.encoder else { unreachable!("it was just set") };
        let payload = match room {
            Room::Staged(buffer) => &mut **buffer,
            Room::Arena(guard) if guard.device().is_none() => guard.bytes().unwrap_or_default(),
            Room::Arena(_) => {
                let buffer = match aside.take() {
                    Some(buffer) => buffer,
                    None => staged(self.session.buffers(), self.session.most())?,
                };
                &mut **aside.insert(buffer)
            }
        };
        Ok((&mut self.session, payload))
    }

    /// Whether a GPU may encode all of it.
    pub(crate) fn may_launch(&self) -> bool {
        matches!(self.encoder, Encoder::Open | Encoder::Gathering(..))
    }

    /// Whether a GPU has encoded it, to the room.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.encoder, Encoder::Made(_))
    }

    /// The values that are on a GPU so far, and that GPU.
    pub(crate) fn gathered(&self) -> Option<(&Gpu, &Sources)> {
        match &self.encoder {
            Encoder::Gathering(gpu, sources) => Some((gpu, sources)),
            _ => None,
        }
    }

    /// Takes them out, for the encoders of that GPU.
    pub(crate) fn take_gathered(&mut self) -> Option<(Gpu, Sources)> {
        match std::mem::replace(&mut self.encoder, Encoder::Open) {
            Encoder::Gathering(gpu, sources) => Some((gpu, sources)),
            other => {
                self.encoder = other;
                None
            }
        }
    }

    /// Adds the values of region `index`, which are on `gpu`.
    pub(crate) fn gather(&mut self, gpu: &Gpu, index: usize, source: Source) {
        match &mut self.encoder {
            Encoder::Gathering(_, sources) => sources.put(index, source),
            _ => {
                let mut sources = Sources::default();
                sources.put(index, source);
                self.encoder = Encoder::Gathering(gpu.clone(), sources);
            }
        }
    }

    /// Memory with dense copies of values, which are among those gathered.
    pub(super) fn keep_copies(&mut self, memory: ScratchLease, ready: Fence) {
        if let Encoder::Gathering(_, sources) = &mut self.encoder {
            sources.keep_copies(memory, ready);
        }
    }

    /// Whether what is encoded is decoded and compared.
    pub(super) fn checks(&self) -> bool {
        self.session.checks()
    }

    /// Leaves the rest to the host: gives what was gathered on a GPU.
    pub(crate) fn forget_gathered(&mut self) -> Option<(Gpu, Sources)> {
        let gathered = self.take_gathered();
        if matches!(self.encoder, Encoder::Open) {
            self.encoder = Encoder::Host { aside: None };
        }
        gathered
    }

    /// Whether the values of region `index` are on a GPU.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.gathered().is_some_and(|(_, sources)| sources.has(index))
    }

    /// Whether every region that has bytes is on a GPU or among `others`.
    pub(crate) fn all(&self, others: impl Fn(usize) -> bool) -> bool {
        let is_there = |index| self.has(index) || others(index) || self.bytes_of(index) == 0;
        (0..self.regions()).all(is_there)
    }

    pub(crate) fn plan(&self) -> &EncodingPlan {
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

    /// A GPU has made `result` of it, which is in the room. Gives the values that it read.
    pub(crate) fn set_made(&mut self, result: CheckpointResult) -> Sources {
        let read = self.take_gathered();
        self.encoder = Encoder::Made(result);
        read.map(|(_, sources)| sources).unwrap_or_default()
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
        let Encoder::Made(made) = &self.encoder else { return Ok(&[]) };
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
    ///
    /// # Errors
    /// Those of the codecs, and when there is no memory.
    pub(crate) fn seal(&mut self, room: &mut Room) -> Result<Sealed, Error> {
        if let Encoder::Made(made) = &self.encoder {
            return self.sealed_as(made);
        }
        let (session, payload) = self.on_host(room)?;
        let frame = Frame::new(session.finish(payload)?);
        let end = self.session.end() as usize;
        if let (Encoder::Host { aside: Some(aside) }, Room::Arena(guard)) = (&self.encoder, room) {
            gpu::store(guard, 0, &aside[..end])?;
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
    pub(crate) fn watched(&self) -> Option<Watched> {
        self.plan().auto.filter(|picked| picked.is_timed)?;
        let bytes = self.plan().regions.iter().map(|region| region.bytes).sum();
        Some(Watched { bytes, is_decoder: false })
    }
}

impl Sealed {
    /// What it takes of the room at `offset`.
    pub(crate) fn kept(&self, offset: u64) -> Kept {
        Kept { offset, bytes: self.frame.head().payload_bytes }
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
