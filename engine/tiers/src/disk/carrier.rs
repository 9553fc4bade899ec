//! Moves the parts of a frame to and from a file.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::disk::cache;
use crate::disk::fault::Stop;
use crate::disk::medium::Medium;
use crate::disk::pieces::{DirectGrid, FilePiece, PieceMemory, Span, cut};
use crate::disk::staging::{BufferLease, SIZE, Staging};

/// The most pieces of one request to the medium.
pub(super) const MOST_PIECES: usize = 64;

/// How a medium wants its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) grid: DirectGrid,
    /// The most bytes of one request, besides what is staged.
    pub(super) request: usize,
    /// Whether bytes go past the page cache.
    pub(super) direct: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) manner: Manner,
    staging: Staging,
}

impl Carrier {
    pub(super) fn new(medium: Arc<dyn Medium>, manner: Manner) -> Carrier {
        assert!(manner.grid.staged <= SIZE && manner.grid.longest <= manner.request);
        Carrier { medium, manner, staging: Staging::default() }
    }

    /// Writes `parts`, one after the other, from the beginning of `file` on; past the page cache
    /// the last block is filled up with zeros.
    pub(super) fn write(&self, file: &File, parts: &[&[u8]]) -> Result<(), Stop> {
        let pieces = cut(self.manner.grid, 0, parts.iter().copied());
        let mut stage = self.stage(&pieces)?;
        let mut wake = Wake::new(file, self.manner.direct);
        let mut rest = &pieces[..];
        while let Some(first) = rest.first() {
            let (batch, later) = rest.split_at(self.batch(rest));
            let mut slices = gather(batch, stage.as_deref_mut().unwrap_or_default());
            self.write_all(file, first.at, &mut slices)?;
            wake.wrote(first.at, batch).map_err(|cause| Stop { done: first.at, cause })?;
            rest = later;
        }
        wake.finish()?;
        Ok(())
    }

    /// Fills `parts`, one after the other, with the bytes of `file` from byte `skip` on.
    pub(super) fn read(&self, file: &File, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), Stop> {
        let end = skip + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let mut pieces = cut(self.manner.grid, skip, parts.iter_mut().map(|part| &mut **part));
        let mut stage = self.stage(&pieces)?;
        let mut rest = &mut pieces[..];
        while let Some(at) = rest.first().map(|piece| piece.at) {
            let count = self.batch(rest);
            let (batch, later) = rest.split_at_mut(count);
            let stage = stage.as_deref_mut().unwrap_or_default();
            let len: usize = batch.iter().map(|piece| piece.len).sum();
            let needed = len.min((end - at) as usize);
            if !self.manner.direct {
                cache::announce(file, at, len as u64);
            }
            self.read_all(file, at, &mut targets(batch, stage), needed).map_err(|stop| {
                // What lies before `skip` in the first block was not asked for.
                Stop { done: (at + stop.done).saturating_sub(skip), ..stop }
            })?;
            scatter(batch, stage);
            if !self.manner.direct {
                cache::forget(file, at, len as u64);
            }
            rest = later;
        }
        Ok(())
    }

