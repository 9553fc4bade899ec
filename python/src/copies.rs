//! The copies of one call: those on a GPU together, all settled before arrays are let go of.

use std::time::Duration;

use unspool::gpu::{DeviceArray, Fence, Stream};
use unspool::{Batched, Checkpoint, Error, RestoreTicket, SaveTicket, Spool, Wait};

use crate::gpu::{AfterCopy, DevicePiece};
use crate::piece::ArrayPiece;

/// The longest wait for a copy on a GPU that nobody else waits for: much longer than any takes,
/// even after kernels of the application.
const LIMIT: Duration = Duration::from_secs(120);

/// The copies of one call. Dropped before they are settled, it waits until none of them is under
/// way: the arrays may be let go of then.
#[derive(Debug)]
pub struct Copies<'a> {
    spool: &'a Spool,
    pieces: &'a [ArrayPiece],
    /// The first array on a GPU and its stream: mostly all arrays of a call are on one.
    first: Option<(&'a DevicePiece, Stream)>,
    /// Work on them may be under way.
    is_begun: bool,
}

impl<'a> Copies<'a> {
    /// Copies between `pieces` and a checkpoint of `spool`.
    ///
    /// # Errors
    /// `WrongDevice`, `NoDevice`, `Device`, when the stream of an array cannot be used.
    pub fn new(spool: &'a Spool, pieces: &'a [ArrayPiece]) -> Result<Copies<'a>, Error> {
        let first = pieces.iter().find_map(|piece| match piece {
            ArrayPiece::Device(piece) => Some(piece),
            ArrayPiece::Host(_) => None,
        });
        let first = first.map(|piece| Ok::<_, Error>((piece, piece.stream(spool)?))).transpose()?;
        Ok(Copies { spool, pieces, first, is_begun: false })
    }

    /// Whether an array is on a GPU.
    pub fn are_on_gpu(&self) -> bool {
        self.first.is_some()
    }

    /// How the call waits for room or data: a wait during which the stream of the arrays has work
    /// is not a stall.
    pub fn wait<'w>(&'w self, wait: &Wait<'w>) -> Wait<'w> {
        Wait { stream: self.first.as_ref().map(|(_, stream)| stream), ..*wait }
    }

    /// Copies all arrays into the regions of a ticket.
    ///
    /// # Errors
    /// The first of the spool.
    ///
    /// # Safety
    /// The arrays that the pieces were made from are borrowed until this was settled or dropped.
    pub unsafe fn save(&mut self, ticket: &mut SaveTicket) -> Result<(), Error> {
        for (index, piece) in self.pieces.iter().enumerate() {
            if let ArrayPiece::Host(piece) = piece {
                // SAFETY: the caller's promise.
                unsafe { piece.save(ticket, index) }?;
            }
        }
        self.begin_all();
        let streams = self.streams()?;
        ticket.put_all(&self.on_gpu(0..self.pieces.len(), &streams))
    }

    /// The arrays on a GPU that have bytes, each with its region and its stream.
    fn on_gpu<'s>(
        &'s self,
        regions: impl Iterator<Item = usize>,
        streams: &'s [Option<Stream>],
    ) -> Vec<(usize, &'s DeviceArray, &'s Stream)> {
        let shared = self.first.as_ref().map(|(_, stream)| stream);
        let pieces = regions.zip(self.pieces).zip(streams);
        let arrays = pieces.filter_map(|((region, piece), other)| match piece {
            ArrayPiece::Device(piece) if piece.array().bytes() > 0 => {
                Some((region, piece.array(), other.as_ref().or(shared)?))
            }
            _ => None,
        });
        arrays.collect()
    }

    /// Saves all arrays through an adaptor, as `checkpoint`, after [`Copies::begin_all`].
    ///
    /// # Errors
    /// The first of the adaptor.
    ///
    /// # Safety
    /// As for [`Copies::save`].
    pub unsafe fn keep(
        &self,
        adaptor: &Batched,
        checkpoint: Checkpoint<'_>,
        wait: &Wait<'_>,
    ) -> Result<(), Error> {
        let (streams, mut checkpoint) = (self.streams()?, checkpoint);
        // SAFETY: the caller's promise.
        unsafe { self.give(&mut checkpoint, &streams) }?;
        adaptor.save(checkpoint, wait)
    }

    /// The streams of all arrays that are not on that of the first one, by array.
    ///
    /// # Errors
    /// When one cannot be used.
    pub fn streams(&self) -> Result<Vec<Option<Stream>>, Error> {
        let other = |piece: &ArrayPiece| match piece {
            ArrayPiece::Device(piece) => self.other_stream(piece),
            ArrayPiece::Host(_) => Ok(None),
        };
        self.pieces.iter().map(other).collect()
    }

    /// Tells `checkpoint` where its values are; `streams` are those of [`Copies::streams`].
    ///
    /// # Errors
    /// When an array has another size than its region.
    ///
    /// # Safety
    /// The arrays that the pieces were made from are borrowed for as long as `checkpoint` lives.
    pub unsafe fn give<'c>(
        &'c self,
        checkpoint: &mut Checkpoint<'c>,
        streams: &'c [Option<Stream>],
    ) -> Result<(), Error> {
        let shared = self.first.as_ref().map(|(_, stream)| stream);
        for (index, (piece, other)) in self.pieces.iter().zip(streams).enumerate() {
            match piece {
                // SAFETY: the caller's promise.
                ArrayPiece::Host(piece) => unsafe { piece.give(checkpoint, index) }?,
                ArrayPiece::Device(piece) => {
                    if let Some(stream) = other.as_ref().or(shared) {
                        checkpoint.put(index, piece.array(), stream)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Work on all arrays may be enqueued from now on.
    pub fn begin_all(&mut self) {
        self.is_begun = true;
    }

    /// The stream of an array that is not on that of the first one.
    fn other_stream(&self, piece: &DevicePiece) -> Result<Option<Stream>, Error> {
        match &self.first {
            Some((first, _)) if first.has_stream_of(piece) => Ok(None),
            _ => piece.stream(self.spool).map(Some),
        }
    }

    /// Copies regions of a ticket into all arrays: `at` has the number of the region of each.
    ///
    /// # Errors
    /// The first of the spool.
    ///
    /// # Safety
    /// As for [`Copies::save`]; the arrays may be written.
    pub unsafe fn restore(
        &mut self,
        ticket: &mut RestoreTicket,
        at: &[usize],
    ) -> Result<(), Error> {
        for (piece, region) in self.pieces.iter().zip(at) {
            if let ArrayPiece::Host(piece) = piece {
                // SAFETY: the caller's promise.
                unsafe { piece.restore(ticket, *region) }?;
            }
        }
        self.begin_all();
        let streams = self.streams()?;
        ticket.get_all(&self.on_gpu(at.iter().copied(), &streams))
    }

    /// Waits for the copies that need it; gives fences after those whose arrays have to be kept.
    ///
    /// # Errors
    /// `Device` when CUDA refuses, `Timeout` when a copy does not end.
    pub fn finish(self) -> Result<Vec<Option<Fence>>, Error> {
        self.finish_with(&mut None)
    }

    /// As [`Copies::finish`], for the copies of several checkpoints: all were enqueued before.
    ///
    /// # Errors
    /// Those of `finish`.
    pub fn finish_all(all: Vec<Copies<'a>>) -> Result<Vec<Vec<Option<Fence>>>, Error> {
        let mut last = None;
        all.into_iter().map(|copies| copies.finish_with(&mut last)).collect()
    }

    /// `last` is the array whose stream was fenced last, with that fence.
    fn finish_with(
        mut self,
        last: &mut Option<(&'a DevicePiece, Fence)>,
    ) -> Result<Vec<Option<Fence>>, Error> {
        let finished = self.pieces.iter().map(|piece| self.finished(piece, last));
        let settled = finished.collect::<Result<Vec<_>, _>>()?;
        self.is_begun = false;
        Ok(settled)
    }

    fn finished(
        &self,
        piece: &'a ArrayPiece,
        last: &mut Option<(&'a DevicePiece, Fence)>,
    ) -> Result<Option<Fence>, Error> {
        let ArrayPiece::Device(device) = piece else { return Ok(None) };
        let mut fence = || match &*last {
            Some((other, fence)) if other.has_stream_of(device) => Ok::<_, Error>(fence.clone()),
            _ => {
                let fence = self.fence(device)?;
                *last = Some((device, fence.clone()));
                Ok(fence)
            }
        };
        match device.after() {
            AfterCopy::Nothing => Ok(None),
            AfterCopy::Keep => fence().map(Some),
            AfterCopy::Wait => Ok(fence()?.wait(LIMIT).map(|()| None)?),
        }
    }

    /// A fence after the copy of `piece`.
    fn fence(&self, piece: &DevicePiece) -> Result<Fence, Error> {
        self.on_stream_of(piece, |stream| piece.fence(self.spool, stream))
    }

    fn on_stream_of<T>(
        &self,
        piece: &DevicePiece,
        work: impl FnOnce(&Stream) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match &self.first {
            Some((first, stream)) if first.has_stream_of(piece) => work(stream),
            _ => work(&piece.stream(self.spool)?),
        }
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        for piece in self.pieces.iter().filter(|_| self.is_begun) {
            if let ArrayPiece::Device(piece) = piece
                && piece.after() != AfterCopy::Nothing
                && let Ok(fence) = self.fence(piece)
            {
                // A device that does not answer has an error of its own, which the caller gets.
                let _ = fence.wait(LIMIT);
            }
        }
    }
}
