//! A save of a checkpoint that is encoded already: the frame that another store has of it.

use std::sync::Arc;

use unspool_codec::{Head, checksum, parse_head, unpack};
use unspool_transfer::{Buffer, Frame, staging};

use super::Prepared;
use super::room::save_prepared;
use super::ticket::SaveState;
use crate::coding::Room;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Part};
use crate::runtime::shared::Shared;
use crate::runtime::stack::check_writable;
use crate::wait::Wait;

/// Saves the checkpoint whose frame these bytes are, under the version that the frame says.
///
/// # Errors
/// `Corrupt` when they are not a whole frame; those of [`Spool::save`](crate::Spool::save).
pub(crate) fn adopt(shared: &Arc<Shared>, frame: &[u8], wait: &Wait<'_>) -> Result<i64, Error> {
    let (head, sum) = parse_head(frame).map_err(|cause| damaged(&cause.to_string()))?;
    if head.frame_bytes() != frame.len() as u64 {
        return Err(damaged("it is longer or shorter than its head announces."));
    }
    check_writable(&shared.settings, head.version, "saved")?;
    let (version, stored) =
        (head.version, &frame[head.encoded_len() as usize..head.sums_at() as usize]);
    let unpacked = head.packed.map(|_| unpacked(shared, &head, stored)).transpose()?;
    let payload = unpacked.as_deref().unwrap_or(stored);
    if checksum(payload) != sum {
        return Err(damaged("the checksum of its payload is another one."));
    }
    let prepared = Prepared::found(Frame::found(head, sum));
    let mut ticket = save_prepared(shared, &prepared, wait)?;
    match &mut ticket.state {
        SaveState::Plain { room: Room::Staged(buffer), .. } => {
            buffer[..payload.len()].copy_from_slice(payload);
        }
        SaveState::Plain { room: Room::Arena(guard), .. } => {
            let all = Part { offset: 0, len: payload.len() as u64 };
            gpu::store_host(&shared.buffers, guard, all, |to| to.copy_from_slice(payload))?;
        }
        _ => unreachable!("what has no plan is kept as it is"),
    }
    ticket.commit().map(|()| version)
}

fn unpacked(shared: &Shared, head: &Head, stored: &[u8]) -> Result<Buffer, Error> {
    let mut payload = staging(&shared.buffers, head.payload_bytes)
        .map_err(|cause| shared.direct_failed("saved", head.version, cause))?;
    unpack(head, stored, &mut payload).map_err(|cause| damaged(&cause.to_string()))?;
    Ok(payload)
}

fn damaged(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("The bytes are not a whole frame: {why}"))
}
