//! The encoders of a save, and the payload that they build: in the arena where the checkpoint will
//! be, or in memory of ours when that arena is a device's.

use std::sync::Arc;
use std::time::Duration;

use unspool_codec::{Achieved, CodecId, Head, Region};
use unspool_core::Kept;
use unspool_transfer::{Buffer, Frame};

use super::choice::CodecChoice;
use super::figures::RegionCoding;
use super::plan::Plan;
use super::session::Session;
use crate::error::Error;
use crate::gpu::{self, staged};
use crate::hub::Hub;
use crate::save::{Room, SaveTicket};
use crate::state::State;

/// See the module.
#[derive(Debug)]
pub(crate) struct Encoded {
    session: Session,
    /// The payload, where the room is in a device's memory.
    aside: Option<Buffer>,
}

/// A checkpoint whose bytes are all known.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) frame: Arc<Frame>,
    /// By region; `None` where the codec does not tell it.
    pub(crate) achieved: Vec<Option<Achieved>>,
    /// For how long encoders ran.
    pub(crate) time: Duration,
}

impl Hub {
    /// The codecs for the regions of `head`, and the head for asking room; `None` when all are kept
    /// as they are. That is so also where the longest streams would not fit into the tier that the
    /// values fit into: a checkpoint that nearly fills a tier can then still be saved there.
    ///
    /// # Errors
    /// `Invalid` when a codec cannot take its region.
    pub(crate) fn plan(
        &self,
        head: &Head,
        codecs: &CodecChoice,
    ) -> Result<Option<(Head, Plan)>, Error> {
        let Some(plan) = Plan::of(head, codecs, |_, _| unspool_codec::Codec::Lossless)? else {
            return Ok(None);
        };
        let worst = plan.worst()?;
        let fits = self.fastest_for(worst.payload_bytes) == self.fastest_for(head.payload_bytes);
        Ok(fits.then_some((worst, plan)))
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
        Box::new(Encoded { session, aside: None })
    }
}

impl Encoded {
    /// Memory for the values of region `index`, to be filled by the caller.
    ///
    /// # Errors
    /// `Invalid` when the region is encoded already, `Io` when there is no memory.
    pub(crate) fn memory(&mut self, index: usize) -> Result<&mut [u8], Error> {
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
        let payload = payload(&self.session, &mut self.aside, room)?;
        self.session.take(index, values, payload)
    }

    /// Encodes what is left.
    fn seal(&mut self, room: &mut Room) -> Result<Sealed, Error> {
        let payload = payload(&self.session, &mut self.aside, room)?;
        let frame = Frame::new(self.session.finish(payload)?);
        if let (Some(aside), Room::Arena(guard)) = (&self.aside, room) {
            gpu::store(guard, 0, &aside[..self.session.end() as usize])?;
        }
        let (achieved, time) = self.session.achieved();
        Ok(Sealed { frame: Arc::new(frame), achieved, time })
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
        Room::Arena(_) => {
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
    pub(crate) fn sealed(&mut self, id: unspool_core::CheckpointId, sealed: Sealed) {
        let Sealed { frame, achieved, time } = sealed;
        let regions = codings(frame.head(), Some(&achieved));
        self.tally.codecs.saved(&regions, time);
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
