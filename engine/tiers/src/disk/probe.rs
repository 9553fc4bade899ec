//! Finds out, in the very directory, how bytes can reach the medium.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags, statx};
use unspool_core::Failure;

use crate::disk::carrier::{Carrier, MOST_PIECES, Manner};
use crate::disk::fault;
use crate::disk::medium::{Medium, Mode, PRIVATE};
use crate::disk::options::DiskIo;
use crate::disk::pieces::DirectGrid;
use crate::disk::staging::{SIZE, Staging};
use crate::disk::table::BLOCK;
use crate::disk::uring::Uring;
use crate::error::TierError;

const MIB: usize = 1 << 20;

/// What was chosen, and what a person should know about it.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) carrier: Carrier,
    pub(super) note: String,
}

/// Chooses how to move bytes in `dir`, with a file `name` that is written for it and removed.
///
/// # Errors
/// When what was asked for does not work there. `Auto` and `Buffered` do not fail here.
pub(super) fn choose(
    wanted: DiskIo,
    dir: &Path,
    name: &str,
    medium: Arc<dyn Medium>,
) -> Result<Choice, TierError> {
    let path = &dir.join(name);
    match wanted {
        DiskIo::Buffered => Ok(buffered(medium, "as asked")),
        DiskIo::Direct => direct(path, medium).map_err(|cause| refused(dir, "O_DIRECT", cause)),
        DiskIo::Uring => {
            let ring = Uring::new().map_err(|cause| refused(dir, "io_uring", cause))?;
            uring(path, Arc::new(ring)).map_err(|cause| refused(dir, "io_uring", cause))
        }
        DiskIo::Auto => direct(path, Arc::clone(&medium)).or_else(|cause| {
            Ok(buffered(medium, &format!("because O_DIRECT does not work in {dir:?} ({cause})")))
        }),
    }
}

fn refused(dir: &Path, what: &str, cause: io::Error) -> TierError {
    let reason = format!("{what} was asked for and does not work here");
    TierError::new(Failure::Permanent, "open", dir.display().to_string(), reason)
        .with_advice("Choose `auto` input and output, which falls back to what works.")
        .with_cause(cause)
}

/// Through the page cache, for this reason.
pub(super) fn buffered(medium: Arc<dyn Medium>, why: &str) -> Choice {
    let chunk = 8 * MIB;
    let grid = DirectGrid { block: 1, memory: 1, longest: chunk, staged: 1 };
    let manner = Manner { grid, request: chunk, direct: false };
    let note = format!("Input and output go through the page cache, {why}.");
    Choice { carrier: Carrier::new(medium, manner), note }
}

/// One blocking call for up to 256 MiB: the kernel cuts it up and keeps the device's queue full,
/// which runs dry between calls.
fn direct(path: &Path, medium: Arc<dyn Medium>) -> io::Result<Choice> {
    let memory = try_direct(path, &*medium)?;
    let request = 256 * MIB;
    let grid = DirectGrid { block: BLOCK as usize, memory, longest: request, staged: SIZE };
    let manner = Manner { grid, request, direct: true };
    let note = "Input and output go past the page cache (O_DIRECT).".to_owned();
    Ok(Choice { carrier: Carrier::new(medium, manner), note })
}

/// Requests of 1 MiB, up to 32 in flight in each call.
fn uring(path: &Path, medium: Arc<dyn Medium>) -> io::Result<Choice> {
    let memory = try_direct(path, &*medium)?;
    let grid = DirectGrid { block: BLOCK as usize, memory, longest: MIB, staged: SIZE };
    let manner = Manner { grid, request: MOST_PIECES / 2 * MIB, direct: true };
    let note = "Input and output go past the page cache (O_DIRECT, io_uring).".to_owned();
    Ok(Choice { carrier: Carrier::new(medium, manner), note })
}

/// Writes a block past the page cache and reads it back. Says the alignment that addresses need.
fn try_direct(path: &Path, medium: &dyn Medium) -> io::Result<usize> {
    let file = medium.open(path, Mode { direct: true, ..Mode::create(PRIVATE) })?;
    let result = alignment(&file).and_then(|memory| {
        round_trip(&file, medium)?;
        Ok(memory)
    });
    let removed = medium.remove(path);
    let memory = result?;
    removed?;
    Ok(memory)
}

fn round_trip(file: &File, medium: &dyn Medium) -> io::Result<()> {
    const LEN: usize = BLOCK as usize;
    let staging = Staging::default();
    let mut block = staging.lease().ok_or(io::ErrorKind::TimedOut)?;
    let (written, read) = block[..2 * LEN].split_at_mut(LEN);
    written.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
    match medium.write(file, 0, &[IoSlice::new(written)]) {
        // A medium that is full now may have room later: nothing speaks against it.
        Err(cause) if fault::is_full(&cause) => return Ok(()),
        moved => moved?,
    };
    let got = medium.read(file, 0, &mut [IoSliceMut::new(read)])?;
    if got == LEN && written == read {
        return Ok(());
    }
    Err(io::Error::other("a block that was written came back changed"))
}

/// What `statx` says about the alignment of addresses (since Linux 6.1); where it says nothing, a
/// block, which is always enough.
fn alignment(file: &File) -> io::Result<usize> {
    const DIOALIGN: u32 = 0x2000;
    let wanted = StatxFlags::from_bits_retain(DIOALIGN);
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, wanted) else { return Ok(BLOCK as usize) };
    let (memory, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
    if stat.stx_mask & DIOALIGN == 0 || memory == 0 {
        return Ok(BLOCK as usize);
    }
    let fits = |align: u32| align.is_power_of_two() && u64::from(align) <= BLOCK;
    if fits(memory) && fits(offset) {
        return Ok(memory as usize);
    }
    Err(io::Error::other(format!("it needs an alignment of {memory} and {offset} bytes")))
}
