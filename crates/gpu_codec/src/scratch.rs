//! Device memory that codecs work in, made once and used again: what an encoding that is known to
//! be done has left, or, when there are enough, what the oldest one is still using, behind it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pending::Pending;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;

/// Pieces of scratch of one kind.
#[derive(Debug)]
pub(crate) struct Scratch<T> {
    /// From the one that was used longest ago.
    pieces: Mutex<Vec<(T, Pending)>>,
    /// How many of one shape there are before somebody has to wait for another.
    most: usize,
}

impl<T> Scratch<T> {
    /// None yet, and not more than `most` of a shape without need.
    pub(crate) fn new(most: usize) -> Scratch<T> {
        Scratch { pieces: Mutex::default(), most }
    }

    /// A piece that `fits`, for work on `stream` from now on.
    pub(crate) fn take(
        &self,
        stream: &Stream,
        fits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let Some((piece, user)) = self.kept(fits) else { return make() };
        if user.try_result().is_none() {
            stream.wait_for(user.mark())?;
        }
        Ok(piece)
    }

    /// The first one that is free, or else the oldest when there are enough.
    fn kept(&self, fits: impl Fn(&T) -> bool) -> Option<(T, Pending)> {
        let mut pieces = self.pieces();
        let fitting: Vec<_> = (0..pieces.len()).filter(|&i| fits(&pieces[i].0)).collect();
        let free = fitting.iter().find(|&&i| pieces[i].1.try_result().is_some());
        let oldest = fitting.first().filter(|_| fitting.len() >= self.most);
        let index = *free.or(oldest)?;
        Some(pieces.remove(index))
    }

    /// Takes a piece back that the encoding `user` works in.
    pub(crate) fn give(&self, piece: T, user: &Pending) {
        self.pieces().push((piece, user.clone()));
    }

    /// Takes away the pieces that `is_out`, with those that use them.
    pub(crate) fn remove(&self, is_out: impl Fn(&T, &Pending) -> bool) -> Vec<T> {
        let mut pieces = self.pieces();
        let removed = pieces.extract_if(.., |(piece, user)| is_out(piece, user));
        removed.map(|(piece, _)| piece).collect()
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<(T, Pending)>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
