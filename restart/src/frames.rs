//! The frames of a rank's parts in its durable spool, and on their way to other places.

use std::cell::RefCell;
use std::ops::Range;

use unspool::{Error, ErrorKind, Spool, StoredFrame, Wait};
use unspool_codec::{Checksum, MAX_HEAD_BYTES, head_len, parse_head};
use unspool_remote::{Failure, Source, TierError};

use crate::chain;
use crate::folder::Folder;
use crate::manifest::{Manifest, Part};

/// Waits until the frame of a step is durable.
///
/// # Errors
/// `Lost` when it is not, and those of [`Spool::flush`] and [`Spool::durable`].
pub fn flush(spool: &Spool, step: u64, wait: &Wait<'_>) -> Result<(), Error> {
    let flushed = spool.flush(wait);
    // Another step may be what could not be flushed.
    let durable = spool.durable(step as i64);
    if matches!(durable, Ok(true)) {
        return Ok(());
    }
    flushed?;
    durable?;
    Err(Error::new(ErrorKind::Lost, "Its arrays are not on the disk."))
}

/// Discards the frames of steps, whole or lost.
///
/// # Errors
/// Those of [`Spool::lost`], [`Spool::versions`] and [`Spool::discard`].
pub fn discard(spool: &Spool, wanted: impl Fn(u64) -> bool) -> Result<(), Error> {
    let lost = spool.lost()?.into_keys();
    let versions = spool.versions()?.into_iter().chain(lost);
    for version in versions.filter(|version| u64::try_from(*version).is_ok_and(&wanted)) {
        match spool.discard(version) {
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Discarded) => {}
            done => done?,
        }
    }
    Ok(())
}

/// A part as it goes beyond the folder: in full, whether it is an increment here or not.
///
/// # Errors
/// `Lost` when it does not count here any more; those of reading it.
pub(crate) fn on_its_own(
    folder: &Folder,
    spool: &Spool,
    part: Part,
) -> Result<(Manifest, Box<dyn Source>), Error> {
    let mut all = folder.manifests()?.whole.into_iter();
    let own = all.find(|one| one.part() == part).ok_or_else(|| {
        let message = format!("Step {} does not count here any more.", part.step);
        Error::new(ErrorKind::Lost, message)
    })?;
    let frame: Box<dyn Source> = match own.increment {
        None => Box::new(CheckedFrame::of(spool.stored(part.step as i64)?)?),
        // It was compared with its checksum when it was put together.
        Some(_) => Box::new(chain::whole(spool, part.step as i64)?),
    };
    Ok((Manifest { increment: None, ..own }, frame))
}

/// A frame whose payload is compared with its checksum while it is read from its beginning to its
/// end: damaged bytes do not get any farther.
#[derive(Debug)]
pub struct CheckedFrame {
    frame: StoredFrame,
    bytes: u64,
    /// Where the payload is, and its checksum; none where it is packed, and checked by who
    /// unpacks it.
    payload: Option<(Range<u64>, u64)>,
    read: RefCell<(u64, Checksum)>,
}

impl CheckedFrame {
    /// A frame whose head is whole.
    ///
    /// # Errors
    /// `Corrupt`; those of reading it.
    pub fn of(frame: StoredFrame) -> Result<CheckedFrame, Error> {
        let bytes = frame.bytes()?;
        let mut start = vec![0; bytes.min(4096) as usize];
        frame.read(0, &mut start)?;
        let len = head_len(&start).map_err(|why| corrupt(&why.to_string()))?;
        if len > bytes.min(MAX_HEAD_BYTES) {
            return Err(corrupt("its head is longer than it"));
        }
        start.resize(len as usize, 0);
        frame.read(0, &mut start)?;
        let (head, sum) = parse_head(&start).map_err(|why| corrupt(&why.to_string()))?;
        let payload = head.packed.is_none().then_some((len..head.sums_at(), sum));
        Ok(CheckedFrame { frame, bytes, payload, read: RefCell::new((0, Checksum::new())) })
    }

    fn check(&self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        let Some((payload, expected)) = &self.payload else { return Ok(()) };
        let mut read = self.read.borrow_mut();
        if at == 0 {
            *read = (0, Checksum::new());
        }
        if at != read.0 {
            return Ok(());
        }
        let within = |place: u64| place.saturating_sub(at).min(bytes.len() as u64) as usize;
        read.1.update(&bytes[within(payload.start)..within(payload.end)]);
        read.0 += bytes.len() as u64;
        if read.0 == self.bytes && read.1.value() != *expected {
            let reason = "the checksum of its payload is another one";
            return Err(TierError::new(Failure::Corrupt, "put", "the frame", reason));
        }
        Ok(())
    }
}

fn corrupt(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("The frame is damaged: {why}."))
}

impl Source for CheckedFrame {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        self.frame.read(at, into).map_err(|cause| {
            let kind = match cause.kind() {
                ErrorKind::Lost => Failure::Missing,
                ErrorKind::Corrupt => Failure::Corrupt,
                _ => Failure::Io,
            };
            TierError::new(kind, "put", "the frame", cause.message().trim_end_matches('.'))
        })?;
        self.check(at, into)
    }
}
