//! The frame of a checkpoint as a durable store has it, for copies of it elsewhere.

use std::ops::Range;
use std::sync::Arc;
use std::{fmt, slice};

use unspool_codec::{CodecErrorKind, CodecId, Head, Region, Zfp, twine, zfp};
use unspool_core::{CheckpointId, Failure, TierId, Version};
use unspool_transfer::{Buffer, Frame, read_ranges, read_sums};

use super::decoded::decode_on_host;
use crate::error::{Error, ErrorKind};
use crate::gpu::staged;
use crate::runtime::shared::Shared;

/// The bytes of a durable checkpoint as they are stored, codecs and all. They are not compared with
/// their checksum here: it is in the frame. A discarded checkpoint cannot be read any more.
pub struct StoredFrame {
    shared: Arc<Shared>,
    version: i64,
    id: CheckpointId,
    tier: TierId,
    frame: Arc<Frame>,
}

/// What an encoded region says of how it was encoded.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum MadeBy {
    /// Twine: bounds and errors are in the header.
    Twine(twine::Header),
    /// zfp.
    Zfp(Zfp),
}

fn unknown(version: i64) -> Error {
    Error::new(ErrorKind::Unknown, format!("Version {version} is not in a durable tier."))
}

impl StoredFrame {
    pub(crate) fn of(shared: &Arc<Shared>, version: i64) -> Result<StoredFrame, Error> {
        let unknown = || unknown(version);
        let state = shared.enter()?;
        let id = state.driver.core().checkpoint(Version(version)).ok_or_else(unknown)?;
        let frame = state.frames.frame(id).cloned().ok_or_else(unknown)?;
        drop(state);
        let tier = *shared.durable_tiers.last().ok_or_else(unknown)?;
        Ok(StoredFrame { shared: Arc::clone(shared), version, id, tier, frame })
    }

    /// How many bytes it has. The store is listed for it.
    ///
    /// # Errors
    /// `Unknown` when the store does not have it, or no more; `Io`.
    pub fn bytes(&self) -> Result<u64, Error> {
        let listed = self.shared.tier(self.tier).list().map_err(|cause| {
            Error::new(ErrorKind::Io, format!("The store cannot be listed: {cause}"))
                .caused_by(cause)
        })?;
        let found = listed.into_iter().find(|stored| stored.id == self.id);
        found.map(|stored| stored.bytes).ok_or_else(|| unknown(self.version))
    }

