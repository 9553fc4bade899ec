//! Checkpoints that are put together from a full frame and the increments that follow it, as they
//! lie in the durable spool of a rank.

use std::sync::Arc;

use unspool::{Error, ErrorKind, Settings, Spool, Wait};
use unspool_codec::increment::{Increment, Whole, is_increment};
use unspool_codec::{FrameError, FrameErrorKind, Head, checksum, parse_head, unpack};

/// An increment as it was read.
struct Link {
    step: i64,
    outer: Head,
    frame: Vec<u8>,
}

impl Link {
    fn parsed(&self) -> Result<(Increment, &[u8]), FrameError> {
        Increment::parse(&self.outer, &self.frame[self.outer.encoded_len() as usize..])
    }
}

/// The checkpoints of a durable spool, put together one after the other. The last one stays in
/// memory, so that those that build on it need no frame but their own.
#[derive(Debug)]
pub struct Chains {
    spool: Arc<Spool>,
    last: Option<(i64, Whole)>,
}

impl Chains {
    /// Those of a spool.
    #[must_use]
    pub fn of(spool: Arc<Spool>) -> Chains {
        Chains { spool, last: None }
    }

    /// A spool in main memory that has the checkpoint `version` alone, whole; `None` where it is
    /// stored in full.
    ///
    /// # Errors
    /// `Corrupt`, `Lost` and `Io`: the text names the version, and the one that it builds on. Those
    /// of [`Spool::regions`] and [`Spool::open`].
    pub fn reader(&mut self, version: i64, wait: &Wait<'_>) -> Result<Option<Arc<Spool>>, Error> {
        if !builds_on_another(&self.spool, version)? {
            return Ok(None);
        }
        let whole = put_together(&self.spool, version, self.last.take())?;
        let (_, whole) = self.last.insert((version, whole));
        adopted(&whole.clone().into_frame(), wait).map(Some)
    }
}

/// Whether `version` is stored as an increment.
///
/// # Errors
/// Those of [`Spool::regions`].
pub(crate) fn builds_on_another(spool: &Spool, version: i64) -> Result<bool, Error> {
    Ok(is_increment(&*spool.regions(version)?))
}

/// The frame of the checkpoint `version`, whole, whether it is stored so or as an increment.
///
/// # Errors
/// `Corrupt`, `Lost` and `Io`: the text names the step, and the one that it builds on.
pub(crate) fn whole(spool: &Spool, version: i64) -> Result<Vec<u8>, Error> {
    match builds_on_another(spool, version).map_err(|cause| broken(&[], version, cause))? {
        true => put_together(spool, version, None).map(Whole::into_frame),
        false => read(spool, version).map_err(|cause| broken(&[], version, cause)),
    }
}

/// A spool in main memory that has the checkpoint `version` alone, whole.
///
/// # Errors
/// Those of [`whole`] and [`Spool::open`].
pub(crate) fn reader(spool: &Spool, version: i64, wait: &Wait<'_>) -> Result<Arc<Spool>, Error> {
    adopted(&whole(spool, version)?, wait)
}

/// A spool in main memory with a frame that is not packed.
///
/// # Errors
/// Those of [`Spool::open`] and [`Spool::adopt`].
pub(crate) fn adopted(frame: &[u8], wait: &Wait<'_>) -> Result<Arc<Spool>, Error> {
    let host = (frame.len() as u64).next_multiple_of(1 << 20) + (1 << 20);
    let reader = Spool::open(Settings { host: Some(host), ..Settings::default() })?;
    reader.adopt(frame, wait)?;
    Ok(Arc::new(reader))
}

