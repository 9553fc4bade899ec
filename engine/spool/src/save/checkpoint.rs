//! A checkpoint that is not saved yet, and where its values are.

use std::fmt;
use std::sync::Arc;

use unspool_codec::{CodecId, Head};
use unspool_cuda::Stream;

use super::group::{MOST_REGIONS, together};
use super::{Prepared, SaveTicket};
use crate::error::Error;
use crate::gpu::{self, DeviceArray, Gpu};

/// One checkpoint for [`Spool::save_many`](crate::Spool::save_many): its regions, their codecs, and
/// where their values are.
///
/// Regions whose values are not given are zeros where they are encoded, and unspecified otherwise.
pub struct Checkpoint<'a> {
    prepared: Arc<Prepared>,
    values: Vec<Values<'a>>,
    /// It asks for the most room that it can need, since less was too little.
    pub(super) asks_for_most: bool,
}

/// Writes the values of a region.
type Writer<'a> = Box<dyn FnMut(&mut [u8]) + Send + 'a>;

/// Where the values of a region are.
enum Values<'a> {
    Nowhere,
    /// On a GPU, ready on a stream.
    Array(&'a DeviceArray, &'a Stream),
    /// In main memory, dense.
    Bytes(&'a [u8]),
    /// Wherever this takes them from.
    Write(Writer<'a>),
}

impl<'a> Checkpoint<'a> {
    pub(crate) fn of(prepared: Arc<Prepared>) -> Checkpoint<'a> {
        let values = prepared.head().regions.iter().map(|_| Values::Nowhere).collect();
        Checkpoint { prepared, values, asks_for_most: false }
    }

    /// Its name.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.head().version
    }

    /// The regions, and where they lie in the payload at most.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.prepared.head()
    }

    pub(crate) fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Region `index` has the values of an array of a GPU, as they are when what is on `stream` at
    /// the time of the save is done.
    ///
    /// # Errors
    /// `Invalid` when the array has another size.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn put(
        &mut self,
        index: usize,
        array: &'a DeviceArray,
        stream: &'a Stream,
    ) -> Result<(), Error> {
        gpu::check_size(array.bytes(), self.head().regions[index].bytes)?;
        self.values[index] = Values::Array(array, stream);
        Ok(())
    }

    /// Region `index` has these values, the bytes of a dense array in C order.
    ///
    /// # Errors
    /// `Invalid` when they have another size.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill_from(&mut self, index: usize, values: &'a [u8]) -> Result<(), Error> {
        gpu::check_size(values.len() as u64, self.head().regions[index].bytes)?;
        self.values[index] = Values::Bytes(values);
        Ok(())
    }

    /// Region `index` has the values that `write` writes when the checkpoint is saved. Where a save
    /// is tried again, `write` is called again.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill(&mut self, index: usize, write: impl FnMut(&mut [u8]) + Send + 'a) {
        self.values[index] = Values::Write(Box::new(write));
    }

    /// The arrays of GPUs that have bytes, by region.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = (usize, &'a DeviceArray, &'a Stream)> {
        self.values.iter().enumerate().filter_map(|(index, values)| match values {
            Values::Array(array, stream) if array.bytes() > 0 => Some((index, *array, *stream)),
            _ => None,
        })
    }

    /// Whether every region that has bytes is an array of the GPU `ordinal`.
    pub(crate) fn is_all_on(&self, ordinal: u32) -> bool {
        let mut regions = self.values.iter().zip(&self.head().regions);
        let is_there = |values: &Values<'_>| match values {
            Values::Array(array, _) => array.ordinal() == ordinal,
            _ => false,
        };
        self.arrays().next().is_some()
            && regions.all(|(values, region)| region.bytes == 0 || is_there(values))
    }

    /// The codec that encodes it together with others on `gpu`, if its values let it.
    pub(crate) fn together(&self, gpu: &Gpu) -> Option<CodecId> {
        let plan = self.prepared.plan()?;
        let may = gpu.coders().is_some()
            && plan.regions.len() <= MOST_REGIONS
            && self.is_all_on(gpu.ordinal());
        if may { together(plan) } else { None }
    }

    /// Whether the stream of an array is being captured into a graph. A stream that cannot
    /// be asked counts as not captured: its launch fails then, if something is wrong with it.
    pub(super) fn is_captured(&self) -> bool {
        self.arrays().any(|(_, _, stream)| stream.is_capturing().unwrap_or(false))
    }

    /// Gives its values to a ticket.
    pub(super) fn fill_ticket(&mut self, ticket: &mut SaveTicket) -> Result<(), Error> {
        for (index, values) in self.values.iter_mut().enumerate() {
            match values {
                Values::Bytes(bytes) => ticket.fill_from(index, bytes)?,
                Values::Write(write) => ticket.fill(index, |room| write(room))?,
                Values::Nowhere | Values::Array(..) => {}
            }
        }
        ticket.put_all(&self.arrays().collect::<Vec<_>>())
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("version", &self.version()).finish_non_exhaustive()
    }
}
