//! The copies of one call: made one after the other, and settled before the arrays are let go of.

use std::time::Duration;

use unspool::gpu::Mark;
use unspool::{Error, Spool};

use crate::gpu::After;
use crate::piece::Piece;

/// The longest wait for a copy on a GPU that nobody else waits for: much longer than any takes,
/// even behind kernels of the application.
const LIMIT: Duration = Duration::from_secs(120);

/// The copies of one call. Dropped before they are settled, it waits until none of them is under
/// way: the arrays may be let go of then.
#[derive(Debug)]
pub struct Copies<'a> {
    spool: &'a Spool,
    pieces: &'a [Piece],
    /// How many were begun.
    begun: usize,
}

impl<'a> Copies<'a> {
    /// Copies between `pieces` and a checkpoint of `spool`.
    pub fn new(spool: &'a Spool, pieces: &'a [Piece]) -> Copies<'a> {
        Copies { spool, pieces, begun: 0 }
    }

    /// Makes them all with `copy`.
    ///
    /// # Errors
    /// The first of `copy`.
    pub fn make(
        &mut self,
        mut copy: impl FnMut(usize, &Piece) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (index, piece) in self.pieces.iter().enumerate() {
            self.begun = index + 1;
            copy(index, piece)?;
        }
        Ok(())
    }

    /// Waits for the copies that somebody has to wait for; marks behind those whose arrays have to
    /// be kept.
    ///
    /// # Errors
    /// `Device` when CUDA refuses, `Timeout` when a copy does not end.
    pub fn settle(mut self) -> Result<Vec<Option<Mark>>, Error> {
        let settled = self.pieces.iter().map(|piece| settle(self.spool, piece));
        let marks = settled.collect::<Result<Vec<_>, Error>>()?;
        self.begun = 0;
        Ok(marks)
    }
}

fn settle(spool: &Spool, piece: &Piece) -> Result<Option<Mark>, Error> {
    let Piece::Device(device) = piece else { return Ok(None) };
    match device.after() {
        After::Nothing => Ok(None),
        After::Keep => device.mark(spool).map(Some),
        After::Wait => Ok(device.mark(spool)?.wait(LIMIT).map(|()| None)?),
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        for piece in &self.pieces[..self.begun] {
            if let Piece::Device(piece) = piece
                && piece.after() != After::Nothing
                && let Ok(mark) = piece.mark(self.spool)
            {
                // A device that does not answer has an error of its own, which the caller gets.
                let _ = mark.wait(LIMIT);
            }
        }
    }
}