    /// Staging memory, if any piece needs it. One call holds at most one buffer, so calls cannot
    /// wait for each other in a circle.
    fn stage<S>(&self, pieces: &[FilePiece<S>]) -> Result<Option<BufferLease<'_>>, Stop> {
        let staged = |piece: &FilePiece<S>| matches!(piece.memory, PieceMemory::Staged { .. });
        if !pieces.iter().any(staged) {
            return Ok(None);
        }
        let lease = self.staging.lease().ok_or_else(|| {
            let text = "no staging memory became free: the medium does not answer";
            io::Error::new(io::ErrorKind::TimedOut, text)
        })?;
        Ok(Some(lease))
    }

    /// How many of `pieces`, at least one, go in one request.
    fn batch<S: Span>(&self, pieces: &[FilePiece<S>]) -> usize {
        let (mut in_place, mut staged) = (0, 0);
        let fits = |piece: &&FilePiece<S>| {
            match piece.memory {
                PieceMemory::InPlace(_) => in_place += piece.len,
                PieceMemory::Staged { .. } => staged += piece.len,
            }
            in_place <= self.manner.request && staged <= SIZE
        };
        let count = pieces.iter().take(MOST_PIECES).take_while(fits).count();
        debug_assert!(count > 0, "every piece fits by itself");
        count.max(1)
    }

    /// Writes all of `slices`. A short write is continued.
    fn write_all(&self, file: &File, at: u64, mut slices: &mut [IoSlice<'_>]) -> Result<(), Stop> {
        let mut left: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut place = at;
        while left > 0 {
            let moved = retry(|| self.medium.write(file, place, slices));
            let moved = moved.map_err(|cause| Stop { done: place, cause })?;
            let moved = self.usable(moved, left);
            if moved == 0 {
                return Err(Stop { done: place, cause: io::ErrorKind::WriteZero.into() });
            }
            IoSlice::advance_slices(&mut slices, moved);
            left -= moved;
            place += moved as u64;
        }
        Ok(())
    }

    /// Fills at least the first `needed` bytes of `slices`. A short read is continued; the file
    /// may end inside the last block.
    fn read_all(
        &self,
        file: &File,
        at: u64,
        mut slices: &mut [IoSliceMut<'_>],
        needed: usize,
    ) -> Result<(), Stop> {
        let mut filled = 0;
        loop {
            let place = at + filled as u64;
            let got = retry(|| self.medium.read(file, place, slices));
            let got = got.map_err(|cause| Stop { done: filled as u64, cause })?;
            if filled + got >= needed {
                return Ok(());
            }
            let moved = self.usable(got, needed - filled);
            if moved == 0 {
                let done = (filled + got) as u64;
                return Err(Stop { done, cause: io::ErrorKind::UnexpectedEof.into() });
            }
            IoSliceMut::advance_slices(&mut slices, moved);
            filled += moved;
        }
    }

    /// How much of a short move counts: the rest has to begin at a block again.
    fn usable(&self, moved: usize, left: usize) -> usize {
        if moved >= left { left } else { moved - moved % self.manner.grid.block }
    }
}

/// Calls again what a signal interrupted.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The memory of a batch for writing; what is staged is copied to `stage`.
fn gather<'a>(batch: &[FilePiece<&'a [u8]>], mut stage: &'a mut [u8]) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::with_capacity(batch.len());
    for piece in batch {
        match &piece.memory {
            PieceMemory::InPlace(span) => slices.push(IoSlice::new(span)),
            PieceMemory::Staged { before, spans } => {
                debug_assert_eq!(*before, 0, "a frame is written from a block's first byte on");
                let (block, later) = stage.split_at_mut(piece.len);
                let mut end = 0;
                for span in spans {
                    block[end..end + span.len()].copy_from_slice(span);
                    end += span.len();
                }
                block[end..].fill(0);
                slices.push(IoSlice::new(block));
                stage = later;
            }
        }
    }
    slices
}

/// The memory of a batch for reading; what is staged arrives in `stage`.
fn targets<'a>(
    batch: &'a mut [FilePiece<&mut [u8]>],
    mut stage: &'a mut [u8],
) -> Vec<IoSliceMut<'a>> {
    let mut slices = Vec::with_capacity(batch.len());
    for piece in batch {
        match &mut piece.memory {
            PieceMemory::InPlace(span) => slices.push(IoSliceMut::new(span)),
            PieceMemory::Staged { .. } => {
                let (block, later) = stage.split_at_mut(piece.len);
                slices.push(IoSliceMut::new(block));
                stage = later;
            }
        }
    }
    slices
}

/// Copies what arrived in `stage` to where it belongs.
fn scatter(batch: &mut [FilePiece<&mut [u8]>], mut stage: &[u8]) {
    for piece in batch {
        if let PieceMemory::Staged { before, spans } = &mut piece.memory {
            let (block, later) = stage.split_at(piece.len);
            let mut bytes = &block[*before..];
            for span in spans {
                let (mine, rest) = bytes.split_at(span.len());
                span.copy_from_slice(mine);
                bytes = rest;
            }
            stage = later;
        }
    }
}

/// Cleans the page cache up after a writer: while one chunk is on its way, the next is copied.
struct Wake<'a> {
    file: &'a File,
    direct: bool,
    /// The chunk whose writing has begun.
    begun: Option<(u64, u64)>,
}

impl<'a> Wake<'a> {
    fn new(file: &'a File, direct: bool) -> Wake<'a> {
        Wake { file, direct, begun: None }
    }

    fn wrote<S>(&mut self, at: u64, batch: &[FilePiece<S>]) -> io::Result<()> {
        if self.direct {
            return Ok(());
        }
        let len = batch.iter().map(|piece| piece.len as u64).sum();
        cache::start_writing(self.file, at, len)?;
        match self.begun.replace((at, len)) {
            Some((at, len)) => cache::finish_writing(self.file, at, len),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<(), Stop> {
        match self.begun {
            Some((at, len)) => {
                cache::finish_writing(self.file, at, len).map_err(|cause| Stop { done: at, cause })
            }
            None => Ok(()),
        }
    }
}
