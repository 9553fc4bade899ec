//! The bytes of an arena: main memory, main memory that a device copies to and from at full speed,
//! or a device's own.

mod plain;

use std::ptr::NonNull;
use std::sync::Arc;

use unspool_cuda::{Bytes, DeviceArena, DeviceError, DeviceSpan, MemoryLeft, PinnedArena};
use unspool_verify::{Agent, Op, Space};

use crate::gpu::Gpu;

pub(crate) use plain::Plain;

/// See the module. Who may touch which bytes is decided by the arena's table.
#[derive(Debug)]
pub(crate) enum ArenaMemory {
    /// Main memory.
    Plain(Plain),
    /// Main memory that is being registered with a device.
    Pinned(PinnedArena, Arc<Gpu>),
    /// A device's memory.
    Device(DeviceArena, Arc<Gpu>),
}

impl ArenaMemory {
    /// The alignment with which it is fastest, in bytes.
    pub(crate) fn alignment(&self) -> u64 {
        match self {
            ArenaMemory::Plain(_) | ArenaMemory::Pinned(..) => 4096,
            ArenaMemory::Device(..) => 256,
        }
    }

    /// The device that it belongs to, if it does.
    pub(crate) fn gpu(&self) -> Option<&Arc<Gpu>> {
        match self {
            ArenaMemory::Plain(_) => None,
            ArenaMemory::Pinned(_, gpu) | ArenaMemory::Device(_, gpu) => Some(gpu),
        }
    }

    /// What it is, for people.
    pub(crate) fn location(&self) -> String {
        match self {
            ArenaMemory::Plain(_) => "memory".to_owned(),
            ArenaMemory::Pinned(_, gpu) => {
                format!("memory, pinned for CUDA device {}", gpu.ordinal())
            }
            ArenaMemory::Device(_, gpu) => format!("CUDA device {}", gpu.ordinal()),
        }
    }

    /// What was found out about it, in sentences for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            ArenaMemory::Plain(plain) => plain.notes().to_vec(),
            ArenaMemory::Pinned(pinned, _) => pinned_notes(pinned),
            ArenaMemory::Device(device, _) => device_notes(device),
        }
    }

    /// Bytes that there are, of the `asked` ones: fewer when a device had less memory than it said.
    pub(crate) fn capacity(&self, asked: u64) -> u64 {
        match self {
            ArenaMemory::Device(device, _) => device.capacity().min(asked),
            ArenaMemory::Plain(_) | ArenaMemory::Pinned(..) => asked,
        }
    }

    /// Makes the bytes up to `end` usable, waiting for them if they are still being prepared.
    pub(crate) fn prepare(&self, end: u64) -> Result<(), DeviceError> {
        match self {
            ArenaMemory::Device(device, gpu) if device.mapped() < end => {
                device.wait_mapped(end, gpu.limit())
            }
            _ => Ok(()),
        }
    }

    /// The address of byte `offset`, of which `len` bytes are about to be borrowed; `None` for a
    /// device's memory. The table has checked that they are in range.
    pub(crate) fn host(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        match self {
            ArenaMemory::Plain(plain) => Some(plain.at(offset, len)),
            ArenaMemory::Pinned(pinned, _) => pinned.address(offset, len).ok(),
            ArenaMemory::Device(..) => None,
        }
    }

    /// The bytes of a device's memory; `None` for main memory.
    ///
    /// # Errors
    /// When they are not mapped, and after the arena was closed.
    pub(crate) fn span(&self, offset: u64, len: u64) -> Result<Option<DeviceSpan>, DeviceError> {
        match self {
            ArenaMemory::Device(device, _) => device.span(offset, len).map(Some),
            _ => Ok(None),
        }
    }

    /// Reports to the check of stream order, if there is one, that the host borrows these bytes of
    /// pinned memory for `operation`.
    pub(crate) fn saw_host(&self, offset: u64, len: u64, operation: &'static str) {
        let ArenaMemory::Pinned(pinned, gpu) = self else { return };
        let Ok(first) = pinned.address(offset, len) else { return };
        let first = first.as_ptr() as u64;
        let (end, write) = (first + len, matches!(operation, "create" | "put"));
        let (by, space, what) = (Agent::Host, Space::Host, operation);
        gpu.context().saw(|| Op::Access { by, space, first, end, write, what });
    }

    /// Takes the memory of the bytes up to `end`, which are about to be written. That of a device
    /// is taken as a whole.
    pub(crate) fn grow(&self, end: u64) -> Result<(), MemoryLeft> {
        match self {
            ArenaMemory::Plain(plain) => plain.grow(end),
            ArenaMemory::Pinned(pinned, _) => pinned.grow(end),
            ArenaMemory::Device(..) => Ok(()),
        }
    }

    /// Pinned memory from byte `end` on is not made ready ahead of use.
    pub(crate) fn want(&self, end: u64) {
        if let ArenaMemory::Pinned(arena, _) = self {
            arena.want(end);
        }
    }

    /// Pinned memory is made ready up to byte `upto` in the background.
    pub(crate) fn expect(&self, upto: u64) {
        if let ArenaMemory::Pinned(arena, _) = self {
            arena.prepare(upto);
        }
    }

    /// Takes all memory.
    pub(crate) fn fill(&self) -> Result<(), MemoryLeft> {
        match self {
            ArenaMemory::Plain(plain) => plain.fill(),
            ArenaMemory::Pinned(pinned, _) => pinned.fill(),
            ArenaMemory::Device(..) => Ok(()),
        }
    }

    /// Bytes from the start whose memory was taken; `None` for a device's.
    pub(crate) fn grown(&self) -> Option<u64> {
        match self {
            ArenaMemory::Plain(plain) => Some(plain.grown()),
            ArenaMemory::Pinned(pinned, _) => Some(pinned.grown()),
            ArenaMemory::Device(..) => None,
        }
    }

    /// Bytes from the start that are copied at full speed.
    pub(crate) fn ready(&self, capacity: u64) -> u64 {
        match self {
            ArenaMemory::Pinned(pinned, _) => pinned.registered(),
            ArenaMemory::Plain(_) | ArenaMemory::Device(..) => capacity,
        }
    }
}

fn pinned_notes(pinned: &PinnedArena) -> Vec<String> {
    let mut notes = Vec::new();
    let (registered, capacity) = (pinned.registered(), pinned.capacity());
    if let Some(failure) = pinned.failure() {
        notes.push(format!(
            "{} of {} are registered; copies of the rest are slower: {failure}",
            Bytes(registered),
            Bytes(capacity)
        ));
    }
    if !pinned.has_huge_pages() {
        let note = "The system gives no transparent huge pages: registering takes longer.";
        notes.push(note.to_owned());
    }
    notes
}

/// Why it is smaller than asked for: what was found when it was made, or since.
fn device_notes(device: &DeviceArena) -> Vec<String> {
    let shrunk = device.shrunk().map(|shrunk| {
        let (got, asked) = (Bytes(shrunk.got), Bytes(shrunk.asked));
        format!("The device had room for {got} of the {asked} that were asked for.")
    });
    device.failure().map(|failure| failure.to_string()).or(shrunk).into_iter().collect()
}
