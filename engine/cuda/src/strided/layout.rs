//! Layouts of arrays whose items are not dense in C order, and the merging of dimensions that are
//! contiguous in memory. Pure.

use crate::error::{DeviceError, DeviceErrorKind};

/// Dimensions that an array may have (as many as NumPy allowed until 2.0).
pub(super) const MOST_GIVEN: usize = 32;
/// Maximum number of dimensions after merging.
pub(super) const MOST_MERGED: usize = 8;

/// The layout of an array on the device whose items are not dense in C order. The address of such
/// an array is that of the item whose indices are all 0, wherever it lies among the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StridedLayout {
    /// Items along each dimension; at most 32 dimensions.
    pub shape: Vec<u64>,
    /// Bytes from one item to its neighbour along each dimension; may be negative or 0.
    pub strides: Vec<i64>,
    /// Bytes of an item.
    pub itemsize: u64,
}

/// A dimension: its size, and the strides in the array and in its dense copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dim {
    pub(super) size: u64,
    pub(super) stride: i64,
    pub(super) dense: i64,
}

/// The same items as contiguous runs of bytes along few dimensions, the innermost dense one last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Merged {
    pub(super) run: u64,
    pub(super) dims: Vec<Dim>,
}

impl StridedLayout {
    /// Bytes of all items together: the length of the dense copy.
    ///
    /// # Errors
    /// When shape and strides differ in length, there are too many dimensions, or the items are
    /// more than memory can hold.
    pub fn bytes(&self) -> Result<u64, DeviceError> {
        let (shape, strides) = (self.shape.len(), self.strides.len());
        if shape != strides || shape > MOST_GIVEN {
            let message = format!("a layout of {shape} sizes and {strides} strides");
            return Err(refused(message).with_advice(format!(
                "There is one stride for each dimension, and at most {MOST_GIVEN} dimensions."
            )));
        }
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let total = self.shape.iter().try_fold(self.itemsize, |all, &size| all.checked_mul(size));
        total.filter(|&total| total <= i64::MAX as u64).ok_or_else(|| {
            refused(format!("items of {} bytes in the shape {:?}", self.itemsize, self.shape))
                .with_advice("No memory holds that much.")
        })
    }

    /// The address of the first byte and the end of the items of an array at `first`.
    ///
    /// # Errors
    /// When [`bytes`](Self::bytes) is an error, or addresses wrap around.
    pub fn extent(&self, first: u64) -> Result<(u64, u64), DeviceError> {
        if self.bytes()? == 0 {
            return Ok((first, first));
        }
        let reach = |size: &u64, stride: &i64| (i128::from(*size) - 1) * i128::from(*stride);
        let reaches = || self.shape.iter().zip(&self.strides).map(|(n, stride)| reach(n, stride));
        let first = i128::from(first);
        let low = first + reaches().filter(|&reach| reach < 0).sum::<i128>();
        let high = first + reaches().filter(|&reach| reach > 0).sum::<i128>();
        let end = high + i128::from(self.itemsize);
        u64::try_from(low).ok().zip(u64::try_from(end).ok()).ok_or_else(|| {
            refused(format!("strides {:?} lead outside of what can be addressed", self.strides))
        })
    }

    /// The dimensions after merging; `None` when there is no byte.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and when too many dimensions are left.
    pub(super) fn merged(&self) -> Result<Option<Merged>, DeviceError> {
        if self.bytes()? == 0 {
            return Ok(None);
        }
        let mut merged = Merged { run: self.itemsize, dims: Vec::new() };
        let mut dense = self.itemsize;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            // Cannot wrap: `bytes` has seen the whole product, which is below 2^63.
            let dim = Dim { size, stride, dense: dense.cast_signed() };
            dense *= size;
            if size > 1 {
                merged.add_outside(dim);
            }
        }
        merged.dims.reverse();
        if merged.dims.len() > MOST_MERGED {
            let message = format!("{} dimensions that cannot be merged", merged.dims.len());
            return Err(refused(message).with_advice(format!(
                "At most {MOST_MERGED} are taken; make a dense copy of the array first."
            )));
        }
        Ok(Some(merged))
    }

    /// Whether two items may share bytes, so that the result of writing them depends on the order.
    /// `false` is certain; `true` is also returned for layouts whose dimensions interleave without
    /// touching, which no slice or transposition of an array has.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn may_overlap(&self) -> Result<bool, DeviceError> {
        if self.bytes()? == 0 {
            return Ok(false);
        }
        let dims = self.shape.iter().zip(&self.strides).filter(|pair| *pair.0 > 1);
        let mut dims: Vec<(u64, u64)> = dims.map(|(&n, s)| (s.unsigned_abs(), n)).collect();
        dims.sort_unstable();
        let mut reach = u128::from(self.itemsize);
        for (stride, size) in dims {
            if u128::from(stride) < reach {
                return Ok(true);
            }
            reach += u128::from(stride) * u128::from(size - 1);
        }
        Ok(false)
    }
}

impl Merged {
    /// Adds a dimension of at least 2 outside of the existing ones (which are in reverse order),
    /// merged into the next one where both are contiguous in memory. In the dense copy they always
    /// are.
    fn add_outside(&mut self, dim: Dim) {
        match self.dims.last_mut() {
            None if u64::try_from(dim.stride) == Ok(self.run) => self.run *= dim.size,
            Some(inner) if spans(*inner) == i128::from(dim.stride) => inner.size *= dim.size,
            _ => self.dims.push(dim),
        }
    }
}

/// The stride of a dimension that continues where `inner` ends.
fn spans(inner: Dim) -> i128 {
    i128::from(inner.stride) * i128::from(inner.size)
}

fn refused(message: String) -> DeviceError {
    DeviceError::new(DeviceErrorKind::OutOfRange, message)
}
