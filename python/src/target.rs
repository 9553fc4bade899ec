//! The spool that a call is about.

use pyo3::prelude::*;
use unspool::Spool;
use unspool::gpu::Fence;

use crate::array::{Array, Intake};
use crate::codecs::UnseenNames;
use crate::gpu::KeptArrays;
use crate::lend::{Blocks, Written};
use crate::piece::ArrayPiece;

/// A spool and what it still borrows.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The spool.
    pub spool: &'a Spool,
    /// Arrays whose copies are under way.
    pub kept: &'a KeptArrays,
    /// Checksums of what was computed in place.
    pub written: &'a Written,
    /// The blocks that are open.
    pub blocks: &'a Blocks,
    /// Names of the spool's codecs that no array had yet.
    pub unseen: &'a UnseenNames,
    /// The stream that the caller gave.
    pub stream: Option<usize>,
}

impl<'a> Target<'a> {
    /// How arrays are taken in.
    pub fn intake(&self) -> Intake<'a> {
        Intake::new(self.spool, self.stream)
    }

    /// The arrays, as copies without Python attached need them.
    pub fn pieces(&self, arrays: &[Array]) -> Vec<ArrayPiece> {
        arrays.iter().map(|array| ArrayPiece::of(array, self.stream.is_some())).collect()
    }

    /// Lets go of the arrays of a call, or keeps them until their copies are done.
    pub fn release(&self, py: Python<'_>, arrays: Vec<Array>, marks: Marks) {
        let kept = arrays.into_iter().zip(marks);
        self.kept.keep(py, kept.filter_map(|(array, mark)| Some((mark?, array.into_owner()))));
    }
}

/// What is behind the copies of arrays, by array.
pub type Marks = Vec<Option<Fence>>;
