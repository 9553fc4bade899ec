//! Frames on their way into stores and out of them.

use std::sync::{Arc, OnceLock};

use unspool_codec::{
    CodecErrorKind, FrameError, HEAD_ALIGNMENT, Head, Outer, Packed, PieceSums, checksum, head_len,
    parse_head, unpack,
};
use unspool_core::{CheckpointId, Failure};
use unspool_tiers::Tier;

use crate::error::TransferError;
use crate::staging::{Buffer, Pool};
use crate::summed::read_and_sum;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The metadata of a checkpoint, shared by everything that moves it.
///
/// A checkpoint never changes, so the checksum of its payload is computed once, when it is first
/// needed.
#[derive(Debug)]
pub struct Frame {
    /// The head for memory tiers.
    head: Arc<Head>,
    checksum: OnceLock<u64>,
    /// Whether some store may hold the payload packed.
    packed: AtomicBool,
}

impl Frame {
    /// A frame whose checksum is not known yet.
    #[must_use]
    pub fn new(head: Head) -> Frame {
        Frame::known(head, OnceLock::new())
    }

    /// A frame that was found in a store, packed or not, with the checksum in its head.
    #[must_use]
    pub fn found(head: Head, checksum: u64) -> Frame {
        Frame::known(head, OnceLock::from(checksum))
    }

    fn known(head: Head, checksum: OnceLock<u64>) -> Frame {
        let packed = AtomicBool::new(head.packed.is_some());
        Frame { head: Arc::new(head.in_memory()), checksum, packed }
    }

    /// Its regions and their offsets.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// The checksum of the payload, if it was computed.
    #[must_use]
    pub fn checksum(&self) -> Option<u64> {
        self.checksum.get().copied()
    }

    /// Whether some store may hold the payload packed, so that nothing of it is read alone.
    #[must_use]
    pub fn may_be_packed(&self) -> bool {
        self.packed.load(Ordering::Relaxed)
    }

    /// The checksum of the payload, which that of `payload` is if it is not known yet.
    fn checksum_or(&self, found: u64) -> u64 {
        // Two threads may compute it at once; the results are equal.
        *self.checksum.get_or_init(|| found)
    }
}

/// Writes the frame of `id` into a store: its head with the checksum, then `payload`, which `outer`
/// packs if that makes it shorter.
///
/// Packing takes a staging buffer as long as the payload, and the threads of the codecs. Where the
/// machine has no memory for the buffer, the payload is stored unpacked.
///
/// # Errors
/// The errors of [`Tier::put`]; the store then holds nothing of the frame.
pub fn write_frame(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    payload: &[u8],
    outer: Option<Outer>,
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    assert_eq!(payload.len() as u64, frame.head.payload_bytes, "the payload is that of the head");
    let sums = PieceSums::of(payload);
    let sum = frame.checksum_or(sums.whole(payload.len() as u64));
    if let Some((head, packed)) = outer.and_then(|outer| pack(outer, frame, payload, buffers)) {
        // Set before the store has the frame, so that every reader sees it.
        frame.packed.store(true, Ordering::Relaxed);
        return put(store, id, (&head.with_pieces(), sum, &sums), &packed, buffers);
    }
    put(store, id, (&frame.head.with_pieces(), sum, &sums), payload, buffers)
}

/// The head and the bytes of a packed frame, if packing makes the frame shorter.
fn pack(
    outer: Outer,
    frame: &Frame,
    payload: &[u8],
    buffers: &Arc<Pool>,
) -> Option<(Head, Buffer)> {
    let mut packed = buffers.take(payload.len())?;
    let len = outer.pack(&frame.head, payload, &mut packed)?;
    packed.truncate(len);
    let packing = Packed { coder: outer.id(), bytes: len as u64 };
    let head = frame.head.with_packed(Some(packing)).ok()?;
    (head.frame_bytes() < frame.head.frame_bytes()).then_some((head, packed))
}

fn put(
    store: &dyn Tier,
    id: CheckpointId,
    (head, sum, sums): (&Head, u64, &PieceSums),
    stored: &[u8],
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    let mut front = staging(buffers, head.encoded_len())?;
    front.copy_from_slice(&head.encode(sum));
    let sums = if head.pieces { sums.encode() } else { Vec::new() };
    Ok(store.put(id, 0, &[&front, stored, &sums])?)
}

/// Reads the payload of `id` from a store into `payload`, unpacks it, and checks that it is the one
/// that was saved: the head must be the expected one and, with `verify`, the checksum must match.
/// Without `verify` a packed payload is still checked for its structure and its lengths.
///
/// # Errors
/// The errors of [`Tier::get`], and [`Failure::Corrupt`] when the frame is not the expected one;
/// the content of `payload` is then unspecified.
pub fn read_frame(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    verify: bool,
    payload: &mut [u8],
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    assert_eq!(payload.len() as u64, frame.head.payload_bytes, "the payload is that of the head");
    let read = if frame.may_be_packed() {
        let read = read_packed(store, id, frame, payload, buffers);
        read.map(|()| verify.then(|| checksum(payload)))
    } else {
        read_plain(store, id, frame, verify, payload, buffers)
    };
    let checked = read.and_then(|sum| sum.map_or(Ok(()), |sum| check_payload(frame, sum)));
    checked.map_err(|error| located(error, store, id, frame))
}