    /// Fills `into` with the bytes from `at` on.
    ///
    /// # Errors
    /// `Lost` when it was discarded meanwhile, `Corrupt`, `Io`.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let read = self.shared.tier(self.tier).get(self.id, at, &mut [into]);
        read.map_err(|cause| self.failed(cause.kind(), &cause.to_string()).caused_by(cause))
    }

    /// Its regions and their places in the payload.
    #[must_use]
    pub fn head(&self) -> &Head {
        self.frame.head()
    }

    /// Whether the payload may be packed, so that it is read whole whatever is wanted of it.
    #[must_use]
    pub fn may_be_packed(&self) -> bool {
        self.frame.may_be_packed()
    }

    /// The checksum of each 64 KiB of the payload as memory has it, the last piece as long as it
    /// is. Those of frames whose same bytes have the same place are compared without reading them.
    /// `None` for a longer payload that has none, as older frames.
    ///
    /// # Errors
    /// `Lost` when it was discarded meanwhile, `Corrupt`, `Io`.
    pub fn sums(&self) -> Result<Option<Vec<u64>>, Error> {
        let (store, buffers) = (self.shared.tier(self.tier), &self.shared.buffers);
        let read = read_sums(store, self.id, &self.frame, buffers);
        read.map_err(|cause| self.failed(cause.kind(), &cause.to_string()).caused_by(cause))
    }

    /// What region `index` says of how it was encoded; `None` for one that says nothing: of raw
    /// bytes and of nvCOMP.
    ///
    /// # Errors
    /// Those of [`sums`](Self::sums).
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn made_by(&self, index: usize) -> Result<Option<MadeBy>, Error> {
        let region = &self.frame.head().regions[index];
        let head = match region.codec {
            CodecId::Twine => twine::HEADER_BYTES,
            CodecId::Zfp => zfp::PREFIX_BYTES,
            _ => return Ok(None),
        };
        let mut said = vec![0; region.stored.min(head as u64) as usize];
        let begin = region.offset..region.offset + said.len() as u64;
        self.read_payload(slice::from_ref(&begin), &mut said)?;
        let made = match region.codec {
            CodecId::Twine => twine::header(&said).map(MadeBy::Twine),
            _ => zfp::header(&said).map(|prefix| MadeBy::Zfp(prefix.mode)),
        };
        made.map(Some).map_err(|cause| self.failed(Failure::Corrupt, &cause.to_string()))
    }

    /// Copies `parts` of the decoded bytes of region `index` to `to`, one after the other. Of a
    /// region that is not encoded only these bytes are read, in pieces of 64 KiB that have a
    /// checksum each; an encoded region is decoded whole. Nothing of it counts as a restore.
    ///
    /// # Errors
    /// `Lost` when it was discarded meanwhile, `Corrupt`, `Io`; `Device` when only a GPU decodes
    /// the region; `Invalid` when `to` has another size than the parts, or they are not within the
    /// region.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn read_region(
        &self,
        index: usize,
        parts: &[Range<u64>],
        to: &mut [u8],
    ) -> Result<(), Error> {
        let region = &self.frame.head().regions[index];
        let lens = parts.iter().map(|part| part.end.checked_sub(part.start));
        let all: Option<u64> = lens.sum();
        if all != Some(to.len() as u64) || parts.iter().any(|part| part.end > region.bytes) {
            let message = format!("Region {:?} has no such parts.", region.name);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if region.codec == CodecId::Raw {
            let within = |part: &Range<u64>| region.offset + part.start..region.offset + part.end;
            return self.read_payload(&parts.iter().map(within).collect::<Vec<_>>(), to);
        }
        let values = self.decoded(region)?;
        let mut rest = to;
        for part in parts {
            let from = &values[part.start as usize..part.end as usize];
            let (now, later) = rest.split_at_mut(from.len());
            now.copy_from_slice(from);
            rest = later;
        }
        Ok(())
    }

    fn decoded(&self, region: &Region) -> Result<Buffer, Error> {
        let mut stream = staged(&self.shared.buffers, region.stored)?;
        self.read_payload(slice::from_ref(&region.range()), &mut stream)?;
        let mut values = staged(&self.shared.buffers, region.bytes)?;
        decode_on_host(region, &stream, &mut values).map_err(|cause| {
            let kind = match cause.kind() {
                CodecErrorKind::NoMemory => ErrorKind::Io,
                _ if region.codec.needs_gpu() => ErrorKind::Device,
                _ => ErrorKind::Corrupt,
            };
            let (version, name) = (self.version, &region.name);
            let message = format!("Version {version} cannot be read: region {name:?}: {cause}");
            Error::new(kind, message).caused_by(cause)
        })?;
        Ok(values)
    }

    fn read_payload(&self, ranges: &[Range<u64>], to: &mut [u8]) -> Result<(), Error> {
        let (store, buffers) = (self.shared.tier(self.tier), &self.shared.buffers);
        let read = read_ranges(store, self.id, &self.frame, ranges, to, buffers);
        read.map_err(|cause| self.failed(cause.kind(), &cause.to_string()).caused_by(cause))
    }

    fn failed(&self, why: Failure, text: &str) -> Error {
        let kind = match why {
            Failure::Missing => ErrorKind::Lost,
            Failure::Corrupt => ErrorKind::Corrupt,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("The frame of version {} cannot be read: {text}", self.version))
    }
}

impl fmt::Debug for StoredFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFrame").field("version", &self.version).finish_non_exhaustive()
    }
}
