//! The save of one checkpoint: how far it has come, and the calls with which its caller fills it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use unspool_codec::{Head, memory};
use unspool_cuda::{DeviceSpan, Fence, Stream};

use crate::coding::{Encoded, Encoding, Given, Predecessor, Room, Sealed};
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, DeviceArray, Gpu, InPlace};
use crate::runtime::shared::Shared;
use crate::runtime::state::Grant;

/// Room for one checkpoint: fill its regions, then [`commit`](SaveTicket::commit). Dropping the
/// ticket gives the save up: nothing was saved and the version is free again.
#[must_use = "a save that is not committed is given up"]
pub struct SaveTicket {
    pub(super) shared: Arc<Shared>,
    pub(super) grant: Grant,
    pub(super) state: SaveState,
}

/// How far a save has come. Each state owns what it needs.
pub(super) enum SaveState {
    /// Room was granted and is not borrowed yet: granting is done under the lock of the spool,
    /// borrowing without. Where a region is encoded, with its encoders.
    Granted { coded: Option<Coded> },
    /// The caller fills the room with the bytes as they are.
    Plain { room: Room, used: InPlace },
    /// Values are gathered, and encoded into the room: by the host, or by a GPU that has done so
    /// aside.
    Coded { room: Room, coded: Coded },
    /// All is encoded, and its true size is known.
    Sealed { room: Room, sealed: Sealed },
    /// A GPU encodes it into its arena.
    InFlight(Encoding),
    /// It was given up, because its codec broke its bound.
    Violated,
    /// It was reported, given up, or left to another thread.
    Over,
}

/// The encoders of a save, and the save after which a GPU may place it.
pub(super) type Coded = (Box<Encoded>, Option<Predecessor>);

impl SaveState {
    /// Takes it out: the save is over, unless it is put back.
    pub(super) fn take(&mut self) -> SaveState {
        std::mem::replace(self, SaveState::Over)
    }

    /// The room that is filled; `None` before it is borrowed, and once it was left to others.
    pub(super) fn room(&mut self) -> Option<&mut Room> {
        match self {
            SaveState::Plain { room, .. }
            | SaveState::Coded { room, .. }
            | SaveState::Sealed { room, .. } => Some(room),
            _ => None,
        }
    }

    /// Whether its room is in the memory of a device.
    pub(super) fn is_on_device(&mut self) -> bool {
        matches!(self.room(), Some(Room::Arena(guard)) if guard.device().is_some())
    }
}

