//! Payloads that are checked while they are read: of two threads one reads a piece while the other
//! sums up the piece before, so that a disk always has something to do.

use std::iter::{Enumerate, Zip};
use std::panic::resume_unwind;
use std::slice::{ChunksMut, IterMut};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

use unspool_codec::{checksum, joined_checksums};
use unspool_core::CheckpointId;
use unspool_tiers::Tier;

use crate::error::TransferError;

/// Bytes of a payload that are read by one request. A disk takes much longer for them than a
/// request takes to begin, and many are still in the caches of a CPU when they are summed up.
const PIECE: usize = 16 << 20;

/// Reads a frame whose payload is not packed, and gives the checksum of what was read.
///
/// # Errors
/// Those of [`Tier::get`].
pub(crate) fn read_and_sum(
    store: &dyn Tier,
    id: CheckpointId,
    head: &mut [u8],
    payload: &mut [u8],
) -> Result<u64, TransferError> {
    if payload.len() <= PIECE {
        store.get(id, 0, &mut [head, payload])?;
        return Ok(checksum(payload));
    }
    store.get(id, 0, &mut [&mut *head])?;
    let mut sums = vec![0; payload.len().div_ceil(PIECE)];
    let left = Mutex::new(payload.chunks_mut(PIECE).zip(&mut sums).enumerate());
    Pieces { store, id, start: head.len() as u64, left }.read_by_two()?;
    let lens = payload.chunks(PIECE).map(|piece| piece.len() as u64);
    let whole = sums.into_iter().zip(lens);
    let join = |first, (second, len)| joined_checksums(first, second, len);
    Ok(whole.fold(checksum(&[]), join))
}

/// The pieces of a payload that are still to be read, and where the checksum of each is written.
struct Pieces<'a> {
    store: &'a dyn Tier,
    id: CheckpointId,
    /// Where the payload begins in the frame.
    start: u64,
    left: Mutex<Enumerate<Zip<ChunksMut<'a, u8>, IterMut<'a, u64>>>>,
}

impl<'a> Pieces<'a> {
    fn read_by_two(&self) -> Result<(), TransferError> {
        scope(|scope| {
            let other = Builder::new().name("unspool-read".to_owned());
            // Where no thread can be started, this one reads everything.
            let other = other.spawn_scoped(scope, || self.read()).ok();
            let done = self.read();
            let others = other.map_or(Ok(Ok(())), |other| other.join());
            done.and(others.unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    /// Reads and sums up pieces as long as there are any. After a failure there are none.
    fn read(&self) -> Result<(), TransferError> {
        while let Some((index, piece, sum)) = self.next() {
            let at = self.start + (index * PIECE) as u64;
            if let Err(cause) = self.store.get(self.id, at, &mut [&mut *piece]) {
                while self.next().is_some() {}
                return Err(cause.into());
            }
            *sum = checksum(piece);
        }
        Ok(())
    }

    fn next(&self) -> Option<(usize, &'a mut [u8], &'a mut u64)> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.next().map(|(index, (piece, sum))| (index, piece, sum))
    }
}
