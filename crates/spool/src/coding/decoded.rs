//! The decoders of a restore.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use unspool_codec::{CodecId, Head};
use unspool_transfer::Buffer;

use super::method::decode;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, DeviceArray, Gpu, Stream, staged};
use crate::restore::RestoreTicket;

/// Regions that were decoded into memory of ours, because the caller wants to see them in place.
#[derive(Debug)]
pub(crate) struct Decoded(Vec<OnceLock<Buffer>>);

impl Decoded {
    /// For the regions of `head`; `None` when none is encoded.
    pub(crate) fn of(head: &Head) -> Option<Box<Decoded>> {
        let encoded = head.regions.iter().any(|region| region.codec != CodecId::Raw);
        encoded.then(|| Box::new(Decoded(head.regions.iter().map(|_| OnceLock::new()).collect())))
    }
}

impl RestoreTicket {
    /// Whether region `index` is encoded.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub(crate) fn is_encoded(&self, index: usize) -> bool {
        self.decoded.is_some() && self.frame.head().regions[index].codec != CodecId::Raw
    }

    /// Decodes region `index` to `to`.
    ///
    /// # Errors
    /// `Corrupt` when its stream is damaged, and those of reading it.
    pub(crate) fn decode(&self, index: usize, to: &mut [u8]) -> Result<(), Error> {
        let region = &self.frame.head().regions[index];
        let mut done = Ok(());
        let mut time = Duration::ZERO;
        self.read_stored(index, |stream| {
            let began = Instant::now();
            done = decode(region, stream, to);
            time = began.elapsed();
        })?;
        done.map_err(|cause| {
            let message = format!(
                "Version {} cannot be restored: region {:?}: {cause}",
                self.version(),
                region.name
            );
            Error::new(ErrorKind::Corrupt, message).caused_by(cause)
        })?;
        self.hub.state().tally.codecs.decoded(region.codec, time);
        Ok(())
    }

    /// Decodes region `index` into memory of ours.
    fn decode_aside(&self, index: usize) -> Result<Buffer, Error> {
        let mut values = staged(&self.hub.buffers, self.frame.head().regions[index].bytes)?;
        self.decode(index, &mut values)?;
        Ok(values)
    }

    /// Lets `look` see the values of region `index`.
    pub(crate) fn with_decoded(&self, index: usize, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        match self.slot(index).and_then(OnceLock::get) {
            Some(values) => look(values),
            None => look(&*self.decode_aside(index)?),
        }
        Ok(())
    }

    /// The values of region `index`, decoded once.
    pub(crate) fn decoded_region(&self, index: usize) -> Option<&[u8]> {
        let slot = self.slot(index)?;
        if slot.get().is_none() {
            // Another thread may have been quicker; both have decoded the same.
            let _ = slot.set(self.decode_aside(index).ok()?);
        }
        slot.get().map(|values| &**values)
    }

    fn slot(&self, index: usize) -> Option<&OnceLock<Buffer>> {
        self.decoded.as_ref().map(|decoded| &decoded.0[index])
    }

    /// Decodes region `index` into an array of a GPU, behind what is on `on`.
    pub(crate) fn get_decoded(
        &mut self,
        index: usize,
        gpu: &Gpu,
        to: &DeviceArray,
        on: &Stream,
    ) -> Result<(), Error> {
        gpu::upload(gpu, &self.decode_aside(index)?, to, on)
    }
}
