//! The decoders of a restore.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use unspool_codec::{CodecError, CodecId, Head, Region, Spec};
use unspool_cuda::DeviceError;
use unspool_transfer::Buffer;

use super::RestoreTicket;
use crate::coding::{kind_of, through};
use crate::error::{Error, ErrorKind};
use crate::gpu::staged;

/// Regions that were decoded into memory of the spool's own, because the caller wants to see them
/// in place.
#[derive(Debug)]
pub(crate) struct Decoded {
    values: Vec<OnceLock<Buffer>>,
    /// The codecs that are known, by region.
    codecs: Vec<Option<Spec>>,
}

impl Decoded {
    /// For the regions of `head`, some of which are known to be made by `codecs`; `None` when none
    /// is encoded.
    pub(crate) fn of(head: &Head, codecs: &[Option<Spec>]) -> Option<Box<Decoded>> {
        let encoded = head.regions.iter().any(|region| region.codec != CodecId::Raw);
        let values = || head.regions.iter().map(|_| OnceLock::new()).collect();
        encoded.then(|| Box::new(Decoded { values: values(), codecs: codecs.to_vec() }))
    }

    /// What made region `index`, where its frame does not say and this run knows.
    pub(super) fn codec(&self, index: usize) -> Option<Spec> {
        self.codecs.get(index).copied().flatten()
    }
}

impl RestoreTicket {
    /// Whether region `index` is encoded.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub(crate) fn is_encoded(&self, index: usize) -> bool {
        self.decoded().is_some() && self.served.frame.head().regions[index].codec != CodecId::Raw
    }

    /// Decodes region `index` to `to`.
    ///
    /// # Errors
    /// `Corrupt` when its stream is damaged, and those of reading it.
    pub(crate) fn decode(&self, index: usize, to: &mut [u8]) -> Result<(), Error> {
        let region = &self.served.frame.head().regions[index];
        if region.codec.needs_gpu() {
            return self.decode_through(index, to);
        }
        let mut done = Ok(());
        let mut time = Duration::ZERO;
        self.read_stored(index, |stream| {
            let began = Instant::now();
            done = decode_on_host(region, stream, to);
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
        self.count_decoded(index, time);
        Ok(())
    }

    /// The host has decoded region `index`.
    fn count_decoded(&self, index: usize, time: Duration) {
        let region = &self.served.frame.head().regions[index];
        let mut state = self.served.shared.state();
        state.counters.codecs.decoded(region.codec, time);
        if region.codec == CodecId::Twine {
            state.counters.experience.decoded(region.bytes, time);
        }
    }

    /// Decodes region `index` into memory of the spool's own.
    pub(super) fn decode_aside(&self, index: usize) -> Result<Buffer, Error> {
        let mut values =
            staged(&self.served.shared.buffers, self.served.frame.head().regions[index].bytes)?;
        self.decode(index, &mut values)?;
        Ok(values)
    }

    /// Shows `look` the values of region `index`.
    pub(crate) fn with_decoded(&self, index: usize, look: impl FnOnce(&[u8])) -> Result<(), Error> {
        match self.slot(index).and_then(OnceLock::get) {
            Some(values) => look(values),
            None => look(&self.decode_aside(index)?),
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
        self.decoded().map(|decoded| &decoded.values[index])
    }

    /// Decodes region `index`, which only a GPU can, to memory of the host: there and back over
    /// the link. Waits for it.
    fn decode_through(&self, index: usize, to: &mut [u8]) -> Result<(), Error> {
        let region = &self.served.frame.head().regions[index];
        let gpu = self.served.shared.some_gpu();
        let found = gpu.as_ref().and_then(|gpu| Some((gpu, gpu.coders()?, self.on_gpu(index)?)));
        let Some((gpu, coders, layout)) = found else {
            let message = format!(
                "Version {} cannot be restored to main memory: region {:?} was encoded with \
                 nvCOMP, which only a GPU decodes. Restore it into an array of a GPU.",
                self.version(),
                region.name
            );
            return Err(Error::new(ErrorKind::Device, message));
        };
        let began = Instant::now();
        let mut done = Ok(());
        self.read_stored(index, |stream| done = through(gpu, coders, stream, &layout, to))?;
        done.map_err(|cause| not_decoded(self.version(), &region.name, cause))?;
        self.count_decoded(index, began.elapsed());
        Ok(())
    }
}

/// Writes the values of `region`, whose bytes in a payload are `stream`, to `out`.
pub(super) fn decode_on_host(
    region: &Region,
    stream: &[u8],
    out: &mut [u8],
) -> Result<(), CodecError> {
    region.codec.codec()?.decode(&region.dtype, &region.shape, stream, out)
}

/// The error of a region that only a GPU can decode.
pub(super) fn not_decoded(version: i64, region: &str, cause: DeviceError) -> Error {
    let message = format!("Version {version} cannot be restored: region {region:?}: {cause}");
    Error::new(kind_of(&cause), message).caused_by(cause)
}