/// Says in which file of a store damage was found.
pub(crate) fn located(
    error: TransferError,
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
) -> TransferError {
    match (error.kind(), error.tier_error()) {
        (Failure::Corrupt, None) => {
            let (version, place) = (frame.head.version, store.locate(id));
            let doing = format!("the frame of version {version} in {place}");
            error.while_doing(doing).found_at(place)
        }
        _ => error,
    }
}

/// Reads a frame that is known to be unpacked, and with `verify` gives the checksum of its payload.
fn read_plain(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    verify: bool,
    payload: &mut [u8],
    buffers: &Arc<Pool>,
) -> Result<Option<u64>, TransferError> {
    let mut head = staging(buffers, frame.head.encoded_len())?;
    let sum = if verify {
        Some(read_and_sum(store, id, &mut head, payload)?)
    } else {
        store.get(id, 0, &mut [&mut head, payload])?;
        None
    };
    match check_head(frame, &head)?.packed {
        None => Ok(sum),
        Some(_) => Err(corrupt("its payload is packed, and was not when it was written")),
    }
}

/// Reads a frame that may be packed, as its head says.
fn read_packed(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    payload: &mut [u8],
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    let found = stored_head(store, id, frame, buffers)?;
    let start = found.encoded_len();
    if found.packed.is_none() {
        return Ok(store.get(id, start, &mut [payload])?);
    }
    let mut packed = staging(buffers, found.stored_bytes())?;
    store.get(id, start, &mut [&mut packed])?;
    unpack(&found, &packed, payload).map_err(|cause| {
        // What there is no memory for now is as whole as before.
        let memory = cause.kind() == CodecErrorKind::NoMemory;
        let kind = if memory { Failure::Io } else { Failure::Corrupt };
        TransferError::new(kind, cause.to_string())
    })
}

/// Reads the head as it is in the store, and compares it with the expected one.
pub(crate) fn stored_head(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    buffers: &Arc<Pool>,
) -> Result<Head, TransferError> {
    check_head(frame, &read_head(store, id, buffers)?)
}

/// Reads the bytes of a head of any length.
fn read_head(
    store: &dyn Tier,
    id: CheckpointId,
    buffers: &Arc<Pool>,
) -> Result<Buffer, TransferError> {
    let mut head = staging(buffers, HEAD_ALIGNMENT)?;
    store.get(id, 0, &mut [&mut head])?;
    let len = head_len(&head).map_err(|cause| unreadable(&cause))?;
    if len > HEAD_ALIGNMENT {
        head = staging(buffers, len)?;
        store.get(id, 0, &mut [&mut head])?;
    }
    Ok(head)
}

/// Compares a head that was read with the expected one, and returns it as it is in the store.
fn check_head(frame: &Frame, bytes: &[u8]) -> Result<Head, TransferError> {
    // Any error means that these are not the bytes that were written.
    let (head, written) = parse_head(bytes).map_err(|cause| unreadable(&cause))?;
    if head.in_memory() != **frame.head() {
        return Err(corrupt("its head describes another checkpoint"));
    }
    match frame.checksum() {
        Some(known) if known != written => Err(corrupt("its head belongs to another payload")),
        _ => {
            let _ = frame.checksum.set(written);
            Ok(head)
        }
    }
}

/// Compares the checksum of a payload that was read with the known one.
fn check_payload(frame: &Frame, found: u64) -> Result<(), TransferError> {
    let known = frame.checksum();
    if known.is_none_or(|known| known == found) {
        return Ok(());
    }
    let known = known.unwrap_or_default();
    Err(corrupt(&format!(
        "the checksum of its payload is {found:#018x}, it was {known:#018x} when it was written"
    )))
}

fn unreadable(cause: &FrameError) -> TransferError {
    corrupt(&format!("its head cannot be read ({cause})"))
}

pub(crate) fn corrupt(what: &str) -> TransferError {
    let remedy = "Check the storage: its bytes have changed since they were written.";
    TransferError::new(Failure::Corrupt, format!("{what}. {remedy}"))
}

/// A staging buffer of `bytes` bytes.
///
/// # Errors
/// When the machine has no memory for it at this moment.
pub fn staging(buffers: &Arc<Pool>, bytes: u64) -> Result<Buffer, TransferError> {
    usize::try_from(bytes).ok().and_then(|len| buffers.take(len)).ok_or_else(|| {
        let message = format!("this machine has no {bytes} bytes for a staging buffer.");
        TransferError::new(Failure::Io, message)
    })
}