impl SaveTicket {
    /// The regions and where they lie in the payload; those of an encoded checkpoint where they lie
    /// at most.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.grant.frame.head()
    }

    /// The bytes of region `index` where they are in main memory, to be filled by the caller; what
    /// they hold before is unspecified. In a checkpoint with encoded regions it is memory that is
    /// encoded at commit.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    #[must_use]
    pub fn host_region(&mut self, index: usize) -> Option<&mut [u8]> {
        let range = gpu::part(&self.grant.frame.head().regions[index]).range();
        match &mut self.state {
            SaveState::Coded { coded: (encoded, _), .. } => encoded.memory(index).ok(),
            SaveState::Plain { room, .. } => room.bytes().map(|bytes| &mut bytes[range]),
            _ => None,
        }
    }

    /// The memory of region `index` where it is a GPU's, to be written on the GPU: first call
    /// [`begin`](Self::begin) for the stream that writes it, in the end
    /// [`commit_on`](Self::commit_on). `None` also in a checkpoint with encoded regions, whose
    /// arrays are [`put`](Self::put).
    ///
    /// # Errors
    /// `Device` when the memory is gone.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn device_region(&self, index: usize) -> Result<Option<DeviceSpan>, Error> {
        let part = gpu::part(&self.grant.frame.head().regions[index]);
        let SaveState::Plain { room: Room::Arena(guard), .. } = &self.state else {
            return Ok(None);
        };
        Ok(guard.device().map(|span| span.slice(part.offset, part.len)).transpose()?)
    }

    /// Lets `write` fill region `index` from the host, wherever it lies: `write` gets as many bytes
    /// as the region has, and what it wrote is in place when this returns.
    ///
    /// # Errors
    /// `Io` when staging memory cannot be allocated, `Device` when CUDA fails.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill(&mut self, index: usize, write: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        let part = gpu::part(&self.grant.frame.head().regions[index]);
        match &mut self.state {
            SaveState::Coded { coded: (encoded, _), .. } => encoded.memory(index).map(write)?,
            SaveState::Plain { room: Room::Arena(guard), .. } => {
                gpu::store_host(&self.shared.buffers, guard, part, write)?;
            }
            SaveState::Plain { room: Room::Staged(buffer), .. } => write(&mut buffer[part.range()]),
            _ => self.check_nothing_is_missing(index)?,
        }
        Ok(())
    }

    /// Takes the values of region `index` from `values`, the bytes of a dense array in C order. An
    /// encoded region is encoded from there at once when all regions before it are there.
    ///
    /// # Errors
    /// `Invalid` when it has another size, or was encoded already; those of
    /// [`fill`](Self::fill) and of the codec.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill_from(&mut self, index: usize, values: &[u8]) -> Result<(), Error> {
        gpu::check_size(values.len() as u64, self.grant.frame.head().regions[index].bytes)?;
        match &mut self.state {
            SaveState::Coded { room, coded: (encoded, _) } => encoded.take(index, values, room),
            _ => self.fill(index, |room| memory::copy(values, room)),
        }
    }

    /// Refuses values for a checkpoint that a GPU encodes already, or that was given up.
    pub(super) fn check_nothing_is_missing(&self, index: usize) -> Result<(), Error> {
        match &self.state {
            SaveState::InFlight(encoding) => encoding.encoded.check_nothing(index),
            _ => self.check_passed(),
        }
    }

    /// Copies an array of a GPU into region `index`, after what is on `stream`. Where the region
    /// lies in that GPU's memory, or in main memory that is registered with it, the copy is only
    /// enqueued: the host does not wait, and work that is enqueued on `stream` later may change the
    /// array. Returns a fence after the copy where there is one of its own.
    ///
    /// # Errors
    /// `WrongDevice` when the array lies on another GPU than the spool, `Invalid` when it has
    /// another size, `Device` when CUDA refuses or the stream is being captured.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn put(
        &mut self,
        index: usize,
        from: &DeviceArray,
        on: &Stream,
    ) -> Result<Option<Fence>, Error> {
        let gpu = self.shared.gpu_of(from.ordinal())?;
        match self.state {
            SaveState::Plain { .. } => self.put_plain(&gpu, &[(index, from, on)]),
            _ => self.put_encoded(&gpu, &[(index, from, on)]).map(|()| None),
        }
    }

    /// As [`put`](Self::put), for several regions, each with its array and stream: few launches
    /// copy all of them, or encode them where they are. Arrays of encoded regions that are put one
    /// by one are copied aside first, all but the last.
    ///
    /// # Errors
    /// Those of `put`; `Invalid` also when arrays to be encoded are on several GPUs.
    ///
    /// # Panics
    /// When the checkpoint has no such region.
    pub fn put_all(&mut self, arrays: &[Given<'_>]) -> Result<(), Error> {
        let is_plain = matches!(self.state, SaveState::Plain { .. });
        let mut by_gpu = arrays.chunk_by(|one, next| one.1.ordinal() == next.1.ordinal());
        if !is_plain && by_gpu.clone().nth(1).is_some() {
            let message = "The arrays of one save lie on several GPUs. Save them in parts.";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        by_gpu.try_for_each(|arrays| {
            let gpu = self.shared.gpu_of(arrays[0].1.ordinal())?;
            match is_plain {
                true => self.put_plain(&gpu, arrays).map(drop),
                false => self.put_encoded(&gpu, arrays),
            }
        })
    }

    /// Copies arrays of one GPU as they are.
    fn put_plain(&mut self, gpu: &Gpu, arrays: &[Given<'_>]) -> Result<Option<Fence>, Error> {
        let regions = &self.grant.frame.head().regions;
        let part = |index: usize| gpu::part(&regions[index]);
        match self.state.room() {
            Some(Room::Arena(guard)) => {
                let placed = arrays.iter().map(|&(index, array, on)| (part(index), (array, on)));
                gpu::put(gpu, guard, &placed.collect::<Vec<_>>())
            }
            Some(Room::Staged(buffer)) => {
                for &(index, array, on) in arrays {
                    gpu::download(gpu, &mut buffer[part(index).range()], array, on)?;
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// What keeps the memory of the checkpoint in place after the ticket is gone, for those who
    /// show it to others; `None` when it does not lie in an arena, and when a region is encoded.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &self.state {
            SaveState::Plain { room: Room::Arena(guard), .. } => Some(guard.memory()),
            _ => None,
        }
    }

    /// Makes `stream` wait until the memory of the checkpoint may be written.
    ///
    /// End the ticket with [`commit_on`](Self::commit_on) or [`give_up_on`](Self::give_up_on):
    /// dropping it instead waits for everything on the device, because it does not know where work
    /// was enqueued.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), Error> {
        let SaveState::Plain { room, used } = &mut self.state else { return Ok(()) };
        *used = InPlace::Yes;
        match room {
            Room::Arena(guard) => Ok(guard.order(stream)?),
            Room::Staged(_) => Ok(()),
        }
    }

    /// As [`commit`](Self::commit), for a checkpoint that is complete when what is on `stream` so
    /// far is done.
    ///
    /// # Errors
    /// Those of `commit`, and `Device` when CUDA fails. None of them saves the checkpoint.
    pub fn commit_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.leave(stream)?;
        self.commit()
    }

    /// Gives the ticket up, as dropping it does, after work on its memory was enqueued on `stream`.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    pub fn give_up_on(mut self, stream: &Stream) -> Result<(), Error> {
        self.leave(stream)
    }

    /// Work on the memory was enqueued on `stream`: what uses the memory next comes after that.
    fn leave(&mut self, stream: &Stream) -> Result<(), Error> {
        let SaveState::Plain { room, used } = &mut self.state else { return Ok(()) };
        *used = InPlace::No;
        match room {
            Room::Arena(guard) => Ok(guard.leave(stream).map(drop)?),
            Room::Staged(_) => Ok(()),
        }
    }

    pub(super) fn version(&self) -> i64 {
        self.grant.version()
    }

    /// Refuses a checkpoint that was found to break its bound.
    pub(super) fn check_passed(&self) -> Result<(), Error> {
        if !matches!(self.state, SaveState::Violated) {
            return Ok(());
        }
        let message = format!(
            "Version {} was not saved: it did not pass its check, as an earlier call has said.",
            self.version()
        );
        Err(Error::new(ErrorKind::BoundViolated, message))
    }
}

impl fmt::Debug for SaveTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        f.debug_struct("SaveTicket").field("version", &version).finish_non_exhaustive()
    }
}
