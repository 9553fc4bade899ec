//! Payloads that are checked while they are read: one thread reads, another sums up what is there.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, scope};

use unspool_codec::{Checksum, checksum};
use unspool_core::CheckpointId;
use unspool_tiers::Tier;

use crate::error::TransferError;

/// Bytes of a payload that are read by one request. A disk takes much longer for them than a
/// request takes to begin, and they are still in the caches of a CPU when they are summed up.
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
    if payload.len() > PIECE
        && let Some(sum) = both(store, id, head, payload)
    {
        return sum;
    }
    store.get(id, 0, &mut [head, payload])?;
    Ok(checksum(payload))
}

/// Reads in pieces beside a thread that sums them up; `None` where there is no such thread.
fn both(
    store: &dyn Tier,
    id: CheckpointId,
    head: &mut [u8],
    payload: &mut [u8],
) -> Option<Result<u64, TransferError>> {
    let (read, pieces) = channel();
    scope(|scope| {
        let summing = Builder::new().name("unspool-sum".to_owned());
        let summing = summing.spawn_scoped(scope, move || sum(&pieces)).ok()?;
        let done = read_pieces(store, id, head, payload, &read);
        // The other thread ends when it has seen all pieces.
        drop(read);
        let sum = summing.join().expect("a checksum does not panic");
        Some(done.map(|()| sum))
    })
}

fn sum(pieces: &Receiver<&[u8]>) -> u64 {
    let mut sum = Checksum::new();
    pieces.iter().for_each(|piece| sum.update(piece));
    sum.value()
}

fn read_pieces<'a>(
    store: &dyn Tier,
    id: CheckpointId,
    head: &mut [u8],
    payload: &'a mut [u8],
    read: &Sender<&'a [u8]>,
) -> Result<(), TransferError> {
    let mut at = head.len() as u64;
    let mut pieces = payload.chunks_mut(PIECE);
    if let Some(first) = pieces.next() {
        store.get(id, 0, &mut [head, first])?;
        at += send(first, read);
    }
    for piece in pieces {
        store.get(id, at, &mut [piece])?;
        at += send(piece, read);
    }
    Ok(())
}

/// Gives a piece to the thread that sums up, and says how many bytes it has.
fn send<'a>(piece: &'a [u8], read: &Sender<&'a [u8]>) -> u64 {
    read.send(piece).expect("the thread that sums up is there until this one has ended");
    piece.len() as u64
}
