//! A checkpoint while its regions are filled and encoded, in the caller's threads.
//!
//! The payload is built from its start, the stream of one region after that of the other. Values
//! that come before their turn wait in memory of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_codec::{Achieved, EncodedStream, Head, REGION_ALIGNMENT, Spec};
use unspool_transfer::{Buffer, Pool};

use super::check::check;
use super::plan::{EncodingPlan, Planned, unfit};
use crate::error::{Error, ErrorKind};
use crate::gpu::staged;

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    plan: EncodingPlan,
    /// Its head with the largest streams.
    worst: Arc<Head>,
    /// Whether every region is decoded and compared at once.
    check: bool,
    buffers: Arc<Pool>,
    /// The regions that are in the payload, from the first one on.
    made: Vec<EncodedStream>,
    /// The byte after them.
    end: u64,
    /// Values whose turn has not come, by region.
    waiting: Vec<Option<Buffer>>,
    /// The region whose values could not be encoded: until others are given it has none.
    failed: Option<usize>,
    time: Duration,
}

impl Session {
    /// `worst` is the head that `plan` gives.
    pub(crate) fn new(
        plan: EncodingPlan,
        worst: Arc<Head>,
        check: bool,
        buffers: &Arc<Pool>,
    ) -> Session {
        let waiting = plan.regions.iter().map(|_| None).collect();
        let (buffers, made, time) = (Arc::clone(buffers), Vec::new(), Duration::ZERO);
        Session { plan, worst, check, buffers, made, end: 0, waiting, failed: None, time }
    }

    /// Whether what is encoded is decoded and compared.
    pub(crate) fn checks(&self) -> bool {
        self.check
    }

    /// Memory for the values of region `index`, to be filled by the caller.
    ///
    /// # Errors
    /// `Invalid` when the region is encoded already, `Io` when there is no memory.
    pub(crate) fn memory(&mut self, index: usize) -> Result<&mut Buffer, Error> {
        if index < self.made.len() {
            return Err(self.filled_already(index));
        }
        let slot = &mut self.waiting[index];
        if slot.is_none() {
            *slot = Some(staged(&self.buffers, self.plan.regions[index].bytes)?);
        }
        Ok(slot.as_mut().unwrap_or_else(|| unreachable!("it was just made")))
    }

    /// The error for a region that is encoded by now.
    pub(crate) fn filled_already(&self, index: usize) -> Error {
        let message = format!(
            "Region {:?} of version {} was filled already, and is encoded by now. Fill each region \
             once.",
            self.plan.regions[index].spec.name, self.plan.version
        );
        Error::new(ErrorKind::Invalid, message)
    }

    /// Takes the values of region `index`: encodes them at once when all regions before it are
    /// there.
    ///
    /// # Errors
    /// Those of [`memory`](Self::memory), and of the codec.
    pub(crate) fn take(
        &mut self,
        index: usize,
        values: &[u8],
        payload: &mut [u8],
    ) -> Result<(), Error> {
        while self.made.len() < index
            && let Some(earlier) = self.waiting[self.made.len()].take()
        {
            self.encode(&earlier, payload)?;
        }
        if self.made.len() == index {
            self.waiting[index] = None;
            return self.encode(values, payload);
        }
        self.memory(index)?.copy_from_slice(values);
        Ok(())
    }

    /// Encodes what is left, and gives the head of the checkpoint. Values that were not given
    /// are zeros.
    ///
    /// # Errors
    /// Those of the codecs.
    pub(crate) fn finish(&mut self, payload: &mut [u8]) -> Result<Head, Error> {
        while let Some(region) = self.plan.regions.get(self.made.len()) {
            let values = match self.waiting[self.made.len()].take() {
                Some(values) => values,
                None if self.failed == Some(self.made.len()) => return Err(self.has_failed()),
                None => {
                    let mut zeros = staged(&self.buffers, region.bytes)?;
                    zeros.fill(0);
                    zeros
                }
            };
            self.encode(&values, payload)?;
        }
        let stored: Vec<u64> = self.made.iter().map(|made| made.bytes).collect();
        let head = self.worst.with_stored(&stored);
        let head = head.map_err(|cause| unfit(self.plan.version, cause))?;
        debug_assert_eq!(head.payload_bytes, self.end);
        Ok(head)
    }

    /// The error for a region whose values were refused, in place of which none came.
    fn has_failed(&self) -> Error {
        let message = format!(
            "Version {} was not saved: region {:?} could not be encoded, as the call that gave its \
             values has said. Give it other values, or another codec.",
            self.plan.version,
            self.plan.regions[self.made.len()].spec.name
        );
        Error::new(ErrorKind::Invalid, message)
    }

    /// Encodes the next region into the payload.
    fn encode(&mut self, values: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        self.failed = Some(self.made.len());
        self.encode_next(values, payload)?;
        self.failed = None;
        Ok(())
    }

    fn encode_next(&mut self, values: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        let region = &self.plan.regions[self.made.len()];
        let start = self.end.next_multiple_of(REGION_ALIGNMENT);
        payload[self.end as usize..start as usize].fill(0);
        let out = &mut payload[start as usize..];
        let began = Instant::now();
        let made = region.encode(values, out);
        self.time += began.elapsed();
        let made = made.map_err(|cause| {
            let message = format!(
                "Version {} cannot be saved: region {:?}: {cause}",
                self.plan.version, region.spec.name
            );
            Error::new(ErrorKind::Invalid, message).caused_by(cause)
        })?;
        if self.check {
            self.look(region, values, &out[..made.bytes as usize])?;
        }
        self.end = start + made.bytes;
        self.made.push(made);
        Ok(())
    }

    /// Decodes a region at once and compares it with what was given.
    pub(crate) fn look(&self, region: &Planned, values: &[u8], stream: &[u8]) -> Result<(), Error> {
        if region.codec == Spec::Raw {
            return Ok(());
        }
        let mut decoded = staged(&self.buffers, region.bytes)?;
        region.decode(stream, &mut decoded).map_err(|cause| {
            let message = format!(
                "Version {} was not saved: the stream of region {:?} cannot be decoded: {cause}",
                self.plan.version, region.spec.name
            );
            Error::new(ErrorKind::BoundViolated, message).caused_by(cause)
        })?;
        check(self.plan.version, region, values, &decoded)
    }

    /// Bytes of the payload so far.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The most bytes of the payload.
    pub(crate) fn most(&self) -> u64 {
        self.worst.payload_bytes
    }

    pub(crate) fn plan(&self) -> &EncodingPlan {
        &self.plan
    }

    /// The head with the largest streams.
    pub(crate) fn worst(&self) -> &Head {
        &self.worst
    }

    pub(crate) fn buffers(&self) -> &Arc<Pool> {
        &self.buffers
    }

    /// The errors that the encoders made, by region, and how long they took.
    pub(crate) fn achieved(&self) -> (Vec<Option<Achieved>>, Duration) {
        (self.made.iter().map(|made| Some(made.achieved)).collect(), self.time)
    }
}
