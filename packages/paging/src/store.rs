//! Where encoded chunks are: in main memory up to a limit, and then on a disk.
//!
//! Every one has a checksum, which is compared before its bytes are trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unspool_codec::checksum;
use unspool_tiers::{CheckpointId, Tier};

use crate::error::{PagingError, PagingErrorKind};

/// Times that a chunk is asked for before it is given up.
const TRIES: u32 = 3;

/// An encoded chunk that was put aside. It is given back by [`ChunkStore::forget`].
#[derive(Debug)]
pub(crate) struct Kept {
    place: Place,
    len: usize,
    checksum: u64,
}

impl Kept {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it takes main memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Memory(_))
    }
}

#[derive(Debug)]
enum Place {
    Memory(Box<[u8]>),
    Disk(CheckpointId),
}

/// The encoded chunks of one array.
#[derive(Debug)]
pub(crate) struct ChunkStore {
    limit: u64,
    disk: Option<Arc<dyn Tier>>,
    in_memory: AtomicU64,
    on_disk: AtomicU64,
    next: AtomicU64,
}

impl ChunkStore {
    /// A store of at most `limit` bytes in main memory; what is beyond goes to the disk.
    pub(crate) fn new(limit: u64, disk: Option<Arc<dyn Tier>>) -> ChunkStore {
        let zero = AtomicU64::default;
        ChunkStore { limit, disk, in_memory: zero(), on_disk: zero(), next: zero() }
    }

    /// Bytes in main memory, and on the disk.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.in_memory.load(Ordering::Relaxed), self.on_disk.load(Ordering::Relaxed))
    }

    /// Puts the bytes aside. After an error nothing of them is kept.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Kept, PagingError> {
        let (len, checksum) = (bytes.len(), checksum(bytes));
        let place = match self.in_memory(bytes) {
            Some(copy) => Place::Memory(copy),
            None => Place::Disk(self.to_disk(bytes)?),
        };
        Ok(Kept { place, len, checksum })
    }

    /// A copy in main memory, if there is room.
    fn in_memory(&self, bytes: &[u8]) -> Option<Box<[u8]>> {
        let len = bytes.len() as u64;
        let taken = self.in_memory.fetch_add(len, Ordering::Relaxed);
        let mut copy = Vec::new();
        if taken.saturating_add(len) > self.limit || copy.try_reserve_exact(bytes.len()).is_err() {
            self.in_memory.fetch_sub(len, Ordering::Relaxed);
            return None;
        }
        copy.extend_from_slice(bytes);
        Some(copy.into_boxed_slice())
    }

    fn to_disk(&self, bytes: &[u8]) -> Result<CheckpointId, PagingError> {
        let Some(disk) = &self.disk else {
            let message = format!(
                "There is no room for {} encoded bytes beside the {} in memory, and no disk. Give \
                 a disk, more memory for encoded chunks, or a codec that makes fewer bytes.",
                bytes.len(),
                self.in_memory.load(Ordering::Relaxed)
            );
            return Err(PagingError::new(PagingErrorKind::NoMemory, message));
        };
        let id = CheckpointId(self.next.fetch_add(1, Ordering::Relaxed));
        let put = disk.put(id, 0, &[bytes]);
        put.map_err(|error| PagingError::new(PagingErrorKind::Io, error.to_string()))?;
        self.on_disk.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(id)
    }

    /// Gives the bytes to `read`, checked; from the disk by way of `buffer`. A medium that fails is
    /// asked again.
    ///
    /// # Errors
    /// `Io`, `Corrupt`, and those of `read`.
    pub(crate) fn get<T>(
        &self,
        kept: &Kept,
        buffer: &mut Vec<u8>,
        read: impl FnOnce(&[u8]) -> Result<T, PagingError>,
    ) -> Result<T, PagingError> {
        let bytes = match &kept.place {
            Place::Memory(bytes) if checksum(bytes) == kept.checksum => bytes,
            Place::Memory(_) => return Err(corrupt("in main memory")),
            Place::Disk(id) => {
                let mut answer = self.read_disk(*id, kept, buffer);
                for _ in 1..TRIES {
                    if answer.is_ok() {
                        break;
                    }
                    answer = self.read_disk(*id, kept, buffer);
                }
                answer?;
                &buffer[..]
            }
        };
        read(bytes)
    }

    fn read_disk(
        &self,
        id: CheckpointId,
        kept: &Kept,
        buffer: &mut Vec<u8>,
    ) -> Result<(), PagingError> {
        let Some(disk) = &self.disk else { return Err(corrupt("nowhere")) };
        buffer.resize(kept.len, 0);
        let got = disk.get(id, 0, &mut [buffer]);
        got.map_err(|error| PagingError::new(PagingErrorKind::Io, error.to_string()))?;
        if checksum(buffer) == kept.checksum { Ok(()) } else { Err(corrupt(&disk.locate(id))) }
    }

    /// Gives the room back.
    pub(crate) fn forget(&self, kept: Kept) {
        match kept.place {
            Place::Memory(_) => self.in_memory.fetch_sub(kept.len as u64, Ordering::Relaxed),
            Place::Disk(id) => {
                // What cannot be deleted now goes with the directory.
                let _ = self.disk.as_ref().map(|disk| disk.delete(id));
                self.on_disk.fetch_sub(kept.len as u64, Ordering::Relaxed)
            }
        };
    }
}

