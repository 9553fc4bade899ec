//! Device memory for temporary use by codecs, allocated once and reused: a piece whose last
//! encoding is done, or, at the maximum number of pieces, the one in use for the longest time,
//! after its encoding.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pending::Pending;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;

/// Scratch pieces of one kind.
#[derive(Debug)]
pub(crate) struct ScratchPieces<T> {
    /// Ordered by their last use, the oldest first.
    pieces: Mutex<Vec<(T, Pending)>>,
    /// Maximum number of pieces of one shape; beyond it, an encoding waits for another.
    most: usize,
}

impl<T> ScratchPieces<T> {
    /// An empty set with at most `most` pieces of a shape, unless memory is short.
    pub(crate) fn new(most: usize) -> ScratchPieces<T> {
        ScratchPieces { pieces: Mutex::default(), most }
    }

    /// A piece that `fits`, for work that is enqueued on `stream` later.
    pub(crate) fn take(
        &self,
        stream: &Stream,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let Some((piece, user)) = self.kept(fits) else { return make() };
        if user.try_result().is_none() {
            stream.wait_for(user.fence())?;
        }
        Ok(piece)
    }

    /// The first idle piece, or else the oldest one if the maximum is reached.
    fn kept(&self, fits: impl Fn(&T) -> bool) -> Option<(T, Pending)> {
        let mut pieces = self.pieces();
        let fitting: Vec<_> = (0..pieces.len()).filter(|&i| fits(&pieces[i].0)).collect();
        let free = fitting.iter().find(|&&i| pieces[i].1.try_result().is_some());
        let oldest = fitting.first().filter(|_| fitting.len() >= self.most);
        let index = *free.or(oldest)?;
        Some(pieces.remove(index))
    }

    /// Returns a piece that the encoding `user` still uses.
    pub(crate) fn give(&self, piece: T, user: &Pending) {
        self.pieces().push((piece, user.clone()));
    }

    /// Removes the pieces for which `is_out` is true.
    pub(crate) fn remove(&self, is_out: impl Fn(&T, &Pending) -> bool) -> Vec<T> {
        let mut pieces = self.pieces();
        let removed = pieces.extract_if(.., |(piece, user)| is_out(piece, user));
        removed.map(|(piece, _)| piece).collect()
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<(T, Pending)>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
