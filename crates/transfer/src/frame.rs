//! Frames on their way into stores and out of them.

use std::sync::{Arc, OnceLock};

use unspool_codec::{Head, checksum, parse_head};
use unspool_core::{CheckpointId, Failure};
use unspool_tiers::Tier;

use crate::error::TransferError;
use crate::staging::{Buffer, Pool};

/// What is known of a checkpoint besides its bytes, shared by everything that moves it.
///
/// A checkpoint never changes, so the checksum of its payload is computed once, by whoever needs
/// it first.
#[derive(Debug)]
pub struct Frame {
    head: Arc<Head>,
    checksum: OnceLock<u64>,
}

impl Frame {
    /// A frame whose payload nobody has looked at yet.
    #[must_use]
    pub fn new(head: Head) -> Frame {
        Frame { head: Arc::new(head), checksum: OnceLock::new() }
    }

    /// A frame that was found in a store, with the checksum that its head gives.
    #[must_use]
    pub fn found(head: Head, checksum: u64) -> Frame {
        Frame { head: Arc::new(head), checksum: OnceLock::from(checksum) }
    }

    /// Its regions and their places.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// The checksum of the payload, if somebody has computed it.
    #[must_use]
    pub fn checksum(&self) -> Option<u64> {
        self.checksum.get().copied()
    }

    /// The checksum of the payload, which is `payload`.
    fn checksum_of(&self, payload: &[u8]) -> u64 {
        // Two threads may both compute it; they find the same.
        self.checksum().unwrap_or_else(|| {
            let sum = checksum(payload);
            *self.checksum.get_or_init(|| sum)
        })
    }
}

/// Writes the frame of `id` into a store: its head with the checksum, then `payload`.
///
/// # Errors
/// Those of [`Tier::put`]; the store then holds nothing of it.
pub fn write_frame(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    payload: &[u8],
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    assert_eq!(payload.len() as u64, frame.head.payload_bytes, "the payload is that of the head");
    let encoded = frame.head.encode(frame.checksum_of(payload));
    let mut head = staging(buffers, encoded.len() as u64)?;
    head.copy_from_slice(&encoded);
    Ok(store.put(id, 0, &[&head, payload])?)
}

/// Reads the payload of `id` from a store into `payload`, and makes sure that it is the one that
/// was saved: the head must be the expected one and, with `verify`, the checksum must fit.
///
/// # Errors
/// Those of [`Tier::get`], and [`Failure::Corrupt`] when the frame is not the expected one; the
/// content of `payload` is then unspecified.
pub fn read_frame(
    store: &dyn Tier,
    id: CheckpointId,
    frame: &Frame,
    verify: bool,
    payload: &mut [u8],
    buffers: &Arc<Pool>,
) -> Result<(), TransferError> {
    assert_eq!(payload.len() as u64, frame.head.payload_bytes, "the payload is that of the head");
    let mut head = staging(buffers, frame.head.encoded_len())?;
    store.get(id, 0, &mut [&mut head, &mut *payload])?;
    let compared = check_head(frame, &head)
        .and_then(|()| if verify { check_payload(frame, payload) } else { Ok(()) });
    compared.map_err(|error| {
        let (version, place) = (frame.head.version, store.describe().location);
        error.while_doing(format_args!("the frame of version {version} in {place}"))
    })
}

/// Compares a head that was read with the expected one.
fn check_head(frame: &Frame, bytes: &[u8]) -> Result<(), TransferError> {
    // Whatever is wrong with it: it is not what was written.
    let parsed = parse_head(bytes);
    let (head, written) =
        parsed.map_err(|cause| corrupt(&format!("its head cannot be read ({cause})")))?;
    if head != **frame.head() {
        return Err(corrupt("its head describes another checkpoint"));
    }
    match frame.checksum() {
        Some(known) if known != written => Err(corrupt("its head belongs to another payload")),
        _ => {
            let _ = frame.checksum.set(written);
            Ok(())
        }
    }
}

/// Compares the checksum of a payload that was read with the known one.
fn check_payload(frame: &Frame, payload: &[u8]) -> Result<(), TransferError> {
    let (found, known) = (checksum(payload), frame.checksum());
    if known.is_none_or(|known| known == found) {
        return Ok(());
    }
    let known = known.unwrap_or_default();
    Err(corrupt(&format!(
        "the checksum of its payload is {found:#018x}, it was {known:#018x} when it was written"
    )))
}

fn corrupt(what: &str) -> TransferError {
    let remedy = "Check the storage: its bytes have changed since they were written.";
    TransferError::new(Failure::Corrupt, format!("{what}. {remedy}"))
}

/// A staging buffer of `bytes` bytes.
///
/// # Errors
/// When the machine has no memory for it; that may pass.
pub fn staging(buffers: &Arc<Pool>, bytes: u64) -> Result<Buffer, TransferError> {
    usize::try_from(bytes).ok().and_then(|len| buffers.take(len)).ok_or_else(|| {
        let message = format!("this machine has no {bytes} bytes for a staging buffer.");
        TransferError::new(Failure::Io, message)
    })
}
