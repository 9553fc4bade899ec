//! What a buffer holds: dense items in C order.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use unspool::{Dtype, Region};

use crate::array::{dense_strides, tuple};

/// The type and the shape of a buffer's items.
#[derive(Clone, Debug)]
pub struct Items {
    /// The type of one.
    pub dtype: Dtype,
    /// Dimensions, slowest first.
    pub shape: Vec<usize>,
    /// Bytes of all.
    pub bytes: usize,
}

impl Items {
    /// Those of a region.
    pub fn of(region: &Region) -> Items {
        // Whatever is in memory fits the address space.
        let shape = region.shape.iter().map(|&extent| extent as usize).collect();
        Items { dtype: region.dtype.clone(), shape, bytes: region.bytes as usize }
    }

    /// The strides in bytes.
    pub fn strides(&self) -> Vec<isize> {
        dense_strides(&self.shape, self.dtype.itemsize() as usize)
    }

    /// The shape, for Python.
    pub fn tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Them in a few words: `float32 (3, 4)`.
    pub fn in_words(&self) -> String {
        format!("{} {}", self.dtype.name(), tuple(&self.shape))
    }
}