fn corrupt(place: &str) -> PagingError {
    let message = format!(
        "An encoded chunk {place} is not what was put there: its checksum differs. Check the \
         memory and the storage of this machine."
    );
    PagingError::new(PagingErrorKind::Corrupt, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_testkit::{Fault, Faulty, Operation, Scratch};
    use unspool_tiers::{Disk, DiskOptions, Failure, TierKind};

    fn disk(scratch: &Scratch) -> Arc<Faulty> {
        let disk = Disk::open(DiskOptions::new(scratch.path())).unwrap();
        assert_eq!(disk.describe().kind, TierKind::Disk);
        Arc::new(Faulty::new(Arc::new(disk)))
    }

    fn read(store: &ChunkStore, kept: &Kept) -> Result<Vec<u8>, PagingError> {
        store.get(kept, &mut Vec::new(), |bytes| Ok(bytes.to_vec()))
    }

    #[test]
    fn what_does_not_fit_memory_goes_to_the_disk_and_all_comes_back() {
        let scratch = Scratch::new();
        let store = ChunkStore::new(100, Some(disk(&scratch)));
        let kept = [store.put(&[1; 60]).unwrap(), store.put(&[2; 60]).unwrap()];
        assert_eq!(store.bytes(), (60, 60));
        assert_eq!(read(&store, &kept[0]).unwrap(), [1; 60]);
        assert_eq!(read(&store, &kept[1]).unwrap(), [2; 60]);
        kept.into_iter().for_each(|kept| store.forget(kept));
        assert_eq!(store.bytes(), (0, 0));
    }

    #[test]
    fn without_a_disk_what_does_not_fit_is_refused() {
        let store = ChunkStore::new(100, None);
        let error = store.put(&[1; 101]).unwrap_err();
        assert_eq!((error.kind(), store.bytes()), (PagingErrorKind::NoMemory, (0, 0)));
    }

    #[test]
    fn a_disk_that_fails_once_is_asked_again_and_one_that_lies_is_not_believed() {
        let scratch = Scratch::new();
        let disk = disk(&scratch);
        let store = ChunkStore::new(0, Some(disk.clone()));
        let kept = store.put(&[3; 5000]).unwrap();
        disk.on_nth(Operation::Get, 1, Fault::Fail(Failure::Io));
        disk.on_nth(Operation::Get, 2, Fault::FlipBit { at: 77 });
        assert_eq!(read(&store, &kept).unwrap(), [3; 5000]);
        disk.always(Operation::Get, Fault::FlipBit { at: 77 });
        assert_eq!(read(&store, &kept).unwrap_err().kind(), PagingErrorKind::Corrupt);
        disk.heal();
        disk.always(Operation::Put, Fault::Fail(Failure::NoSpace));
        assert_eq!(store.put(&[4; 10]).unwrap_err().kind(), PagingErrorKind::Io);
    }
}