/// The checkpoint `version` of its frame and those that it builds on, back to `known`, or to one
/// that is stored in full: a parent comes before its child.
fn put_together(
    spool: &Spool,
    version: i64,
    mut known: Option<(i64, Whole)>,
) -> Result<Whole, Error> {
    let (mut links, mut at) = (Vec::new(), version);
    let mut whole = loop {
        if let Some((_, known)) = known.take_if(|(known, _)| *known == at) {
            break known;
        }
        let frame = read(spool, at).map_err(|cause| broken(&links, at, cause))?;
        let (outer, _) = parse_head(&frame).map_err(|cause| damaged(&links, at, &cause))?;
        if !is_increment(&outer) {
            break Whole::of(frame).map_err(|cause| damaged(&links, at, &cause))?;
        }
        let link = Link { step: at, outer, frame };
        at = link.parsed().map_err(|cause| damaged(&links, at, &cause))?.0.parent().version;
        links.push(link);
    };
    while let Some(link) = links.pop() {
        let apply = |whole| link.parsed().and_then(|(one, chunks)| one.apply(whole, chunks));
        whole = apply(whole).map_err(|cause| no_child(link.step, at, &cause))?;
        at = link.step;
    }
    whole.check().map_err(|cause| damaged(&[], version, &cause))?;
    Ok(whole)
}

/// The bytes of a frame with its head as memory tiers have it, compared with its checksums.
fn read(spool: &Spool, step: i64) -> Result<Vec<u8>, Error> {
    let stored = spool.stored(step)?;
    let mut frame = Vec::new();
    extend(&mut frame, stored.bytes()?)?;
    stored.read(0, &mut frame)?;
    let wrong = |why: &str| Error::new(ErrorKind::Corrupt, format!("Its frame is damaged: {why}."));
    let (head, sum) = parse_head(&frame).map_err(|why| wrong(&why.to_string()))?;
    if head.version != step {
        return Err(wrong("it is that of another step"));
    }
    let plain = head.in_memory();
    if head.packed.is_some() {
        let mut whole = plain.encode(sum);
        let stored = head.encoded_len() as usize..head.sums_at() as usize;
        let packed = frame.get(stored).ok_or_else(|| wrong("it is cut off"))?;
        let begin = whole.len();
        extend(&mut whole, plain.payload_bytes)?;
        unpack(&head, packed, &mut whole[begin..]).map_err(|why| wrong(&why.to_string()))?;
        frame = whole;
    } else if head.pieces {
        frame.truncate(head.sums_at() as usize);
        let front = plain.encode(sum);
        frame[..front.len()].copy_from_slice(&front);
    }
    let payload = frame.get(plain.encoded_len() as usize..).unwrap_or_default();
    if checksum(payload) != sum {
        return Err(wrong("the checksum of its payload is another one"));
    }
    Ok(frame)
}

/// Adds so many bytes to a frame.
fn extend(frame: &mut Vec<u8>, bytes: u64) -> Result<(), Error> {
    let more = usize::try_from(bytes).unwrap_or(usize::MAX);
    if frame.try_reserve_exact(more).is_err() {
        let message = format!("There is no memory for its {bytes} bytes.");
        return Err(Error::new(ErrorKind::Io, message));
    }
    frame.resize(frame.len() + more, 0);
    Ok(())
}

/// Step `at` cannot be had, on which the last of `links` builds.
fn broken(links: &[Link], at: i64, cause: Error) -> Error {
    let of = match links {
        [] => format!("Step {at} cannot be read"),
        [.., child] => {
            format!("Step {} is an increment to step {at}, which cannot be read", child.step)
        }
    };
    let kind = match cause.kind() {
        // It was acknowledged, or its child would not be there.
        ErrorKind::Unknown | ErrorKind::Discarded if !links.is_empty() => ErrorKind::Lost,
        kind => kind,
    };
    Error::new(kind, format!("{of}: {}", cause.message())).caused_by(cause)
}

fn damaged(links: &[Link], at: i64, cause: &FrameError) -> Error {
    broken(links, at, Error::new(kind_of(cause), format!("{cause}")))
}

fn no_child(step: i64, parent: i64, cause: &FrameError) -> Error {
    let message = format!("Step {step} is an increment to step {parent}, and cannot be: {cause}");
    Error::new(kind_of(cause), message)
}

/// Bytes for which there is no memory now are not damaged.
fn kind_of(cause: &FrameError) -> ErrorKind {
    match cause.kind() {
        FrameErrorKind::NoMemory => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}
